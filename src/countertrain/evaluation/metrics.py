"""Metrics of predictions, models and counterfactuals: functions of tensors, and the registry that names them all.

Whatever shows, stores, tunes or compares a metric reads the registry, so a new one is one entry:
`register(Metric(...))`, or an entry point of the group `countertrain.metrics` in a package of one's own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import entry_points
from typing import Literal, Self

import torch
from torch import Tensor

from countertrain.evaluation.divergence import GroupedDivergence
from countertrain.evaluation.robustness import robust_accuracy
from countertrain.models.population import Population
from countertrain.search.losses import predict
from countertrain.words import refuse_attribute

__all__ = [
    "ROBUST_EPSILON",
    "Explained",
    "Implausibility",
    "Metric",
    "Reference",
    "accuracy",
    "cost",
    "f1",
    "known",
    "register",
    "sparsity",
    "validity",
]
__getattr__ = refuse_attribute(__name__, __all__)

ROBUST_EPSILON = 0.1
"""How far an attack may move each feature where one number stands for robustness (metrics `fgsm` and `pgd`)."""


def validity(logits: Tensor, target: Tensor) -> Tensor:
    """Whether the model puts each counterfactual into its target class: (..., n, K), (..., n) -> (..., n) bool."""
    return predict(logits) == target


def cost(x: Tensor, factual: Tensor, *, start: int = 1) -> Tensor:
    """l1 distance between counterfactual and factual; features begin at dimension `start`: (n, *shape) -> (n,)."""
    return (x - factual).abs().flatten(start).sum(-1)


def sparsity(x: Tensor, factual: Tensor, *, start: int = 1) -> Tensor:
    """Share of features left as they were; features begin at dimension `start`: (n, *shape) -> (n,)."""
    return (x == factual).double().flatten(start).mean(-1)


def accuracy(logits: Tensor, y: Tensor) -> Tensor:
    """Share of rows put into their class: (..., n, K), (..., n) -> (...)."""
    return (predict(logits) == y).double().mean(-1)


def f1(logits: Tensor, y: Tensor) -> Tensor:
    """F1 score of each class, averaged over classes: (..., n, K), (..., n) -> (...)."""
    classes = torch.arange(logits.shape[-1], device=logits.device).unsqueeze(-1)  # (K, 1)
    said, true = predict(logits).unsqueeze(-2) == classes, y.unsqueeze(-2) == classes  # (..., K, n)
    hits = (said & true).double().sum(-1)
    total = said.double().sum(-1) + true.double().sum(-1)
    return torch.where(total > 0, 2 * hits / total.clamp(min=1), 0.0).mean(-1)


class Implausibility:
    """IP, Eq. (impl-dist): mean l1 distance from a row to all reference rows of its target class.

    The l1 distance is a sum over features, so the mean over m reference rows needs only their sorted columns and
    running sums: exact, and D log m operations per row instead of D m.
    """

    def __init__(self, sorted_columns: list[Tensor], sums: list[Tensor]) -> None:
        self._sorted = sorted_columns  # (D, m) per class
        self._sums = sums  # (D, m + 1) per class

    @classmethod
    def of(cls, x: Tensor, y: Tensor, n_classes: int) -> Self:
        """Reference rows x (n, *shape) and their classes y (n,)."""
        x = x.flatten(1)
        columns = [x[y == k].double().T.contiguous().sort(dim=1).values for k in range(n_classes)]
        sums = [torch.cat([c.new_zeros(len(c), 1), c.cumsum(1)], dim=1) for c in columns]
        return cls(columns, sums)

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        """IP of each row: (..., n, *shape), (..., n) -> (..., n); NaN for a class without a reference row."""
        if x.shape[: target.ndim] != target.shape or x.ndim == target.ndim:
            raise ValueError(
                f"rows must be of shape (*{tuple(target.shape)}, *shape), one for each target; got {tuple(x.shape)}"
            )
        rows, labels = x.flatten(target.ndim).flatten(0, -2).double(), target.reshape(-1)
        result = rows.new_full((len(rows),), torch.nan)
        for k, (columns, sums) in enumerate(zip(self._sorted, self._sums, strict=True)):
            m, mine = columns.shape[1], labels == k
            if m == 0 or not mine.any():
                continue
            value = rows[mine].T.contiguous()  # (D, q)
            below = torch.searchsorted(columns, value)
            away = value * (2 * below - m) + sums[:, -1:] - 2 * sums.gather(1, below)  # sum of |value - reference|
            result[mine] = away.sum(0) / m
        return result.reshape(target.shape)


@dataclass(frozen=True, eq=False)
class Reference:
    """Real rows that counterfactuals are compared with, and what is worked out from them once."""

    x: Tensor  # (m, *shape)
    y: Tensor  # (m,) their classes
    implausibility: Implausibility
    divergence: GroupedDivergence
    stream: torch.Generator
    """Of the evaluation itself; a metric of one's own that draws numbers seeds another."""


@dataclass(frozen=True, eq=False)
class Explained:
    """Counterfactuals of k blocks of n individuals each, under P models: what metrics of counterfactuals see."""

    x: Tensor  # (P, k, n, *shape)
    factual: Tensor  # (P, k, n, *shape)
    logits: Tensor  # (P, k, n, K) of x
    mature: Tensor  # (P, k, n) bool
    n_steps: Tensor  # (P, k, n)
    label: Tensor  # (k, n) classes of the factuals, for all models
    target: Tensor  # (k, n) classes to get into, for all models
    there: Tensor  # (P, k, n) bool: False where a model has nobody of that class to explain
    reference: Reference

    @cached_property
    def targets(self) -> Tensor:
        """Target classes where the counterfactuals are, (P, k, n)."""
        return self.target.to(self.x.device).expand(len(self.x), -1, -1)

    @cached_property
    def valid(self) -> Tensor:
        """Which individuals have a valid counterfactual, (P, k, n) bool."""
        return validity(self.logits, self.targets) & self.there

    def average(self, values: Tensor, *, valid_only: bool) -> Tensor:
        """Mean over the individuals of each block, or over its valid ones, NaN if none: (P, k, n) -> (P, k)."""
        counted = self.valid if valid_only else self.there
        return torch.where(counted, values.double(), 0.0).sum(-1) / counted.sum(-1)

    def measure(self, metric: "Metric") -> Tensor:
        """A metric of counterfactuals in each block, (P, k)."""
        assert metric.of_counterfactuals is not None
        values = metric.of_counterfactuals(self)
        return values if values.ndim == 2 else self.average(values, valid_only=metric.valid_only)


@dataclass(frozen=True)
class Metric:
    """One number per model: what it is called, which way is better, and the one thing it is computed from."""

    name: str
    """In records, goals and files."""
    label: str
    """In a column heading."""
    title: str
    """In a few words."""
    unit: Literal["share", "score", "distance"]
    """A share is shown in percent."""
    better: Literal["higher", "lower"]
    of_predictions: Callable[[Tensor, Tensor], Tensor] | None = None
    """Logits (P, n, K) and classes (P, n) -> (P,)."""
    of_models: Callable[[Population, Tensor, Tensor], Tensor] | None = None
    """Models, rows (n, *shape) and classes (n,) -> (P,); too dear for the trials of a tuning."""
    of_counterfactuals: Callable[[Explained], Tensor] | None = None
    """Explained individuals -> a number for each, (P, k, n), or for each block, (P, k)."""
    valid_only: bool = True
    """Whether a block's mean is that of its valid counterfactuals."""

    def __post_init__(self) -> None:
        given = [f for f in (self.of_predictions, self.of_models, self.of_counterfactuals) if f is not None]
        if len(given) != 1:
            raise ValueError(
                f"metric {self.name!r} must be computed from one thing; give one of of_predictions, of_models and "
                f"of_counterfactuals, got {len(given)}"
            )

    @property
    def heading(self) -> str:
        """Label, title and direction, for a table with one row per metric."""
        title = self.title if self.label in self.title else f"{self.label}, {self.title}"
        return title if self.better == "higher" else f"{title} (lower is better)"


def register(metric: Metric) -> None:
    """Let every table, record and goal know one more metric."""
    if not isinstance(metric, Metric):
        raise TypeError(f"only a Metric can be registered; got {metric!r}")
    if _METRICS.setdefault(metric.name, metric) is not metric:
        raise ValueError(f"a metric {metric.name!r} is registered already; give the new one another name")


def known() -> dict[str, Metric]:
    """All metrics by name, in the order in which they are shown."""
    _register_plugins()
    return dict(_METRICS)


@cache
def _register_plugins() -> None:
    """The metrics that installed packages bring along."""
    for point in entry_points(group="countertrain.metrics"):
        register(point.load())


def _accuracy_under(attack: str) -> Callable[[Population, Tensor, Tensor], Tensor]:
    return lambda models, x, y: robust_accuracy(models, x, y, epsilons=[ROBUST_EPSILON], attack=attack)[:, 0]


def _ip_star(e: Explained) -> Tensor:
    return e.reference.divergence(e.x, e.label, e.target, e.valid, e.reference.stream)


_METRICS: dict[str, Metric] = {}
for _metric in (
    Metric("accuracy", "accuracy", "accuracy", "share", "higher", of_predictions=accuracy),
    Metric("f1", "F1", "F1, mean over classes", "score", "higher", of_predictions=f1),
    Metric("fgsm", "FGSM", "accuracy under FGSM, epsilon 0.1", "share", "higher", of_models=_accuracy_under("fgsm")),
    Metric("pgd", "PGD", "accuracy under PGD, epsilon 0.1", "share", "higher", of_models=_accuracy_under("pgd")),
    Metric("validity", "validity", "validity of counterfactuals", "share", "higher",
           of_counterfactuals=lambda e: e.valid, valid_only=False),
    Metric("maturity", "maturity", "share that reach tau", "share", "higher",
           of_counterfactuals=lambda e: e.mature, valid_only=False),
    Metric("ip", "IP", "implausibility", "distance", "lower",
           of_counterfactuals=lambda e: e.reference.implausibility(e.x, e.targets)),
    Metric("ip_star", "IP*", "divergence from real rows", "distance", "lower", of_counterfactuals=_ip_star),
    Metric("cost", "cost", "distance (l1, encoded)", "distance", "lower",
           of_counterfactuals=lambda e: cost(e.x, e.factual, start=3)),
    Metric("sparsity", "sparsity", "share of features left alone", "share", "higher",
           of_counterfactuals=lambda e: sparsity(e.x, e.factual, start=3)),
):  # fmt: skip
    register(_metric)
