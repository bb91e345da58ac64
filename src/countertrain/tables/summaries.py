"""What the values of a column show, part by part: enough to infer what it means without holding all of them."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from countertrain.constraints import Mutability
from countertrain.tables.columns import EXACT, Boolean, Categorical, Numeric
from countertrain.tables.sentences import SchemaError
from countertrain.words import plain

__all__ = ["MAX_LEVELS", "Summary"]

MAX_LEVELS = 50
"""Most classes, and most levels of a column."""

_LEVELS = ("string", "categorical", "mixed", "mixed-integer")
_NUMBERS = ("integer", "floating", "mixed-integer-float")
_CLASH = "clash"
_USUAL = (1, 2, 5, 25, 12, 3, 4, 6, 7, 15, 24, 36)  # steps that people count in, and ten, a hundred, ... of them
_ENOUGH = 30  # numbers that show that all have more in common than their decimals
_FEW = 64  # numbers, of which most columns show already that 1 is all that they have in common


@dataclass(frozen=True)
class Summary:
    """What there is to know of a column, of all its rows or of some of them."""

    name: str
    kind: str
    """In the words of pandas; "empty" where all values are missing, "clash" where parts are of kinds that never mix."""
    dtype: Any
    missing: bool
    distinct: tuple[Any, ...]
    """Different values in the order in which they came; no more than it takes to see that there are too many."""
    max_levels: int
    decimals: int | None = 0
    """How many decimals all numbers can be written with, up to 6; None: with more."""
    largest: float = 0.0
    """The absolute value of the largest number."""
    common: int = 0
    """What all numbers are multiples of, counted in the last of their decimals; 0: all are 0."""
    n_others: int = 0
    """Numbers other than 0, which is a multiple of anything."""

    @classmethod
    def of(cls, values: "pd.Series[Any]", max_levels: int = MAX_LEVELS) -> Self:
        """What some values show."""
        known = values.dropna()
        kind = "empty" if known.empty else pd.api.types.infer_dtype(known)
        try:
            distinct = tuple(known.unique())
        except TypeError:  # lists and the like, which cannot be compared
            distinct = (known.iloc[0],)
        whole = cls(str(values.name), kind, values.dtype, len(known) < len(values), (), max_levels)
        if kind in _NUMBERS:
            numbers = known.to_numpy()
            numbers = numbers if numbers.dtype.kind == "f" else numbers.astype(np.float64)
            decimals = _decimals(numbers)
            common = 0 if decimals is None else _find_common(np.rint(numbers.astype(np.float64) * 10**decimals))
            whole = replace(
                whole,
                decimals=decimals,
                largest=float(np.abs(numbers).max()),
                common=common,
                n_others=int((numbers != 0).sum()),
            )
        return replace(whole, distinct=distinct[: whole._most])

    def merge(self, other: Self) -> Self:
        """What this part and another one show together: no more and no less than all their rows at once."""
        if "empty" in (self.kind, other.kind):
            kind = other.kind if self.kind == "empty" else self.kind
        elif self.kind in _NUMBERS and other.kind in _NUMBERS and self.kind != other.kind:
            kind = "floating"
        else:
            kind = self.kind if self.kind == other.kind else _CLASH
        decimals = None if None in (self.decimals, other.decimals) else max(self.decimals or 0, other.decimals or 0)
        whole = replace(
            self,
            kind=kind,
            dtype=_common_dtype(self, other),
            missing=self.missing or other.missing,
            decimals=decimals,
            largest=max(self.largest, other.largest),
            common=math.gcd(self._count_in(decimals), other._count_in(decimals)),
            n_others=self.n_others + other.n_others,
        )
        return replace(whole, distinct=tuple(dict.fromkeys((*self.distinct, *other.distinct)))[: whole._most])

    @property
    def clashes(self) -> bool:
        """Whether some parts hold texts and others something else, so that all are to be read as texts."""
        return self.kind == _CLASH

    @property
    def _most(self) -> int:
        return 3 if self.kind in _NUMBERS else self.max_levels + 1

    def infer(self, mutability: Mutability = "both") -> Numeric | Categorical | Boolean:
        """The column that such values come from."""
        name, distinct = self.name, self.distinct
        if self.kind == "empty":
            raise SchemaError(f"column {name!r} has no value at all; drop it")
        if self.kind in _LEVELS:
            return self._infer_levels(mutability)
        if self.kind not in ("boolean", *_NUMBERS):
            raise SchemaError(
                f"column {name!r} holds values of the kind {self.kind!r}, which a model cannot see; drop it, or turn "
                "it into numbers (such as days since a date) or texts"
            )
        if len(distinct) == 1:
            raise SchemaError(self._constant)
        missing: Literal["level", "refuse"] = "level" if self.missing else "refuse"
        if self.kind == "boolean" or set(distinct) == {0, 1}:
            pair = (False, True) if self.kind == "boolean" else (0, 1)
            if self.missing:
                return Categorical(name=name, levels=pair, ordered=True, missing=missing, mutability=mutability)
            return Boolean(name=name, values=pair, mutability=mutability)
        step = self._step()
        if self.kind == "integer" and step is None:
            raise SchemaError(
                f"column {name!r} holds integers that are too large to compute with; drop or shorten them"
            )
        return Numeric(
            name=name,
            integer=self.decimals == 0 and step is not None,
            step=step,
            missing=missing,
            mutability=mutability,
        )

    def _infer_levels(self, mutability: Mutability) -> Categorical:
        """Levels in the order of a pandas category, or else sorted; only those that some row has."""
        odd = [level for level in self.distinct if not isinstance(plain(level), str | bool | int | float)]
        if odd:
            raise SchemaError(f"column {self.name!r} may hold texts, numbers and truth values; got {odd[0]!r}; drop it")
        if len(self.distinct) > self.max_levels:
            raise SchemaError(
                f"column {self.name!r} has more than {self.max_levels} different levels; drop it, group its levels, "
                "or raise max_levels"
            )
        if len(self.distinct) == 1 and not self.missing:
            raise SchemaError(self._constant)
        category = isinstance(self.dtype, pd.CategoricalDtype)
        if category:
            levels = [level for level in self.dtype.categories if level in self.distinct]
        else:
            levels = sorted(self.distinct, key=lambda level: (isinstance(level, str), level))
        return Categorical(
            name=self.name,
            levels=tuple(levels),
            ordered=bool(category and self.dtype.ordered),
            mutability=mutability,
            missing="level" if self.missing else "refuse",
        )

    @property
    def _constant(self) -> str:
        value = plain(self.distinct[0])
        return f"column {self.name!r} is {value!r} in every row, so that nothing can be learnt from it; drop it"

    def _count_in(self, decimals: int | None) -> int:
        """What all numbers are multiples of, counted in more decimals."""
        return 0 if decimals is None or self.decimals is None else self.common * 10 ** (decimals - self.decimals)

    def _step(self) -> float | None:
        """The largest number that all are multiples of, such as 100, 12 or 0.05, in no more than six decimals.

        A few rows show only how many decimals there are, and nobody counts in eighties.
        """
        if not np.isfinite(self.largest):
            raise SchemaError(f"column {self.name!r} holds infinite values; replace or drop them")
        if self.decimals is None or np.rint(self.largest * 10**self.decimals) >= EXACT:
            return None
        common = max(self.common, 1) if self.n_others >= _ENOUGH else 1
        zeros = len(str(common)) - len(str(common).rstrip("0"))
        usual = common if common // 10**zeros in _USUAL else math.gcd(common, 10 ** len(str(common)) // 10)
        return float(Fraction(usual, 10**self.decimals))


def _decimals(numbers: NDArray[np.floating[Any]]) -> int | None:
    """How many decimals, up to 6, it takes to write all numbers, as long as they can be counted; None: more."""
    if not np.isfinite(numbers).all():
        return None
    for k in range(7):  # what can be written with k decimals can be written with more
        n_steps = np.rint(numbers.astype(np.float64) * 10**k)
        if (np.abs(n_steps) < EXACT).all() and ((n_steps / 10**k).astype(numbers.dtype) == numbers).all():
            return k
    return None


def _find_common(counts: NDArray[np.float64]) -> int:
    """The greatest whole number that all of some are multiples of; a few are looked at before all are."""
    found = 0
    for part in np.split(counts, [_FEW]):
        if found != 1:
            found = math.gcd(found, int(np.gcd.reduce(np.abs(part).astype(np.int64), initial=0)))
    return found


def _common_dtype(one: Summary, other: Summary) -> Any:
    """The type in which pandas holds the values of both."""
    first, second = one.dtype, other.dtype
    if isinstance(first, pd.CategoricalDtype) and isinstance(second, pd.CategoricalDtype):
        more = [level for level in second.categories if level not in first.categories]
        return pd.CategoricalDtype([*first.categories, *more], bool(first.ordered and second.ordered and not more))
    if first == second:
        return first
    if all(isinstance(dtype, np.dtype) and dtype.kind in "iuf" for dtype in (first, second)):
        return np.result_type(first, second)
    for part, dtype in ((one, second), (other, first)):
        if part.kind == "empty" and not pd.api.types.is_bool_dtype(dtype):
            return dtype
    return np.dtype(object)
