"""What is to be said of a column that stays: missing values, rare levels, codes, and names of what nobody changes."""

from typing import Any

import numpy as np

from countertrain.tables.columns import Boolean, Categorical, Column, Numeric
from countertrain.tables.inspection.facts import Facts
from countertrain.tables.inspection.findings import Finding, say_share
from countertrain.tables.inspection.verdicts import MIN_ROWS
from countertrain.tables.names import PAST, find_hint, says_code, says_id
from countertrain.tables.sense import MOST_HOURS, make_sense
from countertrain.tables.spikes import find_ends, find_spikes
from countertrain.tables.summaries import MAX_LEVELS
from countertrain.words import list_names, list_phrases, plain

__all__ = [
    "group_rare",
    "remark_blanks",
    "remark_code",
    "remark_fixed",
    "remark_missing",
    "remark_sense",
    "remark_spikes",
]

_BLANKS = """? ?? - -- . na n/a n.a. nan null nil unknown missing unspecified undefined unbekannt fehlt k.a. inconnu
    inconnue manquant desconocido desconocida onbekend ontbreekt"""
_COMMON = 0.005  # of the rows: values of fewer may be the far end of a count


def remark_missing(facts: Facts, column: Column) -> Finding | None:
    """How many values are missing, and what stands for them."""
    n = int(facts.missing.sum())
    if not n:
        return None
    seen = f"{n:,} missing ({say_share(n, len(facts.values))}), {facts.rows.say(facts.missing)}"
    if column.missing == "refuse":
        way = "give the values, or declare missing = 'fill'" + (" or 'level'" * (not isinstance(column, Boolean)))
        return Finding("missing", facts.name, seen, "training refuses them", way, "refused")
    if column.missing == "level":
        done = "'missing' is a level of its own, to which nobody is sent"
        if isinstance(column, Numeric):
            done = "'missing' is a state of its own, which the model is told of"
        return Finding("missing", facts.name, seen, done, "nothing to do; or missing = 'fill' in the schema")
    stand_in = plain(column.fill)
    which = "the median" if isinstance(column, Numeric) else "the most frequent value"
    done = f"filled in with {which} of the training rows" if stand_in is None else f"filled in with {_say(stand_in)}"
    return Finding("missing", facts.name, seen, done, "another fill in the schema, or missing = 'refuse'")


def group_rare(facts: Facts, column: Column) -> tuple[Column, Finding | None]:
    """The column with levels that too few rows have counted as one."""
    if not isinstance(column, Categorical) or column.unseen == "other":
        return column, None
    few = facts.counts[facts.counts < MIN_ROWS]
    kept = tuple(level for level in column.levels if level not in few.index)
    if few.empty:
        return column, None
    have = "has" if len(few) == 1 else "have"
    seen = f"{len(few)} of {len(column.levels)} levels {have} fewer than {MIN_ROWS} rows: {list_names([*few.index], 3)}"
    done, way = "hardly learnt, and nobody is sent there", "nothing to do"
    if len(kept) > 1:
        way = "count them, and whatever comes later, as 'any other' (proposed)"
        column = column.model_copy(update={"levels": kept, "unseen": "other", "transitions": None})
    return column, Finding("rare", facts.name, seen, done, way)


def remark_code(facts: Facts, column: Column) -> tuple[Column | None, Finding | None]:
    """The column as levels, where its numbers are codes by their name; only a remark where they just look like it."""
    if not isinstance(column, Numeric) or not facts.whole or facts.numbers is None:
        return column, None
    hint = find_hint(facts.name)
    named = says_code(facts.name) or says_id(facts.name) or (hint is not None and hint.nominal)
    done = "learnt from like any other number"
    if named and facts.n_distinct > MAX_LEVELS:
        seen = f"{facts.n_distinct:,} different codes, by its name"
        return None, Finding("code", facts.name, seen, done, "drop it (proposed), or group its codes", "warning")
    if named:
        levels = tuple(_as_whole(level) for level in sorted(facts.counts.index))
        missing: Any = "level" if facts.missing.any() else "refuse"
        declared = Categorical(name=facts.name, levels=levels, missing=missing)
        seen = f"{len(levels)} codes that are no amounts, by its name: {list_names(levels, 5)}"
        return declared, Finding("code", facts.name, seen, done, "declare them as levels (proposed)", "warning")
    common = np.sort(facts.counts[facts.counts >= _COMMON * len(facts.known)].index.to_numpy(dtype=np.float64))
    steps = np.diff(common)
    if 3 <= facts.n_distinct <= 30 and len(common) > 2 and len(set(steps)) > 1 and 2 * len(common) < np.ptp(common) + 1:
        seen = f"only {facts.n_distinct} whole numbers, with gaps: {list_names([int(one) for one in common], 5)}"
        way = "if they are codes: kind = 'categorical' in the schema"
        return column, Finding("code", facts.name, seen, done, way)
    return column, None


def remark_spikes(facts: Facts, column: Column) -> Finding | None:
    """Numbers that many rows have, far beyond all others: codes or caps, and no amounts."""
    if not isinstance(column, Numeric) or facts.numbers is None or not np.isfinite(facts.numbers).all():
        return None
    spikes = find_spikes(facts.numbers)
    if not len(spikes):
        return None
    n = int(np.isin(facts.numbers, spikes).sum())
    low, high = (_say(end) for end in find_ends(facts.numbers))
    listed = list_phrases([_say(one) for one in spikes], 3)
    seen = f"{listed} in {n:,} rows ({say_share(n, len(facts.values))}), far from all others, {low} to {high}"
    way_out = "nothing to do; if it stands for a missing value, leave its cells empty in the file"
    return Finding("spike", facts.name, seen, "learnt from, but nobody is sent there", way_out)


def remark_fixed(name: str) -> Finding | None:
    """Why the column of such a name is proposed as fixed."""
    hint = find_hint(name)
    if hint is None or hint.in_time:
        return None
    seen = f"{hint.concept}, by its name: {hint.reason}"
    return Finding("fixed", name, seen, "held fixed", "nothing to do; or a schema that lets it change")


def remark_sense(column: Column) -> tuple[Column, Finding | None]:
    """The column with what its words say: grades may only get better, a week has an end, and the past is past."""
    sensible = make_sense(column)
    if sensible is column:
        return column, None
    if isinstance(sensible, Categorical):
        seen = f"grades, by its levels: {list_names(sensible.levels, 5)}"
        return sensible, Finding(
            "grades", column.name, seen, "may only get better", "nothing to do; or a schema without it"
        )
    if sensible.last_resort:
        seen = f"{PAST.concept}, by its name: {PAST.reason}"
        done = "may only fall, and only where nothing else will do"
        return sensible, Finding("past", column.name, seen, done, "nothing to do; or mutability = 'none' in the schema")
    seen = "hours a week, by its name"
    done = f"nobody is sent beyond {MOST_HOURS:.0f}"
    return sensible, Finding("hours", column.name, seen, done, "nothing to do; or another upper in the schema")


def remark_blanks(facts: Facts, column: Column) -> tuple[Column, Finding | None]:
    """The column of which no level is advised that reads like a missing value."""
    if not isinstance(column, Categorical):
        return column, None
    blank = [level for level in column.levels if str(level).strip().lower() in _BLANKS.split()]
    if not blank:
        return column, None
    n = int(facts.counts[blank].sum())
    seen = f"{list_names(blank, 3)} in {n:,} rows ({say_share(n, len(facts.values))}) reads like a missing value"
    column = column.model_copy(update={"rare": tuple(map(str, blank))})
    way = "list it as rare, so that nobody is sent there (proposed)"
    return column, Finding("blank", facts.name, seen, "a level like any other, which advice may name", way)


def _as_whole(level: Any) -> int:
    return int(level)


def _say(value: Any) -> str:
    return f"{value:,.10g}" if isinstance(value, int | float) and not isinstance(value, bool) else repr(value)
