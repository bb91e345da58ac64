"""What a responsible owner wants to know: proxies of immutable columns, and groups for whom recourse costs more."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from countertrain.recourse.rendering import as_text
from countertrain.tables.schema import MISSING, Numeric, Schema
from countertrain.words import plain

__all__ = [
    "ENOUGH",
    "PROXY",
    "RATIO",
    "Association",
    "Disparity",
    "Estimate",
    "GroupOutcome",
    "Grouping",
    "Measure",
    "compare_groups",
    "measure_associations",
    "tabulate_people",
]

PROXY = 0.5
"""An association, from 0 to 1, at which a column is called a proxy."""
RATIO = 1.2
"""How many times worse off than others a group must be for a warning."""
ENOUGH = 20
"""People below which a mean says too little."""
_BANDS, _MOST_GROUPS, _RESAMPLES = 4, 30, 1000

Floats = NDArray[np.float64]
Measure = Literal["accepted", "valid", "fixed", "cost"]
"""Of people: accepted by the model; of those rejected: helped by recourse, or proven that nothing they may change would
do (fixed); of those helped: its cost."""


@dataclass(frozen=True)
class Association:
    """How much an immutable column and one that people can change say about one another, from 0 to 1."""

    immutable: str
    column: str
    strength: float
    measure: str


def measure_associations(schema: Schema, table: pd.DataFrame) -> tuple[Association, ...]:
    """Every immutable column with every other, strongest first, measured on the rows in which both are known."""
    fixed = [column for column in schema.columns if column.mutability == "none"]
    others = [column for column in schema.columns if column.mutability != "none"]
    values = {column.name: _to_numbers(column, table[column.name]) for column in schema.columns}
    found = []
    for a, b in product(fixed, others):
        one, other = values[a.name], values[b.name]
        known = ~(np.isnan(one) | np.isnan(other))
        strength, measure = _associate(one[known], other[known], isinstance(a, Numeric), isinstance(b, Numeric))
        found.append(Association(a.name, b.name, strength, measure))
    return tuple(sorted(found, key=lambda association: -association.strength))


def _to_numbers(column: Any, values: "pd.Series[Any]") -> Floats:
    """(n,) numbers, or levels by number; NaN where missing, unless that is a level of its own."""
    values = values.astype(object)
    if isinstance(column, Numeric):
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    own_level = column.missing == "level"
    codes = pd.factorize(values, use_na_sentinel=not own_level)[0].astype(np.float64)
    return np.where(codes < 0, np.nan, codes)


def _associate(a: Floats, b: Floats, a_numeric: bool, b_numeric: bool) -> tuple[float, str]:
    """Strength of an association and what it is called, by the kinds of the two columns."""
    if not (a_numeric or b_numeric):
        return cramers_v(a, b), "Cramér's V"
    measure: Callable[[Floats, Floats], float]
    if a_numeric and b_numeric:
        measure, ranks_a, ranks_b = correlation, _rank(a), _rank(b)
        names = ("Pearson's correlation", "Spearman's rank correlation")
    else:
        a, b = (a, b) if b_numeric else (b, a)  # levels, then numbers
        measure, ranks_a, ranks_b = correlation_ratio, a, _rank(b)
        names = ("correlation ratio", "correlation ratio of ranks")
    plainly, by_rank = measure(a, b), measure(ranks_a, ranks_b)
    return (plainly, names[0]) if plainly >= by_rank else (by_rank, names[1])


def correlation(a: Floats, b: Floats) -> float:
    """Absolute correlation of two columns of numbers; 0 where one of them is constant."""
    if len(a) < 2 or not (np.ptp(a) and np.ptp(b)):
        return 0.0
    return float(min(abs(np.corrcoef(a, b)[0, 1]), 1.0))


def correlation_ratio(levels: Floats, numbers: Floats) -> float:
    """eta: how much of the spread of numbers lies between levels; corrected for what many levels explain by chance."""
    _, place, counts = np.unique(levels, return_inverse=True, return_counts=True)
    n, k = len(numbers), len(counts)
    if k < 2 or n <= k or not np.ptp(numbers):
        return 0.0
    means = np.bincount(place, numbers) / counts
    within, total = ((numbers - means[place]) ** 2).sum(), ((numbers - numbers.mean()) ** 2).sum()
    return float(max(0.0, 1 - within / total * (n - 1) / (n - k)) ** 0.5)


def cramers_v(a: Floats, b: Floats) -> float:
    """Cramér's V of two columns of levels, with Bergsma's correction of its bias."""
    table = pd.crosstab(a, b).to_numpy(dtype=np.float64)  # (r, c), no empty row or column
    n, (r, c) = table.sum(), table.shape
    if min(r, c) < 2:
        return 0.0
    expected = table.sum(1, keepdims=True) * table.sum(0) / n
    phi2 = ((table - expected) ** 2 / expected).sum() / n - (r - 1) * (c - 1) / (n - 1)
    least = min(size - (size - 1) ** 2 / (n - 1) for size in (r, c)) - 1
    return float(min(max(0.0, phi2) / least, 1.0) ** 0.5) if least > 0 else 0.0


def _rank(values: Floats, *, pct: bool = False) -> Floats:
    return np.asarray(pd.Series(values).rank(pct=pct), dtype=np.float64)


def tabulate_people(
    accepted: NDArray[np.bool_], valid: NDArray[np.bool_], fixed: NDArray[np.bool_], cost: Floats
) -> pd.DataFrame:
    """A row for each person, a column for each `Measure`, NaN for those who do not count in it.

    Validity and cost of recourse, and who is fixed, are given only for those who are not accepted, in the same order.
    """
    found = pd.DataFrame({"accepted": accepted.astype(float), "valid": np.nan, "fixed": np.nan, "cost": np.nan})
    found.loc[~accepted, "valid"] = valid.astype(float)
    found.loc[~accepted, "fixed"] = fixed.astype(float)
    found.loc[~accepted, "cost"] = np.where(valid, cost, np.nan)
    return found


@dataclass(frozen=True)
class Estimate:
    """A mean over people, with its bootstrap 95 % interval."""

    mean: float
    low: float
    high: float

    def differs_from(self, other: "Estimate") -> bool:
        """Whether the intervals do not overlap."""
        return self.low > other.high or self.high < other.low


@dataclass(frozen=True)
class GroupOutcome:
    """People of one group; an estimate is None where too few of them count in it."""

    name: str
    n: int
    n_rejected: int
    accepted: Estimate | None
    valid: Estimate | None
    fixed: Estimate | None
    cost: Estimate | None
    n_stuck: int = 0
    """Rejected people for whom no option was found, and those of them for whom none exists: proven."""
    n_fixed: int = 0


@dataclass(frozen=True)
class Disparity:
    """A group that is clearly worse off than all others together."""

    group: str
    measure: Measure
    mine: Estimate
    others: Estimate


@dataclass(frozen=True)
class Grouping:
    """The groups that a column of the table makes, and those that are worse off."""

    column: str
    groups: tuple[GroupOutcome, ...]
    disparities: tuple[Disparity, ...]


def compare_groups(
    column: str, values: "pd.Series[Any]", outcomes: pd.DataFrame, schema: Schema, *, seed: int = 0
) -> Grouping:
    """Compare people by their values of a column; numbers are split into bands of about equally many people."""
    place, names = _split_people(column, values, schema)
    rng = np.random.default_rng(seed)
    groups: list[GroupOutcome] = []
    disparities: list[Disparity] = []
    for i, name in enumerate(names):
        inside = place == i
        mine, others = (_estimate_all(outcomes[rows], rng) for rows in (inside, ~inside))
        n_rejected = int((outcomes["accepted"][inside] == 0).sum())
        stuck, fixed = (
            int((outcomes[column][inside] == value).sum()) for column, value in (("valid", 0), ("fixed", 1))
        )
        groups.append(GroupOutcome(name, int(inside.sum()), n_rejected, **mine, n_stuck=stuck, n_fixed=fixed))
        disparities += _find_disparities(name, mine, others)
    return Grouping(column, tuple(groups), tuple(disparities))


def _split_people(column: str, values: "pd.Series[Any]", schema: Schema) -> tuple[NDArray[np.int64], list[str]]:
    """(n,) the place of each person's group, and what the groups are called."""
    declared = schema[column] if column in schema.names else None
    numeric = is_numeric_dtype(values) and not is_bool_dtype(values)
    if declared is not None:
        numeric = isinstance(declared, Numeric)
    distinct = values.dropna().unique()
    if numeric and len(distinct) > _BANDS:
        numbers = values.astype(object).to_numpy(dtype=np.float64, na_value=np.nan)
        place = pd.factorize(np.ceil(_rank(numbers, pct=True) * _BANDS), sort=True)[0]  # equal numbers stay together
        names = [_name_band(numbers[place == i]) for i in range(place.max() + 1)]
    else:
        order = {level: i for i, level in enumerate(getattr(declared, "levels", ()))}
        levels = sorted(distinct, key=lambda level: (order.get(level, len(order)), isinstance(level, str), level))
        place = pd.Index(levels, dtype=object).get_indexer(pd.Index(values, dtype=object))
        names = [as_text(plain(level)) for level in levels]
    if len(names) > _MOST_GROUPS:
        raise ValueError(
            f"column {column!r} makes {len(names)} groups, more than {_MOST_GROUPS}; join some of them in a column of "
            "its own, and name that one"
        )
    if (place < 0).any():
        place, names = np.where(place < 0, len(names), place), [*names, MISSING]
    return place, names


def _name_band(numbers: Floats) -> str:
    low, high = (as_text(float(f"{end:.4g}")) for end in (numbers.min(), numbers.max()))
    return f"{low} to {high}"


def _estimate_all(outcomes: pd.DataFrame, rng: np.random.Generator) -> dict[str, Estimate | None]:
    return {str(name): _estimate(outcomes[name].dropna().to_numpy(), rng) for name in outcomes}


def _estimate(values: Floats, rng: np.random.Generator) -> Estimate | None:
    if len(values) < ENOUGH:
        return None
    means = values[rng.integers(len(values), size=(_RESAMPLES, len(values)))].mean(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Estimate(float(values.mean()), float(low), float(high))


def _find_disparities(
    name: str, mine: dict[str, Estimate | None], others: dict[str, Estimate | None]
) -> Iterator[Disparity]:
    measures: Sequence[Measure] = ("accepted", "valid", "fixed", "cost")
    for measure in measures:
        here, there = mine[measure], others[measure]
        if here is None or there is None or not here.differs_from(there):
            continue
        worse, better = (here.mean, there.mean) if measure in ("fixed", "cost") else (there.mean, here.mean)
        if worse > RATIO * better:
            yield Disparity(name, measure, here, there)
