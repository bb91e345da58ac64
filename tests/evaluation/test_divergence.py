"""The divergence of all groups at once is the MMD of one group after the other."""

import math

import pytest
import torch
from torch import Tensor

from countertrain.evaluation import divergence
from countertrain.evaluation.divergence import GroupedDivergence, mmd

N_CLASSES, SCALE = 3, 1.5


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def stream() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def reference() -> tuple[Tensor, Tensor]:
    """60 reference rows of three classes, each in a place of its own."""
    y = torch.arange(60) % N_CLASSES
    return random(60, 2, seed=1) + y[:, None], y


@pytest.fixture
def found() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Counterfactuals of 2 models in 4 blocks of 25, their factual and target classes, and which are valid."""
    draw = torch.Generator().manual_seed(2)
    label = torch.randint(N_CLASSES, (4, 25), generator=draw)
    target = (label + 1 + torch.randint(N_CLASSES - 1, (4, 25), generator=draw)) % N_CLASSES
    valid = torch.rand(2, 4, 25, generator=draw) < 0.7
    return random(2, 4, 25, 2, seed=3) * 1.3 + 0.5 * target[..., None], label, target, valid


def one_by_one(
    reference: tuple[Tensor, Tensor], found: tuple[Tensor, Tensor, Tensor, Tensor], *, clamp: bool = True
) -> Tensor:
    (x_ref, y_ref), (x, label, target, valid) = reference, found
    result = torch.empty(valid.shape[:2], dtype=torch.float64)
    for p in range(len(x)):
        for k in range(len(label)):
            total, count = 0.0, 0
            for f in range(N_CLASSES):
                for t in range(N_CLASSES):
                    group = (label[k] == f) & (target[k] == t)
                    estimate = mmd(x[p, k, group], x_ref[y_ref == t], length_scale=SCALE).item()
                    if not math.isnan(estimate):
                        weight = int((group & valid[p, k]).sum())
                        total += weight * (max(estimate, 0.0) if clamp else estimate)
                        count += weight
            result[p, k] = total / count if count else math.nan
    return result


def grouped(reference: tuple[Tensor, Tensor], n_rows: int = 1000) -> GroupedDivergence:
    return GroupedDivergence(*reference, N_CLASSES, length_scale=SCALE, n_rows=n_rows)


def test_all_groups_at_once_are_one_mmd_after_the_other_weighted_by_valid_rows(
    reference: tuple[Tensor, Tensor], found: tuple[Tensor, Tensor, Tensor, Tensor]
) -> None:
    together = grouped(reference)(*found, stream())
    assert together.shape == (2, 4)
    assert torch.allclose(together, one_by_one(reference, found), atol=1e-12)
    unweighted = one_by_one(reference, (*found[:3], torch.ones_like(found[3])))
    assert not torch.allclose(together, unweighted, atol=1e-4)


def test_it_makes_no_difference_how_many_blocks_are_computed_at_once(
    monkeypatch: pytest.MonkeyPatch,
    reference: tuple[Tensor, Tensor],
    found: tuple[Tensor, Tensor, Tensor, Tensor],
) -> None:
    whole = grouped(reference)(*found, stream())
    monkeypatch.setattr(divergence, "_BUDGET", 1)
    assert torch.allclose(grouped(reference)(*found, stream()), whole, atol=1e-12)


def test_a_group_of_one_is_left_out(reference: tuple[Tensor, Tensor]) -> None:
    label = torch.tensor([[0, 0, 0, 0, 1]])
    target = torch.tensor([[1, 1, 1, 1, 2]])
    x, valid = random(1, 1, 5, 2) - 2, torch.ones(1, 1, 5, dtype=torch.bool)
    with_one = grouped(reference)(x, label, target, valid, stream())
    without = grouped(reference)(x[:, :, :4], label[:, :4], target[:, :4], valid[:, :, :4], stream())
    assert torch.equal(with_one, without)
    assert with_one > 0


def test_blocks_differ_in_which_groups_they_leave_out(reference: tuple[Tensor, Tensor]) -> None:
    label = torch.tensor([[0, 0, 0, 1], [0, 1, 1, 1]])
    found = (random(1, 2, 4, 2), label, label + 1, torch.ones(1, 2, 4, dtype=torch.bool))
    together = grouped(reference)(*found, stream())
    assert torch.allclose(together, one_by_one(reference, found), atol=1e-12)


def test_nothing_valid_and_nothing_but_single_rows_are_not_a_number(
    reference: tuple[Tensor, Tensor], found: tuple[Tensor, Tensor, Tensor, Tensor]
) -> None:
    x, label, target, valid = found
    assert grouped(reference)(x, label, target, torch.zeros_like(valid), stream()).isnan().all()
    single = (x[:, :, :1], label[:, :1], target[:, :1], torch.ones_like(valid[:, :, :1]))
    assert grouped(reference)(*single, stream()).isnan().all()


def test_a_negative_estimate_counts_as_zero(reference: tuple[Tensor, Tensor]) -> None:
    x_ref, y_ref = reference
    x = x_ref[y_ref == 1].reshape(1, 1, 20, 2)  # the very reference rows: the unbiased estimate is below zero
    label, target = torch.zeros(1, 20, dtype=torch.long), torch.ones(1, 20, dtype=torch.long)
    found = (x, label, target, torch.ones(1, 1, 20, dtype=torch.bool))
    assert one_by_one(reference, found, clamp=False) < -1e-3
    assert grouped(reference)(*found, stream()) == 0


def test_invalid_counterfactuals_are_part_of_their_group(
    reference: tuple[Tensor, Tensor], found: tuple[Tensor, Tensor, Tensor, Tensor]
) -> None:
    x, label, target, valid = found
    moved = x + 3.0 * ~valid.unsqueeze(-1)
    assert not valid.all()
    assert not torch.allclose(
        grouped(reference)(x, label, target, valid, stream()),
        grouped(reference)(moved, label, target, valid, stream()),
        atol=1e-3,
    )


def test_larger_groups_are_sampled_without_replacement_and_without_bias(reference: tuple[Tensor, Tensor]) -> None:
    label, target = torch.zeros(1, 40, dtype=torch.long), torch.ones(1, 40, dtype=torch.long)
    found = (random(1, 1, 40, 2) - 2, label, target, torch.ones(1, 1, 40, dtype=torch.bool))
    whole = grouped(reference)(*found, stream()).item()
    draw = stream()
    sampled = torch.stack([grouped(reference, n_rows=8)(*found, draw)[0, 0] for _ in range(300)])
    assert sampled.min() > 0  # so that no estimate was clamped
    assert sampled.std() > 0.01
    assert abs(sampled.mean() - whole) < 4 * sampled.std() / math.sqrt(300)


def test_pooled_groups_forget_the_factual_class() -> None:
    stream = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 2, generator=stream), torch.arange(60) % 3
    found = torch.randn(1, 1, 40, 2, generator=stream) + 1
    label = torch.randint(3, (1, 40), generator=stream)
    target = (label + 1 + torch.randint(2, (1, 40), generator=stream)) % 3
    valid = torch.ones(1, 1, 40, dtype=torch.bool)
    pooled = GroupedDivergence(x, y, 3, length_scale=1.0, n_rows=60, pooled=True)(found, label, target, valid, stream)
    by_hand = sum(
        int((target == t).sum()) * float(mmd(found[0, 0][target[0] == t], x[y == t], length_scale=1.0))
        for t in range(3)
    )
    assert by_hand > 0
    assert float(pooled) == pytest.approx(by_hand / 40, rel=1e-4)
