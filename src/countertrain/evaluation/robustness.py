"""Accuracy under attack, for one model or a population; the attacks are generators like any other."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from countertrain.constraints import Constraints
from countertrain.models.population import Models, as_population
from countertrain.search.generator import Generator
from countertrain.search.generators import fgsm, pgd
from countertrain.search.losses import predict

__all__ = ["ATTACKS", "robust_accuracy"]

_BUDGET = 2**23  # numbers in one tensor of attacked rows: 32 MB of float32

ATTACKS: Mapping[str, Callable[[float], Generator]] = {"fgsm": fgsm, "pgd": pgd}
"""By name, for a radius epsilon in the sup-norm."""


def robust_accuracy(
    model: nn.Module | Models,
    x: Tensor,
    y: Tensor,
    *,
    epsilons: Sequence[float],
    attack: str = "fgsm",
    seed: int = 0,
    clip: tuple[float, float] | None = None,
) -> Tensor:
    """Accuracy of each model on attacked rows x (n, *shape) of classes y (n,), for each epsilon: (P, len(epsilons))."""
    if attack not in ATTACKS:
        raise ValueError(f"attack must be {' or '.join(map(repr, ATTACKS))}; got {attack!r}")
    population = as_population(model)
    size = len(population)
    part = max(1, _BUDGET // (size * x[0].numel()))
    limits = None if clip is None else Constraints.of(x.shape[1:], lower=clip[0], upper=clip[1])
    results = []
    for epsilon in epsilons:
        correct = torch.zeros(size, dtype=torch.float64, device=x.device)
        for rows, labels in zip(x.split(part), y.split(part), strict=True):
            rows, labels = rows.expand(size, *rows.shape), labels.expand(size, -1)
            attacked = ATTACKS[attack](epsilon)(population, rows, labels, constraints=limits, seed=seed).x
            with torch.no_grad(), population.evaluating():
                correct += (predict(population(attacked)) == labels).sum(-1)
        results.append(correct / len(x))
    return torch.stack(results, dim=-1)
