"""Part (c), populations: seconds per model when many are trained at once, eager and compiled."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pandas as pd

from benchmarks.measuring import AbsentError, Budget, Measurement, Part, Say, fastest, guard
from countertrain.runs.registry import build_models, build_trainer
from countertrain.runs.settings import Settings
from countertrain.tables import Dataset, load

__all__ = ["measure_populations"]

Key = tuple[str, int]
"""Eager or compiled, and the number of models."""

_JUDGED = 64  # models, for which there are bars
_BARS = {"eager": 0.8, "compiled": 0.3}  # seconds per model


def measure_populations(budget: Budget, say: Say) -> Part:
    """Populations on moons with the final settings, a hundred epochs."""
    data = load("moons")
    eager: dict[Key, Callable[[], None]] = {
        ("eager", size): partial(_fit, data, size, budget.epochs) for size in budget.sizes
    }
    compiled, first, trouble = _warm_up(data, budget, say)
    say(f"populations of {', '.join(map(str, budget.sizes))}, {budget.epochs} epochs each")
    fits: dict[Key, Callable[[], object]] = {**eager, **compiled}
    seconds = dict(zip(fits, fastest(list(fits.values()), 2, patience=budget.patience), strict=True))
    hundred, smallest = 100 / budget.epochs, min(budget.sizes)
    alone = seconds["eager", smallest] / smallest
    rows = []
    for key in (*eager, *(("compiled", size) for size in budget.sizes if budget.compiled)):
        mode, size = key
        took = seconds.get(key, math.nan)
        rows.append(
            {
                "steps": mode,
                "models": size,
                "seconds per model": hundred * took / size,
                "times cheaper than one alone": alone * size / took,
                "compile time (s)": first.get(key, took) - took,
                "note": "" if key in seconds else trouble,
            }
        )
    table = pd.DataFrame(rows)
    return Part("populations", table, _measurements(table, budget.sizes))


def _warm_up(data: Dataset, budget: Budget, say: Say) -> tuple[dict[Key, Callable[[], None]], dict[Key, float], str]:
    """Compiled populations that were trained once, the seconds that took, and why there are no more of them."""
    fits: dict[Key, Callable[[], None]] = {}
    first: dict[Key, float] = {}
    for size in budget.sizes if budget.compiled else ():
        say(f"a population of {size}, compiled for the first time")
        run = guard(partial(_fit, data, size, budget.epochs, compiled=True))
        started = time.perf_counter()
        try:
            run()
        except AbsentError as why:
            say(f"compiled training: {why} ({why.__cause__})")
            return fits, first, str(why)
        first["compiled", size] = time.perf_counter() - started
        fits["compiled", size] = run
    return fits, first, ""


def _fit(data: Dataset, size: int, epochs: int, *, compiled: bool = False) -> None:
    settings = Settings.resolve("moons", {"epochs": epochs, "seeds": list(range(size))})
    trainer = build_trainer(settings, data)
    replace(trainer, compiled=compiled).fit(build_models(settings, data), data.train.x, data.train.y)


def _measurements(table: pd.DataFrame, sizes: Sequence[int]) -> list[Measurement]:
    judged = _JUDGED if _JUDGED in sizes else max(sizes)
    of_size = table[table["models"] == judged].set_index("steps")
    measurements = []
    for mode, row in of_size.iterrows():
        note = str(row["note"]) or "on moons, final settings"
        if mode == "compiled" and not row["note"]:
            note += f"; {row['compile time (s)']:.0f} s to compile"
        what = f"population of {judged}, {mode}, 100 epochs: a model"
        measurements.append(Measurement(what, float(row["seconds per model"]), "s", _BARS[str(mode)], False, note))
    alone = table[(table["models"] == min(sizes)) & (table["steps"] == "eager")]["seconds per model"].iloc[0]
    cheaper = float(of_size["times cheaper than one alone"]["eager"])
    what = f"population of {judged}, eager: times cheaper a model than alone"
    measurements.append(Measurement(what, cheaper, "x", 10.0, True, f"a single run takes {alone:.1f} s"))
    return measurements
