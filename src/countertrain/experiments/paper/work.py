"""Many cells on few cores: processes side by side, one thread each."""

import multiprocessing
import os
import threading
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
    progress: Callable[[float, float], None] = lambda done, total: None,
) -> None:
    """Compute every cell that is not stored yet; finished cells and epochs survive a kill."""
    ordered = sorted(cells, key=lambda cell: -cost(cell))
    total = sum(cost(cell) for cell in cells)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_set_up, initargs=(os.getpid(),)) as pool:
        futures = {pool.submit(compute, cell, effort, results, runs): cell for cell in ordered}
        done = 0.0
        progress(done, total)
        for future in as_completed(futures):
            future.result()
            done += cost(futures[future])
            progress(done, total)


def cost(cell: Cell) -> float:
    """Relative cost of a cell; conventional training is cheap."""
    return _WEIGHT.get(cell.data, 1) * (0.15 if cell.objective == "bl" else 1.0)


def _set_up(parent: int) -> None:
    """One thread a worker, and none outlives the process that started it, however that one ends."""
    torch.set_num_threads(1)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
