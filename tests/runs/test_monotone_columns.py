"""Columns that are declared monotone: in the classifier, in its folder, in advice and in what is told of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from countertrain.estimator import CounterfactualClassifier, load
from countertrain.report.monotonicity import measure_slopes
from countertrain.runs.monotone import build_monotone
from countertrain.runs.settings import Settings, SettingsError
from countertrain.tables.schema import Schema, SchemaError
from loans import Net, loans, quick

X, Y = loans()
JOBS = ("smith", "none", "clerk")
SCHEMA = Schema.infer(X).with_columns(job={"levels": JOBS, "ordered": True})
AGAINST = {"income": "-", "member": "-", "job": "+", "debt": 1}
"""More income and less debt helps in the rows; so a model that is monotone the other way must have been made so."""
FAST: dict[str, Any] = {"objective": "bl", "target": "granted", "hidden": (16,)}


@pytest.fixture(scope="module")
def told() -> CounterfactualClassifier:
    return quick(schema=SCHEMA, monotone=AGAINST, **FAST).fit(X, Y)


@pytest.fixture(scope="module")
def free() -> CounterfactualClassifier:
    return quick(schema=SCHEMA, **FAST).fit(X, Y)


def measure_falls(predict: Callable[[pd.DataFrame], NDArray[Any]]) -> dict[str, float]:
    """By column, the largest fall of the probability of being granted, as it goes through values the declared way."""
    people = loans(40, seed=5)[0]
    values: dict[str, list[Any]] = {
        "income": [1e5, 6e4, 40_000.5, 30_000.0, 2e4, 1e4, 0.0],
        "member": [True, False],
        "job": [*JOBS],
        "debt": [0.0, 100.0, 3e3, 9e3, 4e4],
    }
    return {
        name: float(-np.diff([predict(people.assign(**{name: value})) for value in way], axis=0).min())
        for name, way in values.items()
    }


def test_a_model_is_monotone_in_people_s_units_and_one_that_is_not_told_is_not(
    told: CounterfactualClassifier, free: CounterfactualClassifier, tmp_path: Path
) -> None:
    assert all(fall > 0.01 for fall in measure_falls(lambda rows: free.predict_proba(rows)[:, 0]).values())
    assert max(measure_falls(lambda rows: told.predict_proba(rows)[:, 0]).values()) <= 1e-12
    told.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.get_params()["monotone"] == AGAINST
    assert [column.monotone for column in again.encoder_.schema.columns] == [None, "-", "+", "-", "+"]
    assert max(measure_falls(lambda rows: again.predict_proba(rows)[:, 0]).values()) <= 1e-12


def test_counterfactual_training_keeps_it() -> None:
    model = quick(schema=SCHEMA, monotone=AGAINST, **FAST | {"objective": "taught"}, n_ce=50).fit(X, Y)
    assert max(measure_falls(lambda rows: model.predict_proba(rows)[:, 0]).values()) <= 1e-12


def test_advice_never_goes_against_it_not_even_where_evidence_may_be_ignored(told: CounterfactualClassifier) -> None:
    refused = X[told.predict(X) == "refused"][:20]
    for more in ({}, {"against_evidence": True}):
        table = told.explain(refused, prove=False, **more).table
        before = refused.iloc[table.row].reset_index(drop=True)
        assert (table.values != before).to_numpy().any()
        assert (table.values["income"] <= before["income"]).all()
        assert (table.values["member"] <= before["member"]).all()
        assert (table.values["job"].map(JOBS.index) >= before["job"].map(JOBS.index)).all()
    # whoever wants the other class is sent the other way, and who can only go that way is not sent at all
    ways = told.decider.find_ways(1)
    assert (ways["income"], ways["job"]) == ("increase", "decrease")
    narrow = quick(schema=SCHEMA, monotone={"age": "-"}, increase=["age"], **FAST, epochs=0).fit(X, Y)
    assert [narrow.decider.list_columns(k)[0].mutability for k in (0, 1)] == ["none", "increase"]


def test_directions_are_told_and_measured_for_either_class(told: CounterfactualClassifier) -> None:
    decider = told.decider
    slopes = {slope.column: slope for slope in measure_slopes(decider, told.encoder_.tensor(X), 0)}
    assert (slopes["income"].declared, slopes["income"].rises, slopes["income"].share) == (True, False, 0.0)
    assert decider.list_directions(1)["income"] == "more helps (by construction)"


SPELLINGS = {
    "names": {"income": "+", "debt": "-"},
    "numbers": {"income": 1, "debt": -1, "age": 0},
    "words": {"income": "increase", "debt": "decrease"},
    "list": [0, 1, 0, 0, -1],
    "array": np.array([0, 1, 0, 0, -1]),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_usual_spelling_means_the_same(spelling: str) -> None:
    model = quick(monotone=SPELLINGS[spelling], **FAST, epochs=0).fit(X, Y)
    assert {c.name: c.monotone for c in model.encoder_.schema.columns if c.monotone} == {"income": "+", "debt": "-"}
    assert Settings.from_toml(model.settings_.to_toml()) == model.settings_


def test_a_list_follows_the_columns_of_the_table_and_parameters_overrule_the_schema() -> None:
    columns = ["debt", "income", "age", "job", "member"]
    schema = SCHEMA.with_columns(age={"monotone": 1}, member={"monotone": "-"})
    model = quick(schema=schema, monotone=[-1, 1, 0, 0, 0], **FAST, epochs=0).fit(X[columns], Y)
    assert [c.monotone for c in model.encoder_.schema.columns] == [None, "+", None, None, "-"]


def test_all_that_is_wrong_is_said_at_once_before_training() -> None:
    wrong = quick(monotone={"incom": "+", "job": "-", "debt": "-"}, objective="bl")
    with pytest.raises(SchemaError) as refused:
        wrong.fit(X, Y)
    assert str(refused.value) == (
        "3 things are in the way: (1) monotone names 'incom', which is no column; did you mean 'income'? "
        "(2) monotone names 'job', whose levels are in no order; declare it ordered, its levels from the first to the "
        "last, or leave it out. (3) monotone is said of the class that people want, and nobody said which; give a "
        "target, too: as a column with '+' rises, its probability never falls."
    )
    with pytest.raises(SchemaError, match="nobody said which"):
        quick(schema=SCHEMA.with_columns(age={"monotone": "+"}), objective="bl").fit(X, Y)
    with pytest.raises(SchemaError, match=r"monotone lists 2 directions; a list needs one for each of 5 columns"):
        quick(monotone=[1, 0], **FAST).fit(X, Y)
    with pytest.raises(
        SettingsError, match=r"'monotone' must be '\+' \(or 1, 'increase'\), '-'.*got \{'income': 'up'\}"
    ):
        quick(monotone={"income": "up"}, **FAST).fit(X, Y)
    with pytest.raises(SchemaError, match="column 'job': monotone '-' needs levels in an order; declare ordered=True"):
        Schema.infer(X).with_columns(job={"monotone": "-"})
    with pytest.raises(ValueError, match="activations that never fall"):
        quick(monotone={"income": "+"}, module=Net, **FAST).fit(X, Y)


def test_that_a_number_is_missing_may_help_or_hurt() -> None:
    model = quick(monotone={"debt": "-"}, **FAST, epochs=0).fit(X, Y)
    place = model.encoder_.features.index("debt")
    assert model.encoder_.indicators == (place + 1,)
    monotone = build_monotone(model.settings_, model.run_.data, model.models_[0])
    assert monotone is not None
    first = monotone.signs["1.weight"]
    assert first[:, place].abs().min() == 1
    assert first[:, place + 1].abs().max() == 0


def test_of_several_classes_the_wanted_one_rises() -> None:
    labels = np.where(X["age"] < 30, "asked", Y)
    model = quick(monotone={"income": "-"}, n_models=1, **FAST).fit(X, labels)
    at = model.classes_.tolist().index("granted")
    people = X[:50]
    low, high = (model.predict_proba(people.assign(income=income))[:, at] for income in (5e4, 1e4))
    assert (high >= low - 1e-12).all()
    assert (high > low + 1e-3).any()
    assert model.decider.find_ways(at) == {"income": "decrease"}
    assert model.decider.find_ways((at + 1) % 3) == {}
