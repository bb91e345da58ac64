"""Numbers as places among people: always increasing, one way back, whatever the numbers are like."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pandas.testing import assert_frame_equal
from scipy.special import ndtr, ndtri

from countertrain.tables.encoder import Encoder
from countertrain.tables.scales import UNSCALED, FeatureScales, Ranks, Scale, Standard, scale_from_dict
from countertrain.tables.schema import Numeric, Schema

Floats = NDArray[np.float64]


def draw(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


NUMBERS: dict[str, tuple[float, Callable[[], Floats]]] = {
    "integers": (1, lambda: draw().integers(18, 90, 2_000).astype(float)),
    "many integers": (1, lambda: draw().integers(-(10**6), 10**6, 2_000).astype(float)),
    "cents": (0.01, lambda: draw().integers(0, 10**6, 2_000) / 100),
    "heavy tails": (1, lambda: np.exp(draw().normal(8, 4, 2_000)).clip(max=1e9).round()),
    "heavy tails in cents": (0.01, lambda: np.exp(draw().normal(8, 4, 2_000)).clip(max=1e9).round(2)),
    "mostly nothing": (1, lambda: np.where(draw().random(2_000) < 0.9, 0, draw(1).exponential(1e4, 2_000)).round()),
    "nothing in the middle": (
        1,
        lambda: np.where(draw().random(2_000) < 0.9, 0, draw(1).normal(0, 1e4, 2_000)).round(),
    ),
    "two values": (1, lambda: np.where(draw().random(2_000) < 0.3, 7.0, 2.0)),
    "two values of which one is rare": (1, lambda: np.where(np.arange(2_000) == 5, 10.0**9, -3.0)),
    "two rows": (1, lambda: np.array([3.0, 4.0])),
}
every = pytest.mark.parametrize("kind", NUMBERS)


def fit(kind: str) -> tuple[Floats, float, Ranks]:
    """Numbers of a kind, their step, and the ranks among them."""
    step, make = NUMBERS[kind]
    numbers = make()
    ranks = Ranks.fit(numbers)
    assert isinstance(ranks, Ranks)
    return numbers, step, ranks


def round_to(step: float, numbers: Floats) -> Floats:
    """As a column does that has such a step."""
    column = Numeric(name="c", step=step, lower=-1e10, upper=1e10)
    return column.round_to_step(numbers)


@every
def test_a_number_comes_back_to_its_step_also_where_nobody_has_been(kind: str) -> None:
    numbers, step, ranks = fit(kind)
    low, high = numbers.min(), numbers.max()
    beyond = np.linspace(low - (high - low), high + (high - low), 999)
    for values in (numbers, round_to(step, beyond)):
        found = ranks.decode(ranks.encode(values))
        assert np.abs(found - values).max() < 0.01 * step
        assert np.array_equal(round_to(step, found), values)


@every
def test_more_is_more_everywhere_and_by_a_line_beyond_the_ends(kind: str) -> None:
    numbers, _, ranks = fit(kind)
    low, high = numbers.min(), numbers.max()
    grid = np.unique(np.concatenate([np.linspace(low - 9, high + 9, 5_000), numbers]))
    assert (np.diff(ranks.encode(grid)) > 0).all()
    assert (np.diff(ranks.decode(np.linspace(-9, 9, 5_000))) > 0).all()
    for end, inner in ((low, ranks.values[1]), (high, ranks.values[-2])):
        there = ranks.encode(end + (end - inner) * np.array([-0.5, 0, 1, 2, 50]))
        slope = np.diff(there) / np.array([0.5, 1, 1, 48])
        assert np.allclose(slope, slope[0], rtol=1e-6)
        assert abs(slope[0]) > 1e-9


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=200), st.lists(st.floats(-2e9, 2e9), min_size=2))
def test_whatever_the_rows_are_scores_increase_and_lead_back(numbers: list[float], others: list[float]) -> None:
    scale = Ranks.fit(np.array(numbers))
    values = np.unique(others)
    scores = scale.encode(values)
    assert np.isfinite(scores).all()
    assert (np.diff(scores) >= 0).all()
    found = scale.decode(scores)
    units = np.abs(scale.decode(scores + 1e-3) - scale.decode(scores - 1e-3)) / 2e-3  # of people's, per score
    assert (np.abs(found - values) <= 1e-9 * (np.abs(values) + units * (1 + np.abs(scores))) + 1e-9).all()


@given(st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=300).filter(lambda drawn: len(set(drawn)) > 1))
def test_integers_come_back_exactly(numbers: list[int]) -> None:
    values = np.array(numbers, dtype=float)
    ranks = Ranks.fit(values)
    assert isinstance(ranks, Ranks)
    scores = ranks.encode(np.unique(values))
    assert (np.diff(scores) > 1e-9).all()
    assert np.array_equal(np.rint(ranks.decode(ranks.encode(values))), values)


def test_scores_are_those_of_the_normal_distribution_at_the_middle_of_a_value_s_places_or_at_the_ends() -> None:
    """By hand: the lowest, 4 of 10 between 1/10 and 5/10, 2 of 10 between 5/10 and 7/10, the highest."""
    ranks = Ranks.fit(np.array([5.0, 2.0, 5.0, 9.0, 7.0, 5.0, 9.0, 9.0, 5.0, 7.0]))
    assert isinstance(ranks, Ranks)
    assert ranks.values == (2.0, 5.0, 7.0, 9.0)
    places = [0.001, 0.3, 0.6, 0.999]
    np.testing.assert_allclose(ranks.scores, ndtri(places))
    np.testing.assert_allclose(ranks.share_below(np.array([2.0, 5.0, 7.0, 9.0])), places)
    halfway = ranks.encode(np.array([3.5, 6.0, 8.0, 11.0]))
    low, mid, upper, high = ndtri(places)
    expected = [(low + mid) / 2, (mid + upper) / 2, (upper + high) / 2, high + (high - upper)]
    np.testing.assert_allclose(halfway, expected)
    two = ranks.decode(np.array([-1.0, 1.0]))
    assert ranks.spread == pytest.approx((two[1] - two[0]) / 2)


def test_every_value_that_one_in_a_hundred_have_is_a_knot() -> None:
    rng = draw()
    spikes = np.linspace(-2, 2, 20)
    numbers = np.concatenate([rng.normal(size=8_000), np.repeat(spikes, 100)])
    ranks = Ranks.fit(numbers)
    assert isinstance(ranks, Ranks)
    assert {*spikes} <= {*ranks.values}
    middle = [(numbers < spike).mean() + (numbers == spike).mean() / 2 for spike in spikes]
    np.testing.assert_allclose(ranks.share_below(spikes), middle, rtol=1e-9)


@pytest.mark.parametrize("kind", ["cents", "heavy tails", "many integers", "mostly nothing"])
def test_few_knots_are_enough_for_the_scores_of_all_rows_but_for_the_last_ones_of_a_tail(kind: str) -> None:
    numbers, _, ranks = fit(kind)
    distinct, counts = np.unique(numbers, return_counts=True)
    place = (counts.cumsum() - counts / 2) / len(numbers)
    assert len(ranks.values) < 75 < len(distinct)
    error = np.abs(ranks.encode(distinct) - ndtri(place))
    error = error[1:-1]  # without the ends
    assert error[(place[1:-1] > 1 / 50) & (place[1:-1] < 1 - 1 / 50)].max() < 0.15
    assert 0 < error.mean() < 0.03


@pytest.mark.parametrize("flipped", [1, -1])
@pytest.mark.parametrize("counts", [(1, 50, 50, 50_000, 50_000), (1, 1, 1, 1, 100_000), (50_000, 1, 1, 1, 50_000)])
def test_values_that_hardly_anybody_has_beside_an_end_are_no_obstacle(counts: tuple[int, ...], flipped: int) -> None:
    numbers = flipped * np.repeat(np.arange(5.0), counts)
    ranks = Ranks.fit(numbers)
    assert isinstance(ranks, Ranks)
    assert (ranks.values[0], ranks.values[-1]) == (numbers.min(), numbers.max())
    assert ranks.scores[-1] == pytest.approx(-ranks.scores[0])
    assert np.array_equal(np.rint(ranks.decode(ranks.encode(numbers))), numbers)


@pytest.mark.parametrize("size", [0.9, 0.02])
def test_a_value_that_many_share_stands_in_the_middle_of_their_places(size: float) -> None:
    rng = draw()
    numbers = np.where(rng.random(3_000) < size, 0.0, rng.normal(0.5, 1, 3_000))
    ranks = Ranks.fit(numbers)
    assert isinstance(ranks, Ranks)
    assert 0.0 in ranks.values
    middle = (numbers < 0).mean() + (numbers == 0).mean() / 2
    assert ndtr(ranks.encode(np.array([0.0])))[0] == pytest.approx(middle)
    assert 0.05 < middle < 0.95


@pytest.mark.parametrize("make", [np.exp, np.negative, np.cbrt])
@pytest.mark.parametrize("outlier", [1e12, -1e12])
def test_an_outlier_does_not_change_the_scores_of_others_but_for_the_few_beside_it(
    make: Callable[[Floats], Floats], outlier: float
) -> None:
    numbers = make(draw().normal(0, 3, 2_000))
    ranks = Ranks.fit(numbers)
    order = numbers.argsort() if outlier > 0 else (-numbers).argsort()
    changed = numbers.copy()
    changed[order[-1]] = outlier  # whoever had most of all has now far more
    others = numbers[order[: -len(order) // 60]]  # the others share a piece with the outlier
    np.testing.assert_allclose(Ranks.fit(changed).encode(others), ranks.encode(others), atol=1e-9)
    assert np.isfinite(Ranks.fit(changed).encode(changed)).all()
    standard = Standard.fit(changed).encode(numbers) - Standard.fit(numbers).encode(numbers)
    assert np.abs(standard).max() > 0.5  # as it changes those by mean and standard deviation


@pytest.mark.parametrize("value", [0.0, 0.1, -1e9])
def test_a_column_that_never_changes_is_only_centred(value: float) -> None:
    scale = Ranks.fit(np.full(50, value))
    assert scale == Standard.fit(np.full(50, value))
    assert np.allclose(scale.encode(np.array([value, value + 1])), [0, 1], atol=1e-6)


def test_values_too_close_to_be_told_apart_are_no_knots() -> None:
    close = np.repeat([1e12, 1e12 + 0.5, 2e12], 10)
    ranks = Ranks.fit(close)
    assert isinstance(ranks, Ranks)
    assert ranks.values == (1e12, 2e12)
    assert isinstance(Ranks.fit(close[:20]), Standard)


@pytest.mark.parametrize(
    ("values", "scores"),
    [
        ((1.0,), (0.0,)),
        ((), ()),
        ((1.0, 1.0), (0.0, 1.0)),
        ((1.0, 2.0), (1.0, 1.0)),
        ((2.0, 1.0), (0.0, 1.0)),
        ((1.0, 2.0, 3.0), (0.0, 2.0, 1.0)),
        ((1.0, np.inf), (0.0, 1.0)),
        ((1.0, 2.0), (np.nan, 1.0)),
        ((1.0, 2.0, 3.0), (0.0, 1.0)),
    ],
)
def test_knots_that_make_no_scale_are_refused(values: tuple[float, ...], scores: tuple[float, ...]) -> None:
    with pytest.raises(ValueError) as error:
        Ranks(values, scores)
    assert str(error.value) == (
        "the knots of a rank scale must be finite and increase, two at least and as many scores as values"
    )


@pytest.mark.parametrize(("centre", "scale"), [(np.nan, 1.0), (np.inf, 1.0), (0.0, 0.0), (0.0, -1.0), (0.0, np.inf)])
def test_a_standard_scale_that_is_none_is_refused(centre: float, scale: float) -> None:
    with pytest.raises(ValueError, match="a centre must be finite, a scale finite and positive; got"):
        Standard(centre, scale)


def test_scales_survive_being_written_down() -> None:
    for scale in (UNSCALED, Standard(0.1, 3.0), *(fit(kind)[2] for kind in NUMBERS)):
        assert scale_from_dict(json.loads(json.dumps(scale.to_dict()))) == scale


# --- of many features at once -----------------------------------------------------------------------------------------


def some_scales(*kinds: str) -> list[Scale]:
    """Ranks of some kinds, of different lengths, between standard scales."""
    scales: list[Scale] = [Standard(3.0, 2.0)]
    for kind in kinds:
        scales += [fit(kind)[2], UNSCALED]
    return scales


@pytest.mark.parametrize("kinds", [("two values", "heavy tails", "integers", "two rows"), ("cents",), ()])
def test_the_scales_of_all_features_are_those_of_each(kinds: tuple[str, ...]) -> None:
    scales = some_scales(*kinds)
    together = FeatureScales.of(scales)
    x = torch.randn(300, len(scales), generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    alone = np.column_stack([scale.decode(x[:, j].numpy()) for j, scale in enumerate(scales)])
    units = together.decode(x)
    np.testing.assert_allclose(units, alone, rtol=1e-9, atol=1e-9)
    again = np.column_stack([scale.encode(alone[:, j]) for j, scale in enumerate(scales)])
    np.testing.assert_allclose(together.encode(torch.from_numpy(alone)), again, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(again, x, atol=1e-8)
    units_of_one = together.measure_units(x)
    some = torch.arange(len(scales) - 1, -1, -2)
    assert torch.equal(together.take(some).decode(x[:, some]), units[:, some])
    assert torch.equal(together.take(some).encode(units[:, some]), together.encode(units)[:, some])
    assert torch.equal(together.take(some).measure_units(x[:, some]), units_of_one[:, some])
    assert torch.equal(together.take(some).leave_gaps(x[:, some]), together.leave_gaps(x)[:, some])
    for shape in ((x.shape[1],), (1, 1, x.shape[1])):  # a single row, or any number of axes
        assert torch.equal(together.decode(x[7].view(shape)), units[7].view(shape))
        assert torch.equal(together.encode(units[7].view(shape)), together.encode(units)[7].view(shape))
        assert torch.equal(together.measure_units(x[7].view(shape)), units_of_one[7].view(shape))
    if kinds:
        ranks = [(j, scale) for j, scale in enumerate(scales) if isinstance(scale, Ranks)]
        assert len(ranks) == len(kinds)
        assert all((x[:, j] < scale.scores[0]).any() and (x[:, j] > scale.scores[-1]).any() for j, scale in ranks)
        assert len(kinds) == 1 or len({len(scale.values) for _, scale in ranks}) > 2  # some are filled up


def test_a_unit_of_the_model_is_worth_what_finite_differences_say() -> None:
    scales = some_scales("two values", "heavy tails", "integers")
    together = FeatureScales.of(scales)
    x = torch.randn(200, len(scales), generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 2
    inside = x.clone()
    for j, scale in enumerate(scales):  # the difference must not look across a knot
        if isinstance(scale, Ranks):
            near = (x[:, j : j + 1] - torch.tensor(scale.scores, dtype=torch.float64)).abs().amin(1) < 1e-5
            inside[near, j] += 3e-5
    units = together.measure_units(inside)
    slope = (together.decode(inside + 1e-6) - together.decode(inside - 1e-6)) / 2e-6
    torch.testing.assert_close(units, slope, rtol=1e-5, atol=1e-5)
    assert units.std(0)[[1, 3, 5]].min() >= 0
    assert units[:, 3].unique().numel() > 10
    assert (units[:, 0] == 2).all()


def test_numbers_leave_the_gaps_beside_what_many_have_by_the_nearer_end_and_others_stay() -> None:
    scales = some_scales("mostly nothing", "cents", "nothing in the middle", "two values")
    together = FeatureScales.of(scales)
    stream = torch.Generator().manual_seed(0)
    x = 3 * torch.randn(500, len(scales), generator=stream, dtype=torch.float64)
    before = x.clone()
    after = together.leave_gaps(x)
    assert torch.equal(x, before)
    assert torch.equal(together.leave_gaps(after), after)
    changed = []
    for j, scale in enumerate(scales):
        expected = before[:, j].tolist()
        gaps = [(scale.scores[i], scale.scores[i + 1]) for i in scale.gaps] if isinstance(scale, Ranks) else []
        for low, high in gaps:
            expected = [(low if z - low < high - z else high) if low < z < high else z for z in expected]
        assert after[:, j].tolist() == expected
        changed.append(expected != before[:, j].tolist())
    assert changed == [False, True, False, False, False, True, False, True, False]
    assert torch.equal(FeatureScales.of(some_scales("cents")).leave_gaps(x[:, :3]), x[:, :3])
    assert torch.equal(FeatureScales.of([UNSCALED]).leave_gaps(x[:, :1]), x[:, :1])


def test_a_gap_lies_beside_a_value_that_many_have_and_is_wide() -> None:
    """0 is what nine in ten have: gaps lie on both of its sides, and nowhere else."""
    _, _, ranks = fit("nothing in the middle")
    place = ranks.values.index(0.0)
    assert ranks.gaps == (place - 1, place)
    _, _, two = fit("two values")
    assert two.gaps == (0,)
    for kind in ("cents", "heavy tails", "integers"):
        assert fit(kind)[2].gaps == ()


# --- in an encoder ----------------------------------------------------------------------------------------------------


def people(n: int = 2_000) -> pd.DataFrame:
    """Numbers of every kind, levels and truth values; four columns have missing values."""
    rng = draw()
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "income": np.exp(rng.normal(10, 1.5, n)).clip(max=1e9).round(2),
            "wealth": np.exp(rng.normal(8, 4, n)).clip(max=1e9).round(),
            "fines": np.where(rng.random(n) < 0.9, 0, rng.integers(1, 9_000, n)),
            "grade": rng.choice([1, 2], n),
            "ratio": rng.integers(-999, 999, n) / 1000,
            "job": rng.choice(["smith", "clerk", "none"], n),
            "member": rng.random(n) < 0.5,
        }
    )
    frame.loc[::17, "income"] = np.nan
    frame.loc[3::19, "ratio"] = np.nan
    frame.loc[::23, "job"] = None
    return frame


def ranked(frame: pd.DataFrame, **changes: Any) -> Encoder:
    schema = Schema.infer(frame).with_columns(grade={"kind": "numeric", "integer": True}, **changes)
    return Encoder.fit(schema, frame, fit_scale=Ranks.fit)


def test_a_whole_table_comes_back_from_its_ranks() -> None:
    frame = people()
    encoder = ranked(frame)
    assert [*encoder.ranks] == ["age", "income", "wealth", "fines", "grade", "ratio"]
    x = encoder.encode(frame)
    assert np.abs(x).max() < 4  # no number is far from anybody, however heavy the tail
    back = encoder.decode(x)
    assert_frame_equal(back, frame, check_exact=True)  # what is missing stays missing
    assert back["job"].isna().sum() == len(frame[::23])
    assert_frame_equal(encoder.decode(x.astype(np.float32), origin=frame), frame, check_exact=True)
    again = Encoder.from_json(encoder.to_json())
    assert again.scales == encoder.scales
    assert np.array_equal(again.encode(frame), x)


def test_what_the_schema_allows_is_allowed_in_ranks_too() -> None:
    frame = people()
    encoder = ranked(frame, age={"mutability": "increase"}, wealth={"lower": 10, "upper": 50_000})
    limits = encoder.constraints()
    j = encoder.features.index("wealth")
    ends = encoder.scales[2].decode(np.array([limits.lower[j].item(), limits.upper[j].item()]))
    assert ends == pytest.approx([10, 50_000])
    units = encoder.unscale(encoder.tensor(frame[:5]))
    assert units[:, 0].tolist() == pytest.approx(frame["age"][:5].tolist(), rel=1e-5)
    assert encoder.drop(["age"]).scales == encoder.scales[1:]


@pytest.mark.parametrize(("way", "sign"), [("increase", 1), ("decrease", -1)])
@pytest.mark.parametrize(("fit_scale", "step"), [(Ranks.fit, 5_000), (Standard.fit, 100)])
def test_single_precision_takes_no_number_the_way_that_it_may_not_go(
    way: str, sign: int, fit_scale: Any, step: int
) -> None:
    known = pd.DataFrame({"wealth": np.append(draw().integers(1_000, 10**6, 998), [10**10, -(10**10)])})
    schema = Schema.infer(known).with_columns(wealth={"mutability": way, "step": step})
    encoder = Encoder.fit(schema, known, fit_scale=fit_scale)
    frame = pd.DataFrame({"wealth": draw(1).integers(-(10**9), 10**9, 500)})  # between two steps
    start = encoder.encode(frame).astype(np.float32)
    moved = np.nextafter(start, np.float32(sign * np.inf))
    lost = np.abs(encoder.scales[0].decode(start[:, 0].astype(float)) - frame["wealth"])
    assert lost.max() > 0.1 * step  # which single precision cannot tell
    after = encoder.decode(moved, origin=frame)["wealth"]
    assert (sign * (after - frame["wealth"]) >= 0).all()
    assert (after != frame["wealth"]).any()


def test_a_table_without_numbers_has_nothing_to_scale() -> None:
    scales = FeatureScales.of([])
    assert scales.decode(torch.zeros(0).double()).shape == scales.encode(torch.zeros(0).double()).shape == (0,)
    assert scales.decode(torch.zeros(3, 0).double()).shape == (3, 0)
