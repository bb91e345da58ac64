"""How well probabilities rank people: AUC, Gini, KS, ROC and precision-recall curves, and lift by tenths."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["PERFECT", "Ranking", "Tenth"]

PERFECT = 0.995
"""An AUC above which a model of people is too good to be true."""
_POINTS = 120  # of a curve that is drawn, at most
_TENTHS = 10

Floats = NDArray[np.float64]
Curve = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Tenth:
    """About a tenth of the people, by what the model says of them, the most probable first."""

    n: int
    lowest: float
    """The probability stated for the last of them."""
    share: float
    """Of them who truly are of the wanted class."""
    lift: float
    """How many times the share of everybody."""


@dataclass(frozen=True)
class Ranking:
    """How well the probability of a class tells those who have it from those who do not."""

    n: int
    n_wanted: int
    auc: float
    error: float
    """Standard error of the AUC (Hanley and McNeil)."""
    ks: float
    """The largest distance between the two shares of people above a probability."""
    average_precision: float
    roc: Curve
    """Share of others accepted, share of the wanted accepted, from nobody to everybody."""
    precision_recall: Curve
    """Share of the wanted found, share of those found who are wanted."""
    tenths: tuple[Tenth, ...]
    decided: tuple[float, float, float] | None
    """Where the decisions are: others accepted, the wanted accepted, and who is wanted among the accepted."""

    @property
    def gini(self) -> float:
        """Twice the AUC, less one."""
        return 2 * self.auc - 1

    @property
    def prevalence(self) -> float:
        """The share of the wanted among all."""
        return self.n_wanted / self.n

    @property
    def is_suspicious(self) -> bool:
        """Whether it is too good to be true."""
        return self.auc > PERFECT

    @classmethod
    def of(cls, score: Floats, wanted: NDArray[np.bool_], accepted: NDArray[np.bool_] | None = None) -> Self | None:
        """Of probabilities (n,) of people who are `wanted` (n,) or not; None where all or none of them are."""
        n, n_wanted = len(wanted), int(wanted.sum())
        if not 0 < n_wanted < n:
            return None
        order = np.argsort(-score, kind="stable")
        last = np.flatnonzero(np.append(np.diff(score[order]) != 0, True))  # of people with the same probability
        hits = np.cumsum(wanted[order])[last]
        found, false = np.append(0, hits / n_wanted), np.append(0, (last + 1 - hits) / (n - n_wanted))
        precision = hits / (last + 1)
        auc = float((np.diff(false) * (found[1:] + found[:-1]) / 2).sum())
        return cls(
            n=n,
            n_wanted=n_wanted,
            auc=auc,
            error=_estimate_error(auc, n_wanted, n - n_wanted),
            ks=float((found - false).max()),
            average_precision=float((np.diff(found) * precision).sum()),
            roc=_thin(false, found),
            precision_recall=_thin(found[1:], precision),
            tenths=_cut_tenths(score[order], wanted[order]),
            decided=None if accepted is None else _place_decisions(wanted, accepted),
        )


def _estimate_error(auc: float, n_wanted: int, n_others: int) -> float:
    """How far an AUC of so few people may be off, as a standard error."""
    one, two = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    spread = auc * (1 - auc) + (n_wanted - 1) * (one - auc**2) + (n_others - 1) * (two - auc**2)
    return float(np.sqrt(max(spread, 0.0) / (n_wanted * n_others)))


def _thin(x: Floats, y: Floats) -> Curve:
    """A curve of at most so many points, with its ends."""
    kept = np.unique(np.linspace(0, len(x) - 1, min(_POINTS, len(x))).round().astype(int))
    return tuple((float(x[i]), float(y[i])) for i in kept)


def _cut_tenths(score: Floats, wanted: NDArray[np.bool_]) -> tuple[Tenth, ...]:
    """Tenths of people who are sorted by their probability, the highest first."""
    parts = [part for part in np.array_split(np.arange(len(score)), _TENTHS) if len(part)]
    shares = [float(wanted[part].mean()) for part in parts]
    return tuple(
        Tenth(len(part), float(score[part[-1]]), share, share / float(wanted.mean()))
        for part, share in zip(parts, shares, strict=True)
    )


def _place_decisions(wanted: NDArray[np.bool_], accepted: NDArray[np.bool_]) -> tuple[float, float, float]:
    right = float(wanted[accepted].mean()) if accepted.any() else float("nan")
    return float(accepted[~wanted].mean()), float(accepted[wanted].mean()), right
