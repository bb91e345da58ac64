"""The process behind the table `loans`: who repays, what causes it, and what acting on advice does."""

import hashlib
import io
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from countertrain.runs.settings import Settings
from countertrain.tables import catalogue, load, load_frame
from countertrain.tables.schema import Numeric
from countertrain.tables.sources.loan_process import (
    COLUMNS,
    People,
    act,
    draw,
    find_broken_rules,
    true_probability,
)
from countertrain.tables.sources.loans import LABEL, SCHEMA, name_outcomes

PEOPLE = draw(4000, seed=1)
JOBLESS = PEOPLE.take(PEOPLE.rows["employment"] == "none")


def tell(people: People, **changes: object) -> pd.DataFrame:
    """The rows of these people with some columns told to be something else."""
    return people.rows.assign(**changes)


def test_the_same_seed_draws_the_same_people_on_every_machine() -> None:
    text = draw(1000, seed=42).rows.to_csv(index=False)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "fe8d3f18de10aec0"
    again, other = draw(4000, seed=1), draw(4000, seed=2)
    assert again.rows.equals(PEOPLE.rows)
    assert (again.repaid == PEOPLE.repaid).all()
    assert not other.rows.equals(PEOPLE.rows)


def test_most_people_repay_but_not_nearly_all() -> None:
    assert 0.6 < PEOPLE.repaid.mean() < 0.85
    assert PEOPLE.repaid.mean() == pytest.approx(true_probability(PEOPLE).mean(), abs=0.02)


def test_values_are_missing_where_there_is_nothing_to_know() -> None:
    missing = PEOPLE.rows.isna().mean()
    assert set(missing[missing > 0].index) == {"years_employed", "credit_history_years"}
    assert missing[["years_employed", "credit_history_years"]].between(0.05, 0.2).all()
    assert (PEOPLE.rows["years_employed"].isna() == (PEOPLE.rows["employment"] == "none")).all()


def test_nobody_breaks_a_rule_between_columns() -> None:
    assert not find_broken_rules(PEOPLE.rows).any()


@pytest.mark.parametrize(
    "impossible",
    [
        {"years_employed": PEOPLE.rows["age"] - 15},
        {"employment": "none", "years_employed": 3},
        {"credit_history_years": PEOPLE.rows["age"] - 17},
        {"credit_history_years": np.nan, "late_payments": 1},
    ],
)
def test_a_row_that_nobody_can_have_is_found(impossible: dict[str, object]) -> None:
    assert find_broken_rules(tell(PEOPLE, **impossible)).all()


@pytest.mark.parametrize("column", ["income", "savings", "debt", "loan_amount"])
def test_money_has_a_heavy_tail(column: str) -> None:
    money = PEOPLE.rows[column]
    assert money.max() > 5 * money.mean()
    assert money.mean() > 1.05 * money.median()


@pytest.mark.parametrize("column", ["savings", "debt", "late_payments"])
def test_many_have_nothing(column: str) -> None:
    assert 0.2 < (PEOPLE.rows[column] == 0).mean() < 0.75


def test_the_truth_tells_people_apart_better_than_any_model_of_the_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = pd.get_dummies(PEOPLE.rows)
    model = HistGradientBoostingClassifier(random_state=0).fit(rows[:3000], PEOPLE.repaid[:3000])
    test = slice(3000, 4000)
    learnt = roc_auc_score(PEOPLE.repaid[test], model.predict_proba(rows[test])[:, 1])
    truth = roc_auc_score(PEOPLE.repaid[test], true_probability(PEOPLE)[test])
    print(f"AUC of the truth {truth:.3f}, of boosting {learnt:.3f}")  # noqa: T201
    assert 0.8 < learnt < truth < 0.95  # there is much to learn, and something that nobody can


def test_people_who_change_nothing_stay_who_they_are() -> None:
    assert act(PEOPLE, PEOPLE.rows).equals(PEOPLE.rows)
    assert (true_probability(PEOPLE, PEOPLE.rows) == true_probability(PEOPLE)).all()


@pytest.mark.parametrize(
    "better",
    [
        {"income": PEOPLE.rows["income"] + 10_000},
        {"savings": PEOPLE.rows["savings"] + 5_000},
        {"debt": PEOPLE.rows["debt"] // 200 * 100},
        {"loan_amount": (PEOPLE.rows["loan_amount"] // 200 * 100).clip(500)},
        {"years_employed": PEOPLE.rows["years_employed"] + 2},
        {"guarantor": True},
        {"housing": "with family"},
    ],
)
def test_a_cause_that_gets_better_makes_nobody_repay_less_and_many_more(better: dict[str, object]) -> None:
    before, after = true_probability(PEOPLE), true_probability(PEOPLE, tell(PEOPLE, **better))
    assert (after >= before).all()
    assert (after > before).mean() > 0.5


@pytest.mark.parametrize("proxy", [{"late_payments": 0}, {"credit_history_years": 1}, {"purpose": "car"}])
def test_what_only_tells_who_repays_changes_nothing_when_it_is_changed(proxy: dict[str, object]) -> None:
    told = tell(PEOPLE, **proxy)
    assert not told.equals(PEOPLE.rows)
    assert (true_probability(PEOPLE, told) == true_probability(PEOPLE)).all()


def test_late_payments_tell_who_repays_though_they_cause_nothing() -> None:
    never, often = PEOPLE.rows["late_payments"] == 0, PEOPLE.rows["late_payments"] >= 3
    assert true_probability(PEOPLE)[never].mean() > true_probability(PEOPLE)[often].mean() + 0.15


def test_nobody_gets_older_or_moves_by_being_told() -> None:
    after = act(PEOPLE, tell(PEOPLE, age=60, region="capital"))
    assert after.equals(PEOPLE.rows)


def test_who_finds_a_job_earns_more_and_who_earns_more_saves_more() -> None:
    after = act(JOBLESS, tell(JOBLESS, employment="full-time"))
    assert (after["years_employed"] == 0).all()
    assert (after["income"] > JOBLESS.rows["income"]).all()
    saving = JOBLESS.rows["savings"] > 1000
    assert (after["savings"] > JOBLESS.rows["savings"])[saving].all()
    assert saving.any()
    assert (after["savings"] == 0)[JOBLESS.thrift == 0].all()  # who never saves does not begin to
    assert (true_probability(JOBLESS, after) > true_probability(JOBLESS)).all()


def test_who_earns_more_saves_more_and_who_is_told_what_to_save_has_that() -> None:
    more = PEOPLE.rows["income"] * 2
    after = act(PEOPLE, tell(PEOPLE, income=more))
    assert ((after["savings"] - 2 * PEOPLE.rows["savings"]).abs() <= 100).all()  # rounded to hundreds
    assert (act(PEOPLE, tell(PEOPLE, income=more, savings=50))["savings"] == 50).all()


def test_reliability_is_a_cause_that_no_column_holds() -> None:
    better = replace(PEOPLE, reliability=PEOPLE.reliability + 1)
    assert (true_probability(better) > true_probability(PEOPLE)).all()


def test_what_people_are_told_to_have_is_what_they_have_whatever_would_follow() -> None:
    told = tell(JOBLESS, employment="full-time", income=20_000, savings=700)
    after = act(JOBLESS, told)
    same = (JOBLESS.rows["income"] != 20_000) & (JOBLESS.rows["savings"] != 700)
    assert (after.loc[same, ["income", "savings"]] == [20_000, 700]).all(axis=None)


def test_years_in_a_job_are_at_most_those_since_sixteen_and_none_without_a_job() -> None:
    after = act(PEOPLE, tell(PEOPLE, years_employed=80))
    working = after["employment"] != "none"
    assert (after["years_employed"] == after["age"] - 16)[working].all()
    assert after["years_employed"][~working].isna().all()
    assert not find_broken_rules(after).any()


def test_rows_that_come_back_from_a_file_are_judged_as_before() -> None:
    told = tell(PEOPLE, debt=0)
    read = pd.read_csv(io.StringIO(told.to_csv(index=False)))
    assert (true_probability(PEOPLE, read) == true_probability(PEOPLE, told)).all()


def test_some_of_the_people_are_judged_as_among_all() -> None:
    mask = true_probability(PEOPLE) < 0.5
    some = PEOPLE.take(mask)
    assert len(some) == mask.sum() > 100
    assert (true_probability(some) == true_probability(PEOPLE)[mask]).all()
    told = tell(PEOPLE, income=40_000)
    assert (true_probability(some, told[mask]) == true_probability(PEOPLE, told)[mask]).all()


def test_rows_of_other_people_are_refused() -> None:
    with pytest.raises(ValueError, match="told must hold one row for each of the 4000 people; got 7"):
        act(PEOPLE, PEOPLE.rows[:7])
    with pytest.raises(ValueError, match="told must have all columns of the loans; there is no 'debt'"):
        act(PEOPLE, PEOPLE.rows.drop(columns="debt"))


def test_the_table_has_these_people_split_like_any_table_with_its_schema() -> None:
    data, (rows, outcome) = load("loans"), load_frame("loans")
    assert "loans" in catalogue()
    assert (len(data.train), len(data.validation), len(data.test)) == (7000, 1000, 2000)
    assert (data.schema.names, data.label, data.classes) == (COLUMNS, LABEL, ("default", "repaid"))
    assert data.protected == ("age", "region")
    assert data.test_frame is not None
    assert len(rows.assign(**{LABEL: outcome}).merge(data.test_frame)) >= 2000
    people = draw(10_000, seed=42)
    assert rows.equals(people.rows)
    assert outcome.tolist() == name_outcomes(people.repaid).tolist()
    ways = {column.name: column.mutability for column in data.schema.columns if column.mutability != "both"}
    assert ways == {
        "age": "none",
        "region": "none",
        "purpose": "none",
        "years_employed": "increase",
        "credit_history_years": "increase",
        "late_payments": "decrease",
    }


def test_the_table_may_be_given_another_schema_and_begins_with_the_profile_of_tables() -> None:
    longer = SCHEMA.with_columns(loan_term={"upper": 120})
    column = load("loans", schema=longer).schema["loan_term"]
    assert isinstance(column, Numeric)
    assert column.upper == 120
    assert "debt" not in load("loans", drop=["debt"]).schema.names
    assert Settings.resolve("loans").domain == "schema"
    with pytest.raises(ValueError, match="loans has the label 'outcome', not 'debt'; leave it out"):
        load("loans", label="debt")
