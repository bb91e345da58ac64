"""Columns that give too much away: the label (a leak), or what people cannot change (proxies, taken together)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from countertrain.report.ranking import Ranking
from countertrain.tables.encoder import Encoder
from countertrain.tables.schema import Numeric, Schema

__all__ = ["GIVEN_AWAY", "LEAK", "Giveaway", "Single", "find_giveaways", "rank_singles"]

LEAK = 0.99
"""AUC of one column alone, above which it gives the label away."""
GIVEN_AWAY = 0.75
"""AUC at which others together give an immutable column away."""
_ROWS, _FOLDS, _MOST_COLUMNS, _MOST_LEVELS, _FEWEST = 2000, 3, 8, 5, 30

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Single:
    """How well one column by itself tells those who have the wanted class from the others."""

    column: str
    auc: float


@dataclass(frozen=True)
class Giveaway:
    """How well the other columns together predict one that people cannot change."""

    column: str
    what: str
    """Which of its values is told from the others: a level, or "above 42"."""
    auc: float


def rank_singles(schema: Schema, frame: pd.DataFrame, wanted: NDArray[np.bool_]) -> tuple[Single, ...]:
    """Each column alone on labelled rows, the most telling first."""
    found = []
    for column in schema.columns:
        values = frame[column.name]
        if isinstance(column, Numeric):
            score = values.astype(object).to_numpy(dtype=np.float64, na_value=np.nan)
            score = np.where(np.isnan(score), np.nanmedian(score) if not np.isnan(score).all() else 0.0, score)
        else:
            score = _rate_levels(pd.factorize(values.astype(object), use_na_sentinel=False)[0], wanted)
        ranking = Ranking.of(score, wanted)
        if ranking is not None:
            falls = isinstance(column, Numeric) and ranking.auc < 0.5
            found.append(Single(column.name, 1 - ranking.auc if falls else ranking.auc))
    return tuple(sorted(found, key=lambda single: -single.auc))


def _rate_levels(codes: NDArray[np.intp], wanted: NDArray[np.bool_]) -> Floats:
    """(n,), the share of the wanted at the level of each row, by the other half of the rows: none tells its own."""
    half = np.arange(len(codes)) % 2 == 0
    score = np.empty(len(codes))
    for mine, others in ((half, ~half), (~half, half)):
        counts = np.bincount(codes[others], minlength=codes.max() + 1)
        hits = np.bincount(codes[others], wanted[others], minlength=codes.max() + 1)
        score[mine] = ((hits + wanted.mean()) / (counts + 1))[codes[mine]]
    return score


def find_giveaways(encoder: Encoder, x: Floats, *, seed: int = 0) -> tuple[Giveaway, ...]:
    """Immutable columns predicted by all that may change, by boosting, out of fold, on encoded rows x (n, D)."""
    columns, slices = encoder.schema.columns, encoder.slices
    open_to = [part for column, part in zip(columns, slices, strict=True) if column.mutability != "none"]
    fixed = [(c, part) for c, part in zip(columns, slices, strict=True) if c.mutability == "none"]
    if not open_to:
        return ()
    x = x[np.random.default_rng(seed).permutation(len(x))[:_ROWS]]
    inputs = np.concatenate([x[:, part] for part in open_to], axis=1)
    found = []
    for column, part in fixed[:_MOST_COLUMNS]:
        tried = [(what, _predict(inputs, yes, seed)) for what, yes in _list_questions(column, encoder, x, part)]
        known = [(what, auc) for what, auc in tried if auc is not None]
        if known:
            found.append(Giveaway(column.name, *max(known, key=lambda pair: pair[1])))
    return tuple(sorted(found, key=lambda one: -one.auc))


def _list_questions(column: Any, encoder: Encoder, x: Floats, part: slice) -> list[tuple[str, NDArray[np.bool_]]]:
    """Yes-or-no questions about a column: whether a number is above the middle, whether it is one of its levels."""
    block = x[:, part]
    if isinstance(column, Numeric):
        middle = np.median(block[:, 0])
        scale = encoder.scales[encoder.schema.names.index(column.name)]
        shown = float(f"{scale.decode(np.array([middle]))[0]:.4g}")
        return [(f"above {shown:,g}", block[:, 0] > middle)]
    if block.shape[1] == 1:
        return [(column.labels[1], block[:, 0] > 0.5)]
    frequent = np.argsort(-block.sum(0), kind="stable")[:_MOST_LEVELS]
    return [(column.labels[i], block[:, i] > 0.5) for i in frequent]


def _predict(inputs: Floats, yes: NDArray[np.bool_], seed: int) -> float | None:
    """AUC of a yes, out of fold; None where there are too few of either answer."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    if min(yes.sum(), (~yes).sum()) < _FEWEST:
        return None
    model = HistGradientBoostingClassifier(max_iter=30, max_leaf_nodes=15, early_stopping=False, random_state=seed)
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=seed)
    said = cross_val_predict(model, inputs, yes, cv=folds, method="predict_proba")[:, 1]
    ranking = Ranking.of(said, yes)
    return None if ranking is None else ranking.auc
