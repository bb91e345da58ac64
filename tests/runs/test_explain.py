"""One decision explained in a person's own units, as the test-time search would."""

import numpy as np
import pandas as pd
import pytest
import torch
from countertrain.runs.explain import Explanation, explain

from countertrain.runs.registry import build_constraints
from countertrain.runs.run import Run
from countertrain.runs.settings import Settings
from countertrain.runs.training import train
from countertrain.search.generators import eccco

QUICK = {"epochs": 5, "batch_size": 200, "n_ce": 60, "n_steps": 10, "learning_rate": 0.02, "objective": "bl"}


@pytest.fixture(scope="module")
def moons(tmp_path_factory: pytest.TempPathFactory) -> Run:
    gently = QUICK | {"epochs": 3, "learning_rate": 0.005}  # else one step of the search is enough
    return train(Settings.resolve("moons", gently), tmp_path_factory.mktemp("moons"))


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Three classes, two numbers in large units, a one-hot group that nobody can change."""
    folder = tmp_path_factory.mktemp("people")
    rng = np.random.default_rng(0)
    label = np.arange(120) % 3
    frame = pd.DataFrame(
        {
            "income": 30_000 + 10_000 * label + rng.normal(0, 2_000, 120),
            "age": rng.normal(40, 9, 120) - 6 * label,
            "job": rng.choice(["clerk", "smith"], 120),
            "risk": np.array(["high", "low", "mid"])[label],
        }
    )
    frame.to_csv(folder / "people.csv", index=False)
    settings = Settings.resolve(str(folder / "people.csv"), QUICK | {"immutable": ["job"], "epochs": 20})
    return train(settings, folder / "run")


def decisions(run: Run) -> list[int]:
    with torch.no_grad():
        return run.models[0](run.data.test.x).argmax(-1).tolist()


def surest(run: Run, label: int) -> int:
    """The test row that the model is surest to put into this class."""
    with torch.no_grad():
        return int(run.models[0](run.data.test.x).softmax(-1)[:, label].argmax())


def test_an_explanation_holds_the_row_and_its_counterfactual_in_original_units(people: Run) -> None:
    row = decisions(people).index(0)
    e = explain(people, row, "mid", n_steps=200)
    data, model = people.data, people.models[0]
    factual = data.test.x[row]
    assert (e.row, e.decision, e.target, e.features) == (row, "high", "mid", data.features)
    centre, scale = (values[list(data.encoder.column_of)] for values in (data.encoder.centre, data.encoder.scale))
    assert e.before == pytest.approx((factual.numpy() * scale + centre).tolist(), rel=1e-5)
    assert 20_000 < e.before[0] < 60_000
    after = torch.from_numpy((np.array(e.after) - centre) / scale).float()
    with torch.no_grad():
        probability = model(torch.stack([factual, after])).softmax(-1)[:, data.classes.index("mid")]
    assert (e.probability_before, e.probability_after) == pytest.approx(probability.tolist(), abs=1e-4)
    assert e.probability_before < 0.5 < 0.95 <= e.probability_after
    assert (e.valid, e.reason) == (True, None)
    assert e.changed == tuple(a != b for a, b in zip(e.after, e.before, strict=True))
    assert 0 < e.n_steps < 200


def test_immutable_features_are_marked_and_stay(people: Run) -> None:
    e = explain(people, decisions(people).index(1), "high")
    assert e.immutable == (False, False, True, True)
    assert e.changed[2:] == (False, False)
    assert e.before[2:] == e.after[2:]
    assert any(e.changed)


def test_the_counterfactual_is_the_one_of_the_test_time_search(moons: Run) -> None:
    e = explain(moons, 5)
    factual, target = moons.data.test.x[5:6], torch.tensor([1 - decisions(moons)[5]])
    generator = eccco(lambda_cost=0.0, lambda_egy=1.0, n_steps=50, tau=0.95)
    limits = build_constraints(moons.settings, moons.data, test_time=True)
    wanted = generator(moons.models[0], factual, target, constraints=limits)
    assert e.after == pytest.approx(wanted.x[0].tolist(), abs=1e-6)
    assert e.n_steps == int(wanted.n_steps[0])


def test_of_two_classes_the_other_one_is_the_target(moons: Run) -> None:
    for row in (decisions(moons).index(0), decisions(moons).index(1)):
        e = explain(moons, row)
        assert {e.decision, e.target} == {"0", "1"}
        assert e.decision == str(decisions(moons)[row])


def test_a_target_is_a_class_by_name_or_by_number(people: Run) -> None:
    row = decisions(people).index(0)
    found: list[Explanation] = [explain(people, row, target) for target in ("mid", 2, "2")]
    assert [e.target for e in found] == ["mid"] * 3
    assert found[0] == found[1] == found[2]


def refused(run: Run, row: int, target: int | str | None = None) -> str:
    with pytest.raises(ValueError) as error:
        explain(run, row, target)
    return str(error.value)


def test_rows_and_targets_that_do_not_exist_are_refused(moons: Run, people: Run) -> None:
    assert refused(moons, 900) == "row must lie in 0..899, the test rows of moons; got 900"
    assert refused(moons, -1) == "row must lie in 0..899, the test rows of moons; got -1"
    row = decisions(people).index(0)
    assert refused(people, row) == "target must be given where there are 3 classes: high, low, mid"
    assert refused(people, row, "none") == (
        "target must be a class of people, by number 0..2 or name (high, low, mid); got 'none'"
    )
    assert refused(people, row, 3).endswith("got 3")
    assert refused(people, row, "high") == "the decision is already 'high'; choose another target to explain"


def test_a_search_that_ends_too_early_says_so(moons: Run, people: Run) -> None:
    none = explain(moons, surest(moons, 0), n_steps=1)
    assert not none.valid
    assert none.reason == (
        "no counterfactual was found within 1 steps; this is the closest attempt: allow more steps, "
        "or let more features change"
    )
    short = next(e for n in range(2, 60) if (e := explain(people, surest(people, 0), 2, n_steps=n)).valid)
    assert short.reason == (
        f"the decision changes, but the search stopped at {short.n_steps} steps short of probability 0.95, "
        "2 of its features being immutable"
    )
    assert short.probability_after < 0.95
