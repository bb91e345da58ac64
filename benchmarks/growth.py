"""Part (d), growth: time and peak memory against n_ce, T, D, K and n, with slopes on logarithmic scales."""

import math
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import torch

from benchmarks.measuring import Budget, Measurement, Part, Say, fastest, slope
from countertrain.constraints import Constraints
from countertrain.models.architectures import mlp
from countertrain.search.generators import eccco
from countertrain.training.trainer import CounterfactualTrainer

__all__ = ["AXES", "Load", "measure_growth", "peak_memory"]

_PEAK, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
_MB = 2**20


@dataclass(frozen=True)
class Load:
    """The size of a search, or of an epoch of training on n rows."""

    n_ce: int = 4096
    n_steps: int = 30
    n_features: int = 30
    n_classes: int = 2
    n: int | None = None
    """Rows of an epoch; None: the search alone."""

    def prepare(self) -> Callable[[], object]:
        """The work itself, with everything built that it needs; no row matures, so that all make all steps."""
        stream = torch.Generator().manual_seed(0)
        n = self.n if self.n is not None else self.n_ce
        x = torch.randn(n, self.n_features, generator=stream)
        y = torch.arange(n) % self.n_classes
        model = mlp(self.n_features, self.n_classes, seed=0)
        constraints = Constraints.infer(x, mutability={0: "none", 1: "increase"})
        generator = eccco(tau=1 - 1e-7, n_steps=self.n_steps)
        if self.n is None:
            return lambda: generator(model, x, y, constraints=constraints)
        trainer = CounterfactualTrainer(generator=generator, constraints=constraints, epochs=1, n_ce=self.n_ce)
        return lambda: trainer.fit(model, x, y)


@dataclass(frozen=True)
class Axis:
    """One of the sizes that grow, all others kept."""

    what: str
    load: Callable[[int], Load]
    linear: bool
    """Whether time is to grow as the size does; else at most so."""
    memory: float | None
    """The most that the slope of memory may be; None: any."""


AXES = {
    "n_ce": Axis("rows searched", lambda v: Load(n_ce=v), True, 1.1),
    "T": Axis("steps of a search", lambda v: Load(n_steps=v), True, 0.1),
    "D": Axis("features", lambda v: Load(n_features=v), False, None),
    "K": Axis("classes", lambda v: Load(n_classes=v), False, None),
    "n": Axis("training rows, an epoch", lambda v: Load(n_ce=min(1000, v), n=v), True, None),
}
"""By the paper's symbols."""


def measure_growth(budget: Budget, say: Say) -> Part:
    """Time and memory along each axis."""
    rows: list[dict[str, object]] = []
    measurements: list[Measurement] = []
    for name, sizes in budget.growth.items():
        say(f"growth with {name}, {AXES[name].what}")
        loads = [AXES[name].load(size) for size in sizes]
        seconds = fastest([load.prepare() for load in loads], budget.repeats, patience=budget.patience)
        memory = _peaks(loads)
        rows += [
            {"axis": name, "size": size, "ms": 1e3 * s, "peak MB": m / _MB}
            for size, s, m in zip(sizes, seconds, memory, strict=True)
        ]
        measurements += _measurements(name, sizes, seconds, memory)
    return Part("growth", pd.DataFrame(rows), measurements)


def _measurements(
    name: str, sizes: Sequence[int], seconds: Sequence[float], memory: Sequence[float]
) -> list[Measurement]:
    axis = AXES[name]
    over = f"{axis.what}, {sizes[0]:,} to {sizes[-1]:,}"
    b = slope(sizes, seconds)
    if axis.linear:
        what, value, bar = f"time against {name}: distance of the slope from 1", abs(b - 1), 0.1
    else:
        what, value, bar = f"time against {name}: slope", b, 1.1
    found = [Measurement(what, value, "", bar, False, f"slope {b:.2f}; {over}")]
    if axis.memory is not None and not any(map(math.isnan, memory)):
        note = f"{memory[0] / _MB:.1f} to {memory[-1] / _MB:.1f} MB; {over}"
        what = f"peak memory against {name}: slope"
        found.append(Measurement(what, slope(sizes, memory), "", axis.memory, False, note))
    return found


def _peaks(loads: Sequence[Load]) -> list[float]:
    """Peak memory of each load, each in a process of its own: what one leaves behind would hide the next."""
    if not _PEAK.exists():  # only Linux tells
        return [math.nan] * len(loads)
    context = multiprocessing.get_context("forkserver")  # imports once, and forks from there
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        return list(pool.map(peak_memory, loads))


def peak_memory(load: Load) -> float:
    """Bytes that the work of a load needs at its peak, above what was there before it."""
    torch.set_num_threads(1)
    small = replace(load, n_ce=min(load.n_ce, 64), n_steps=2, n=None if load.n is None else 64)
    small.prepare()()  # libraries load some of themselves when they are first used
    work = load.prepare()
    _PEAK.write_text("5", encoding="ascii")  # the peak is now what there is
    before = _resident("VmRSS")
    work()
    return max(_resident("VmHWM") - before, 1.0)


def _resident(field: str) -> float:
    line = next(line for line in _STATUS.read_text(encoding="ascii").splitlines() if line.startswith(field))
    return 1024.0 * int(line.split()[1])
