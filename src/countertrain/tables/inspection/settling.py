"""What all rows say of a column that stays, and the reasons that stand beside it in the proposed schema."""

from collections.abc import Sequence

import numpy as np

from countertrain.tables import cells
from countertrain.tables.columns import Boolean, Categorical, Column, Numeric
from countertrain.tables.inspection.facts import Facts
from countertrain.tables.inspection.findings import Finding
from countertrain.words import plain

__all__ = ["explain_settings", "settle"]

_KEYS = {"code": "kind", "rare": "unseen", "levels": "unseen", "mixed": "blank"}
"""By kind of finding, the setting that was chosen because of it."""


def settle(facts: Facts, column: Column) -> Column:
    """The column with bounds, fill and rare levels of all rows; levels that are listed as rare stay so."""
    if not isinstance(column, Categorical):
        return cells.fit(column, facts.values)
    settled = cells.fit(column.model_copy(update={"rare": None}), facts.values)
    assert isinstance(settled, Categorical)
    rare = tuple(one for one in settled.labels if one in (*(column.rare or ()), *(settled.rare or ())))
    return column.model_copy(update={"rare": rare or None, "fill": settled.fill if column.missing == "fill" else None})


def explain_settings(facts: Facts, column: Column, findings: Sequence[Finding]) -> dict[str, str]:
    """Why each setting of a column is as it is, and under `""` what it holds."""
    reasons = {"": _describe(facts, column)}
    reasons |= {_KEYS[one.kind]: one.seen for one in findings if one.kind in _KEYS}
    for one in findings:
        if one.kind == "fixed":
            reasons["mutability"] = f'{one.seen}; write "both" to let it change'
        if one.kind == "past":
            reasons["last_resort"] = f"{one.seen}; leave it out to have it advised like any other"
    if facts.missing.any():
        most = "the median" if isinstance(column, Numeric) else "the most frequent value"
        reasons["missing"] = f"{int(facts.missing.sum()):,} of {len(facts.values):,} values are missing"
        reasons["fill"] = f"{most} of all rows stands for them" + (", marked as missing" * (column.missing == "level"))
    if isinstance(column, Numeric):
        if column.step not in (None, 1.0):
            reasons["step"] = "all values are multiples of it, and so are those that advice names"
        reasons["lower"] = "the lowest value of all rows: advice goes no further"
        reasons["upper"] = "the highest value of all rows"
        spikes = next((one.seen for one in findings if one.kind == "spike"), None)
        if spikes is not None:
            reasons["lower" if column.lower != facts.known.min() else "upper"] = spikes
    if isinstance(column, Categorical) and column.rare:
        reasons["rare"] = "nobody is sent to these: fewer than 1 in 1,000 rows, or as good as missing"
    return reasons


def _describe(facts: Facts, column: Column) -> str:
    """What a column holds, in a few words."""
    if isinstance(column, Boolean):
        share = float(np.mean(facts.known == column.values[1])) if len(facts.known) else 0.0
        return f"{column.values[1]!r} in {100 * share:.0f} % of the rows"
    if isinstance(column, Categorical):
        return f"{facts.n_distinct} levels, most often {plain(facts.counts.index[0])!r}"
    numbers = facts.numbers
    if numbers is None or not len(numbers):
        return "numbers"
    what = "whole numbers" if facts.whole else "numbers"
    return f"{what}, median {np.median(numbers):,.6g}"
