"""Whether a run is long enough for compiled code: by what it has to do, so that equal settings get equal answers."""

import math
from collections.abc import Callable

from countertrain.models.kernels import find_compiler
from countertrain.runs.registry import batch_size_for
from countertrain.runs.settings import Settings
from countertrain.training.ct import default_n_ce

__all__ = ["choose_compiled", "seconds_saved"]

_UPDATE = 5e-4  # seconds that compiled code saves on an update of the weights, at least, however many models there are
_ROW = 2e-6  # and on a counterfactual of a model; both of one core, see docs/performance.md
_WIDE = 128  # features from which matrix products dominate, compiled or not
_OTHERWISE = ("revise", "growing_spheres", "probe", "nearest", "face", "amortised")  # searches that gain nothing by it
_SEARCHING = ("ct", "ar", "cd", "taught")  # methods whose search is compiled
_COMPILING = 80.0  # seconds, most of them the C++ compiler's
_WORTH = 3  # times the compiling that must be saved


def choose_compiled(settings: Settings, n_rows: int, n_features: int, say: Callable[[str], None]) -> bool:
    """Whether to compile unasked: where it saves several times what it takes, and there is a compiler."""
    saved = seconds_saved(settings, n_rows, n_features)
    if saved < _WORTH * _COMPILING:
        return False
    if find_compiler() is None:
        say(f"compiled code would save about {_minutes(saved)}, but there is no C++ compiler here; plain code it is")
        return False
    say(f"this run is long: compiling it first saves about {_minutes(saved)} (--no-compile keeps to plain code)")
    return True


def seconds_saved(settings: Settings, n_rows: int, n_features: int) -> float:
    """What compiled code saves in all epochs with a search, estimated with care."""
    if (
        settings.objective not in _SEARCHING
        or settings.model == "lenet"
        or settings.generator in _OTHERWISE
        or n_features > _WIDE
    ):
        return 0.0
    epochs = settings.epochs - round(settings.burn_in * settings.epochs)
    updates = math.ceil(n_rows / batch_size_for(settings, n_rows))
    n_ce = default_n_ce(n_rows) if settings.n_ce is None else settings.n_ce
    return epochs * (updates * _UPDATE + len(settings.seeds) * n_ce * _ROW)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
