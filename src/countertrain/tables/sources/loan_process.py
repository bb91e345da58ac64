"""People who ask for a loan, and the process that decides whether they repay it: known, as no real table's is.

Every column is made from those before it, from traits that nobody sees, and from chance. Whether a loan is repaid has
causes among the columns and one hidden cause, `reliability`; it also shows in late payments, savings and debt. So
late payments *tell* who will repay and *cause* nothing: a person who gets them struck off the file is as
reliable as before. docs/concepts.md has all equations in a table.

People can act on advice: what they were told to change is set, what follows from it (income from employment, savings
from income) follows with their own hidden traits, and the process says how probable it is that they now repay.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["COLUMNS", "People", "act", "draw", "find_broken_rules", "true_probability"]

Numbers = NDArray[np.float64]

COLUMNS = (
    "age", "region", "employment", "years_employed", "income", "housing", "savings", "debt", "credit_history_years",
    "late_payments", "guarantor", "purpose", "loan_amount", "loan_term",
)  # fmt: skip
"""What a bank sees of a person; `draw` makes them in this order."""

# Of each level: its share among people, and what it means for money.
_REGIONS = {"capital": 0.25, "coast": 0.35, "inland": 0.4}
_REGION_PAY = {"capital": 1.15, "coast": 1.0, "inland": 0.92}
_LIVING = {"capital": 900.0, "coast": 780.0, "inland": 690.0}  # EUR a month
_PAY = {"none": 11_000.0, "part-time": 15_500.0, "full-time": 24_000.0, "self-employed": 23_000.0}  # EUR a year
_HOUSING_SHARE = {"rent": 0.3, "own": 0.15, "with family": 0.06}  # of income
_PURPOSES = {"car": 0.34, "furniture": 0.22, "renovation": 0.2, "education": 0.12, "business": 0.12}
_AMOUNTS = {"car": 12_000.0, "furniture": 3_500.0, "renovation": 14_000.0, "education": 7_000.0, "business": 19_000.0}
_RATE = 0.07 / 12  # interest a month
_WHOLE = ("age", "income", "savings", "debt", "late_payments", "loan_amount", "loan_term")  # numbers, never missing


@dataclass(frozen=True, eq=False)
class People:
    """n people: what a bank sees of them, what nobody sees, and whether they repaid."""

    rows: pd.DataFrame  # (n, 14)
    repaid: NDArray[np.bool_]  # (n,)
    reliability: Numbers  # (n,) standard normal; a cause of repaying that no column holds
    earning: Numbers  # (n,) logarithm of what a person earns beyond others of the same job
    thrift: Numbers  # (n,) savings as a share of income; 0: saves nothing

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, places: NDArray[Any]) -> Self:
        """Some of the people, by place or by a mask."""
        chosen = np.arange(len(self))[places]
        return type(self)(
            rows=self.rows.iloc[chosen].reset_index(drop=True),
            repaid=self.repaid[chosen],
            reliability=self.reliability[chosen],
            earning=self.earning[chosen],
            thrift=self.thrift[chosen],
        )


def draw(n: int, seed: int) -> People:
    """n people, the same ones for the same seed."""
    rng = np.random.default_rng(seed)
    reliability = rng.normal(size=n)
    age = np.floor(19 + 52 * rng.beta(1.5, 2.2, n))
    region = rng.choice(list(_REGIONS), n, p=list(_REGIONS.values()))
    employment = _draw_employment(age, reliability, rng)
    tenure = rng.exponential((1.5 + 0.22 * (age - 18)) * np.exp(0.25 * reliability))
    years = np.where(employment == "none", np.nan, np.floor(np.minimum(tenure, age - 16)))
    earning = 0.27 * rng.normal(size=n) + (rng.random(n) < 0.08) * rng.exponential(0.45, n)  # a few earn far more
    income = _earn(employment, years, region, earning)
    thrift = _draw_thrift(age, reliability, rng)
    debt = _draw_debt(income, reliability, rng)
    history = _draw_history(age, rng)
    rows = pd.DataFrame(
        {
            "age": age,
            "region": region,
            "employment": employment,
            "years_employed": years,
            "income": income,
            "housing": _draw_housing(age, income, rng),
            "savings": _save(income, thrift),
            "debt": debt,
            "credit_history_years": history,
            "late_payments": _draw_late_payments(history, reliability, debt / income, rng),
            "guarantor": rng.random(n) < _logistic(-1.3 - 0.04 * (age - 35)),
            **_draw_loan(income, rng),
        }
    ).astype(dict.fromkeys(_WHOLE, "int64"))
    repaid = rng.random(n) < _repay(rows, reliability)
    return People(rows, repaid, reliability, earning, thrift)


def true_probability(people: People, told: pd.DataFrame | None = None) -> Numbers:
    """(n,), how probable it is that each of the people repays, as they are or once they act on what they were told."""
    return _repay(people.rows if told is None else act(people, told), people.reliability)


def act(people: People, told: pd.DataFrame) -> pd.DataFrame:
    """The rows of the same people once they changed what differs in `told`, one row for each, with what follows.

    Nobody can change age or region. Years in a job are at most those since the age of 16, and none without a job;
    income follows from employment and years, savings from income, unless they are themselves what was changed.
    """
    _check_told(people, told)
    before = people.rows
    after = told[list(COLUMNS)].reset_index(drop=True).astype(before.dtypes.to_dict())
    after = after.assign(age=before["age"], region=before["region"])
    changed = before.ne(after)  # also where both are missing: to no effect, since the equations give what there was
    employment = after["employment"].to_numpy(dtype=object)
    possible = after["years_employed"].fillna(0).clip(upper=after["age"] - 16)
    years: Numbers = np.where(employment == "none", np.nan, possible)
    moved = changed["employment"] | changed["years_employed"]
    earned = _earn(employment, years, after["region"].to_numpy(), people.earning)
    income = np.where(moved & ~changed["income"], earned, after["income"])
    follows = (moved | changed["income"]) & ~changed["savings"]
    savings = np.where(follows, _save(income, people.thrift), after["savings"])
    return after.assign(years_employed=years, income=income, savings=savings).astype(before.dtypes.to_dict())


def find_broken_rules(rows: pd.DataFrame) -> NDArray[np.bool_]:
    """(n,), the rows that nobody can have: more years in a job than since 16, a job without years, and so on."""
    years, history = rows["years_employed"].astype(float), rows["credit_history_years"].astype(float)
    jobless = rows["employment"] == "none"
    broken = (
        (years > rows["age"] - 16)
        | (jobless & years.notna())
        | (history > rows["age"] - 18)
        | (history.isna() & (rows["late_payments"] > 0))
    )
    return broken.to_numpy(dtype=bool)


def _repay(rows: pd.DataFrame, reliability: Numbers) -> Numbers:
    """(n,), the probability of repaying: what is left to pay with, reserves, a steady job, a guarantor, reliability."""
    income, debt, term = (rows[name].to_numpy(dtype=np.float64) for name in ("income", "debt", "loan_term"))
    instalment = rows["loan_amount"].to_numpy(dtype=np.float64) * _RATE / (1 - (1 + _RATE) ** -term)  # a month
    kept = 1 - _look_up(_HOUSING_SHARE, rows["housing"])
    left = income / 12 * kept - _look_up(_LIVING, rows["region"]) - 0.02 * debt - instalment  # a month
    reserve = rows["savings"].to_numpy(dtype=np.float64) / instalment  # months
    steady = np.log1p(rows["years_employed"].fillna(0).to_numpy(dtype=np.float64))
    guaranteed = rows["guarantor"].to_numpy(dtype=np.float64)
    score = 2.4 * np.tanh(left / 600 - 0.4) + 0.35 * np.log1p(reserve) + 0.3 * steady
    return _logistic(-0.4 + score + guaranteed - 0.01 * (term - 36) + reliability)


def _earn(employment: Any, years: Numbers, region: Any, earning: Numbers) -> Numbers:
    """(n,) income in EUR a year."""
    experience = (1 + np.nan_to_num(years)) ** 0.2
    return _round(_look_up(_PAY, employment) * experience * _look_up(_REGION_PAY, region) * np.exp(earning))


def _save(income: Numbers, thrift: Numbers) -> Numbers:
    """(n,) savings in EUR."""
    return _round(income * thrift)


def _draw_employment(age: Numbers, reliability: Numbers, rng: np.random.Generator) -> NDArray[np.object_]:
    """(n,) levels: the young and the less reliable are out of work more often."""
    u = rng.random(len(age))
    none = _logistic(-2.3 - 0.5 * reliability + 0.7 * (age < 25))
    part = none + (1 - none) * 0.2
    full = part + (1 - none) * 0.65
    place = (u > none).astype(np.int64) + (u > part) + (u > full)
    return np.asarray(np.array(list(_PAY), dtype=object)[place])


def _draw_housing(age: Numbers, income: Numbers, rng: np.random.Generator) -> NDArray[np.object_]:
    """(n,) levels: the young live with their family, those with means own what they live in."""
    family = _logistic(-0.9 - 0.12 * (age - 27))
    own = _logistic(-0.4 + 0.05 * (age - 42) + 1.1 * np.log(income / 30_000))
    u, v = rng.random((2, len(age)))
    return np.where(u < family, "with family", np.where(v < own, "own", "rent")).astype(object)


def _draw_thrift(age: Numbers, reliability: Numbers, rng: np.random.Generator) -> Numbers:
    """(n,) savings as a share of income: many have none, a few have many times their income."""
    saves = rng.random(len(age)) < _logistic(0.8 + 0.6 * reliability)
    share = np.exp(-1.5 + 0.35 * reliability + 0.02 * (age - 40) + 1.1 * rng.normal(size=len(age)))
    return np.where(saves, share, 0.0)


def _draw_debt(income: Numbers, reliability: Numbers, rng: np.random.Generator) -> Numbers:
    """(n,) EUR owed to others: a third owe nothing, a few owe many times their income."""
    owes = rng.random(len(income)) < _logistic(0.7 - 0.3 * reliability)
    owed = _round(income * np.exp(-1.1 - 0.35 * reliability + 0.9 * rng.normal(size=len(income))))
    return np.where(owes, owed, 0.0)


def _draw_late_payments(
    history: Numbers, reliability: Numbers, burden: Numbers, rng: np.random.Generator
) -> NDArray[np.int64]:
    """(n,) counts: none without a history; more where reliability is low and debts are high."""
    rate = np.exp(-0.9 - 0.9 * reliability + 0.5 * np.minimum(burden, 2)) * rng.gamma(2, 0.5, len(history))
    return np.where(np.isnan(history), 0, rng.poisson(rate))


def _draw_loan(income: Numbers, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """What for, how much and for how long: (n,) each."""
    purpose = rng.choice(list(_PURPOSES), len(income), p=list(_PURPOSES.values()))
    wanted = _look_up(_AMOUNTS, purpose) * (income / 30_000) ** 0.4 * np.exp(0.5 * rng.normal(size=len(income)))
    amount = _round(wanted).clip(500, 100_000)
    years = np.rint(8 * amount / income + 1.5 + rng.normal(size=len(income))).clip(1, 8)
    return {"purpose": purpose, "loan_amount": amount, "loan_term": 12 * years}


def _draw_history(age: Numbers, rng: np.random.Generator) -> Numbers:
    """(n,) years since the first credit; NaN: never had one."""
    never = rng.random(len(age)) < _logistic(-2.2 - 0.06 * (age - 35))
    return np.where(never, np.nan, np.floor((age - 18) * rng.beta(2.5, 1.2, len(age))))


def _check_told(people: People, told: pd.DataFrame) -> None:
    if len(told) != len(people):
        raise ValueError(f"told must hold one row for each of the {len(people)} people; got {len(told)}")
    missing = [name for name in COLUMNS if name not in told.columns]
    if missing:
        raise ValueError(f"told must have all columns of the loans; there is no {missing[0]!r}; leave it as it was")


def _look_up(meaning: dict[str, float], levels: Sequence[str] | Any) -> Numbers:
    return np.array([meaning[level] for level in levels])


def _round(money: Numbers) -> Numbers:
    """To hundreds of EUR."""
    return np.rint(money / 100) * 100


def _logistic(score: Numbers) -> Numbers:
    return np.asarray(1 / (1 + np.exp(-score)))
