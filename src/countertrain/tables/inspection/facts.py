"""One column, looked at once: what all judgements about it are made of."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from countertrain.tables.columns import Boolean, Categorical, Numeric
from countertrain.tables.inspection.findings import RowNames, Weight
from countertrain.tables.schema import SchemaError
from countertrain.tables.summaries import Summary

__all__ = ["Facts"]

_SAMPLE = 2000  # texts that are looked at to tell what they are


@dataclass(frozen=True, eq=False)
class Facts:
    """The values of a column, and what training would make of them."""

    values: "pd.Series[Any]"
    rows: RowNames
    kind: str
    """In the words of pandas; "empty" where all values are missing."""
    inferred: Numeric | Categorical | Boolean | None
    """The column as training reads it; None: it refuses."""
    refusal: str

    @classmethod
    def of(cls, values: "pd.Series[Any]", rows: RowNames) -> Self:
        """Look at a column."""
        summary = Summary.of(values)
        try:
            inferred, refusal = summary.infer(), ""
        except SchemaError as error:
            inferred, refusal = None, str(error)
        return cls(values, rows, summary.kind, inferred, refusal)

    @property
    def name(self) -> str:
        """What the column is called."""
        return str(self.values.name)

    @property
    def weight(self) -> Weight:
        """How much it weighs that something is wrong with the column."""
        return "warning" if self.inferred is not None else "refused"

    @cached_property
    def missing(self) -> NDArray[np.bool_]:
        """(n,), where there is no value."""
        return self.values.isna().to_numpy()

    @cached_property
    def known(self) -> "pd.Series[Any]":
        """The values that there are."""
        return self.values[~self.missing]

    @cached_property
    def counts(self) -> "pd.Series[int]":
        """How many rows have each value, the most frequent first."""
        try:
            return self.known.value_counts()
        except TypeError:  # lists and the like, which cannot be compared
            return pd.Series(dtype="int64")

    @property
    def n_distinct(self) -> int:
        """How many different values there are."""
        return len(self.counts)

    @cached_property
    def numbers(self) -> NDArray[np.float64] | None:
        """The known values as numbers, if they are numbers."""
        if self.kind not in ("integer", "floating", "mixed-integer-float"):
            return None
        return self.known.to_numpy(dtype=np.float64)

    @cached_property
    def whole(self) -> bool:
        """Whether all known values are whole numbers."""
        numbers = self.numbers
        return numbers is not None and bool(np.isfinite(numbers).all() and (numbers == np.rint(numbers)).all())

    @cached_property
    def texts(self) -> "pd.Series[Any] | None":
        """The different texts, as far as they are looked at, if the values are texts and maybe others."""
        if self.kind not in ("string", "mixed", "mixed-integer") or not self.n_distinct:
            return None
        distinct = pd.Series(self.counts.index, dtype=object)
        return distinct.iloc[:: max(1, len(distinct) // _SAMPLE)].astype(str)
