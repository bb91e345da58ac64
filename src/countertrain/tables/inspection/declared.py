"""A table and the schema that was declared for it: all that training would refuse, column by column."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype

from countertrain.tables import cells
from countertrain.tables.columns import Categorical, Column, Numeric
from countertrain.tables.inspection.facts import Facts
from countertrain.tables.inspection.findings import REFUSED, Finding, RowNames, say_count, say_share
from countertrain.tables.inspection.remarks import remark_missing
from countertrain.tables.schema import UNBELIEVED, Schema
from countertrain.words import list_names, plain, suggest

__all__ = ["check_declared"]


def check_declared(table: pd.DataFrame, schema: Schema, rows: RowNames) -> Iterator[Finding]:
    """What is wrong with the rows by this schema, what is not in it, and what stands for missing values."""
    missing_columns = [name for name in schema.names if name not in table.columns]
    for column in schema.columns:
        if column.name in missing_columns:
            seen = f"is in the schema, but not in the table; {suggest(column.name, table.columns)}"
            yield Finding("declared", column.name, seen, REFUSED, "correct its name, or leave it out", "refused")
        else:
            yield from _check_cells(Facts.of(table[column.name], rows), column)
    unknown = [name for name in schema.dropped or () if name not in table.columns]
    if unknown:
        seen = f"the schema drops {list_names(unknown, 5)}, which the table does not have"
        yield Finding("declared", None, seen, "nothing", "nothing to do, or correct the name")
    if not missing_columns:
        yield from check_rules(table, schema, rows)
    unseen = [name for name in table.columns if name not in schema.names and name not in (schema.dropped or ())]
    if unseen:
        seen = f"the schema says nothing of {list_names(unseen, 5)}"
        yield Finding("declared", None, seen, "the model does not see it", "declare it, or list it as dropped")


def check_rules(table: pd.DataFrame, schema: Schema, rows: RowNames) -> Iterator[Finding]:
    """Of each rule between columns how many rows break it, and which; too many of them, and it is not believed."""
    try:
        broken = {} if schema.rulebook is None else schema.rulebook.find_broken(table)
    except ValueError:  # cells that no such column can hold have been named already
        return
    kept = [text for text, hit in broken.items() if not hit.any()]
    if kept:
        seen = f"{say_count(len(kept), 'rule')} between columns that no row breaks: {list_names(kept, 3)}"
        yield Finding("rule", None, seen, "training and advice keep to it", "nothing to do")
    for text, hit in broken.items():
        n = int(hit.sum())
        if not n:
            continue
        seen = f"the rule {text!r} is broken by {say_count(n, 'row')} ({say_share(n, len(hit))}), {rows.say(hit)}"
        if hit.mean() > UNBELIEVED:
            way_out = "correct the rule or the rows, or leave the rule out"
            yield Finding("rule", None, seen, REFUSED, way_out, "refused")
        else:
            way_out = "correct these rows, or the rule"
            yield Finding("rule", None, seen, "training and advice keep to it", way_out, "warning")


def _check_cells(facts: Facts, column: Column) -> Iterator[Finding]:
    if isinstance(column, Numeric) and column.blank is not None:
        facts = Facts.of(cells.read_texts(column, facts.values), facts.rows)
    missing = remark_missing(facts, column)
    if missing is not None:
        yield missing
    if isinstance(column, Categorical) and column.unseen is None:
        other = np.isnan(cells.store(column, facts.values)) & ~facts.missing
        if other.any():
            listed = list_names([plain(one) for one in facts.values[other].unique()], 3)
            seen = f"{listed}, not among its levels, in {facts.rows.say(other)}"
            way_out = "nothing to do; list it, or declare unseen = 'refuse'"
            yield Finding("declared", facts.name, seen, "counted as 'any other'", way_out)
    wrong, must = _find_wrong(facts, column)
    if wrong.any():
        example = plain(facts.values[wrong].iloc[0])
        seen = f"{say_count(int(wrong.sum()), 'value')} must {must}; got {example!r} in {facts.rows.say(wrong)}"
        way_out = "correct it in the file, or in the schema"
        yield Finding("declared", facts.name, seen, "training refuses them", way_out, "refused")


def _find_wrong(facts: Facts, column: Column) -> tuple[NDArray[np.bool_], str]:
    """(n,), which values such a column cannot hold, and what they must be."""
    known = ~facts.missing
    if isinstance(column, Numeric):
        if not is_numeric_dtype(facts.values.dtype):
            texts = np.array([not isinstance(value, int | float | np.number) for value in facts.values], dtype=bool)
            if (texts & known).any():
                return texts & known, "be a number"
        floats = facts.values.to_numpy(dtype=np.float64, na_value=np.nan)
        return np.isinf(floats), "be finite"
    if isinstance(column, Categorical) and column.unseen != "refuse":
        return np.zeros(len(known), dtype=bool), ""
    return np.isnan(cells.store(column, facts.values)) & known, f"be one of {list_names(column.levels, 4)}"
