"""Those who judge counterfactuals and had no part in any training: a kernel density, and models of other kinds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from countertrain.evaluation.metrics import Explained, Metric
from countertrain.judge.panel import fit_panel
from countertrain.tables.dataset import Split

__all__ = ["Density", "Panel", "referees"]

_SHOWN = 50  # individuals of a round who are shown to the panel
_PART = 2000  # rows whose densities are worked out at once


@dataclass(frozen=True, eq=False)
class Density:
    """How dense real rows of a class lie around a row: its place among those of real rows that the kernel has not seen.

    A Gaussian kernel with Scott's bandwidth on columns of unit spread, fitted to every other row of the class.
    """

    spread: Tensor  # (D,)
    centres: tuple[Tensor, ...]  # (m, D) for each class
    scores: tuple[Tensor, ...]  # (m,) of the other rows, ascending

    @classmethod
    def of(cls, rows: Split, n_classes: int) -> Self:
        """Of held-out rows."""
        spread = rows.x.flatten(1).double().std(0)
        spread = torch.where(spread > 0, spread, 1.0)
        x = rows.x.flatten(1).double() / spread
        halves = [(x[rows.y == k][::2], x[rows.y == k][1::2]) for k in range(n_classes)]
        scores = tuple(log_density(centres, others).sort().values for centres, others in halves)
        return cls(spread, tuple(centres for centres, _ in halves), scores)

    def place(self, x: Tensor, target: Tensor) -> Tensor:
        """Percentile of rows (..., *shape) among real rows of their target class (...): 50 on average if real."""
        rows, labels = x.flatten(target.ndim).flatten(0, -2).double() / self.spread, target.flatten()
        places = torch.full(labels.shape, torch.nan, dtype=torch.float64)
        for k, (centres, scores) in enumerate(zip(self.centres, self.scores, strict=True)):
            mine = labels == k
            below = torch.searchsorted(scores, log_density(centres, rows[mine]))
            places[mine] = 100 * below.double() / max(len(scores), 1)
        return places.view(target.shape)


def log_density(centres: Tensor, x: Tensor) -> Tensor:
    """Logarithm of a Gaussian kernel density around centres (m, D), but for a constant, at rows (n, D): (n,)."""
    m, d = centres.shape
    bandwidth = m ** (-1 / (d + 4))
    parts = [torch.cdist(part, centres).square().div(-2 * bandwidth**2).logsumexp(1) for part in x.split(_PART)]
    return torch.cat(parts) if parts else x.new_zeros(0)


@dataclass(frozen=True, eq=False)
class Panel:
    """Boosting, a forest and logistic regression, fitted to training rows, and whether they accept counterfactuals."""

    models: dict[str, Any]

    @classmethod
    def of(cls, rows: Split) -> Self:
        """Fitted to rows."""
        return cls(fit_panel(rows.x.flatten(1).double().numpy(), rows.y.numpy()))

    def accept(self, explained: Explained) -> Tensor:
        """Share of valid counterfactuals of each round that all of them accept, (P, k), of some individuals."""
        x, target = explained.x[:, :, :_SHOWN], explained.targets[:, :, :_SHOWN]
        valid = explained.valid[:, :, :_SHOWN]
        rows = x[valid].flatten(1).double().numpy()
        accepted = torch.zeros(valid.shape, dtype=torch.float64)
        if len(rows):
            aims = target[valid].numpy()
            opinions = [torch.from_numpy(model.predict(rows) == aims) for model in self.models.values()]
            accepted[valid] = torch.stack(opinions).all(0).double()
        return accepted.sum(-1) / valid.sum(-1)


def referees(train: Split, held_out: Split, n_classes: int) -> Sequence[Metric]:
    """What they say, as metrics of counterfactuals."""
    density, panel = Density.of(held_out, n_classes), Panel.of(train)
    return (
        Metric(
            "density", "density", "place of the kernel density among real rows", "score", "higher",
            of_counterfactuals=lambda e: density.place(e.x, e.targets),
        ),
        Metric(
            "holds", "holds", "accepted by boosting, forest and logistic regression", "share", "higher",
            of_counterfactuals=panel.accept,
        ),
    )  # fmt: skip
