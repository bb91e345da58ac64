"""From training rows to the pairs that the objective contrasts (Alg. 1, lines 2 and 5)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from countertrain.constraints import Constraints
from countertrain.search.state import Counterfactuals

__all__ = ["Group", "Immature", "Pairs", "Sampler", "pair_up"]

Immature = Literal["neighbour", "drop"]


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The pairs of one mini-batch, m a model, laid out for one forward pass."""

    rows: Tensor  # (P, 3 m, D): nascent counterfactuals, mature ones, their neighbours
    y_ae: Tensor  # (P, m) true labels of the factuals
    target: Tensor  # (P, 2 m): the target classes of the mature ones, and again of the neighbours
    counted: Tensor | None  # (P, m) bool, or None where every pair counts

    @property
    def size(self) -> int:
        """m, the number of pairs of each model."""
        return self.y_ae.shape[1]

    def mean(self, values: Tensor) -> Tensor:
        """Mean over the pairs that count: (P, m) -> (P,); nothing to count gives 0."""
        if self.counted is None:
            return values.mean(-1)
        return torch.where(self.counted, values, 0.0).sum(-1) / self.counted.sum(-1).clamp(min=1)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Counterfactuals beside real rows of their target class, n a model."""

    x_ce: Tensor  # (P, n, D)
    x_plus: Tensor  # (P, n, D)
    x_ae: Tensor  # (P, n, D)
    target: Tensor  # (P, n)
    y_ae: Tensor  # (P, n)
    counted: Tensor | None  # (P, n) bool, or None where every pair counts

    def split(self, n_groups: int) -> list[Group]:
        """Consecutive groups of sizes that differ by at most one, the larger ones first."""
        n = self.target.shape[1]
        places = torch.arange(n, device=self.target.device).tensor_split(n_groups)
        rows = torch.cat([self.x_ae, self.x_ce, self.x_plus], dim=1)
        rows = rows.index_select(1, torch.cat([torch.cat([at, at + n, at + 2 * n]) for at in places]))
        twice = self.target.index_select(1, torch.cat([torch.cat([at, at]) for at in places]))
        sizes = [len(at) for at in places]
        nothing = [None] * n_groups
        return [
            Group(*parts)
            for parts in zip(
                rows.split([3 * m for m in sizes], dim=1),
                self.y_ae.split(sizes, dim=1),
                twice.split([2 * m for m in sizes], dim=1),
                nothing if self.counted is None else self.counted.split(sizes, dim=1),
                strict=True,
            )
        ]


def pair_up(
    found: Counterfactuals,
    y: Tensor,
    x_plus: Tensor,
    constraints: Constraints | None,
    immature: Immature,
) -> Pairs:
    """Contrast each counterfactual with its neighbour in the target class.

    Immature ones are replaced by the neighbour (they add nothing to the divergence, but count) or dropped.
    Features that may not move towards the neighbour are protected: there the neighbour takes the counterfactual's
    value, so that the divergence cannot ask for what a person cannot do.
    """
    x_ce, counted = found.x, None
    if immature == "neighbour":
        x_ce = torch.where(found.mature.unsqueeze(-1), x_ce, x_plus)
    else:
        counted = found.mature
    if constraints is not None:
        x_plus = constraints.reachable(x_plus, x_ce)
    return Pairs(x_ce, x_plus, found.nascent, found.target, y, counted)


class Sampler:
    """Draws factuals, targets and neighbours for each model from a random stream of its own."""

    def __init__(self, y: Tensor, n_classes: int, seeds: Sequence[int]) -> None:
        self.streams = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.n_classes = n_classes
        self.n_rows = len(y)
        self._by_class = y.argsort(stable=True)  # (n,) rows of class 0 first, then of class 1, ...
        self._count = torch.bincount(y, minlength=n_classes)  # (K,)
        self._start = self._count.cumsum(0) - self._count  # (K,)

    def factuals(self, n: int) -> Tensor:
        """n different rows for each model, (P, n)."""
        return self._draw(lambda stream: torch.randperm(self.n_rows, generator=stream)[:n])

    def targets(self, predicted: Tensor) -> Tensor:
        """A class for each row, uniform over those that the model does not predict: (P, n) -> (P, n)."""
        n = predicted.shape[1]
        other = self._draw(lambda stream: torch.randint(self.n_classes - 1, (n,), generator=stream))
        return other + (other >= predicted)

    def neighbours(self, target: Tensor) -> Tensor:
        """A random row of the target class for each counterfactual, with replacement: (P, n) -> (P, n)."""
        n = target.shape[1]
        u = self._draw(lambda stream: torch.rand(n, generator=stream, dtype=torch.float64))
        place = (u * self._count[target]).long()
        return self._by_class[self._start[target] + place]

    def nearest(self, x: Tensor, target: Tensor, x_ce: Tensor, k: int) -> Tensor:
        """The neighbour nearest to each counterfactual (l1) of k random rows of its target class: (P, n, D)."""
        x_plus = x[self.neighbours(target)]
        if k == 1:
            return x_plus
        least = (x_plus - x_ce).abs().sum(-1, keepdim=True)  # (P, n, 1)
        for _ in range(k - 1):
            other = x[self.neighbours(target)]
            away = (other - x_ce).abs().sum(-1, keepdim=True)
            x_plus, least = torch.where(away < least, other, x_plus), torch.minimum(away, least)
        return x_plus

    def _draw(self, draw: Callable[[torch.Generator], Tensor]) -> Tensor:
        return torch.stack([draw(stream) for stream in self.streams]).to(self._count.device)
