"""What rules between columns make of advice: what follows is told as such, costs nothing, and is held where asked."""

import numpy as np
import pandas as pd
import pytest
import torch

from countertrain.estimator import CounterfactualClassifier
from countertrain.recourse.answer import Recourse
from countertrain.tables.schema import Boolean, Categorical, Numeric, Schema
from people import QUICK

SCHEMA = Schema(
    columns=(
        Numeric(name="tenure", integer=True, mutability="increase", lower=0, upper=60),
        Numeric(name="monthly", step=0.5, lower=10, upper=100),
        Numeric(name="total", step=0.5, lower=0, upper=6_000, missing="fill"),
        Categorical(name="internet", levels=("No", "DSL")),
        Categorical(name="streaming", levels=("No", "Yes", "No internet service")),
        Categorical(name="school", levels=("A", "B", "C"), ordered=True, mutability="increase"),
        Numeric(name="age", integer=True, mutability="none", lower=18, upper=90),
        Boolean(name="online"),
    ),
    rules=(
        "total = tenure * monthly",
        'internet == "No" <=> streaming == "No internet service"',
        "school + 1 => age + 2",
    ),
)


def people(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    tenure, monthly, internet = rng.integers(0, 60, n), rng.integers(20, 200, n) / 2, rng.choice(["No", "DSL"], n)
    return pd.DataFrame(
        {
            "tenure": tenure,
            "monthly": monthly,
            "total": tenure * monthly,
            "internet": internet,
            "streaming": np.where(internet == "No", "No internet service", rng.choice(["Yes", "No"], n)),
            "school": rng.choice(["A", "B", "C"], n),
            "age": rng.integers(20, 70, n),
            "online": rng.random(n) < 0.5,
        }
    )


@pytest.fixture(scope="module")
def clf() -> CounterfactualClassifier:
    rows = people(400)
    merit = rows.total / 1_500 + (rows.internet == "No") + (rows.school == "C") + rows.age / 50
    return CounterfactualClassifier(SCHEMA, **QUICK).fit(rows, np.where(merit > 3, "yes", "no"))


@pytest.fixture(scope="module")
def found(clf: CounterfactualClassifier) -> Recourse:
    rows = people(150, seed=1)
    return clf.explain(rows[clf.predict(rows) == "no"], target="yes", options=2)


def test_what_follows_is_told_as_such_and_costs_nothing(found: Recourse) -> None:
    options = [option for explanation in found for option in explanation.options]
    followed = {change.column for option in options for change in option.consequences}
    assert {"total", "streaming", "age"} <= followed
    assert not {change.column for option in options for change in option.changes} & {"total", "age"}
    for option in options:
        assert option.cost == pytest.approx(sum(change.cost for change in option.changes))
        assert all(change.cost == 0 and change.before != change.after for change in option.consequences)
    explanation = next(one for one in found if any(c.column == "total" for c in one.options[0].consequences))
    total = next(c for c in explanation.options[0].consequences if c.column == "total")
    assert f"total follows: {total.before:,g} -> ".replace(".0 ", " ") in explanation.summary().replace(".0 ", " ")
    assert "follows from the rest" in explanation._repr_html_()
    assert explanation.to_dict()["options"][0]["consequences"][0]["cost"] == 0


def test_whoever_leaves_the_internet_is_told_one_change_and_a_choice_is_nobodys_consequence(found: Recourse) -> None:
    table, names = found.table, list(SCHEMA.names)
    before = found.factual.iloc[table.row].reset_index(drop=True)
    left = ((before.internet == "DSL") & (table.values.internet == "No")).to_numpy()
    assert left.sum() > 5
    assert table.follows[left, names.index("streaming")].all()
    assert (table.values.streaming[left] == "No internet service").all()
    chose = ((before.streaming == "No internet service") & (table.values.streaming == "Yes")).to_numpy()
    assert not table.follows[chose, names.index("streaming")].any()  # "No" would have done


def test_what_is_held_fixed_in_a_call_holds_what_it_follows_from(clf: CounterfactualClassifier) -> None:
    rows = people(60, seed=2)
    free, held = (
        clf.explain(rows, target="yes", immutable=fixed, prove=False).table.values for fixed in ((), ("age", "total"))
    )
    assert (free.age != rows.age).any()
    assert (held.age == rows.age).all()
    assert (held.school == rows.school).all()
    same = (held.total == rows.total) & (held.total == held.tenure * held.monthly)
    assert same.all()


def test_a_row_that_breaks_a_rule_is_put_right_where_it_changes_and_left_where_not(
    clf: CounterfactualClassifier,
) -> None:
    rows = people(60, seed=3)
    rows["total"] += 7.0
    told = clf.explain(rows, target="yes").table.values
    moved = (told.tenure != rows.tenure) | (told.monthly != rows.monthly)
    assert moved.any()
    assert not moved.all()
    assert (told.total[moved] == told.tenure[moved] * told.monthly[moved]).all()
    assert (told.total[~moved] == rows.total[~moved]).all()


def test_of_what_nobody_knows_nothing_follows(clf: CounterfactualClassifier) -> None:
    rows = people(60, seed=4).assign(total=np.nan)
    told = clf.explain(rows, target="yes").table.values
    assert told.total.isna().all()
    assert (told.tenure != rows.tenure).any()


def test_training_learns_from_counterfactuals_that_keep_the_rules(clf: CounterfactualClassifier) -> None:
    seen: list[torch.Tensor] = []
    from countertrain.training import ct

    keep = ct.keep_rules

    def watch(*args: object) -> object:
        kept = keep(*args)  # type: ignore[arg-type]
        seen.append(kept.x)
        return kept

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ct, "keep_rules", watch)
        rows = people(120, seed=5)
        made = CounterfactualClassifier(SCHEMA, **{**QUICK, "epochs": 2}).fit(
            rows, np.where(rows.total > 900, "y", "n")
        )
    encoder = made.encoder_
    told = encoder.decode(seen[-1][0].numpy())
    broken = encoder.schema.rulebook.find_broken(told)
    assert len(told) == 120
    assert not any(hit.any() for hit in broken.values())
