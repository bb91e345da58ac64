"""The parts of the benchmark by name, and all of them in one run."""

from collections.abc import Callable, Iterable

import torch

from benchmarks.explaining import measure_explaining
from benchmarks.fitting import measure_fitting
from benchmarks.grid import measure_grid
from benchmarks.growth import measure_growth
from benchmarks.measuring import FULL, Budget, Part, Say
from benchmarks.populations import measure_populations
from benchmarks.search import measure_search
from benchmarks.training import measure_training
from countertrain.words import suggest

__all__ = ["PARTS", "bench"]

PARTS: dict[str, Callable[[Budget, Say], Part]] = {
    "search": measure_search,
    "training": measure_training,
    "fitting": measure_fitting,
    "populations": measure_populations,
    "growth": measure_growth,
    "explaining": measure_explaining,
    "grid": measure_grid,
}


def bench(
    parts: Iterable[str] = ("search", "training", "fitting", "populations", "growth"),
    *,
    budget: Budget = FULL,
    say: Say = lambda text: None,
) -> list[Part]:
    """Measure these parts, one after another, on one thread (the grid: one per worker)."""
    wanted = list(parts)
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        raise ValueError(f"the benchmark has no part {unknown[0]!r}; {suggest(unknown[0], PARTS)}")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [PARTS[name](budget, say) for name in wanted]
    finally:
        torch.set_num_threads(threads)
