"""What a column of a table is, and what is proposed to make of it."""

import re
from collections.abc import Callable

import numpy as np
import pandas as pd

from countertrain.tables.columns import Categorical, Numeric
from countertrain.tables.inspection.facts import Facts
from countertrain.tables.inspection.findings import DROPPED, REFUSED, Finding, Verdict, say_count, say_share
from countertrain.tables.names import says_id
from countertrain.tables.summaries import MAX_LEVELS
from countertrain.words import list_names, plain

__all__ = ["MIN_ROWS", "judge_column"]

MIN_ROWS = 5
"""Fewer rows than these are too few to learn a level from."""

_FEW_ROWS = 20  # of a table, for all values to differ by chance
_UNIQUE = 0.95  # share of different values from which on texts are ids, or free text
_WORDS = 4  # in a text, for it to be free text
_COVERED = 0.5  # of the rows have one of the frequent levels, for a column of many levels to be kept
_TIMES = ("datetime64", "datetime", "date", "timedelta64", "timedelta", "period", "time")
_AMOUNT = re.compile(
    r"\s*[€$£]?\s*[-+]?(\d{1,3}([.,' ]\d{3})+|\d+)([.,]\d+)?\s*(€|\$|£|%|EUR|USD|GBP|CHF|kg|km|cm|m)?\s*"
)
_DATE = re.compile(
    r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}"
    r"|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})|\d{1,2}[ -]?[A-Za-z]{3,9}\.?[ ,-]*\d{2,4})"
    r"([T ,]+\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?\s*(Z|[AaPp][Mm]|[+-]\d{2}:?\d{2})?)?\s*"
)


def judge_column(facts: Facts) -> Verdict:
    """The first thing that is wrong with a column as a whole, or else the column as training reads it."""
    judges: tuple[Callable[[Facts], Verdict | None], ...] = (
        _judge_empty, _judge_constant, _judge_dates, _judge_amounts, _judge_ids, _judge_mixed, _judge_texts,
        _judge_levels, _judge_rest,
    )  # fmt: skip
    for judge in judges:
        verdict = judge(facts)
        if verdict is not None:
            return verdict
    return Verdict(facts.inferred)


def _drop(facts: Facts, kind: str, seen: str, done: str, way_out: str = DROPPED) -> Verdict:
    done = REFUSED if facts.inferred is None else done
    return Verdict(None, (Finding(kind, facts.name, seen, done, way_out, facts.weight),), seen)


def _judge_empty(facts: Facts) -> Verdict | None:
    return _drop(facts, "empty", "has no value at all", "") if facts.kind == "empty" else None


def _judge_constant(facts: Facts) -> Verdict | None:
    if facts.n_distinct != 1 or facts.inferred is not None:
        return None
    rest = f", or missing ({say_count(int(facts.missing.sum()), 'row')})" if facts.missing.any() else ""
    seen = f"is {plain(facts.counts.index[0])!r} in every row{rest}"
    return _drop(facts, "constant", seen, "")


def _judge_dates(facts: Facts) -> Verdict | None:
    texts = facts.texts
    if facts.kind not in _TIMES and (texts is None or texts.str.fullmatch(_DATE).mean() < 0.9):
        return None
    example = str(facts.known.iloc[0])
    return _drop(
        facts, "date", f"holds dates, such as {example!r}", f"read as {facts.n_distinct} levels without an order",
        "drop it (proposed), or turn it into a number, such as days since a date",
    )  # fmt: skip


def _judge_amounts(facts: Facts) -> Verdict | None:
    """Numbers that are written for people, with separators or units."""
    texts = facts.texts
    if (
        texts is None
        or facts.n_distinct <= 2
        or texts.str.fullmatch(_AMOUNT).mean() < 0.9
        or _count_numbers(facts) > 0.5
    ):
        return None
    seen = f"holds numbers with separators or units, such as {facts.counts.index[0]!r}"
    done = f"read as {facts.n_distinct} levels"
    return _drop(facts, "mixed", seen, done, "write them as plain numbers in the file, or drop it (proposed)")


def _judge_ids(facts: Facts) -> Verdict | None:
    """Whole numbers or short texts that differ in (nearly) every row."""
    n, distinct, named = len(facts.known), facts.n_distinct, says_id(facts.name)
    if n < _FEW_ROWS or (distinct < _UNIQUE * n and not (named and distinct > max(MAX_LEVELS, 0.1 * n))):
        return None
    if facts.numbers is not None:
        steps = np.diff(facts.numbers)
        counted = float((steps == 1).mean()) >= _UNIQUE
        if not facts.whole or not (counted or named or (distinct == n and (steps > 0).all())):
            return None
        low, high = f"{facts.numbers.min():.0f}", f"{facts.numbers.max():.0f}"
        seen = f"numbers the rows, {low} to {high}" if counted else f"is an id: {distinct:,} different whole numbers"
        done = "learnt from like any other number"
    elif facts.texts is not None and not _is_free(facts.texts) and _count_numbers(facts) < 0.5:
        seen, done = f"is an id: {distinct:,} different texts, such as {facts.counts.index[0]!r}", "read as levels"
    else:
        return None
    if distinct < _UNIQUE * n:
        seen += f" in {n:,} rows, so that some are of the same person"
    return _drop(facts, "id", seen, done)


def _judge_mixed(facts: Facts) -> Verdict | None:
    """Numbers with some texts in between."""
    share = _count_numbers(facts)
    if share < 0.5 or facts.n_distinct <= 2:
        return None
    texts = facts.known.astype(str).str.strip()
    read = pd.to_numeric(texts, errors="coerce")
    odd = texts[read.isna()]
    column = Numeric(name=facts.name, missing="level", blank=tuple(odd.unique()[:MAX_LEVELS]))
    where = facts.values.index.isin(odd.index)
    seen = f"holds numbers, but also {list_names([*odd.value_counts().index], 3)} in {facts.rows.say(where)}"
    seen = seen if len(odd) else f"holds numbers that are written as texts, such as {facts.counts.index[0]!r}"
    done = f"read as {facts.n_distinct} levels" if facts.inferred is not None else REFUSED
    if odd.nunique() > MAX_LEVELS:
        return _drop(facts, "mixed", seen, done)
    way_out = "read them as numbers, and those texts as missing (proposed)"
    way_out = way_out if len(odd) else "read them as numbers (proposed)"
    known = read[read.notna()]
    whole = bool((known == np.rint(known)).all())
    column = column.model_copy(update={"integer": whole, "step": 1.0 if whole else None})
    return Verdict(column, (Finding("mixed", facts.name, seen, done, way_out, facts.weight),))


def _judge_texts(facts: Facts) -> Verdict | None:
    if facts.texts is None or not _is_free(facts.texts) or facts.n_distinct <= MAX_LEVELS:
        return None
    example = str(facts.counts.index[0])
    example = example if len(example) <= 30 else f"{example[:27]}..."
    return _drop(facts, "text", f"is free text, such as {example!r}", REFUSED)


def _judge_levels(facts: Facts) -> Verdict | None:
    """More levels than a column can have: the frequent ones are kept where most rows have one of them."""
    if facts.kind not in ("string", "categorical", "mixed", "mixed-integer") or facts.n_distinct <= MAX_LEVELS:
        return None
    enough = facts.counts[facts.counts >= max(MIN_ROWS, 0.002 * len(facts.values))][: MAX_LEVELS - 1]
    covered = int(enough.sum())
    seen = f"has {facts.n_distinct:,} different levels, of which at most {MAX_LEVELS} can be told apart"
    if covered < _COVERED * len(facts.known) or len(enough) < 2:
        return _drop(facts, "levels", seen, REFUSED, "drop it (proposed), or group its levels in the file")
    column = Categorical(
        name=facts.name,
        levels=tuple(sorted(enough.index, key=lambda level: (isinstance(level, str), level))),
        missing="level" if facts.missing.any() else "refuse",
        unseen="other",
    )
    share = say_share(covered, len(facts.known))
    way_out = f"keep the {len(enough)} most frequent, which {share} of the rows have, others as one (proposed)"
    return Verdict(column, (Finding("levels", facts.name, seen, REFUSED, way_out, "refused"),))


def _judge_rest(facts: Facts) -> Verdict | None:
    """Whatever else training refuses, in its own words."""
    if facts.inferred is not None:
        return None
    seen = facts.refusal.removeprefix(f"column {facts.name!r} ").rsplit("; ", 1)[0]
    where = ""
    if facts.numbers is not None and not np.isfinite(facts.numbers).all():
        infinite = np.zeros(len(facts.values), dtype=bool)
        infinite[~facts.missing] = np.isinf(facts.numbers)
        where = f" ({facts.rows.say(infinite)})"
    return _drop(facts, "refused", seen + where, REFUSED, "correct it in the file, or drop it (proposed)")


def _is_free(texts: "pd.Series[str]") -> bool:
    """Whether texts were written by people as they liked."""
    return bool(texts.str.count(r"\s+").mean() + 1 >= _WORDS or texts.str.len().mean() > 60)


def _count_numbers(facts: Facts) -> float:
    """The share of different values that are numbers written as texts."""
    if facts.texts is None:
        return 0.0
    return float(pd.to_numeric(facts.texts.str.strip(), errors="coerce").notna().mean())
