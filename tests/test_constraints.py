from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from countertrain.constraints import Constraints, Mutability

WAYS: tuple[Mutability, ...] = ("both", "increase", "decrease", "none")
numbers = st.floats(-10, 10, width=32)


@st.composite
def situations(draw: Any, *, grouped: bool = True) -> tuple[Constraints, Tensor, Tensor, list[Mutability]]:
    """Constraints on 6 features, perhaps with one-hot groups; three rows x and origins, in or out of the domain."""
    ways = draw(st.lists(st.sampled_from(WAYS), min_size=6, max_size=6))
    bounds = [sorted(draw(st.tuples(numbers, numbers))) for _ in range(6)]
    categories = draw(st.sampled_from([(), (slice(0, 3),), (slice(1, 2), slice(2, 5))])) if grouped else ()
    constraints = Constraints.of(
        6, mutability=ways, lower=[low for low, _ in bounds], upper=[high for _, high in bounds], categories=categories
    )
    block = st.lists(st.lists(numbers, min_size=6, max_size=6), min_size=3, max_size=3)
    return constraints, torch.tensor(draw(block)), torch.tensor(draw(block)), ways


@given(situations())
def test_projecting_twice_is_projecting_once(situation: tuple[Constraints, Tensor, Tensor, list[Mutability]]) -> None:
    constraints, x, origin, _ = situation
    once = constraints.project(x, origin)
    assert torch.equal(constraints.project(once, origin), once)


@given(situations())
def test_an_immutable_feature_does_not_move_by_an_ulp_even_outside_the_domain(
    situation: tuple[Constraints, Tensor, Tensor, list[Mutability]],
) -> None:
    constraints, x, origin, ways = situation
    projected = constraints.project(x, origin)
    for i, way in enumerate(ways):
        if way == "none":
            assert torch.equal(projected[:, i], origin[:, i])
            assert torch.equal(constraints.reachable(x, origin)[:, i], origin[:, i])


def test_the_last_property_was_not_empty_a_factual_outside_the_domain_stays_outside() -> None:
    constraints = Constraints.of(2, mutability={0: "none"}, lower=-1.0, upper=1.0)
    origin = torch.tensor([[5.0, 5.0]])
    assert constraints.project(torch.tensor([[0.3, 0.3]]), origin).tolist() == [[5.0, pytest.approx(0.3)]]
    assert constraints.project(origin, origin).tolist() == [[5.0, 1.0]]


@given(situations(grouped=False))
def test_reachable_is_the_three_cases_of_the_paper(
    situation: tuple[Constraints, Tensor, Tensor, list[Mutability]],
) -> None:
    constraints, x, origin, ways = situation
    expected = x.clone()
    for i, way in enumerate(ways):
        if way == "none":
            expected[:, i] = origin[:, i]
        elif way == "increase":
            expected[:, i] = torch.maximum(x[:, i], origin[:, i])
        elif way == "decrease":
            expected[:, i] = torch.minimum(x[:, i], origin[:, i])
    assert torch.equal(constraints.reachable(x, origin), expected)


@given(situations(grouped=False))
def test_projection_is_in_the_domain_and_as_near_to_x_as_a_step_the_allowed_way_can_be(
    situation: tuple[Constraints, Tensor, Tensor, list[Mutability]],
) -> None:
    constraints, x, origin, ways = situation
    projected = constraints.project(x, origin)
    for i, way in enumerate(ways):
        low, high = float(constraints.lower[i]), float(constraints.upper[i])
        for value, start, got in zip(x[:, i].tolist(), origin[:, i].tolist(), projected[:, i].tolist(), strict=True):
            reached = {"both": value, "increase": max(value, start), "decrease": min(value, start), "none": start}[way]
            wanted = min(max(reached, low), high)
            if (way in ("increase", "none") and wanted < start) or (way in ("decrease", "none") and wanted > start):
                wanted = start  # the domain asks for a step that a person cannot make
            assert got == wanted


def test_a_free_feature_without_a_domain_goes_anywhere() -> None:
    constraints = Constraints.of(2)
    x = torch.tensor([[1e30, -1e30]])
    assert torch.equal(constraints.project(x, torch.zeros(1, 2)), x)


@pytest.mark.parametrize("n_sigma", [2.0, 3.0])
def test_the_inferred_domain_is_the_equation_by_hand(n_sigma: float) -> None:
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [5.0, 100.0]], dtype=torch.float64)
    constraints = Constraints.infer(x, n_sigma=n_sigma)
    deviation = (14 / 3) ** 0.5  # of 0, 1, 2, 5 around 2, with denominator n - 1
    assert constraints.lower[0].item() == pytest.approx(2 - n_sigma * deviation)
    assert constraints.upper[0].item() == pytest.approx(2 + n_sigma * deviation)
    assert constraints.lower[1].item() == pytest.approx(25 - n_sigma * 50)
    assert constraints.upper[1].item() == pytest.approx(25 + n_sigma * 50)


def test_the_inferred_domain_holds_every_row_even_an_outlier() -> None:
    x = torch.cat([torch.zeros(99, 1), torch.tensor([[100.0]])])
    constraints = Constraints.infer(x)
    assert x.mean() + 2 * x.std() < 100 == constraints.upper.item()


def test_a_single_row_is_a_domain_of_one_point() -> None:
    constraints = Constraints.infer(torch.tensor([[1.0, 2.0]]))
    assert constraints.lower.tolist() == constraints.upper.tolist() == [1.0, 2.0]


@given(st.lists(st.lists(numbers, min_size=5, max_size=5), min_size=1, max_size=4), st.integers(0, 3))
def test_a_one_hot_group_has_exactly_one_1_at_its_largest_entry(values: list[list[float]], level: int) -> None:
    constraints = Constraints.of(5, categories=[slice(1, 5)])
    x, origin = torch.tensor(values), torch.eye(5)[1 + level].repeat(len(values), 1)
    projected = constraints.project(x, origin)
    assert torch.equal(projected[:, 0], x[:, 0])
    assert torch.equal(projected[:, 1:].sort(-1).values, torch.tensor([0.0, 0.0, 0.0, 1.0]).repeat(len(values), 1))
    chosen = projected[:, 1:].argmax(-1, keepdim=True)
    assert (x[:, 1:].gather(1, chosen) == x[:, 1:].amax(-1, keepdim=True)).all()


@given(st.lists(numbers, min_size=3, max_size=3), st.integers(0, 2))
def test_a_frozen_category_stays_what_it_was(values: list[float], level: int) -> None:
    constraints = Constraints.of(3, mutability=["none"] * 3, categories=[slice(0, 3)])
    origin = torch.eye(3)[level].unsqueeze(0)
    assert torch.equal(constraints.project(torch.tensor([values]), origin), origin)


@given(st.lists(numbers, min_size=3, max_size=3), st.integers(1, 2))
def test_a_level_that_is_not_allowed_is_never_chosen(values: list[float], level: int) -> None:
    constraints = Constraints.of(3, mutability={0: "none"}, categories=[slice(0, 3)])
    origin = torch.eye(3)[level].unsqueeze(0)
    projected = constraints.project(torch.tensor([values]), origin)
    assert projected[0, 0] == 0
    assert projected[0, 1:].sort().values.tolist() == [0.0, 1.0]


def test_a_level_that_may_not_be_left_is_kept_and_one_outside_the_domain_is_not_entered() -> None:
    stay = Constraints.of(3, mutability={1: "increase"}, categories=[slice(0, 3)])
    assert stay.project(torch.tensor([[9.0, 0.0, 0.0]]), torch.tensor([[0.0, 1.0, 0.0]])).tolist() == [[0.0, 1.0, 0.0]]
    closed = Constraints.of(3, upper=[0.0, 1.0, 1.0], categories=[slice(0, 3)])
    assert closed.project(torch.tensor([[9.0, 0.1, 0.2]]), torch.tensor([[0.0, 1.0, 0.0]])).tolist() == [
        [0.0, 0.0, 1.0]
    ]


def test_a_group_of_one_column_is_rounded_to_0_or_1() -> None:
    constraints = Constraints.of(2, categories=[slice(1, 2)])
    x = torch.tensor([[0.4, 0.4], [0.6, 0.6], [-3.0, -3.0], [7.0, 7.0]])
    assert constraints.project(x, torch.zeros(4, 2))[:, 1].tolist() == [0.0, 1.0, 0.0, 1.0]
    assert torch.equal(constraints.project(x, torch.zeros(4, 2))[:, 0], x[:, 0])


def test_projection_leaves_its_input_alone() -> None:
    constraints = Constraints.of(3, lower=0.0, upper=1.0, categories=[slice(0, 2)])
    x = torch.tensor([[0.4, 0.6, 3.0]])
    before = x.clone()
    assert not torch.equal(constraints.project(x, x), before)
    assert torch.equal(x, before)


def test_to_takes_the_bounds_to_the_float_type_of_the_rows() -> None:
    moved = Constraints.of(2, lower=0.0, upper=1.0, mutability={0: "none"}).to(torch.zeros(1, dtype=torch.float64))
    assert moved.lower.dtype == moved.upper.dtype == torch.float64
    assert moved.may_increase.tolist() == moved.may_decrease.tolist() == [False, True]


def test_row_wise_constraints_give_each_row_what_it_would_get_alone() -> None:
    x, origin = torch.randn(5, 3), torch.zeros(5, 3)
    may = torch.rand(5, 3) > 0.5
    lower, upper = -torch.rand(5, 3), torch.rand(5, 3)
    together = Constraints(may, ~may, lower, upper)
    assert together.n_rows == 5
    alone = [Constraints(may[i], ~may[i], lower[i], upper[i]).project(x[i], origin[i]) for i in range(5)]
    assert torch.equal(together.project(x, origin), torch.stack(alone))
    assert torch.equal(together.rows(slice(1, 3)).project(x[1:3], origin[1:3]), torch.stack(alone[1:3]))


def test_a_person_goes_only_to_the_levels_that_its_own_level_allows() -> None:
    allowed = torch.tensor([[True, True, False], [False, True, True], [False, False, False]])
    constraints = replace(Constraints.of(3, lower=0.0, upper=1.0, categories=[slice(0, 3)]), transitions={0: allowed})
    origin = torch.eye(3)
    wished = torch.tensor([[0.1, 0.2, 0.9], [0.9, 0.1, 0.2], [0.9, 0.8, 0.1]])
    levels = constraints.project(wished, origin).argmax(-1).tolist()
    assert levels == [1, 2, 2]  # not allowed to 2; not allowed back to 0; not allowed anywhere: stays


def test_transitions_of_another_width_are_refused() -> None:
    with pytest.raises(ValueError, match="one row and one column per level; got \\(2, 2\\) for category 0"):
        replace(Constraints.of(3, categories=[slice(0, 3)]), transitions={0: torch.ones(2, 2, dtype=torch.bool)})


def test_rows_of_any_shape_are_constrained_as_their_numbers_in_a_row() -> None:
    x, origin = torch.randn(4, 2, 3), torch.zeros(4, 2, 3)
    ways = ["none", "increase", "decrease", "both", "both", "both"]
    flat = Constraints.of(6, mutability=ways, lower=-0.5, upper=0.7, categories=[slice(3, 6)])
    shaped = Constraints.of((2, 3), mutability=ways, lower=-0.5, upper=0.7, categories=[slice(3, 6)])
    for method in ("project", "reachable"):
        wanted = getattr(flat, method)(x.flatten(1), origin.flatten(1)).view(4, 2, 3)
        assert torch.equal(getattr(shaped, method)(x, origin), wanted)
        assert torch.equal(getattr(flat.for_shape((2, 3)), method)(x, origin), wanted)
        assert not torch.equal(wanted, x)
    inferred = Constraints.infer(x)
    assert inferred.row_shape == (2, 3)
    assert torch.equal(inferred.lower, Constraints.infer(x.flatten(1)).lower)
    with pytest.raises(ValueError, match=r"rows of shape \(2, 2\) have 4 numbers, not 6"):
        flat.for_shape((2, 2))
