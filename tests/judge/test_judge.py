"""Advice is judged by models that know nothing of the classifier, and asked for by how certainly it holds."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray

from countertrain import CounterfactualClassifier
from countertrain.judge import Verdict, judge
from countertrain.judge.certainty import find_tau, judge_held_out
from countertrain.judge.panel import Crowd, fit_panel

QUICK: dict[str, Any] = {"epochs": 8, "random_state": 0, "teacher": "none"}


def draw_rows(n: int, seed: int = 0) -> tuple[pd.DataFrame, NDArray[np.str_]]:
    """People who are accepted for high income and low debt; their shoes do not matter."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"income": rng.normal(40, 9, n), "debt": rng.gamma(2, 5, n), "shoe": rng.integers(36, 46, n)})
    frame["home"] = rng.choice(["own", "rent"], n)
    good = frame["income"] - frame["debt"] + 6 * (frame["home"] == "own") + rng.normal(0, 2, n) > 32
    return frame, np.where(good, "yes", "no")


@cache
def fitted() -> CounterfactualClassifier:
    return CounterfactualClassifier(**QUICK).fit(*draw_rows(600))


@cache
def verdict() -> Verdict:
    return fitted().judge(*draw_rows(300, seed=1), target="yes", people=60, taus=(0.6, 0.9))


def code(labels: NDArray[np.str_]) -> NDArray[np.int64]:
    return (labels == "yes").astype(np.int64)


def test_the_panel_has_outsiders_of_three_kinds_and_two_next_versions() -> None:
    assert {"boosting", "forest", "logistic", "next version 1", "next version 2"} <= verdict().ceiling.keys()
    assert all(one.accepted.keys() == verdict().ceiling.keys() for one in verdict().standings)


def test_the_whole_panel_accepts_no_more_than_each_of_its_members() -> None:
    for one in verdict().standings:
        assert 0 < one.n <= 60
        assert 0 <= one.whole <= min(one.accepted.values()) <= 1
    assert verdict().whole_ceiling <= min(verdict().ceiling.values())
    assert verdict().holds == verdict().standing.whole > 0.3


def test_asking_for_more_costs_more_and_holds_more_often() -> None:
    standings = sorted(verdict().standings, key=lambda one: one.tau)
    assert len(standings) >= 2
    assert standings[0].cost < standings[-1].cost
    assert standings[0].accepted["boosting"] < standings[-1].accepted["boosting"]


def test_what_the_panel_accepts_is_what_its_members_say_of_the_told_rows() -> None:
    clf, (rows, labels) = fitted(), draw_rows(300, seed=1)
    x, y = clf.decider.reference or (torch.zeros(0), torch.zeros(0))
    frame = clf.encoder_.decode(x.numpy())
    told = clf.explain(rows[clf.predict(rows) == "no"], target="yes").to_frame()
    told = told[told["valid"].astype(bool)]
    found = judge(clf.decider, rows, code(labels), "yes", people=10_000, taus=())
    naive = fit_panel(_as_numbers(frame), y.numpy())["boosting"]
    assert found.standing.n == len(told)
    assert found.standing.accepted["boosting"] == pytest.approx(naive.predict(_as_numbers(told)).mean(), abs=0.06)


def _as_numbers(frame: pd.DataFrame) -> NDArray[np.float64]:
    return frame[["income", "debt", "shoe"]].assign(own=frame["home"] == "own").to_numpy(np.float64)


def test_only_the_people_named_are_asked() -> None:
    rows, labels = draw_rows(300, seed=1)
    among = (rows["home"] == "rent").to_numpy()
    found = judge(fitted().decider, rows, code(labels), "yes", among=among, people=10_000, taus=())
    refused = fitted().predict(rows) == "no"
    assert 0 < found.standing.n <= (refused & among).sum() < refused.sum()


def test_typical_people_stand_in_the_middle_of_a_crowd_and_strangers_at_its_edge() -> None:
    rng = np.random.default_rng(0)
    crowd = Crowd.of(rng.normal(size=(400, 3)))
    assert crowd is not None
    typical, strange = crowd.measure(rng.normal(size=(200, 3))), crowd.measure(rng.normal(size=(200, 3)) + 4)
    assert 35 < typical["typical"] < 65
    assert 0.8 < typical["distance"] < 1.2
    assert strange["typical"] < 5
    assert strange["distance"] > 2
    assert Crowd.of(rng.normal(size=(30, 3))) is None


def test_a_verdict_is_told_in_words_and_as_json() -> None:
    said = verdict().summary()
    assert f"{verdict().holds:.0%} of the advice holds" in said
    assert "boosting" in said
    read = json.loads(json.dumps(verdict().to_dict()))
    assert read["holds"] == verdict().holds
    assert len(read["curve"]) == len(verdict().standings)


def test_without_training_rows_nothing_can_be_judged() -> None:
    bare = replace(fitted().decider, reference=None)
    rows, labels = draw_rows(60, seed=1)
    with pytest.raises(ValueError, match="the training rows are needed"):
        judge(bare, rows, code(labels), "yes")


def test_without_people_who_are_refused_nothing_can_be_judged() -> None:
    rows, labels = draw_rows(300, seed=1)
    accepted = fitted().predict(rows) == "yes"
    with pytest.raises(ValueError, match="must hold people who are refused it, and people who have it"):
        judge(fitted().decider, rows[accepted], code(labels[accepted]), "yes")


def test_certainty_asks_for_the_least_tau_that_held_so_often() -> None:
    steps = [replace(verdict().standing, tau=tau, whole=whole) for tau, whole in ((0.5, 0.4), (0.7, 0.6), (0.9, 0.8))]
    curve = replace(verdict(), standings=steps)
    assert find_tau(curve, 0.3) == 0.5
    assert find_tau(curve, 0.6) == pytest.approx(0.7)
    assert find_tau(curve, 0.7) == pytest.approx(0.8)
    with pytest.raises(ValueError, match=r"of the surest, 80% held .* below 0\.80"):
        find_tau(curve, 0.85)
    with pytest.raises(ValueError, match="strictly between 0 and 1; got 1"):
        find_tau(curve, 1)


def test_certain_advice_costs_more_than_uncertain_advice() -> None:
    clf = CounterfactualClassifier(**QUICK).fit(*draw_rows(900))
    rows, _ = draw_rows(100, seed=2)
    asking = rows[clf.predict(rows) == "no"]
    held = judge_held_out(clf.decider, "yes")
    low, high = (min(max(one.whole for one in held.standings), share) for share in (0.3, 0.95))
    few, many = (clf.explain(asking, "yes", certainty=share - 0.01).to_frame()["cost"].mean() for share in (low, high))
    assert few < many


def test_certainty_needs_a_target_and_people_who_were_held_out() -> None:
    clf, (rows, _) = fitted(), draw_rows(5, seed=3)
    with pytest.raises(ValueError, match="certainty needs one target"):
        clf.explain(rows, certainty=0.9)
    with pytest.raises(ValueError, match="either tau or certainty"):
        clf.explain(rows, "yes", tau=0.8, certainty=0.9)
    alone = CounterfactualClassifier(early_stopping=False, **{**QUICK, "epochs": 1}).fit(*draw_rows(200))
    with pytest.raises(ValueError, match="this model has none; train it with early_stopping"):
        alone.explain(rows, "yes", certainty=0.9)
