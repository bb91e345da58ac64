"""What is to be said of a table as a whole: names, labels, rows that are there twice."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from countertrain.tables.inspection.findings import REFUSED, Finding, RowNames, say_count, say_share
from countertrain.tables.summaries import MAX_LEVELS
from countertrain.words import list_names, plain

__all__ = ["MIN_TABLE", "find_duplicates", "look_at_labels", "look_at_names", "look_at_size", "name_apart"]

MIN_TABLE = 10
"""Rows that a table must have."""

_FEWEST = 5  # rows of a class, for some to be in each split
_FEW, _SMALL = 50, 0.01  # rows of a class that are few to learn from
_OFTEN = 0.01  # of the rows are there twice, for it to be said
_BY_CHANCE = 100.0


def name_apart(names: Sequence[str]) -> list[str]:
    """Names of which no two are the same: the second `a` is `a.1`, as pandas reads it."""
    apart: list[str] = []
    for name in names:
        n, new = 0, name
        while new in apart:
            n += 1
            new = f"{name}.{n}"
        apart.append(new)
    return apart


def look_at_names(table: pd.DataFrame, header: Sequence[str], *, refused: bool) -> Iterator[tuple[Finding, bool]]:
    """Names that are there twice or not at all; and whether the column is a copy, to be dropped."""
    if len(header) != table.shape[1]:
        return
    for i, name in enumerate(header):
        first, here = list(header).index(name), str(table.columns[i])
        if first == i:
            continue
        same = table.iloc[:, i].equals(table.iloc[:, first].rename(table.columns[i]))
        what = "the same values" if same else "other values"
        seen = f"the {_ordinal(i)} column is called {name!r} like the {_ordinal(first)}, with {what}"
        done = REFUSED if refused else f"read as {here!r}"
        way_out = "drop it (proposed)" if same else "rename one of them in the file"
        if refused:
            way_out = "rename one of them, or drop it, in the file"
        yield Finding("twice", here, seen, done, way_out, "refused" if refused else "warning"), same


def look_at_size(table: pd.DataFrame, label: str) -> Iterator[Finding]:
    """A table that is too small to be split."""
    n, n_columns = int(table[label].notna().sum()), table.shape[1]
    if n < MIN_TABLE or n_columns < 2:
        seen = f"{say_count(n, 'row')} with a label and {say_count(n_columns, 'column')}"
        yield Finding("size", None, seen, REFUSED, f"bring at least {MIN_TABLE} rows and 2 columns", "refused")


def look_at_labels(labels: "pd.Series[Any]", label: str, rows: RowNames) -> Iterator[Finding]:
    """Labels that are missing, are no classes, or that hardly any row has."""
    missing = labels.isna().to_numpy()
    if missing.any():
        n = int(missing.sum())
        seen = f"{say_count(n, 'row')} without a label ({say_share(n, len(labels))}), {rows.say(missing)}"
        yield Finding("label", label, seen, "left out", "nothing to do, or give the labels")
    counts = labels.value_counts()
    if len(counts) < 2:
        seen = f"the label is {plain(counts.index[0])!r} in every row" if len(counts) else "no row has a label"
        yield Finding("label", label, seen, REFUSED, "predict another column", "refused")
        return
    if len(counts) > MAX_LEVELS:
        seen = f"{len(counts):,} different labels, and at most {MAX_LEVELS} classes can be learnt"
        yield Finding("label", label, seen, REFUSED, "group them, or predict another column", "refused")
        return
    tiny = counts[counts < _FEWEST]
    if len(tiny):
        listed = list_names([plain(one) for one in tiny.index], 3)
        where = rows.say(labels.isin(tiny.index).to_numpy())
        seen = f"fewer than {_FEWEST} rows of the class {listed}, {where}"
        yield Finding("class", label, seen, REFUSED, "group it with another class, or leave out its rows", "refused")
    few = counts[(counts >= _FEWEST) & (counts < max(_FEW, _SMALL * counts.sum()))]
    few = few if len(labels) > 2 * _FEW else few[:0]
    if len(few):
        said = ", ".join(f"{plain(one)!r} ({n:,})" for one, n in few.items())
        seen = f"few rows of the class {said}"
        yield Finding("class", label, seen, "learnt from few rows", "class_weight = 'balanced', or group it")


def find_duplicates(table: pd.DataFrame, rows: RowNames) -> Finding | None:
    """Rows that are there more than once, unless a table of so few different values has them by chance."""
    try:
        twice = table.duplicated().to_numpy()
        distinct = [max(1.0, table[name].nunique()) for name in table.columns]
    except TypeError:  # lists and the like
        return None
    n = int(twice.sum())
    if n == 0 or n < _OFTEN * len(table) or np.log(distinct).sum() < np.log(_BY_CHANCE) + 2 * np.log(len(table)):
        return None
    seen = f"{say_count(n, 'row')} ({say_share(n, len(table))}) repeat an earlier one, {rows.say(twice)}"
    done = "kept, so that the same row may be learnt from and tested on"
    return Finding("rows", None, seen, done, "remove them from the file, if they are the same people")


def _ordinal(place: int) -> str:
    n = place + 1
    ending = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"
