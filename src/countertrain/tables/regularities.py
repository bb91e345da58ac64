"""What holds between columns in every row of a table, or about, though nobody has declared it, written as rules."""

import math
import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from countertrain.tables.columns import Column, Numeric
from countertrain.tables.names import find_fixed
from countertrain.tables.schema import Schema, as_frame
from countertrain.tables.sense import make_sense

__all__ = ["find_rules", "infer_schema"]

_FEWEST = 30  # rows that show it
_UNLIKELY = math.log(1e-12)  # that so many rows all have a level by chance
_MOST = 25  # columns of numbers that are compared with one another
_SAMPLE = 64  # rows that must agree before all are looked at
_ABOUT = 0.01  # of the variance of a number may be left open by what it is made of, for that to hold about
_NEAR, _MOSTLY = 0.2, 0.98  # how far from it a row may be, and how many rows must not be farther
_MADE: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "*": operator.mul}

Floats = NDArray[np.float64]


def infer_schema(table: pd.DataFrame) -> Schema:
    """What the rows of a table show, with rules for what holds in every row between columns that people may change."""
    table = as_frame(table)
    schema = Schema.infer(table)
    schema = schema.model_copy(update={"columns": tuple(map(make_sense, schema.columns))})
    held = {name: {"mutability": "none"} for name in find_fixed(schema.names)}
    return schema.with_rules(find_rules(table, schema.with_columns(**held).columns))


def find_rules(table: pd.DataFrame, columns: Sequence[Column]) -> tuple[str, ...]:
    """Levels that always go together, such as "No internet" of all that needs it; sums and products of others.

    And levels that say that a number is missing.

    What no advice can change is left out.
    """
    return (*_find_levels(table, columns), *_find_missing(table, columns), *_find_sums(table, columns))


def _find_missing(table: pd.DataFrame, columns: Sequence[Column]) -> Iterator[str]:
    """Numbers that are missing in the very rows of some levels, such as years in a job of those who have none."""
    for number in (column for column in columns if isinstance(column, Numeric) and column.missing != "refuse"):
        missing = table[number.name].isna().to_numpy(dtype=bool)
        if not _FEWEST <= missing.sum() <= len(missing) - _FEWEST:
            continue
        for column in columns:
            here = [
                (label, (table[column.name] == level).to_numpy(bool, na_value=False))
                for level, label in _list_levels(column)
            ]
            said = [(label, rows) for label, rows in here if rows.any() and missing[rows].all()]
            if said and np.array_equal(np.logical_or.reduce([rows for _, rows in said]), missing):
                names = [f'"{label}"' for label, _ in said]
                one = f"== {names[0]}" if len(names) == 1 else f"in ({', '.join(names)})"
                yield f'{_quote(column.name)} {one} <=> {_quote(number.name)} == "missing"'


def _find_levels(table: pd.DataFrame, columns: Sequence[Column]) -> Iterator[str]:
    """Levels of different columns that are those of the very same rows; and those that never come without another.

    The first of several that go together speaks for all of them.
    """
    places = {(c.name, label): _mark(table[c.name], level) for c in columns for level, label in _list_levels(c)}
    same: dict[bytes, list[tuple[str, str]]] = defaultdict(list)
    for one, here in places.items():
        if here.any():
            same[here.tobytes()].append(one)
    for first, *others in same.values():
        for other in others:
            if other[0] != first[0]:
                yield f"{_say_level(*first)} <=> {_say_level(*other)}"
    leading = {first: places[first] for first, *_ in same.values()}
    sure = {other: _UNLIKELY / math.log(here.mean()) for other, here in leading.items()}  # rows that are no chance
    for (one, here), (other, there) in permutations(leading.items(), 2):
        if one[0] != other[0] and here.sum() > sure[other] and not (here & ~there).any():
            yield f"{_say_level(*one)} => {_say_level(*other)}"


def _list_levels(column: Column) -> list[tuple[Any, str]]:
    """The levels that a rule can be about, and their labels."""
    if isinstance(column, Numeric) or column.mutability == "none":
        return []
    return [pair for pair in zip(column.levels, column.labels, strict=False) if '"' not in pair[1]]


def _mark(values: "pd.Series[Any]", level: Any) -> NDArray[np.bool_]:
    """(n,), the rows at a level; none, where too few of them, or of the others, are there to show anything."""
    here = (values == level).to_numpy(dtype=bool, na_value=False)
    return here if _FEWEST <= here.sum() <= len(here) - _FEWEST else np.zeros_like(here)


def _say_level(column: str, label: str) -> str:
    return f'{_quote(column)} == "{label}"'


def _find_sums(table: pd.DataFrame, columns: Sequence[Column]) -> Iterator[str]:
    """Numbers that are the sum or the product of two others, to the step in which they are told, or about that."""
    numeric = [column for column in columns if isinstance(column, Numeric) and column.blank is None]
    known = table[[column.name for column in numeric]].dropna()
    if not 3 <= len(numeric) <= _MOST or len(known) < _FEWEST:
        return
    numbers: Floats = known.to_numpy(dtype=np.float64).T  # (C, n)
    few = numbers[:, np.linspace(0, numbers.shape[1] - 1, _SAMPLE).astype(int)]
    spread = np.ptp(few, axis=1)
    wholes = [k for k, c in enumerate(numeric) if c.mutability != "none" and len(np.unique(few[k])) >= 5]
    best: dict[str, tuple[float, str]] = {}  # of several that say what a number is, the one that misses it least
    for (i, j), (sign, make) in product(combinations(range(len(numeric)), 2), _MADE.items()):
        if not min(spread[i], spread[j]):
            continue
        missing = _miss(few[wholes], make(few[i], few[j]))
        for k in (k for k, share in zip(wholes, missing, strict=True) if k not in (i, j) and share <= 5 * _ABOUT):
            whole = numeric[k]
            slack = 1e-6 * np.abs(few[k]).max() if whole.step is None else 0.5001 * whole.step
            every = make(numbers[i], numbers[j])
            exact = bool((np.abs(numbers[k] - every) <= slack).all())
            if exact or _holds_about(numbers[k], every, (numbers[i], numbers[j])):
                missed = 0.0 if exact else float(_miss(numbers[k], every))
                made_of = f"{_quote(numeric[i].name)} {sign} {_quote(numeric[j].name)}"
                rule = f"{_quote(whole.name)} {'=' if exact else '~'} {made_of}"
                best[whole.name] = min(best.get(whole.name, (math.inf, "")), (missed, rule))
    yield from (rule for _, rule in best.values())


def _holds_about(whole: Floats, made: Floats, parts: Sequence[Floats]) -> bool:
    """Whether numbers (n,) are nearly what others come to, in nearly every row, and neither of these says it alone."""
    near = np.abs(whole - made) <= _NEAR * np.abs(made)
    alone = min(float(_miss(whole, one)) for one in parts)
    return float(_miss(whole, made)) <= _ABOUT and float(near.mean()) >= _MOSTLY and alone > 0.1


def _miss(whole: Floats, made: Floats) -> Floats:
    """The share of the variance of numbers (..., n) that others (n,) leave open."""
    return np.asarray(np.var(whole - made, axis=-1) / np.maximum(np.var(whole, axis=-1), 1e-300))


def _quote(name: str) -> str:
    return (
        name
        if name.isidentifier() and name.lower() not in ("true", "false", "and", "in", "at", "most", "one", "of")
        else f"`{name}`"
    )
