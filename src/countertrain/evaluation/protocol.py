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
from countertrain.evaluation.metrics import Explained, Implausibility, Metric, Reference, known
from countertrain.models.population import Models, Population
from countertrain.search.generator import Generator
from countertrain.search.generators import eccco
from countertrain.search.losses import predict
from countertrain.search.rules import SGD
from countertrain.search.state import Counterfactuals

__all__ = ["EvaluationProtocol", "evaluate"]

_BUDGET = 2**23  # numbers in one tensor of a search call: 32 MB of float32


@dataclass(frozen=True)
class EvaluationProtocol:
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
    pooled: bool = False
    """IP* over all factual classes of a target together, up to 500 rows per side, instead of by pairs of classes."""
    seed: int = 0

    def generator(self, lambda_egy: Sequence[float]) -> Generator:
        """The search at test time, each block of individuals with an energy weight of its own."""
        weights = torch.tensor(lambda_egy).repeat_interleave(self.individuals).unsqueeze(0)  # (1, k n)
        return eccco(
            lambda_cost=self.lambda_cost,
            lambda_egy=weights,
            schedule=self.schedule,
            rho=self.rho,
            rule=SGD(self.step_size),
            n_steps=self.n_steps,
            tau=self.tau,
        )

    def compare_with(self, x: Tensor, y: Tensor, n_classes: int, stream: torch.Generator) -> Reference:
        """Rows x (n, *shape) of classes y (n,) as reference for plausibility."""
        n_rows = 500 if self.pooled else 100
        divergence = GroupedDivergence(
            x, y, n_classes, length_scale=self.length_scale, n_rows=n_rows, pooled=self.pooled
        )
        return Reference(x, y, Implausibility.of(x, y, n_classes), divergence, stream)


def evaluate(
    models: Sequence[nn.Module] | Models,
    x: Tensor,
    y: Tensor,
    *,
    n_classes: int,
    constraints: Constraints | None = None,
    protocol: EvaluationProtocol | None = None,
    generator: Generator | None = None,
    also: Sequence[Metric] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> pd.DataFrame:
    """Outcomes on test rows x (n, *shape) with classes y (n,): one row for each model, energy weight and round.

    For each round, factual and target classes are drawn once for all models; each model then explains random test rows
    that it puts into the factual class itself. Every registered metric of counterfactuals is a column: a mean over
    the round's individuals, or over the valid counterfactuals among them (`Metric.valid_only`). `also` has
    further ones. A `generator` takes the place of the protocol's search, and knows nothing of its energy weights.
    """
    protocol = protocol or EvaluationProtocol()
    population = models if isinstance(models, Models) else Population(models)
    stream = torch.Generator().manual_seed(protocol.seed)
    people = _People(population, x, n_classes)
    reference = protocol.compare_with(x, y, n_classes, stream)
    grid = [(weight, j) for weight in protocol.lambda_egy for j in range(protocol.rounds)]
    blocks = max(1, _BUDGET // (len(population) * protocol.individuals * max(x[0].numel(), 32)))
    generator = None if generator is None else generator.prepare(population, constraints)
    frames = []
    for first in range(0, len(grid), blocks):
        part = grid[first : first + blocks]
        drawn = people.draw(len(part), protocol.individuals, stream)
        search = generator or protocol.generator([weight for weight, _ in part])
        found = search(population, x[drawn.rows], drawn.targets(), constraints=constraints)
        frames.append(_tabulate(part, drawn.explain(population, found, reference), also))
        progress(first + len(part), len(grid))
    return pd.concat(frames, ignore_index=True)


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Individuals of k blocks (an energy weight and a round each), n in a block, for P models."""

    label: Tensor  # (k, n) factual classes, for all models
    target: Tensor  # (k, n) target classes, for all models
    rows: Tensor  # (P, k n) test rows that the model puts into the factual class
    there: Tensor  # (P, k, n) bool: a model that never predicts a class has nobody of it to explain

    def targets(self) -> Tensor:
        """Target classes for each model, (P, k n)."""
        return self.target.flatten().expand(len(self.rows), -1).contiguous().to(self.rows.device)

    def explain(self, population: Models, found: Counterfactuals, reference: Reference) -> Explained:
        """The individuals with their counterfactuals, (P, k n, ...), block by block."""
        with population.evaluating(), torch.no_grad():
            logits = population(found.x)
        searched = (found.x, found.factual, logits, found.mature, found.n_steps)
        x, factual, logits, mature, n_steps = (values.unflatten(1, self.label.shape) for values in searched)
        return Explained(x, factual, logits, mature, n_steps, self.label, self.target, self.there, reference)


class _People:
    """Test rows sorted by the class into which each model puts them."""

    def __init__(self, population: Models, x: Tensor, n_classes: int) -> None:
        with population.evaluating(), torch.no_grad():
            predicted = predict(population(x.expand(len(population), *x.shape)))  # (P, N)
        self._n_classes = n_classes
        self._by_class = predicted.argsort(dim=1, stable=True)
        self._counts = torch.stack([(predicted == k).sum(1) for k in range(n_classes)], dim=1)  # (P, K)
        self._starts = self._counts.cumsum(1) - self._counts

    def draw(self, k: int, n: int, stream: torch.Generator) -> _Drawn:
        """Factual and target classes, and for each model random rows that it puts into the factual class."""
        size, n_rows = self._by_class.shape
        device = self._by_class.device
        label = torch.randint(self._n_classes, (k, n), generator=stream)
        target = torch.randint(self._n_classes - 1, (k, n), generator=stream)
        target = target + (target >= label)
        u = torch.rand((size, k, n), generator=stream, dtype=torch.float64).flatten(1).to(device)
        wanted = label.flatten().expand(size, -1).to(device)  # (P, k n)
        available = self._counts.gather(1, wanted)
        place = self._starts.gather(1, wanted) + (u * available).long()
        rows = self._by_class.gather(1, place.clamp(max=n_rows - 1))
        return _Drawn(label, target, rows, (available > 0).view(size, k, n))


def _tabulate(part: Sequence[tuple[float, int]], explained: Explained, also: Sequence[Metric]) -> pd.DataFrame:
    """Records of some blocks: who was explained, and every metric of counterfactuals."""
    size = len(explained.x)
    steps = explained.average(explained.n_steps, valid_only=False)
    metrics = [m for m in (*known().values(), *also) if m.of_counterfactuals is not None]
    means = {m.name: explained.measure(m) for m in metrics}
    return pd.DataFrame(
        {
            "model": [i for i in range(size) for _ in part],
            "lambda_egy": [weight for weight, _ in part] * size,
            "round": [j for _, j in part] * size,
            "n": explained.there.sum(-1).flatten().tolist(),
            **{name: values.flatten().tolist() for name, values in {"n_steps": steps, **means}.items()},
        }
    )
