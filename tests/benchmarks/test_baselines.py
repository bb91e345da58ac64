"""Advice without counterfactual training: boosting that decides, with real people or DiCE to say what to change."""

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks import baselines
from benchmarks.advice_tables import Problem, Rows
from benchmarks.advisers import judge_cell, network
from benchmarks.baselines import BASELINES, Boosted, NearestPerson
from benchmarks.measuring import AbsentError
from countertrain.recourse.reach import AnswerGrid
from countertrain.tables.schema import Schema


def draw(n: int = 600) -> Rows:
    """People who get it if income and a job outweigh age."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {
            "age": rng.integers(20, 70, n),
            "income": rng.gamma(3.0, 10.0, n).round(1),
            "job": rng.choice(["none", "some", "full"], n),
        }
    )
    score = rows["income"] / 15 + (rows["job"] == "full") - rows["age"] / 30 + rng.normal(0, 0.3, n)
    labels = pd.Series(np.where(score > 0.7, "yes", "no"), dtype=object)
    return Rows(rows, labels, "yes", ("age",), Schema.infer(rows))


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem.of(draw(), seed=0)


@pytest.fixture(scope="module")
def boosted(problem: Problem) -> Boosted:
    return baselines._fit(problem)[0]


def test_the_boosting_that_decides_is_trained_on_the_rows_of_a_network_and_is_not_the_judge(
    problem: Problem, boosted: Boosted
) -> None:
    twin = network(objective="bl", epochs=1)(problem).decider
    assert twin.reference is not None
    assert len(boosted.rows) == len(twin.reference[1]) < len(problem.train)
    np.testing.assert_array_equal(boosted.y, twin.reference[1].numpy())
    assert boosted.model.random_state != problem.seed
    assert boosted.model.n_iter_ < boosted.model.max_iter  # it was stopped


def test_nobody_nearer_is_accepted_than_the_person_who_is_named(problem: Problem, boosted: Boosted) -> None:
    wanted, tau = boosted.classes.index("yes"), 0.8
    asking = problem.test[problem.refused].head(12).reset_index(drop=True)
    told, own = NearestPerson(boosted).ask(asking, wanted)(tau)
    assert len(told) == len(asking)  # all are helped, so that rows belong to each other
    assert (told["age"] == own["age"]).all()
    assert (boosted.compute_probabilities(told)[:, wanted] >= tau).all()
    real = boosted.rows[boosted.y == wanted]
    real = real[boosted.compute_probabilities(real)[:, wanted] >= tau]
    for i in range(len(asking)):  # one by one, as it is told in words
        mixed = real.assign(age=own["age"][i])
        mixed = mixed[boosted.compute_probabilities(mixed)[:, wanted] >= tau]
        costs = cost_of(boosted, mixed, own.iloc[[i] * len(mixed)])
        assert cost_of(boosted, told.iloc[[i]], own.iloc[[i]])[0] == pytest.approx(costs.min())
        assert costs.max() > costs.min()


def cost_of(boosted: Boosted, rows: pd.DataFrame, own: pd.DataFrame) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    x, start = (torch.from_numpy(boosted.encoder.encode(frame)) for frame in (rows, own))
    return AnswerGrid.of(boosted.encoder).costs(x, start).sum(1).numpy()


def test_who_wants_more_certainty_than_there_is_gets_no_advice(problem: Problem, boosted: Boosted) -> None:
    told, own = NearestPerson(boosted).ask(problem.test.head(3), boosted.classes.index("yes"))(0.999999)
    assert len(told) == len(own) == 0


def test_records_of_a_baseline_have_the_columns_of_a_network(problem: Problem) -> None:
    ours = judge_cell(problem, network(epochs=1))
    theirs = judge_cell(problem, BASELINES["boosting with nearest person"])
    assert list(ours) == list(theirs)
    assert {"boosting", "forest", "logistic", "whole panel", "people"} <= set(ours)
    assert theirs["default"].sum() == 1
    assert set(theirs["real whole panel"]) == set(ours["real whole panel"])  # the very same panel


def test_without_dice_its_cell_is_absent_with_a_sentence(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    none: Callable[[str], None] = lambda name: None  # noqa: E731
    monkeypatch.setattr(baselines, "find_spec", none)
    with pytest.raises(AbsentError, match="dice-ml is not installed"):
        BASELINES["boosting with DiCE"](problem)


@pytest.mark.skipif(find_spec("dice_ml") is None, reason="dice-ml is not installed")
@pytest.mark.filterwarnings("ignore")
def test_dice_changes_only_what_people_can_change_and_says_the_same_twice(problem: Problem, boosted: Boosted) -> None:
    wanted = boosted.classes.index("yes")
    advise = baselines.WithDice(boosted, seed=0).ask(problem.test[problem.refused].head(3), wanted)
    told, own = advise(0.7)
    assert len(told)
    assert (told["age"] == own["age"]).all()
    assert (boosted.compute_probabilities(told)[:, wanted] >= 0.7).all()
    pd.testing.assert_frame_equal(told, advise(0.7)[0])
