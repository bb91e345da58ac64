"""The paper's evaluation: rounds of individuals, searched with ECCCo over a grid of energy weights.

All rounds, energy weights and models go through the search in a few large calls.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor, nn

from countertrain.constraints import Constraints
from countertrain.evaluation.divergence import GroupedDivergence
from countertrain.evaluation.metrics import Implausibility, cost, sparsity, validity
from countertrain.losses import predict
from countertrain.population import Population
from countertrain.search.generators import eccco
from countertrain.search.rules import SGD

__all__ = ["Protocol", "evaluate"]

_BUDGET = 2**23  # numbers in one tensor of a search call: 32 MB of float32
_METRICS = ("validity", "maturity", "n_steps", "ip", "ip_star", "cost", "sparsity")


@dataclass(frozen=True)
class Protocol:
    """How counterfactuals are drawn and searched at test time (REFERENCE values, as run)."""

    rounds: int = 100
    """J, bootstrap rounds."""
    individuals: int = 250
    """Individuals drawn in each round for each energy weight."""
    lambda_egy: tuple[float, ...] = (0.1, 0.5, 1.0, 5.0, 10.0)
    lambda_cost: float = 0.0
    tau: float = 0.95
    """0.95 for plausibility, 0.5 for the cost of just valid counterfactuals under constraints."""
    n_steps: int = 50
    step_size: float = 0.1
    schedule: bool = True
    rho: float = 1e-3
    length_scale: float = 5.0
    """Of the kernel in IP*: 5.0 as run, 0.5 as written."""
    seed: int = 0


def evaluate(
    models: Sequence[nn.Module] | Population,
    x: Tensor,
    y: Tensor,
    *,
    n_classes: int,
    constraints: Constraints | None = None,
    protocol: Protocol | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> pd.DataFrame:
    """Outcomes on test rows x (n, D) with classes y (n,): one row for each model, energy weight and round.

    For each round, factual and target classes are drawn once for all models; each model then explains random test rows
    that it puts into the factual class itself. Metrics are means over the round's individuals; all but validity,
    maturity and steps are over valid counterfactuals only.
    """
    protocol = protocol or Protocol()
    population = models if isinstance(models, Population) else Population(models)
    stream = torch.Generator().manual_seed(protocol.seed)
    size, n = len(population), protocol.individuals
    grid = [(weight, j) for weight in protocol.lambda_egy for j in range(protocol.rounds)]
    with population.evaluating(), torch.no_grad():
        predicted = predict(population(x.expand(size, -1, -1)))  # (P, N)
    by_class = predicted.argsort(dim=1, stable=True)
    counts = torch.stack([(predicted == k).sum(1) for k in range(n_classes)], dim=1)  # (P, K)
    starts = counts.cumsum(1) - counts
    ip = Implausibility.of(x, y, n_classes)
    divergence = GroupedDivergence(x, y, n_classes, length_scale=protocol.length_scale)
    frames = []
    blocks = max(1, _BUDGET // (size * n * max(x.shape[1], 32)))
    for first in range(0, len(grid), blocks):
        part = grid[first : first + blocks]
        shape = (len(part), n)
        label = torch.randint(n_classes, shape, generator=stream)  # (k, n)
        target = torch.randint(n_classes - 1, shape, generator=stream)
        target = target + (target >= label)
        u = torch.rand((size, *shape), generator=stream, dtype=torch.float64)
        wanted = label.flatten().expand(size, -1).to(x.device)  # (P, k n)
        available = counts.gather(1, wanted)
        place = (u.flatten(1).to(x.device) * available).long()
        rows = by_class.gather(1, (starts.gather(1, wanted) + place).clamp(max=len(x) - 1))
        generator = eccco(
            lambda_cost=protocol.lambda_cost,
            lambda_egy=torch.tensor([[weight] * n for weight, _ in part]).reshape(1, -1),
            schedule=protocol.schedule,
            rho=protocol.rho,
            rule=SGD(protocol.step_size),
            n_steps=protocol.n_steps,
            tau=protocol.tau,
        )
        found = generator(
            population, x[rows], target.flatten().expand(size, -1).contiguous().to(x.device), constraints=constraints
        )
        with population.evaluating(), torch.no_grad():
            reached = validity(population(found.x), found.target)
        drawn = available > 0  # a model that never predicts the factual class has nobody to explain
        valid = (reached & drawn).view(size, *shape)
        values = {
            "validity": reached.double(),
            "maturity": found.mature.double(),
            "n_steps": found.n_steps.double(),
            "ip": ip(found.x, found.target),
            "cost": cost(found.x, found.factual).double(),
            "sparsity": sparsity(found.x, found.factual),
        }
        means = {
            name: _mean(value.view(size, *shape), drawn.view(size, *shape) if name in _METRICS[:3] else valid)
            for name, value in values.items()
        }
        means["ip_star"] = divergence(found.x.view(size, *shape, -1), label, target, valid, stream)
        frames.append(_frame(part, means, drawn.view(size, *shape).sum(-1)))
        progress(first + len(part), len(grid))
    return pd.concat(frames, ignore_index=True)


def _mean(values: Tensor, counted: Tensor) -> Tensor:
    """Mean over the individuals that count, NaN where there are none: (P, k, n) -> (P, k)."""
    return torch.where(counted, values, 0.0).sum(-1) / counted.sum(-1)


def _frame(part: Sequence[tuple[float, int]], means: dict[str, Tensor], drawn: Tensor) -> pd.DataFrame:
    size = len(drawn)
    return pd.DataFrame(
        {
            "model": [i for i in range(size) for _ in part],
            "lambda_egy": [weight for weight, _ in part] * size,
            "round": [j for _, j in part] * size,
            "n": drawn.flatten().tolist(),
            **{name: means[name].flatten().tolist() for name in _METRICS},
        }
    )
