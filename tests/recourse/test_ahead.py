"""Looking ahead, and remembering what does not depend on a person, never changes what a person is told."""

from dataclasses import replace

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from countertrain.models import mlp
from countertrain.recourse import ahead
from countertrain.recourse import ladder as ladders
from countertrain.recourse.ahead import choose_depth, follow, list_shares
from countertrain.recourse.attempt import Attempt
from countertrain.recourse.decider import Decider
from countertrain.recourse.ladder import Ladder
from countertrain.recourse.reach import Reach
from countertrain.recourse.search import RecourseSearch, explain
from countertrain.tables.encoder import Encoder
from countertrain.tables.scales import Ranks
from people import classifier, people
from worlds import World, make_rows, make_schema, worlds

ROWS = people(60, seed=3)


@pytest.fixture(scope="module")
def ladder() -> Ladder:
    search = RecourseSearch.of(classifier().decider)
    return Ladder(search.decider.model, search.grid, search.reference, tau=0.75, n_steps=20, sparse=True)


@pytest.fixture(scope="module")
def reach() -> Reach:
    """Where people can go who are refused."""
    search = RecourseSearch.of(classifier().decider)
    origin = torch.from_numpy(search.decider.encoder.encode(ROWS))
    everybody = search.keep_unknown(ROWS, Reach.of(search.decider.encoder.constraints(), origin))
    return everybody[(search.decider.decide(origin) != 0).nonzero()[:, 0]]


def wanted(reach: Reach) -> Tensor:
    return torch.zeros(len(reach), dtype=torch.int64)


@pytest.mark.parametrize(("typical", "tau"), [(True, 0.75), (False, 0.75), (True, 0.97)])
def test_people_are_told_the_same_alone_and_together_ahead_and_one_trial_at_a_time(
    ladder: Ladder, reach: Reach, typical: bool, tau: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    ladder = replace(ladder, typical=typical, tau=tau)
    quick = [ladder.climb(reach[[i]], wanted(reach)[:1]) for i in range(len(reach))]
    monkeypatch.setattr(ahead, "_ROWS", 1)
    monkeypatch.setattr(ladders, "_FEW", -1)
    assert choose_depth(1, 6) == 1
    slow = ladder.climb(reach, wanted(reach))
    assert torch.equal(torch.cat([one.x for one in quick]), slow.x)
    assert torch.equal(torch.cat([one.valid for one in quick]), slow.valid)
    torch.testing.assert_close(torch.cat([one.probability for one in quick]), slow.probability, rtol=1e-12, atol=1e-12)
    assert (slow.x != reach.origin).any(1).sum() > 15


@settings(max_examples=10)
@given(world=worlds(), seed=st.integers(0, 10_000))
def test_under_rules_people_are_told_the_same_ahead_and_one_trial_at_a_time(world: World, seed: int) -> None:
    rows = make_rows(world, seed)
    encoder = Encoder.fit(make_schema(world), rows, fit_scale=Ranks.fit)
    x = encoder.tensor(rows)
    model = mlp(len(encoder.features), 2, hidden=[8], seed=seed).eval()
    decider = Decider(encoder, ("no", "yes"), (model,), (x, model(x).argmax(1)))
    quick = [explain(decider, rows.iloc[[i]], n_steps=5, prove=False).table.values for i in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ahead, "_ROWS", 1)
        patch.setattr(ladders, "_FEW", -1)
        slow = explain(decider, rows.iloc[:3], n_steps=5, prove=False).table.values
    pd.testing.assert_frame_equal(pd.concat(quick, ignore_index=True), slow, check_dtype=False)


def test_rounds_are_about_as_large_and_hold_all_trials() -> None:
    assert [choose_depth(1, n) for n in (1, 5, 6, 7, 12, 13)] == [1, 5, 6, 4, 6, 5]
    assert [choose_depth(n, 6) for n in (1, 2, 5, 9, 21, 22, 1000)] == [6, 3, 3, 3, 2, 1, 1]


def test_the_shares_of_halving_are_those_of_one_after_another() -> None:
    low, high = torch.tensor([0.0, 0.25], dtype=torch.float64), torch.tensor([1.0, 0.5], dtype=torch.float64)
    shares = list_shares(low, high, 3)
    for good in (torch.tensor([a, b, c]) for a in (True, False) for b in (True, False) for c in (True, False)):
        bottom, top, place = low, high, 0
        for step in range(3):
            middle = (bottom + top) / 2
            assert torch.equal(shares[:, place], middle)
            bottom, top = (bottom, middle) if good[step] else (middle, top)
            place = 2 * place + (1 if good[step] else 2)


def test_trials_are_followed_as_one_after_another_and_no_valid_row_is_given_up() -> None:
    stream = torch.Generator().manual_seed(0)
    n, depth = 200, 3
    size = 2**depth - 1
    found = Attempt(torch.zeros(n, 2), torch.rand(n, generator=stream), torch.rand(n, generator=stream) < 0.3)
    x = torch.randint(0, 3, (n * size, 2), generator=stream).float()
    fine, valid = (torch.rand(n * size, generator=stream) < 0.6 for _ in range(2))
    trial = Attempt(x, torch.rand(n * size, generator=stream), valid)
    last, went = follow(found, trial, fine, depth)
    for i in range(n):
        now, holds, p, place = found.x[i], bool(found.valid[i]), found.probability[i], 0
        for step in range(depth):
            at = i * size + place
            same = torch.equal(x[at], now)
            takes = bool(fine[at]) and (bool(valid[at]) or not holds) and not same
            if takes:
                now, holds, p = x[at], bool(valid[at]), trial.probability[at]
            assert bool(went[i, step]) == (takes or same)
            place = 2 * place + (1 if takes or same else 2)
        assert torch.equal(last.x[i], now)
        assert bool(last.valid[i]) == holds
        assert last.probability[i] == p
    assert (last.valid & ~found.valid).any()
    assert not (found.valid & ~last.valid).any()


def test_real_rows_are_judged_once_for_all_who_ask_of_a_model_whatever_tau_they_want(
    ladder: Ladder, reach: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    ladder, asked, judge = replace(ladder, once=ladders.Once()), [0], Ladder.judge
    assert ladder.reference is not None
    n_real = len(ladder.reference.of_class(0))

    def count(self: Ladder, x: Tensor, target: Tensor) -> Attempt:
        asked[0] += len(x) == n_real
        return judge(self, x, target)

    monkeypatch.setattr(Ladder, "judge", count)
    for tau in (0.6, 0.9):
        mine = replace(ladder, tau=tau).climb(reach, wanted(reach))
        fresh = replace(ladder, tau=tau, once=ladders.Once()).climb(reach, wanted(reach))
        assert torch.equal(mine.x, fresh.x)
    assert asked[0] == 3  # once for both, and once for each that is fresh
