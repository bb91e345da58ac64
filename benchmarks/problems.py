"""What the benchmark works on: two trained models with rows to explain, and the least that a search can cost."""

from dataclasses import dataclass

import torch
from sklearn.datasets import make_classification
from torch import Tensor, nn
from torch.nn import functional

from countertrain.constraints import Constraints
from countertrain.models.architectures import mlp
from countertrain.search.losses import predict
from countertrain.search.penalties import ScheduledEnergy
from countertrain.tables import load
from countertrain.training.methods import bl
from countertrain.training.trainer import CounterfactualTrainer

__all__ = ["MOON", "WIDE", "Problem", "bare_loop", "problems"]

MOON, WIDE = "moons-sized", "30 features"
_EPOCHS = 20  # of conventional training: a good model, and not so steep that a row could reach p = 1 - 1e-7


@dataclass(frozen=True, eq=False)
class Problem:
    """Training rows, a model of 32 hidden units trained on them, and factuals with the other class as target."""

    name: str
    x: Tensor  # (n, D)
    y: Tensor  # (n,)
    batch_size: int
    model: nn.Module
    factual: Tensor  # (m, D)
    target: Tensor  # (m,)
    free: Constraints
    """The domain of every feature, and no more."""
    tight: Constraints
    """The domain, one feature immutable, and one that may only increase."""

    def validity(self, x_ce: Tensor) -> float:
        """Share of counterfactuals (of the first factuals) that the model gives more than even odds."""
        with torch.no_grad():
            return float((predict(self.model(x_ce)) == self.target[: len(x_ce)]).float().mean())


def problems(n_rows: int) -> list[Problem]:
    """The two problems, with so many rows to explain."""
    moons = load("moons").train
    x, y = make_classification(10_000, 30, n_informative=10, n_redundant=5, random_state=0)
    rows = torch.from_numpy(x).float()
    rows = (rows - rows.mean(0)) / rows.std(0)
    return [
        _problem(MOON, moons.x, moons.y, 30, n_rows),
        _problem(WIDE, rows, torch.from_numpy(y).long(), 128, n_rows),
    ]


def _problem(name: str, x: Tensor, y: Tensor, batch_size: int, n_rows: int) -> Problem:
    model = mlp(x.shape[1], 2, seed=0)
    CounterfactualTrainer(objective=bl(), epochs=_EPOCHS, batch_size=batch_size).fit(model, x, y)
    model.eval()
    factual = x[:n_rows].clone()
    with torch.no_grad():
        target = 1 - predict(model(factual))
    tight = Constraints.infer(x, mutability={0: "none", 1: "increase"})
    return Problem(name, x, y, batch_size, model, factual, target, Constraints.infer(x), tight)


def bare_loop(model: nn.Module, x0: Tensor, target: Tensor, n_steps: int, *, energy: bool = True) -> Tensor:
    """What any search must pay: no constraints, no nascent rows, no maturity test.

    With `energy`, over the objective of ECCCo; without it over cross-entropy alone.
    """
    x = x0.clone()
    for k in range(1, n_steps + 1):
        x.requires_grad_()
        logits = model(x)
        loss = functional.cross_entropy(logits, target, reduction="sum")
        if energy:
            e = -logits.gather(1, target.unsqueeze(1)).squeeze(1)
            weight = 5.0 * ScheduledEnergy.phi(k, n_steps)
            loss = loss + 0.001 * (x - x0).abs().sum() + weight * (e + 1e-3 * e.square()).sum()
        (grad,) = torch.autograd.grad(loss, x)
        x = (x - 0.1 * grad).detach()
    return x
