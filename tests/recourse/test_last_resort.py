"""What only time changes is advised to those who have no other way."""

import numpy as np
import pandas as pd
import pytest

from countertrain import CounterfactualClassifier
from countertrain.recourse.search import RecourseSearch
from countertrain.tables.regularities import infer_schema


@pytest.fixture(scope="module")
def people() -> tuple[pd.DataFrame, np.ndarray]:
    draw = np.random.default_rng(0)
    rows = pd.DataFrame({"income": draw.integers(0, 80, 900), "late_payments": draw.integers(0, 10, 900)})
    return rows, np.where(rows.income - 8 * rows.late_payments > 20, "approved", "rejected")


@pytest.fixture(scope="module")
def clf(people: tuple[pd.DataFrame, np.ndarray]) -> CounterfactualClassifier:
    return CounterfactualClassifier(
        objective="bl", n_models=1, hidden=(16,), epochs=30, target="approved", random_state=0
    ).fit(*people)


def test_the_name_says_that_it_is_for_the_last_resort(clf: CounterfactualClassifier) -> None:
    late, income = clf.encoder_.schema["late_payments"], clf.encoder_.schema["income"]
    assert (late.last_resort, late.mutability) == (True, "decrease")
    assert (income.last_resort, income.mutability) == (False, "both")
    assert "last_resort = true" in clf.encoder_.schema.to_toml()
    assert clf.encoder_.schema.to_toml().count("last_resort") == 1


def test_only_who_has_no_other_way_is_told_to_wait(
    clf: CounterfactualClassifier, people: tuple[pd.DataFrame, np.ndarray]
) -> None:
    refused = people[0][clf.predict(people[0]) == "rejected"].head(150).reset_index(drop=True)
    told, held = clf.explain(refused, tau=0.8), clf.explain(refused, tau=0.8, immutable=["late_payments"])
    waiting = []
    for mine, without in zip(told, held, strict=True):
        option, other = mine.options[0], without.options[0] if without.options else None
        waits = [change for change in option.changes if change.column == "late_payments"]
        assert bool(waits) == (other is None or not other.mature)
        if waits:
            assert waits[0].in_time
            assert "in time" in str(waits[0])
            assert waits[0].after < waits[0].before
        else:
            assert option.values == other.values
            assert "in time" not in mine.summary()
        assert option.mature
        waiting.append(bool(waits))
    assert 20 < sum(waiting) < 130


def test_what_is_judged_spares_it_too(clf: CounterfactualClassifier, people: tuple[pd.DataFrame, np.ndarray]) -> None:
    refused = people[0][clf.predict(people[0]) == "rejected"].head(100)

    search = RecourseSearch.of(clf.decider)
    told = search.advise([search.request(refused)], tau=0.8)
    first = [one.options[0].values["late_payments"] for one in clf.explain(refused, tau=0.8)]
    advised = search.grid.decode(clf.encoder_, told.x, refused.reset_index(drop=True))["late_payments"]
    assert advised.tolist() == first
    assert 0 < (advised.to_numpy() < refused["late_payments"].to_numpy()).sum() < 100


def test_who_declares_a_schema_decides(people: tuple[pd.DataFrame, np.ndarray]) -> None:
    schema = infer_schema(people[0]).with_columns(late_payments={"last_resort": False})
    assert not schema["late_payments"].last_resort
