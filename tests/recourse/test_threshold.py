"""A threshold other than one half is used by everything that decides, and by everything that speaks of decisions."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from countertrain.estimator import CounterfactualClassifier
from countertrain.judge import judge
from countertrain.recourse.defaults import TAU_RANGE
from countertrain.recourse.search import RecourseSearch
from countertrain.recourse.threshold import Threshold, decide
from countertrain.runs.threshold_rules import read_rule
from countertrain.runs.wanted import choose_by_cost, choose_by_rate
from loans import loans, quick

ROWS, LABELS = loans(150, seed=3)


@cache
def fitted(threshold: float | str = 0.8) -> CounterfactualClassifier:
    return quick(target="granted", threshold=threshold).fit(*loans(400))


def of_granted(clf: CounterfactualClassifier) -> "np.ndarray":
    return clf.predict_proba(ROWS)[:, list(clf.classes_).index("granted")]


def test_the_wanted_class_is_decided_for_from_the_threshold_on_and_not_below() -> None:
    probability = torch.tensor([[0.3, 0.7], [0.2, 0.8], [0.19, 0.81], [0.9, 0.1]], dtype=torch.float64)
    assert Threshold(1, 0.8).choose(probability).tolist() == [0, 1, 1, 0]
    assert Threshold(0, 0.3).choose(probability).tolist() == [0, 1, 1, 0]
    assert decide(probability.log(), Threshold(1, 0.75)).tolist() == [0, 1, 1, 0]
    assert decide(probability.log()).tolist() == [1, 1, 1, 0]  # one half, where nobody says otherwise


def test_what_a_class_needs_and_how_far_above_it_advice_goes() -> None:
    threshold = Threshold(1, 0.8)
    assert threshold.needed(1) == 0.8
    assert threshold.needed(0) == pytest.approx(0.2)
    assert threshold.shift(0.5, 1) == pytest.approx(0.8)
    assert Threshold(1, 0.5).shift(0.73, 1) == Threshold(1, 0.5).shift(0.73, 0) == pytest.approx(0.73)
    assert 0.2 < threshold.shift(0.6, 0) < 0.6 < 0.8 < threshold.shift(0.6, 1) < threshold.shift(0.9, 1) < 1


@pytest.mark.parametrize("at", [0.2, 0.8])
def test_decisions_use_it_and_probabilities_stay_what_they_were(at: float) -> None:
    clf, plain = fitted(at), quick(target="granted").fit(*loans(400))
    np.testing.assert_array_equal(clf.predict_proba(ROWS), plain.predict_proba(ROWS))
    granted = of_granted(clf) >= at
    assert (granted != (of_granted(clf) >= 0.5)).sum() > 5  # it matters
    assert ((clf.predict(ROWS) == "granted") == granted).all()
    x = clf.encoder_.tensor(ROWS)
    decided, probability = clf.decider.weigh(x)
    assert ((decided == 0).numpy() == granted).all()
    assert clf.score(ROWS, LABELS) == (clf.predict(ROWS) == LABELS).mean()
    np.testing.assert_array_equal(probability.numpy(), clf.predict_proba(ROWS))


@pytest.mark.parametrize("at", [0.2, 0.8])
def test_advice_leads_beyond_it_and_says_what_is_needed(at: float) -> None:
    clf = fitted(at)
    found = clf.explain(ROWS, options=2)
    told = found.table
    assert (told.valid == (clf.predict(told.values) == "granted")).all()
    assert (told.probability[told.valid] >= at).all()
    assert told.valid.mean() > 0.9
    refused = next(one for one in found if one.decision == "refused")
    assert refused.needed == at
    assert f"and needs {at:.2f})" in refused.summary()
    tau = RecourseSearch.of(clf.decider).default_tau(torch.tensor([0]))
    low, high = (clf.decider.threshold.shift(p, 0) for p in TAU_RANGE)
    assert at < low - 1e-4 <= tau <= high + 1e-4
    just = told.probability[told.valid & (told.kind == "recommended") & told.costs.any(1)]
    assert np.median(just) < tau + 0.05  # not surer than is needed: it would cost more


def test_a_lower_tau_than_the_threshold_asks_for_the_threshold() -> None:
    clf = fitted(0.8)
    found = clf.explain(ROWS, tau=0.3)
    moved = found.table.costs.any(1) & found.table.valid
    assert moved.sum() > 20
    assert (found.table.probability[moved] >= 0.8).all()
    assert np.median(found.table.probability[moved]) < 0.85


def test_the_other_class_needs_the_rest() -> None:
    clf = fitted(0.8)
    found = clf.explain(ROWS, "refused")
    assert found.needed["refused"] == pytest.approx(0.2)
    assert (found.table.valid == (clf.predict(found.table.values) == "refused")).all()
    assert found.table.valid.mean() > 0.9


def test_the_judge_asks_those_who_are_refused_by_it_and_its_panel_decides_so_too() -> None:
    clf = fitted(0.8)
    codes = np.array([list(clf.classes_).index(label) for label in LABELS])
    high, half = (
        judge(one, ROWS, codes, "granted", people=40, taus=(0.5, 0.9))
        for one in (clf.decider, quick(target="granted").fit(*loans(400)).decider)
    )
    assert next(one.tau for one in high.standings) == 0.8  # advice below is none
    assert high.accuracy["classifier"] == pytest.approx(clf.score(ROWS, LABELS))
    assert all(high.ceiling[name] <= half.ceiling[name] for name in half.ceiling)
    assert high.ceiling["forest"] < half.ceiling["forest"]


def test_the_report_counts_decisions_by_it_and_says_so() -> None:
    page = " ".join(str(fitted(0.8).report(ROWS, LABELS, n_examples=1)).split())
    assert "The decision “granted” is made from a probability of 0.800 on" in page
    granted = fitted(0.8).predict(ROWS) == "granted"
    assert f">{int((granted & (LABELS == 'granted')).sum())}<" in page


def test_it_comes_back_from_the_folder_as_a_number(tmp_path: Path) -> None:
    clf = fitted("rate:0.3")
    clf.save(tmp_path / "m")
    stored = json.loads((tmp_path / "m" / "about.json").read_text())["threshold"]
    assert isinstance(stored, float)
    again = CounterfactualClassifier.load(tmp_path / "m")
    assert again.run_.threshold == clf.run_.threshold == Threshold(0, stored)
    assert again.threshold == "rate:0.3"
    assert (again.predict(ROWS) == clf.predict(ROWS)).all()


def test_by_rate_that_share_of_the_held_out_rows_gets_it() -> None:
    held_out = fitted("rate:0.3").decider.held_out
    assert held_out is not None
    decided = fitted("rate:0.3").decider.decide(held_out[0])
    assert (decided == 0).sum() == round(0.3 * len(decided))
    p = np.random.default_rng(0).random(1000)
    for rate in (0.001, 0.25, 0.999):
        assert (p >= choose_by_rate(p, rate)).mean() == pytest.approx(rate)


def test_by_cost_mistakes_cost_least_and_chance_is_not_followed() -> None:
    draw = np.random.default_rng(0)
    p = draw.random(20_000)
    real = draw.random(len(p)) < p  # honest probabilities
    assert choose_by_cost(p, real, 5, 1) == pytest.approx(5 / 6)
    assert choose_by_cost(p, real, 1, 1) == 0.5
    few = draw.permutation(len(p))[:40]
    assert choose_by_cost(p[few], real[few], 5, 1) == pytest.approx(5 / 6)
    shy = p**3  # too low: whoever is truly at 5/6 is said to be at 0.58
    chosen = choose_by_cost(shy, real, 5, 1)
    assert chosen == pytest.approx((5 / 6) ** 3, abs=0.05)

    def price(at: float) -> float:
        granted = shy >= at
        return float((5 * (granted & ~real) + (~granted & real)).mean())

    assert price(chosen) == pytest.approx(min(price(at) for at in np.linspace(0, 1, 501)), abs=2e-3)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (0.4, 0.4),
        ("0.4", 0.4),
        (np.float64(0.25), 0.25),
        ("cost:5:1", "cost:5:1"),
        ({"false_approval": 5, "false_refusal": 1}, "cost:5:1"),
        ({"rate": 0.3}, "rate:0.3"),
        (None, None),
    ],
)
def test_a_threshold_can_be_given_in_several_ways(given: object, read: object) -> None:
    assert read_rule(given) == read


@pytest.mark.parametrize(
    "given", [0, 1, 1.5, True, "half", "cost:5", "cost:5:0", "rate:30", "rate:x", [0.5], {"cost": 5}]
)
def test_what_is_no_threshold_is_refused_with_what_would_be_one(given: object) -> None:
    with pytest.raises(ValueError, match=r'is a probability between 0 and 1 .*"cost:5:1".*"rate:0.3"'):
        read_rule(given)


def test_a_threshold_that_makes_no_sense_is_refused_before_training() -> None:
    endless = {"epochs": 10**6}
    with pytest.raises(ValueError, match="a threshold is for the class that people want, and nobody said which"):
        quick(threshold=0.4, **endless).fit(*loans())
    frame, labels = loans()
    three = np.where(frame["income"] > 40_000, "special", labels)
    with pytest.raises(ValueError, match="threshold must be left out where there are more than two classes"):
        quick(target="granted", threshold=0.4, **endless).fit(frame, three)
    with pytest.raises(
        ValueError, match=r"threshold must be a number here: 'rate:0\.3' is chosen by at least 20 validation"
    ):
        quick(target="granted", threshold="rate:0.3", **endless).fit(*loans(150))


def test_the_costs_may_be_named_and_come_back_so(tmp_path: Path) -> None:
    costs = {"false_approval": 5, "false_refusal": 1}
    clf = quick(epochs=1, target="granted", threshold=costs).fit(*loans(400))
    assert clf.settings_.threshold == "cost:5:1"
    clf.save(tmp_path / "m")
    assert CounterfactualClassifier.load(tmp_path / "m").threshold == costs
