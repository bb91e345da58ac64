from dataclasses import replace

import pytest
import torch
from torch import Tensor

from countertrain.constraints import Constraints
from countertrain.models.architectures import mlp
from countertrain.models.population import Population
from countertrain.search.state import Counterfactuals
from countertrain.training.ct import Pairs, keep_rules, pair_up
from countertrain.training.method import Blocks, TermState, add_up, needs
from countertrain.training.sampler import Sampler

Y = torch.tensor([0] * 5 + [1] * 10 + [2] * 15)[torch.randperm(30, generator=torch.Generator().manual_seed(0))]


def found(mature: list[bool], x: Tensor, nascent: Tensor | None = None) -> Counterfactuals:
    """A search result of one model for rows that start at 0."""
    n = x.shape[1]
    nascent = torch.zeros_like(x) if nascent is None else nascent
    target = torch.arange(n).unsqueeze(0) % 3
    return Counterfactuals(torch.zeros_like(x), target, x, nascent, torch.tensor([mature]), torch.ones(1, n).long())


def test_a_target_is_never_the_predicted_class_and_uniform_over_the_others() -> None:
    predicted = torch.arange(4).repeat(2, 3000)
    target = Sampler(torch.arange(4), 4, [0, 1]).targets(predicted)
    assert target.shape == predicted.shape
    assert not (target == predicted).any()
    for model in range(2):
        for k in range(4):
            share = torch.bincount(target[model][predicted[model] == k], minlength=4) / 3000
            expected = torch.full((4,), 1 / 3).scatter(0, torch.tensor(k), 0.0)
            torch.testing.assert_close(share, expected, atol=0.04, rtol=0)


def test_with_two_classes_the_target_is_the_other_one() -> None:
    predicted = torch.tensor([[0, 1, 1, 0]])
    assert torch.equal(Sampler(torch.tensor([0, 1]), 2, [0]).targets(predicted), 1 - predicted)


def test_a_neighbour_is_any_row_of_the_target_class_with_equal_chances() -> None:
    target = (torch.arange(9000) % 3).expand(2, -1)
    neighbours = Sampler(Y, 3, [0, 1]).neighbours(target)
    assert torch.equal(Y[neighbours], target)
    counts = torch.bincount(neighbours[0], minlength=30)
    for k, size in enumerate((5, 10, 15)):
        share = counts[k == Y] / 3000 * size
        torch.testing.assert_close(share, torch.ones(size), atol=0.3, rtol=0)


def test_factuals_are_drawn_without_replacement() -> None:
    sampler = Sampler(Y, 3, [0, 1])
    rows = sampler.factuals(30)
    assert torch.equal(rows.sort(-1).values, torch.arange(30).expand(2, -1))
    few = sampler.factuals(7)
    assert few.shape == (2, 7)
    assert all(len(model.unique()) == 7 for model in few)


def test_each_model_draws_from_a_stream_of_its_own_and_each_draw_is_new() -> None:
    together, alone = Sampler(Y, 3, [4, 5]), Sampler(Y, 3, [5])
    first = together.factuals(9)
    assert torch.equal(first[1:], alone.factuals(9))
    predicted = torch.zeros(2, 50).long()
    targets = together.targets(predicted)
    assert torch.equal(targets[1:], alone.targets(predicted[1:]))
    assert torch.equal(together.neighbours(targets)[1:], alone.neighbours(targets[1:]))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(together.factuals(9), first)


def test_drawing_leaves_the_global_random_stream_alone() -> None:
    before = torch.get_rng_state()
    sampler = Sampler(Y, 3, [0])
    sampler.neighbours(sampler.targets(sampler.factuals(5) % 3))
    assert torch.equal(torch.get_rng_state(), before)


def numbered(n: int, counted: Tensor | None = None) -> Pairs:
    """Pairs that can be told apart: counterfactual i is 100 + i, its neighbour 200 + i, its nascent one 300 + i."""
    place = torch.arange(n).expand(2, -1)
    rows = place.unsqueeze(-1).double()
    return Pairs(100 + rows, 200 + rows, 300 + rows, place % 3, (place + 1) % 3, counted)


def mean(blocks: Blocks, values: Tensor) -> Tensor:
    """What a term gets that asks for the mean over the counterfactuals of a mini-batch."""
    seen: list[Tensor] = []

    @needs("x_ce")
    def look(state: TermState) -> Tensor:
        seen.append(state["x_ce"].mean(values))
        return seen[-1]

    size, _, d = blocks.x.shape
    model = Population([mlp(d, 3, seed=i).to(blocks.x) for i in range(size)])
    add_up({"look": (1.0, look)}, model, blocks.x[:, :1], torch.zeros(size, 1).long(), blocks)
    return seen[0]


def test_groups_are_consecutive_and_the_first_ones_get_the_one_more() -> None:
    groups = numbered(11).split(4)
    assert [group.labels["x_ae"].shape[1] for group in groups] == [3, 3, 3, 2]
    assert groups[1].x[0, :, 0].tolist() == [303, 304, 305, 103, 104, 105, 203, 204, 205]
    assert torch.equal(groups[1].x[1], groups[1].x[0])
    assert groups[1].labels["x_ce"][1].tolist() == groups[1].labels["x_plus"][1].tolist() == [0, 1, 2]
    assert groups[1].labels["x_ae"][1].tolist() == [1, 2, 0]
    assert groups[3].x[0, :, 0].tolist() == [309, 310, 109, 110, 209, 210]


def test_only_the_blocks_that_are_needed_are_packed() -> None:
    group = numbered(4).split(2, {"x", "x_ce", "x_plus"})[1]
    assert list(group.labels) == ["x_ce", "x_plus"]
    assert group.x[0, :, 0].tolist() == [102, 103, 202, 203]


def test_more_groups_than_pairs_leaves_the_last_ones_empty() -> None:
    assert [group.x.shape[1] for group in numbered(2).split(4)] == [3, 3, 0, 0]


def test_a_mean_is_over_the_pairs_that_count() -> None:
    counted = torch.tensor([[True, False, True], [False, False, False]])
    values = torch.tensor([[1.0, torch.nan, 5.0], [2.0, 4.0, 6.0]])
    assert mean(numbered(3, counted).split(1)[0], values).tolist() == [3.0, 0.0]  # without any mature row, nothing
    assert mean(numbered(3).split(1)[0], values)[1].item() == 4.0


def test_an_immature_counterfactual_is_replaced_by_its_neighbour_and_still_counts() -> None:
    x, x_plus = torch.full((1, 3, 2), 1.0), torch.full((1, 3, 2), 2.0)
    nascent = torch.full((1, 3, 2), 0.5)
    y = torch.tensor([[2, 2, 1]])
    pairs = pair_up(found([True, False, True], x, nascent), y, x_plus, None, "neighbour")
    assert pairs.x_ce[0, :, 0].tolist() == [1.0, 2.0, 1.0]
    assert torch.equal(pairs.x_plus, x_plus)
    assert torch.equal(pairs.x_ae, nascent)  # also of the immature one
    assert torch.equal(pairs.y_ae, y)
    assert torch.equal(pairs.target, torch.tensor([[0, 1, 2]]))
    assert pairs.counted is None


def test_an_immature_counterfactual_can_be_dropped_instead() -> None:
    x, x_plus = torch.full((1, 3, 2), 1.0), torch.full((1, 3, 2), 2.0)
    pairs = pair_up(found([True, False, False], x), torch.zeros(1, 3).long(), x_plus, None, "drop")
    assert torch.equal(pairs.x_ce, x)
    assert pairs.counted.tolist() == [[True, False, False]]
    first, second = pairs.split(2)
    assert first.counted["x_ce"].tolist() == [[True, False]]
    assert mean(second, torch.ones(1, 1)).tolist() == [0.0]


@pytest.mark.parametrize("immature", ["neighbour", "drop"])
def test_protection_changes_the_neighbour_in_three_cases_and_never_the_counterfactual(immature: str) -> None:
    constraints = Constraints.of(4, mutability=["none", "increase", "decrease", "both"])
    x = torch.tensor([[[1.0, 1.0, 1.0, 1.0], [3.0, 3.0, 3.0, 3.0]]])
    x_plus = torch.full((1, 2, 4), 2.0)
    pairs = pair_up(found([True, True], x), torch.zeros(1, 2).long(), x_plus, constraints, immature)
    assert pairs.x_plus[0].tolist() == [[1.0, 2.0, 1.0, 2.0], [3.0, 3.0, 2.0, 2.0]]
    assert torch.equal(pairs.x_ce, x)
    assert (x_plus == 2.0).all()


def test_a_counterfactual_that_rules_move_is_mature_only_if_it_still_has_its_target_class() -> None:
    turns = torch.nn.Linear(3, 3, bias=False)
    turns.weight = torch.nn.Parameter(torch.eye(3))  # the class is the largest feature
    x = torch.eye(3).unsqueeze(0)  # each has its target class

    def repair(x: Tensor, origin: Tensor, low: Tensor, high: Tensor) -> Tensor:
        moved = x.clone()
        moved[:, 1:, 1] += torch.tensor([1.0, 2.0])  # the second row stays in its class, the third leaves it
        return moved

    constraints = replace(Constraints.of(3), repair=repair)
    for mature in ([True, True, True], [True, False, True]):
        kept = keep_rules(found(mature, x), Population([turns]), constraints)
        assert kept.mature.tolist() == [[mature[0], mature[1], False]]
        assert torch.equal(kept.x, constraints.mend(x, x))


def test_a_replaced_counterfactual_protects_nothing() -> None:
    constraints = Constraints.of(2, mutability=["none", "increase"])
    x_plus = torch.full((1, 1, 2), 2.0)
    pairs = pair_up(
        found([False], torch.full((1, 1, 2), 7.0)), torch.zeros(1, 1).long(), x_plus, constraints, "neighbour"
    )
    assert torch.equal(pairs.x_ce, x_plus)
    assert torch.equal(pairs.x_plus, x_plus)


def test_of_several_neighbours_the_nearest_to_the_counterfactual_is_taken() -> None:
    stream = torch.Generator().manual_seed(0)
    x = torch.randn(200, 3, generator=stream)
    y = torch.arange(200) % 3
    x_ce = torch.randn(2, 50, 3, generator=stream)
    target = torch.randint(3, (2, 50), generator=stream)

    def away(k: int) -> tuple[Tensor, Tensor]:
        x_plus = Sampler(y, 3, [0, 1]).nearest(x, target, x_ce, k)
        match = (x_plus.unsqueeze(2) == x).all(-1)  # (2, 50, 200)
        assert torch.equal(y[match.int().argmax(-1)], target)
        return x_plus, (x_plus - x_ce).abs().sum(-1)

    one, many = away(1), away(2000)
    assert torch.equal(one[0], x[Sampler(y, 3, [0, 1]).neighbours(target)])
    of_class = torch.cdist(x_ce, x.expand(2, -1, -1), p=1).masked_fill(y != target.unsqueeze(-1), torch.inf)
    torch.testing.assert_close(many[1], of_class.amin(-1))
    assert (one[1] > many[1]).any()
