"""How speed is measured: contenders take turns, the least time counts, growth is a slope."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

__all__ = [
    "FULL",
    "QUICK",
    "AbsentError",
    "Budget",
    "Contender",
    "Measurement",
    "Part",
    "Say",
    "Timing",
    "fastest",
    "guard",
    "race",
    "slope",
]

Say = Callable[[str], None]


@dataclass(frozen=True)
class Measurement:
    """A claim about speed: what was measured, against what, and the bar it has to pass."""

    what: str
    value: float
    unit: str
    bar: float
    at_least: bool
    note: str

    @property
    def holds(self) -> bool:
        """Whether the bar is passed; what could not be measured passes none."""
        return self.value >= self.bar if self.at_least else self.value <= self.bar


@dataclass(frozen=True, eq=False)
class Part:
    """What one part of the benchmark found: a table of everything, and the claims that have a bar."""

    name: str
    table: pd.DataFrame
    measurements: Sequence[Measurement]


@dataclass(frozen=True)
class Budget:
    """How much is measured, and how often; the defaults are those of the published page."""

    repeats: int = 15
    """Turns of each contender; the fastest counts."""
    patience: float = 20.0
    """Seconds of turns after which a slow contender takes no more of them; it always has one."""
    n_rows: int = 1000
    """Rows searched at once."""
    n_steps: int = 30
    """T, steps of each search, and of each attack in training."""
    dice_rows: int = 10
    """Rows for DiCE, which takes them one by one, at about a second each."""
    compiled: bool = True
    """Whether our code is measured compiled, too."""
    sizes: tuple[int, ...] = (1, 4, 16, 64, 256)
    """P, models trained at once."""
    epochs: int = 100
    """Epochs of the populations; seconds are given for a hundred."""
    n_people: int = 10_000
    """People who are given advice, and rows of their table."""
    growth: Mapping[str, tuple[int, ...]] = field(
        default_factory=lambda: {
            "n_ce": (4096, 8192, 16384, 32768, 65536),
            "T": (10, 20, 40, 80, 160),
            "D": (8, 16, 32, 64, 128, 256),
            "K": (2, 4, 8, 16, 32, 64),
            "n": (2000, 4000, 8000, 16000, 32000),
        }
    )
    """Sizes along each axis of growth."""


FULL = Budget()
QUICK = Budget(
    repeats=3,
    patience=1.0,
    dice_rows=3,
    compiled=False,
    sizes=(1, 4),
    epochs=2,
    n_people=300,
    growth={"n_ce": (2048, 4096), "T": (10, 20), "D": (8, 16), "K": (2, 4), "n": (1000, 2000)},
)
"""Everything once, in a minute or two; its numbers are rough."""


class AbsentError(Exception):
    """A contender cannot take part; the message says why in two or three words."""


@dataclass(frozen=True, eq=False)
class Contender:
    """Something that is timed beside others."""

    name: str
    run: Callable[[], Any]
    """Does all of its work before it returns; raises AbsentError if it cannot take part."""
    note: str = ""


@dataclass(frozen=True, eq=False)
class Timing:
    """What a contender took and returned; NaN and None if it could not take part."""

    seconds: float
    """The least time of all its turns."""
    first: float
    """Seconds of its first call of all, in which code is compiled."""
    result: Any
    note: str
    """Its own, or why it is absent."""


def race(contenders: Sequence[Contender], budget: Budget, say: Say) -> dict[str, Timing]:
    """Time all contenders side by side; one that is absent, or fails in a later turn, is named with the reason."""
    first: dict[str, float] = {}
    results: dict[str, Any] = {}
    absent: dict[str, AbsentError] = {}

    def call(contender: Contender) -> None:
        if contender.name not in absent:
            try:
                results[contender.name] = contender.run()
            except AbsentError as why:
                absent[contender.name] = why
                say(f"{contender.name}: {why}" + (f" ({why.__cause__})" if why.__cause__ else ""))

    for contender in contenders:
        started = time.perf_counter()
        call(contender)
        first[contender.name] = time.perf_counter() - started
    seconds = fastest([partial(call, c) for c in contenders], budget.repeats, patience=budget.patience)
    return {
        c.name: Timing(math.nan, math.nan, None, str(absent[c.name]))
        if c.name in absent
        else Timing(least, first[c.name], results[c.name], c.note)
        for c, least in zip(contenders, seconds, strict=True)
    }


def guard(run: Callable[[], Any]) -> Callable[[], Any]:
    """Code of others, or code that others compile: whatever it raises makes it absent, and not the benchmark fail."""

    def call() -> Any:
        try:
            return run()
        except Exception as error:
            raise AbsentError(f"failed ({type(error).__name__})") from error

    return call


def fastest(tasks: Sequence[Callable[[], object]], repeats: int, *, patience: float = math.inf) -> list[float]:
    """The least time of each task, in seconds; tasks take turns, so that noise hits them alike.

    The first turn warms up, and counts only for a task that has used up its `patience` (in seconds) with it.
    """
    times: list[list[float]] = [[] for _ in tasks]
    for _ in range(repeats + 1):
        for task, mine in zip(tasks, times, strict=True):
            if sum(mine) <= patience:
                started = time.perf_counter()
                task()
                mine.append(time.perf_counter() - started)
    return [min(mine[1:] or mine) for mine in times]


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The exponent b of the power law values = a * sizes^b that fits best, on logarithmic scales."""
    x, y = np.asarray(sizes, dtype=float), np.asarray(values, dtype=float)
    if len(np.unique(x)) < 2 or not ((x > 0).all() and (y > 0).all()):
        raise ValueError(f"a slope needs two sizes and positive numbers; got {list(sizes)} and {list(values)}")
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
