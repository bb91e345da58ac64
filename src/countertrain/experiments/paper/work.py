"""Many cells on few cores: processes side by side, one thread each."""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import torch

from countertrain.experiments.paper.cells import Cell, Effort, compute

__all__ = ["compute_all"]

_WEIGHT = {"mnist": 40, "adult": 12, "credit": 5, "gmsc": 4, "california": 4}  # rough cost, to start the longest first


def compute_all(
    cells: Sequence[Cell],
    effort: Effort,
    results: Path,
    runs: Path,
    *,
    workers: int,
    done: Callable[[Cell, float], None] = lambda cell, seconds: None,
) -> None:
    """Compute every cell that is not stored yet; finished cells and epochs survive a kill."""
    ordered = sorted(cells, key=lambda cell: -cost(cell))
    if workers == 1:
        for cell in ordered:
            done(cell, _work(cell, effort, results, runs))
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        futures = {pool.submit(_work, cell, effort, results, runs): cell for cell in ordered}
        for future in as_completed(futures):
            done(futures[future], future.result())


def cost(cell: Cell) -> float:
    """Relative cost of a cell; conventional training is cheap."""
    return _WEIGHT.get(cell.data, 1) * (0.15 if cell.objective == "bl" else 1.0)


def _work(cell: Cell, effort: Effort, results: Path, runs: Path) -> float:
    torch.set_num_threads(1)
    started = time.perf_counter()
    compute(cell, effort, results, runs)
    return time.perf_counter() - started
