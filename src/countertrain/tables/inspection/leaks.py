"""Columns that give the label away: how many rows one column alone gets right that the commonest class gets wrong."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from countertrain.tables.inspection.facts import Facts
from countertrain.tables.inspection.findings import Finding

__all__ = ["find_leak"]

_MOST = 40_000  # rows that are looked at
_NEARLY = 0.95  # of the rows that the commonest class gets wrong, so many are right by this column
_ALONE = 0.999  # of them, or of all rows
_FEW = 50  # different numbers that may be levels as well


def find_leak(facts: Facts, codes: NDArray[np.int64], label: str) -> Finding | None:
    """Whether a column decides the classes `codes` (n,) by itself, so that it may be known only after the label."""
    stride = max(1, len(codes) // _MOST)
    values, codes = facts.values.iloc[::stride], codes[::stride]
    counts = np.bincount(codes)
    base = counts.max() / len(codes)
    if base == 1 or facts.n_distinct < 2:
        return None
    right = _share_right(values, facts, codes)
    gained = (right - base) / (1 - base)
    if gained < _NEARLY:
        return None
    how = "decides" if max(gained, right) >= _ALONE else "nearly decides"
    shares = f"{100 * right:.1f} % of the rows right (the commonest class: {100 * base:.0f} %)"
    return Finding(
        "leak",
        facts.name,
        f"{how} {label!r} alone: it gets {shares}",
        "the model learns it, and little else",
        "drop it (proposed), unless it is known before the label is",
        "warning",
    )


def _share_right(values: "pd.Series[Any]", facts: Facts, codes: NDArray[np.int64]) -> float:
    """The share of rows that the other half of the rows tells right by this column."""
    half = np.arange(len(codes)) % 2 == 0
    shares = []
    if facts.numbers is None or facts.n_distinct <= _FEW:
        try:
            levels = pd.factorize(values, use_na_sentinel=False)[0]
        except TypeError:  # lists and the like
            return 0.0
        shares.append(sum(_count_by_level(levels, codes, part) for part in (half, ~half)) / len(codes))
    if facts.numbers is not None:
        x = values.to_numpy(dtype=np.float64, na_value=np.nan)
        finite = x[np.isfinite(x)]
        x = np.nan_to_num(x, nan=finite.min(initial=0) - 1, posinf=finite.max(initial=0) + 1)
        x = x.clip(-1e30, 1e30)[:, None]  # as trees compute in single precision
        shares.append(sum(_count_by_tree(x, codes, part) for part in (half, ~half)) / len(codes))
    return float(max(shares))


def _count_by_level(levels: NDArray[Any], codes: NDArray[np.int64], part: NDArray[np.bool_]) -> int:
    """How many rows outside `part` have the class that most rows of `part` with their level have."""
    n_classes = int(codes.max()) + 1
    seen = np.zeros((int(levels.max()) + 1, n_classes))
    np.add.at(seen, (levels[part], codes[part]), 1)
    most = np.where(seen.any(1), seen.argmax(1), seen.sum(0).argmax())
    return int((most[levels[~part]] == codes[~part]).sum())


def _count_by_tree(x: NDArray[np.float64], codes: NDArray[np.int64], part: NDArray[np.bool_]) -> int:
    """The same by a few cuts through the numbers."""
    leaves = max(8, 2 * (int(codes.max()) + 1))
    from sklearn.tree import DecisionTreeClassifier  # a second that whoever only reads a model need not wait

    tree = DecisionTreeClassifier(max_leaf_nodes=leaves, random_state=0).fit(x[part], codes[part])
    return int((tree.predict(x[~part]) == codes[~part]).sum())
