"""Average ranks of methods over data sets, and by how much two must differ: Friedman's test, Nemenyi's distance."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import friedmanchisquare, rankdata, studentized_range

__all__ = ["Ranks", "rank"]


@dataclass(frozen=True)
class Ranks:
    """Methods in order of their average rank, 1 the best."""

    average: "pd.Series[float]"
    p_value: float
    """Of Friedman's test: how likely such ranks are if all methods were alike."""
    critical_difference: float
    """Nemenyi's, at 5 %: two methods whose average ranks differ by less cannot be told apart."""
    n_blocks: int


def rank(scores: pd.DataFrame, *, better: str) -> Ranks:
    """Ranks of methods (columns) over data sets (rows) without a gap; ties share their ranks."""
    n, k = scores.shape
    if n < 2 or k < 3:
        raise ValueError(f"ranks take two data sets and three methods at least; got {n} and {k}")
    values = scores.to_numpy(dtype=float)
    if np.isnan(values).any():
        raise ValueError("a score is missing; leave out the method or the data set")
    ranks = np.apply_along_axis(rankdata, 1, -values if better == "higher" else values)  # (n, k)
    average = pd.Series(ranks.mean(0), index=scores.columns).sort_values(kind="stable")
    q = studentized_range.ppf(0.95, k, np.inf) / np.sqrt(2)
    return Ranks(average, float(friedmanchisquare(*values.T).pvalue), float(q * np.sqrt(k * (k + 1) / (6 * n))), n)
