"""What explaining leaves out, guesses or bounds to be quick never changes what people are told."""

from dataclasses import replace

import pandas as pd
import pytest
import torch
from torch import Tensor

from countertrain.constraints import Constraints
from countertrain.recourse import ladder as ladders
from countertrain.recourse.attempt import Attempt
from countertrain.recourse.guesses import Guesses
from countertrain.recourse.ladder import Ladder
from countertrain.recourse.reach import _DOUBLE, _SINGLE, AnswerGrid, Reach
from countertrain.recourse.reference import Reference
from countertrain.recourse.search import RecourseSearch
from countertrain.tables.encoder import Encoder
from countertrain.tables.scales import Ranks
from people import SCHEMA, classifier, people

ROWS = people(150, seed=3)


@pytest.fixture(scope="module")
def search() -> RecourseSearch:
    return RecourseSearch.of(classifier().decider)


@pytest.fixture(scope="module")
def reach(search: RecourseSearch) -> Reach:
    """Where people can go who are refused, and want to be granted."""
    origin = torch.from_numpy(search.decider.encoder.encode(ROWS))
    refused = search.decider.decide(origin) != 0
    everybody = search.keep_unknown(ROWS, Reach.of(search.decider.encoder.constraints(), origin))
    assert refused.sum() > 30
    return everybody[refused]


@pytest.fixture(scope="module")
def ladder(search: RecourseSearch) -> Ladder:
    return Ladder(search.decider.model, search.grid, search.reference, tau=0.75, n_steps=20, sparse=True)


def wanted(reach: Reach) -> Tensor:
    return torch.zeros(len(reach), dtype=torch.int64)


def snap_plainly(grid: AnswerGrid, x: Tensor, reach: Reach, *, away: bool) -> Tensor:
    """All features at once, each bound decoded anew."""

    def to_multiples(value: Tensor) -> Tensor:
        return grid.scales.decode(value) / grid.step

    x = torch.where(x == reach.origin, x, grid.scales.leave_gaps(x))
    multiple, low, high, own = (to_multiples(value) for value in (x, reach.low, reach.high, reach.origin))
    unsure = _SINGLE * (1 + x.abs()) * grid.scales.measure_units(x) / grid.step
    lost = _DOUBLE * (1 + multiple.abs() + to_multiples(torch.zeros_like(x)).abs())
    low, high = (low - lost).ceil(), (high + lost).floor()
    moved = ((multiple - own).abs() > unsure) & (low <= high)
    if away:
        multiple = torch.where(multiple > own, (multiple - unsure).ceil(), (multiple + unsure).floor())
    multiple = multiple.round().clamp(low, high)
    moved &= (multiple - own).abs() > lost
    return torch.where(moved, grid.scales.encode(multiple * grid.step), reach.origin)


@pytest.mark.parametrize("ranked", [False, True])
def test_snapping_numbers_alone_with_bounds_noted_before_is_snapping_everything(ranked: bool) -> None:
    encoder = Encoder.fit(SCHEMA, ROWS, fit_scale=Ranks.fit) if ranked else Encoder.fit(SCHEMA, ROWS)
    grid, origin = AnswerGrid.of(encoder), torch.from_numpy(encoder.encode(ROWS))
    reach = Reach.of(encoder.constraints(), origin)
    stream = torch.Generator().manual_seed(0)
    wild = reach.project(origin + 2 * torch.randn(origin.shape, dtype=torch.float64, generator=stream))
    some = torch.arange(3, 140, 7)
    for away in (False, True):
        plain = snap_plainly(grid, wild, reach, away=away)
        assert torch.equal(grid.snap(wild, reach, away=away), plain)
        assert torch.equal(grid.snap(wild[some], grid.mark(reach)[some], away=away), plain[some])
        assert (plain != wild).any()
        assert (plain != origin).any()


def test_marks_do_not_outlive_the_reach_that_they_were_made_for(search: RecourseSearch, reach: Reach) -> None:
    grid, wild = search.grid, torch.where(search.grid.number, reach.origin + 1, reach.origin)
    pinned = grid.mark(reach).pin(torch.ones_like(reach.low, dtype=torch.bool))
    assert torch.equal(grid.snap(wild, pinned), reach.origin)
    assert not torch.equal(grid.snap(wild, grid.mark(reach)), reach.origin)


def test_categories_that_nobody_can_leave_need_no_group_and_rows_of_a_person_no_copies(reach: Reach) -> None:
    free = torch.ones(reach.low.shape[1], dtype=torch.bool)
    groups = Constraints(free, free, reach.low, reach.high, reach.categories)
    x = reach.origin + torch.randn(reach.origin.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert 0 < len(reach.open_categories) < len(reach.categories)
    assert torch.equal(reach.project(x), groups.project_into(x, reach.low, reach.high))
    several = torch.stack([x, -x, 2 * x], dim=1)
    each = torch.stack([reach.project(several[:, j]) for j in range(3)], dim=1)
    assert torch.equal(reach.project(several), each)


@pytest.mark.parametrize("tau", [0.6, 0.75, 0.97])
def test_finalists_are_those_of_everybody_asked_exactly(ladder: Ladder, reach: Reach, tau: float) -> None:
    ladder, target = replace(ladder, tau=tau), wanted(reach)
    reference = ladder.reference
    assert reference is not None
    places = ladder._promise(reach, 0, reference.of_class(0), 40)
    who = torch.arange(len(reach)).repeat_interleave(40)
    seen = ladder.judge(reach[who].project(reference.x[places.flatten()]), target[who])
    short = ((tau - seen.probability).clamp(min=0) + ~seen.valid).view_as(places)
    plain = short.argsort(dim=1, stable=True)[:, : ladders._FINALISTS]
    assert torch.equal(ladder._find_finalists(reach, target, places), plain)
    enough = (short == 0).sum(1) >= ladders._FINALISTS
    assert enough.any() if tau < 0.9 else not enough.all()


def test_what_is_kept_of_real_rows_changes_no_finalist_and_is_asked_once(
    ladder: Ladder, reach: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, reference = wanted(reach), ladder.reference
    assert reference is not None
    kept, half = replace(reach, guesses=Guesses.none(len(reach), len(reference.x))), len(reach) // 2
    guess, asked = Ladder._guess_probability, 0

    def count(self: Ladder, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal asked
        asked += len(x)
        return guess(self, x, target)

    monkeypatch.setattr(Ladder, "_guess_probability", count)
    for tau, n, news in ((0.6, 20, True), (0.97, 20, False), (0.97, 60, True), (0.97, 60, False)):
        mine = replace(ladder, tau=tau)
        places = mine._promise(reach, 0, reference.of_class(0), n)
        plain, asked = mine._find_finalists(reach, target, places), 0
        parts = [
            mine._find_finalists(kept[part], target[part], places[part]) for part in (slice(half), slice(half, None))
        ]
        assert torch.equal(torch.cat(parts), plain)
        assert (asked > 0) == news


def test_what_is_kept_of_real_rows_does_not_outlive_the_reach(reach: Reach) -> None:
    kept = replace(reach, guesses=Guesses.none(len(reach), 5))
    assert kept[3:5].guesses is not None
    assert kept.pin(torch.zeros_like(reach.low, dtype=torch.bool)).guesses is None
    assert kept.put(torch.arange(len(reach)), reach).guesses is None


def test_people_who_are_remembered_are_told_the_same_at_every_tau(search: RecourseSearch) -> None:
    request = search.request(ROWS[:80], search.decider.classes[0])
    again = search.remember(request)
    assert again.guesses is not None
    told = set()
    for tau in (0.6, 0.9, 0.75, 0.99):
        one, other = search([request], tau=tau)[0].table, search([again], tau=tau)[0].table
        pd.testing.assert_frame_equal(one.values, other.values)
        assert (one.probability == other.probability).all()
        told.add(one.values.to_csv())
    assert len(told) > 1
    assert not again.guesses.said.isnan().all()


def test_the_best_of_some_attempts_is_the_cheapest_of_those_with_most_merit(ladder: Ladder, reach: Reach) -> None:
    reference, n = ladder.reference, 12
    assert reference is not None
    who = torch.arange(len(reach)).repeat_interleave(n)
    theirs, target = reach[who], wanted(reach)[who]
    real = reference.x[torch.randint(len(reference.x), (len(who),), generator=torch.Generator().manual_seed(2))]
    tried = ladder.judge(ladder.grid.snap(theirs.project(real), theirs), target)
    merit, price = ladder._merit(tried).view(-1, n), ladder._price(tried.x, theirs, target).view(-1, n)
    plain = price.masked_fill(merit < merit.amax(1, keepdim=True), torch.inf).argmin(1)
    best = ladder._find_best(tried, theirs, target, n)
    assert torch.equal(best, torch.arange(len(reach)) * n + plain)
    for i, mine in enumerate(torch.arange(len(who)).split(n)):  # alone, several are asked at once
        assert ladder._find_best(tried[mine], theirs[mine], target[mine], n).tolist() == [int(plain[i])]
    costs = ladder.grid.costs(tried.x, theirs.origin).sum(1).view(-1, n)
    order = costs.masked_fill(merit < merit.amax(1, keepdim=True), torch.inf).argsort(dim=1, stable=True)
    assert (order[:, :2] != plain.unsqueeze(1)).all(1).any()  # some best one is neither the cheapest nor the next
    one, other = tried[torch.arange(len(reach)) * n], tried[torch.arange(len(reach)) * n + 1]
    gain = merit[:, 1] - merit[:, 0]
    other_is_better = (gain > 0) | ((gain == 0) & (price[:, 1] < price[:, 0]))
    chosen = ladder.choose_better(one, other, reach, wanted(reach))
    assert torch.equal(chosen.x, torch.where(other_is_better.unsqueeze(1), other.x, one.x))
    assert other_is_better.any()
    assert not other_is_better.all()


def test_a_row_is_no_farther_from_the_nearest_than_from_those_who_were_near(ladder: Ladder, reach: Reach) -> None:
    reference, target = ladder.reference, wanted(reach)
    assert reference is not None
    away, near = reference.find_neighbours(reach.origin, target)
    own = reference.bound_atypicality(reach.origin, target, near)
    torch.testing.assert_close(own, away, rtol=1e-4, atol=1e-6)
    assert (own >= away).all()
    moved = reach.project(reach.origin + 0.7)
    bound, measured = reference.bound_atypicality(moved, target, near), reference.measure_atypicality(moved, target)
    assert (bound >= measured).all()
    assert (bound > 1.01 * measured).any()


def test_the_neighbours_of_people_who_want_the_same_are_those_that_they_have_among_others(
    ladder: Ladder, reach: Reach
) -> None:
    reference, target = ladder.reference, torch.arange(len(reach)) % 2
    assert reference is not None
    away, near = reference.find_neighbours(reach.origin, target)
    for k in (0, 1):
        mine = target == k
        alone = reference.find_neighbours(reach.origin[mine], target[mine])
        assert torch.equal(alone[0], away[mine])
        assert torch.equal(alone[1], near[mine])
        assert (reference.y[alone[1]] == k).all()


@pytest.mark.parametrize("tau", [0.6, 0.9])
def test_advice_is_the_same_without_any_short_cut(
    ladder: Ladder, reach: Reach, tau: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    ladder, target = replace(ladder, tau=tau), wanted(reach)
    asked = {"judge": 0, "measure": 0}
    judge, measure = Ladder.judge, Reference.measure_atypicality

    def count_judged(self: Ladder, x: Tensor, target: Tensor) -> Attempt:
        asked["judge"] += len(x)
        return judge(self, x, target)

    def count_measured(self: Reference, x: Tensor, target: Tensor) -> Tensor:
        asked["measure"] += len(x)
        return measure(self, x, target)

    monkeypatch.setattr(Ladder, "judge", count_judged)
    monkeypatch.setattr(Reference, "measure_atypicality", count_measured)
    quick, quickly = ladder.climb(reach, target), dict(asked)
    monkeypatch.setattr(ladders, "_UNSURE", 2.0)  # no guess is sure
    monkeypatch.setattr(
        Reference, "bound_atypicality", lambda self, x, target, near: torch.full_like(target, torch.inf, dtype=x.dtype)
    )
    asked.update(judge=0, measure=0)
    plain = ladder.climb(reach, target)
    assert torch.equal(quick.x, plain.x)
    assert torch.equal(quick.valid, plain.valid)
    torch.testing.assert_close(quick.probability, plain.probability, rtol=1e-12, atol=1e-12)
    assert all(quickly[what] < 0.8 * asked[what] for what in asked)
    assert (quick.x != reach.origin).any(1).float().mean() > 0.5


def test_what_is_told_has_the_probability_that_the_model_gives_it(search: RecourseSearch) -> None:
    rows = pd.concat([ROWS] * 2, ignore_index=True)
    request = search.request(rows, "granted")
    found = search([request], options=2)[0].table
    x = torch.from_numpy(search.decider.encoder.encode(found.values))
    exact = search.decider.compute_probabilities(x)[:, 0].numpy()
    assert abs(found.probability - exact).max() < 1e-12
