"""Part (e), the grid: 270 models of moons, trained and evaluated, beside the published times."""

import os
import tempfile
import time
from pathlib import Path

import pandas as pd

from benchmarks.measuring import Budget, Measurement, Part, Say
from countertrain.runs.work import run_all
from reproduction.grids import grid_tasks

__all__ = ["measure_grid"]

_PUBLISHED_MINUTES, _PUBLISHED_CPUS = (
    49.0,
    34,
)  # training of the same grid; its evaluation took up to an hour on 20 CPUs
_BAR = 6.0  # minutes on two cores
_WORKERS = 2


def measure_grid(budget: Budget, say: Say) -> Part:
    """The grid of generator parameters, from nothing to outcomes; always all of it, whatever the budget."""
    workers = min(_WORKERS, os.cpu_count() or 1)
    say(f"the grid of 270 models of moons, {workers} workers")
    with tempfile.TemporaryDirectory() as folder:
        tasks = grid_tasks("grid gen-params", "moons", Path(folder))
        started, before = time.perf_counter(), _children()
        run_all(tasks, workers=workers)
        wall, cpu = (time.perf_counter() - started) / 60, (_children() - before) / 60
    published = _PUBLISHED_MINUTES * _PUBLISHED_CPUS
    table = pd.DataFrame(
        [
            _row("ours", "training and evaluation", workers, wall, cpu),
            _row("published", "training", _PUBLISHED_CPUS, _PUBLISHED_MINUTES, published),
        ]
    )
    note = f"{cpu:.1f} minutes of CPU time on {workers} cores; published {published:,.0f} for training alone"
    what = "the 270 models of the grid gen-params, moons, trained and evaluated: wall time"
    return Part("grid", table, [Measurement(what, wall, "min", _BAR, False, note)])


def _row(whose: str, what: str, cpus: int, wall: float, cpu: float) -> dict[str, object]:
    return {"whose": whose, "what": what, "CPUs": cpus, "wall time (min)": wall, "CPU time (min)": cpu}


def _children() -> float:
    """CPU seconds of all processes that were started here and have ended."""
    times = os.times()
    return times.children_user + times.children_system
