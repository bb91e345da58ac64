"""What a classifier is worth on test rows: right decisions, honest probabilities, explanations, what it looks at."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from countertrain.evaluation.attribution import integrated_gradients, relu_network_gradients
from countertrain.evaluation.metrics import ROBUST_EPSILON, Metric, accuracy, f1, known
from countertrain.evaluation.protocol import EvaluationProtocol, evaluate
from countertrain.evaluation.robustness import robust_accuracy
from countertrain.models.population import NotStackableError, Population
from countertrain.recourse.decider import Decider

__all__ = [
    "INDIVIDUALS",
    "ROUNDS",
    "Bin",
    "Outcome",
    "Performance",
    "Sensitivity",
    "measure_outcomes",
    "measure_performance",
    "measure_sensitivities",
]

ROUNDS, INDIVIDUALS = 20, 100
"""Of the paper's protocol, as far as a report goes."""
_BINS = 10

Verdict = Literal["better", "worse", "no clear difference"]


@dataclass(frozen=True)
class Bin:
    """Rows that were given about the same probability of the wanted class."""

    predicted: float
    observed: float
    n: int


@dataclass(frozen=True)
class Performance:
    """How often the decisions are right, and whether probabilities mean what they say."""

    n: int
    accuracy: float
    f1: float
    commonest: int
    """The class that most rows have, and their share: what a constant answer would get right."""
    commonest_share: float
    confusion: tuple[tuple[int, ...], ...]
    """(K, K) counts: a row for each true class, a column for each decision."""
    bins: tuple[Bin, ...]
    ece: float
    brier: float


def measure_performance(probability: Tensor, y: Tensor, target: int, decision: Tensor | None = None) -> Performance:
    """Judge probabilities (n, K) by the true classes y (n,); calibration is that of the class `target`.

    A `decision` (n,) need not be the likeliest class, where a threshold is set.
    """
    n_classes = probability.shape[1]
    counts = y.bincount(minlength=n_classes)
    decision = probability.argmax(1) if decision is None else decision
    decided = functional.one_hot(decision, n_classes)  # (n, K)
    confusion = (y * n_classes + decision).bincount(minlength=n_classes**2).view(n_classes, n_classes)
    p, hit = probability[:, target].numpy(), (y == target).double().numpy()
    place = np.minimum((p * _BINS).astype(int), _BINS - 1)
    groups = [place == k for k in np.unique(place)]
    bins = tuple(Bin(float(p[rows].mean()), float(hit[rows].mean()), int(rows.sum())) for rows in groups)
    return Performance(
        n=len(y),
        accuracy=float(accuracy(decided, y)),
        f1=float(f1(decided, y)),
        commonest=int(counts.argmax()),
        commonest_share=float(counts.max() / len(y)),
        confusion=tuple(map(tuple, confusion.tolist())),
        bins=bins,
        ece=sum(b.n * abs(b.predicted - b.observed) for b in bins) / len(y),
        brier=float(((p - hit) ** 2).mean()),
    )


@dataclass(frozen=True)
class Outcome:
    """One measure of explanations or robustness, for a classifier and for the one that it is compared with."""

    name: str
    """Of a metric."""
    ours: float | None
    """None where it cannot be measured, e.g. the distance where nothing is valid."""
    theirs: float | None = None
    verdict: Verdict | None = None

    @property
    def metric(self) -> Metric:
        """What it measures."""
        return known()[self.name]


def measure_outcomes(
    decider: Decider,
    baseline: Decider | None,
    x: Tensor,
    y: Tensor,
    *,
    seed: int = 0,
) -> tuple[Outcome, ...]:
    """The paper's measures on encoded rows x (n, D) with classes y (n,), means over the models of an ensemble.

    A difference is clear if 95 % of the rounds lie on one side of 0, or if it exceeds two standard errors.
    """
    ours, ours_robust = _measure_explanations(decider, x, y, seed), _measure_robustness(decider, x, y, seed)
    if baseline is None:
        means = {**ours.mean(), **ours_robust}
        return tuple(Outcome(str(name), _or_none(value)) for name, value in means.items())
    theirs, theirs_robust = _measure_explanations(baseline, x, y, seed), _measure_robustness(baseline, x, y, seed)
    found = []
    for name in ours:
        low, high = (ours[name] - theirs[name]).quantile([0.025, 0.975])
        found.append(_judge(str(name), ours[name].mean(), theirs[name].mean(), low, high))
    for name, p in ours_robust.items():
        q = theirs_robust[name]
        noise = 2 * ((p * (1 - p) + q * (1 - q)) / len(y)) ** 0.5
        found.append(_judge(name, p, q, p - q - noise, p - q + noise))
    return tuple(found)


def _judge(name: str, ours: float, theirs: float, low: float, high: float) -> Outcome:
    """An outcome with its verdict, by the interval in which the difference lies."""
    outcome = Outcome(name, _or_none(ours), _or_none(theirs))
    if outcome.ours is None or outcome.theirs is None:
        return outcome
    lower, higher = high < 0, low > 0
    better, worse = (lower, higher) if outcome.metric.better == "lower" else (higher, lower)
    return replace(outcome, verdict="better" if better else "worse" if worse else "no clear difference")


def _measure_explanations(decider: Decider, x: Tensor, y: Tensor, seed: int) -> pd.DataFrame:
    """A row for each round: plausibility of confident counterfactuals, cost and validity of just valid ones."""
    parts = []
    for tau, names in ((0.95, ["ip", "ip_star"]), (0.5, ["cost", "validity"])):
        protocol = EvaluationProtocol(rounds=ROUNDS, individuals=INDIVIDUALS, tau=tau, seed=seed)
        records = [
            evaluate(
                population,
                x,
                y,
                n_classes=len(decider.classes),
                constraints=decider.encoder.constraints(),
                protocol=protocol,
            )
            for population in _group_models(decider.models, x)
        ]
        parts.append(pd.concat(records).groupby("round")[names].mean())
    return pd.concat(parts, axis=1)


def _measure_robustness(decider: Decider, x: Tensor, y: Tensor, seed: int) -> dict[str, float]:
    """Accuracy under each attack."""
    populations = _group_models(decider.models, x)
    return {
        attack: float(
            torch.cat(
                [robust_accuracy(p, x, y, epsilons=[ROBUST_EPSILON], attack=attack, seed=seed) for p in populations]
            ).mean()
        )
        for attack in ("fgsm", "pgd")
    }


def _group_models(models: Sequence[nn.Module], x: Tensor) -> list[Population]:
    """The models as one population, or each as its own where they cannot be stacked."""
    if len(models) > 1:
        try:
            population = Population(models)
            population.verify(x[:2])
            return [population]
        except NotStackableError:
            pass
    return [Population([model]) for model in models]


def _or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


@dataclass(frozen=True)
class Sensitivity:
    """How much of what moves the decision comes from one column of the table."""

    column: str
    immutable: bool
    share: float
    baseline_share: float | None


def measure_sensitivities(
    decider: Decider, baseline: Decider | None, x: Tensor, target: int
) -> tuple[Sensitivity, ...]:
    """Each column's share of the decisions on encoded rows x (n, D), largest first."""
    columns = decider.encoder.schema.columns
    ours = _measure_shares(decider, x, target)
    theirs = [None] * len(columns) if baseline is None else _measure_shares(baseline, x, target).tolist()
    found = [
        Sensitivity(column.name, column.mutability == "none", float(share), other)
        for column, share, other in zip(columns, ours, theirs, strict=True)
    ]
    return tuple(sorted(found, key=lambda s: -s.share))


def _measure_shares(decider: Decider, x: Tensor, target: int) -> NDArray[np.float64]:
    """Mean absolute contribution of each table column, (C,), as shares of their sum; mean over the models.

    A contribution is that to the logit of the target class over the mean of the others, on the way from the average
    row; those of the levels of a category are summed before the absolute value is taken.
    """
    encoder, n_classes = decider.encoder, len(decider.classes)
    column_of = torch.tensor(encoder.column_of)
    shares = []
    for model in decider.models:
        contribution = torch.zeros_like(x)  # (n, D)
        for k in range(n_classes):
            weight = 1.0 if k == target else -1.0 / (n_classes - 1)
            contribution += weight * _attribute(model, x, k)
        by_column = x.new_zeros(len(x), len(encoder.schema.columns)).index_add_(1, column_of, contribution)  # (n, C)
        mean = by_column.double().abs().mean(0)
        shares.append(mean / mean.sum().clamp(min=1e-12))
    return torch.stack(shares).mean(0).numpy()


def _attribute(model: nn.Module, x: Tensor, k: int) -> Tensor:
    """Contributions (n, D) to the logit of class k, from the average row to each row."""
    y, average = torch.full((len(x),), k), x.mean(0)
    exact = relu_network_gradients(model, x, y, average)
    return integrated_gradients(model, x, y, average) if exact is None else exact
