"""How sure advice is by default is learnt from people who were held out, by models that never judge."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from test_judge import QUICK, draw_rows

from countertrain import CounterfactualClassifier
from countertrain.judge import colleagues
from countertrain.judge.colleagues import choose_taus, make_colleagues
from countertrain.recourse.search import RecourseSearch
from countertrain.runs.registry import teach_by_boosting


@cache
def fitted() -> CounterfactualClassifier:
    return CounterfactualClassifier(**QUICK, target="yes").fit(*draw_rows(1200))


def share_accepted(clf: CounterfactualClassifier, tau: float) -> float:
    """By hand: the share of valid advice to the same people, through the door that people use."""
    decider = clf.decider
    assert decider.reference is not None
    assert decider.held_out is not None
    x = decider.held_out[0]
    x = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))]
    asking = x[clf.predict(clf.encoder_.decode(x.numpy())) != "yes"][: colleagues._PEOPLE]
    told = clf.explain(clf.encoder_.decode(asking.numpy()), tau=tau).to_frame()
    rows = clf.encoder_.encode(told[told["valid"].astype(bool)][list(clf.encoder_.schema.names)])
    reference, y = (part.numpy() for part in decider.reference)
    said = [model.fit(reference.astype(np.float64), y).predict(rows) == 1 for model in make_colleagues().values()]
    accepted: NDArray[np.bool_] = said[0] & said[1]
    return float(accepted.mean())


def test_the_default_is_the_least_probability_at_which_enough_advice_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    clf, taus = fitted(), (*colleagues._TAUS, colleagues._SUREST)
    shares = [share_accepted(clf, tau) for tau in taus]
    assert shares[0] < shares[-1]  # else any would do
    enough = (shares[0] + shares[1]) / 2 if shares[0] < shares[1] else shares[0] + 0.01
    monkeypatch.setattr(colleagues, "_HOLDS", enough)
    least = next((tau for tau, share in zip(taus, shares, strict=True) if share >= enough), taus[-1])
    assert choose_taus(clf.decider) == {1: least} != {1: taus[0]}


@pytest.mark.parametrize(("enough", "tau"), [(0.0, colleagues._TAUS[0]), (1.01, colleagues._SUREST)])
def test_little_is_asked_where_all_holds_and_most_where_nothing_does(
    enough: float, tau: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(colleagues, "_HOLDS", enough)
    assert choose_taus(fitted().decider) == {1: tau}


def test_what_was_learnt_is_asked_for_kept_and_read_again(tmp_path: Path) -> None:
    clf = fitted()
    learnt = clf.decider.taus
    assert learnt.keys() == {1}
    fitted().save(tmp_path / "model")
    for decider in (clf.decider, CounterfactualClassifier.load(tmp_path / "model").decider):
        assert decider.taus == learnt
        assert RecourseSearch.of(decider).default_tau(torch.tensor([1])) == learnt[1]
        other = replace(decider, taus={1: 0.83})
        assert RecourseSearch.of(other).default_tau(torch.tensor([1])) == 0.83


def test_of_two_classes_either_may_be_wanted_and_of_few_people_nothing_is_learnt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decider = fitted().decider
    monkeypatch.setattr(colleagues, "_HOLDS", 0.3)  # else both may end at the surest
    either = choose_taus(replace(decider, target=None))  # both searched together
    assert either == choose_taus(replace(decider, target="no")) | choose_taus(decider)
    assert either.keys() == {0, 1}
    assert decider.held_out is not None
    few = tuple(part[:20] for part in decider.held_out)
    assert choose_taus(replace(decider, held_out=(few[0], few[1]))) == {}
    assert choose_taus(replace(decider, held_out=None)) == {}
    assert CounterfactualClassifier(**QUICK, settings={"calibrate": False}).fit(*draw_rows(300)).decider.taus == {}


def test_no_colleague_thinks_as_the_teacher_does() -> None:
    x, y = (part.numpy() for part in fitted().decider.reference or ())
    said = [model.fit(x, y).predict_proba(x)[:, 1] for model in (*make_colleagues().values(), teach_by_boosting())]
    for colleague in said[:-1]:
        assert np.abs(colleague - said[-1]).mean() > 0.02
