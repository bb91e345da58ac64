"""Real people who may be shown: each stands in a group in which nobody can be told apart by what identifies them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from countertrain.recourse.search import RecourseSearch
from countertrain.tables.schema import Numeric, check_names

__all__ = ["KAnonymous"]

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
_LEAST = 5  # people who cannot be told apart, unless the owner says otherwise


@dataclass(frozen=True)
class KAnonymous:
    """The owner's choice to show real people, at least k of whom are the same in the columns that identify them.

    What somebody else may know of a person (age, postcode, job) has to be declared; all other columns are shown as
    they are.
    """

    identifying: tuple[str, ...]
    k: int = _LEAST

    def __post_init__(self) -> None:
        if not self.identifying:
            raise ValueError("identifying must name at least one column by which others could know a person")
        if self.k < 2:
            raise ValueError(f"k must be at least 2, people who cannot be told apart; got {self.k}")

    def hide(self, search: RecourseSearch) -> pd.DataFrame:
        """The real rows of a search, in which identifying columns hold what is usual in a group of at least k."""
        encoder, frame = search.decider.encoder, search.examples.copy()
        check_names(self.identifying, encoder.schema.names)
        if search.reference is None:
            return frame
        if len(frame) < self.k:
            raise ValueError(f"k must be at most the rows that the model holds, {len(frame)}; got {self.k}")
        parts = {
            column.name: (column, part) for column, part in zip(encoder.schema.columns, encoder.slices, strict=True)
        }
        x = np.concatenate([search.reference.x[:, parts[name][1]].numpy() for name in self.identifying], 1)
        values = {name: frame[name].to_numpy(dtype=object, copy=True) for name in self.identifying}
        for group in _part(x.astype(np.float64), np.arange(len(x)), self.k):
            for name, column in values.items():
                column[group] = _find_usual(column[group], ordered=isinstance(parts[name][0], Numeric))
        return frame.assign(**values)


def _part(x: Floats, group: Places, k: int) -> Iterator[Places]:
    """The smallest groups of at least k rows that halving leaves, by the feature in which they differ most."""
    mine = x[group]
    for feature in np.argsort(-np.ptp(mine, axis=0), kind="stable"):
        order = group[np.argsort(mine[:, feature], kind="stable")]
        cuts = np.flatnonzero(np.diff(x[order, feature]) > 0) + 1  # between different values
        cuts = cuts[(cuts >= k) & (cuts <= len(group) - k)]
        if len(cuts):
            middle = cuts[np.abs(cuts - len(group) / 2).argmin()]
            yield from _part(x, order[:middle], k)
            yield from _part(x, order[middle:], k)
            return
    yield group


def _find_usual(values: NDArray[np.object_], *, ordered: bool) -> object:
    """The middle number, or the commonest level; missing where most are."""
    known = [value for value in values.tolist() if not pd.isna(value)]
    if 2 * len(known) < len(values) or not known:
        return np.nan
    return sorted(known)[len(known) // 2] if ordered else Counter(known).most_common(1)[0][0]
