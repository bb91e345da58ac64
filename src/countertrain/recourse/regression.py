"""Logistic regression with honest standard errors, small enough to be fitted on the way."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

__all__ = ["Regression", "cut_into_pieces", "regress"]

_RIDGE = 0.1  # of what the rows say of a slope at even odds: columns that go together share what they show
_STEPS, _CLOSE = 12, 1e-4

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Regression:
    """Slopes (d,) of the log-odds, and how uncertain they are together."""

    slopes: Floats
    covariance: Floats  # (d, d)

    def of(self, part: slice) -> Self:
        """Some of the slopes."""
        return type(self)(self.slopes[part], self.covariance[part, part])

    @property
    def z(self) -> Floats:
        """(d,), by how many standard errors each slope differs from 0."""
        return self.slopes / np.sqrt(np.diag(self.covariance) + 1e-12)

    @property
    def p(self) -> float:
        """How often chance alone would give slopes that differ from 0 as much as these do together (Wald's test)."""
        return float(chdtrc(len(self.slopes), self.slopes @ np.linalg.pinv(self.covariance) @ self.slopes))

    def compare(self, weights: Floats) -> float:
        """The same for a sum of slopes with weights (d,)."""
        return float(weights @ self.slopes / np.sqrt(weights @ self.covariance @ weights + 1e-12))

    def compare_pairs(self) -> Floats:
        """(d, d), the same for the difference of any two: negative where the second is lower."""
        own = np.diag(self.covariance)
        spread = own[None, :] + own[:, None] - 2 * self.covariance
        return (self.slopes[None, :] - self.slopes[:, None]) / np.sqrt(np.maximum(spread, 0) + 1e-12)


def cut_into_pieces(values: Floats, n_pieces: int) -> Floats:
    """(n, n_pieces), how far each number has come on each part of the line, by its place among all of them."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    share = ((counts.cumsum() - counts / 2) / len(values))[place]  # (n,) of rows that have less, ties in the middle
    start = np.arange(n_pieces) / n_pieces
    return np.asarray((share[:, None] - start).clip(0, 1 / n_pieces) * 2 * n_pieces**0.5)


def regress(x: Floats, y: Floats) -> Regression:
    """The regression of outcomes y (n,), 0 or 1, on x (n, d), by Newton's method, with a ridge.

    Its errors are those of a sandwich: they hold also where the log-odds are no straight line.
    """
    n = len(x)
    x = np.column_stack([np.ones(n), x - x.mean(0)])  # (n, 1 + d)
    ridge = np.full(x.shape[1], _RIDGE * n / 4)
    ridge[0] = 1e-6
    slopes = np.zeros(x.shape[1])
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-(x @ slopes).clip(-30, 30)))
        curvature = (x * (p * (1 - p))[:, None]).T @ x + np.diag(ridge)
        step = np.linalg.solve(curvature, x.T @ (y - p) - ridge * slopes)
        slopes = slopes + step
        if abs(step).max() < _CLOSE:
            break
    inverse = np.linalg.inv(curvature)
    noise = (x * ((y - p) ** 2)[:, None]).T @ x
    return Regression(slopes[1:], (inverse @ noise @ inverse)[1:, 1:])
