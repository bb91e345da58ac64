"""Speed as ratios, measured side by side in one run, one thread: `countertrain bench`."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from countertrain.constraints import Constraints
from countertrain.data import load
from countertrain.experiments.build import build_models, build_trainer
from countertrain.experiments.settings import Settings
from countertrain.losses import predict
from countertrain.models import mlp
from countertrain.search.generators import EnergyPenalty, eccco
from countertrain.trainer import CounterfactualTrainer

__all__ = ["Measurement", "bench"]

_ROWS, _STEPS = 1000, 30


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
        """Whether the bar is passed."""
        return self.value >= self.bar if self.at_least else self.value <= self.bar


def bench(
    *, repeats: int = 15, population: int = 64, epochs: int = 100, say: Callable[[str], None] = lambda text: None
) -> list[Measurement]:
    """All measurements of the core, a few minutes in all."""
    results: list[Measurement] = []
    for n_features, name in ((2, "moons-sized"), (30, "30 features")):
        say(f"search, {name}")
        results += _search(n_features, name, repeats)
    say("one epoch of CT")
    results.append(_epoch(max(3, repeats // 3)))
    say(f"a single model on moons, then {population} as a population, {epochs} epochs each")
    results += _population(population, epochs)
    return results


def bare_loop(model: nn.Module, x0: Tensor, target: Tensor, n_steps: int, *, energy: bool = True) -> Tensor:
    """What any search must pay: the same objective, no constraints, no nascent rows, no maturity test."""
    x = x0.clone()
    for k in range(1, n_steps + 1):
        x.requires_grad_()
        logits = model(x)
        loss = functional.cross_entropy(logits, target, reduction="sum")
        if energy:
            e = -logits.gather(1, target.unsqueeze(1)).squeeze(1)
            weight = 5.0 * EnergyPenalty.phi(k, n_steps)
            loss = loss + 0.001 * (x - x0).abs().sum() + weight * (e + 1e-3 * e.square()).sum()
        (grad,) = torch.autograd.grad(loss, x)
        x = (x - 0.1 * grad).detach()
    return x


def fastest(tasks: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """The least time of each task, in seconds; tasks take turns, so that noise hits them alike."""
    times = [[float("inf")] for _ in tasks]
    for _ in range(repeats + 1):
        for task, mine in zip(tasks, times, strict=True):
            started = time.perf_counter()
            task()
            mine.append(time.perf_counter() - started)
    return [min(mine[2:]) for mine in times]  # the first turn warms up


def _search(n_features: int, name: str, repeats: int) -> list[Measurement]:
    stream = torch.Generator().manual_seed(0)
    x = torch.randn(_ROWS, n_features, generator=stream)
    y = (x[:, 0] + x[:, 1] > 0).long()
    constraints = Constraints.infer(x, mutability={0: "none", 1: "increase"})
    flat = mlp(n_features, 2, seed=0)
    steep = mlp(n_features, 2, seed=0)
    CounterfactualTrainer(epochs=30, batch_size=30).fit(steep, x, y)
    other = 1 - predict(flat(x).detach())
    never, early = eccco(tau=1 - 1e-7, n_steps=_STEPS), eccco(tau=0.75, n_steps=_STEPS)
    free = Constraints.infer(x)
    turned = 1 - predict(steep(x).detach())
    assert not never(flat, x, other, constraints=constraints).mature.any()
    steps = early(steep, x, turned, constraints=free).n_steps.float().mean()
    ours, bare, ce_only, ours_early, bare_steep = fastest(
        [
            lambda: never(flat, x, other, constraints=constraints),
            lambda: bare_loop(flat, x, other, _STEPS),
            lambda: bare_loop(flat, x, other, _STEPS, energy=False),
            lambda: early(steep, x, turned, constraints=free),
            lambda: bare_loop(steep, x, turned, _STEPS),
        ],
        repeats,
    )
    rate = f"{_ROWS / ours:,.0f} rows/s; bare loop {_ROWS / bare:,.0f}, over cross-entropy alone {_ROWS / ce_only:,.0f}"
    return [
        Measurement(f"search, {name}, no row maturing: share of a bare loop", bare / ours, "x", 0.5, True, rate),
        Measurement(
            f"search, {name}, rows maturing early: share of a bare loop",
            bare_steep / ours_early,
            "x",
            1.0,
            True,
            f"{_ROWS / ours_early:,.0f} rows/s, {steps:.1f} steps a row on average",
        ),
    ]


def _epoch(repeats: int) -> Measurement:
    """One CT epoch against a conventional one plus the bare cost of its search passes."""
    data = load("moons")
    settings = Settings.resolve("moons", {"epochs": 1})
    ct = build_trainer(settings, data)
    bl = build_trainer(Settings.resolve("moons", {"epochs": 1, "objective": "bl"}), data)
    model = build_models(settings, data)[0]
    replace(ct, epochs=10).fit(model, data.train.x, data.train.y)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    x, y = data.train.x, data.train.y
    steps: list[float] = []

    def treated() -> None:
        model.load_state_dict(before)
        steps.append(ct.fit(model, x, y)["n_steps"][0][0])

    def conventional() -> None:
        model.load_state_dict(before)
        bl.fit(model, x, y)

    treated()
    passes = round(steps[0]) + 1
    target = 1 - predict(model(x[:_ROWS]).detach())
    slow, fast, bare = fastest([treated, conventional, lambda: bare_loop(model, x[:_ROWS], target, passes)], repeats)
    note = (
        f"CT {1e3 * slow:.0f} ms, conventional {1e3 * fast:.0f} ms, bare search {1e3 * bare:.1f} ms "
        f"({passes} passes of {_ROWS} rows)"
    )
    return Measurement(
        "a CT epoch on moons: times a conventional one plus bare search", slow / (fast + bare), "x", 2.5, False, note
    )


def _population(size: int, epochs: int) -> list[Measurement]:
    """A population on moons with the final settings, against a single run."""
    data = load("moons")

    def seconds(n: int) -> float:
        settings = Settings.resolve("moons", {"epochs": epochs, "seeds": list(range(n))})
        models, trainer = build_models(settings, data), build_trainer(settings, data)
        started = time.perf_counter()
        trainer.fit(models, data.train.x, data.train.y)
        return (time.perf_counter() - started) / n * 100 / epochs

    alone = min(seconds(1) for _ in range(2))
    together = seconds(size)
    note = f"a single run takes {alone:.1f} s"
    return [
        Measurement(f"population of {size} on moons, 100 epochs: a model", together, "s", 1.2, False, note),
        Measurement(f"population of {size}: times cheaper a model than alone", alone / together, "x", 10.0, True, note),
    ]
