"""Applicants whose columns show every rule that a schema can declare, and a judge of what they are told to change."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from countertrain.estimator import CounterfactualClassifier
from countertrain.tables.schema import Boolean, Categorical, Numeric, Schema

JOBS = {"none": ("clerk",), "clerk": ("smith", "baker"), "smith": ("baker",)}
SCHEMA = Schema(
    columns=(
        Numeric(name="age", integer=True, unit="years", mutability="increase", lower=18, upper=90),
        Numeric(name="income", step=100, unit="EUR", lower=0, upper=90_000),
        Numeric(name="savings"),
        Numeric(name="rate", step=0.05, lower=0, upper=2),
        Numeric(name="debt", integer=True, mutability="decrease", lower=0, missing="fill"),
        Categorical(name="job", levels=("none", "clerk", "smith", "baker"), transitions=JOBS),
        Categorical(name="degree", levels=("A", "B", "C"), ordered=True, mutability="increase"),
        Categorical(name="region", levels=("north", "south"), mutability="none"),
        Categorical(name="home", levels=("own", "rent", "parents"), missing="level"),
        Boolean(name="member"),
        Boolean(name="married", values=("no", "yes"), mutability="increase"),
    )
)
QUICK = {"epochs": 12, "learning_rate": 0.02, "n_steps": 10, "random_state": 0}


def people(n: int, seed: int = 0) -> pd.DataFrame:
    """Applicants, some of whom lack a value, lie outside a bound, or between two steps."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(16, 95, n),
            "income": np.where(rng.random(n) < 0.2, 30_050, (rng.normal(30_000, 9_000, n) / 100).round() * 100),
            "savings": rng.exponential(4_000, n),
            "rate": (rng.integers(0, 41, n) * 5 / 100).round(2),
            "debt": np.where(rng.random(n) < 0.1, np.nan, rng.integers(0, 9_000, n)),
            "job": rng.choice(list(SCHEMA["job"].levels), n),
            "degree": rng.choice(["A", "B", "C"], n),
            "region": rng.choice(["north", "south"], n),
            "home": np.where(rng.random(n) < 0.1, None, rng.choice(["own", "rent", "parents"], n)),
            "member": rng.random(n) < 0.5,
            "married": rng.choice(["no", "yes"], n),
        }
    )


def merit(frame: pd.DataFrame) -> "pd.Series[float]":
    """What decisions depend on: a little of every column."""
    numbers = (frame["income"] - 30_000) / 9_000 + frame["savings"] / 8_000 - frame["debt"].fillna(4_500) / 4_000
    levels = frame["job"].map({"none": -1, "clerk": 0, "smith": 0.5, "baker": 1}) + (frame["degree"] == "C")
    truths = 0.5 * frame["member"] + 0.5 * (frame["married"] == "yes") + 0.5 * (frame["home"] == "own")
    return numbers + levels + truths - frame["rate"] / 2 + (frame["age"] - 50) / 40 + (frame["region"] == "south") - 0.7


@cache
def classifier(objective: str = "ct", n_classes: int = 2) -> CounterfactualClassifier:
    """A classifier of applicants; it is trained once, and not to be changed."""
    frame = people(400)
    labels = np.array(["refused", "granted", "special"])[np.digitize(merit(frame), [0, 2][: n_classes - 1])]
    return CounterfactualClassifier(SCHEMA, objective=objective, **QUICK).fit(frame, labels)


def violations(
    schema: Schema,
    before: pd.DataFrame,
    after: pd.DataFrame,
    *,
    immutable: Sequence[str] = (),
    ranges: Mapping[str, Any] | None = None,
) -> list[str]:
    """Every changed cell that the schema, or the restrictions of a call, forbid; looked at one by one."""
    wrong = []
    for column in schema.columns:
        allowed = (ranges or {}).get(column.name)
        for old, new in zip(before[column.name], after[column.name], strict=True):
            if old is new or old == new or (pd.isna(old) and pd.isna(new)):
                continue
            fixed = column.name in immutable or column.mutability == "none" or (pd.isna(old) and not column.fillable)
            fine = _number_may if isinstance(column, Numeric) else _level_may
            if fixed or not fine(column, old, new, allowed):
                wrong.append(f"{column.name}: {old!r} -> {new!r}")
    return wrong


def _number_may(column: Numeric, old: Any, new: Any, allowed: Any) -> bool:
    old = column.fill if pd.isna(old) else old
    low, high = allowed or (None, None)
    within = all(end is None or new >= end for end in (column.lower, low))
    within &= all(end is None or new <= end for end in (column.upper, high))
    on_grid = column.step is None or (Fraction(repr(float(new))) / Fraction(repr(column.step))).denominator == 1
    whole = not column.integer or float(new).is_integer()
    way = {"both": True, "increase": new > old, "decrease": new < old}[column.mutability]
    return within and on_grid and whole and way


def _level_may(column: Categorical | Boolean, old: Any, new: Any, allowed: Any) -> bool:
    levels = list(column.values if isinstance(column, Boolean) else column.levels)
    if new not in levels or (allowed is not None and new not in allowed):
        return False
    transitions = getattr(column, "transitions", None)
    if transitions is not None and str(new) not in transitions.get(str(old), ()):
        return False
    if column.mutability == "both":
        return True
    return old in levels and (levels.index(new) > levels.index(old)) == (column.mutability == "increase")
