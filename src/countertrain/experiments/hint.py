"""A word on compiling while a run is young, where it would pay (docs/design.md says why it is only a word)."""

from collections.abc import Callable

from countertrain.experiments.settings import Settings
from countertrain.history import EpochRecord
from countertrain.trainer import Callback

__all__ = ["compile_hint"]

_TIMED = 3  # epochs before it speaks; the fastest of them counts
_SAVED = 0.25  # of the time: measured for one model on moons (0.15 for 0.20 s an epoch); populations save more
_COMPILING = 60.0  # seconds; half a minute of that is torch's own, the rest the C++ compiler's
_WORTH = 3  # times the compiling that the saving must be
_WIDE = 128  # features from which matrix products dominate, compiled or not


def compile_hint(settings: Settings, n_features: int, say: Callable[[str], None]) -> Callback:
    """A callback that says what compiling would save, once, if that is several times what it takes."""
    searching = settings.objective != "bl"
    pays = settings.model != "lenet" and settings.generator != "revise" and n_features <= _WIDE and searching
    timed: list[float] = []

    def watch(record: EpochRecord) -> None:
        if pays and "mature" in record.metrics:  # not while it burns in
            timed.append(record.seconds)
        if len(timed) != _TIMED:
            return
        left = min(timed) * (record.n_epochs - record.epoch)
        saved = _SAVED * left - _COMPILING
        if saved >= _WORTH * _COMPILING:
            say(
                f"compiled code would save about {_minutes(saved)} of the {_minutes(left)} that are left: stop with "
                "Ctrl-C, go on with --resume --compile (the weights are the same up to rounding)"
            )

    return watch


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
