"""Each metric against a slow computation that cannot be wrong, or against scikit-learn."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score
from sklearn.metrics.pairwise import rbf_kernel
from torch import Tensor

from countertrain.evaluation import divergence
from countertrain.evaluation.divergence import mmd
from countertrain.evaluation.metrics import Implausibility, accuracy, cost, f1, sparsity, validity

# Few different values, so that ties are common; and some far outside of all others.
VALUES = st.sampled_from([-1e6, -2.0, -0.5, 0.0, 0.25, 0.5, 1.0, 3.0, 1e6])


@st.composite
def references_and_rows(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    d, m, n = draw(st.integers(1, 3)), draw(st.integers(1, 12)), draw(st.integers(1, 6))
    matrix = lambda rows: st.lists(st.lists(VALUES, min_size=d, max_size=d), min_size=rows, max_size=rows)  # noqa: E731
    labels = lambda rows: st.lists(st.integers(0, 2), min_size=rows, max_size=rows)  # noqa: E731
    reference, rows = draw(matrix(m)), draw(matrix(n))
    return (
        torch.tensor(reference, dtype=torch.float64),
        torch.tensor(draw(labels(m))),
        torch.tensor(rows, dtype=torch.float64),
        torch.tensor(draw(labels(n))),
    )


def draws(n: int, *, shift: float = 0.0, seed: int = 0, d: int = 3) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + shift


def mmd_by_hand(a: Tensor, b: Tensor, length_scale: float) -> float:
    gamma = 1 / (2 * length_scale**2)
    aa, bb, ab = (rbf_kernel(u.numpy(), v.numpy(), gamma=gamma) for u, v in ((a, a), (b, b), (a, b)))
    m, n = ab.shape
    off = [k[~np.eye(len(k), dtype=bool)].sum() for k in (aa, bb)]
    return float(off[0] / (m * (m - 1)) + off[1] / (n * (n - 1)) - 2 * ab.mean())


@given(references_and_rows())
def test_implausibility_is_the_mean_distance_to_all_reference_rows_of_the_target_class(
    case: tuple[Tensor, Tensor, Tensor, Tensor],
) -> None:
    reference, y, rows, target = case
    found = Implausibility.of(reference, y, 3)(rows, target)
    for i, t in enumerate(target.tolist()):
        mine = reference[y == t]
        if len(mine) == 0:
            assert found[i].isnan()
        else:
            wanted = torch.cdist(rows[i : i + 1], mine, p=1).mean().item()
            assert found[i].item() == pytest.approx(wanted, rel=1e-9, abs=1e-6)


def test_implausibility_keeps_the_shape_of_the_targets_and_is_exact_for_float32_rows() -> None:
    reference, rows = draws(200).float(), draws(24, seed=1, shift=1.0).float().reshape(2, 3, 4, 3)
    y, target = torch.arange(200) % 2, torch.arange(24).reshape(2, 3, 4) % 2
    found = Implausibility.of(reference, y, 2)(rows, target)
    assert found.shape == (2, 3, 4)
    assert found.dtype == torch.float64
    distances = torch.cdist(rows.reshape(-1, 3).double(), reference.double(), p=1)
    own = (y == target.reshape(-1, 1)).double()
    assert torch.allclose(found.flatten(), (distances * own).sum(1) / own.sum(1), rtol=1e-12)
    assert not torch.allclose(found.flatten(), (distances * (1 - own)).sum(1) / (1 - own).sum(1), rtol=1e-3)


@pytest.mark.parametrize(("m", "n", "length_scale"), [(2, 2, 5.0), (7, 5, 0.5), (40, 60, 5.0)])
def test_mmd_is_the_unbiased_estimate_from_the_gaussian_kernel(m: int, n: int, length_scale: float) -> None:
    a, b = draws(m, shift=0.7), draws(n, seed=1)
    assert mmd(a, b, length_scale=length_scale).item() == pytest.approx(mmd_by_hand(a, b, length_scale), abs=1e-12)


def test_mmd_has_the_length_scale_that_produced_the_tables_unless_told() -> None:
    a, b = draws(20, shift=2.0), draws(30, seed=1)
    assert mmd(a, b).item() == pytest.approx(mmd_by_hand(a, b, 5.0), abs=1e-12)
    assert mmd(a, b) != mmd(a, b, length_scale=0.5)


def test_mmd_in_blocks_is_mmd_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = draws(23, shift=1.0), draws(31, seed=1)
    whole = mmd(a, b)
    monkeypatch.setattr(divergence, "_BLOCK", 4)
    assert mmd(a, b).item() == pytest.approx(whole.item(), abs=1e-13)


def test_mmd_of_draws_from_one_distribution_is_zero_on_average() -> None:
    values = torch.stack([mmd(draws(8, seed=2 * i), draws(8, seed=2 * i + 1), length_scale=1.0) for i in range(400)])
    error = values.std() / math.sqrt(len(values))
    assert abs(values.mean()) < 4 * error
    assert (values < 0).any()  # an unbiased estimate of zero must sometimes be below it
    assert error < 0.01  # keeping the diagonal would add about 2 (1 - E k) / 8 = 0.2


@pytest.mark.parametrize(("m", "n"), [(1, 5), (5, 1), (0, 5)])
def test_mmd_of_fewer_than_two_rows_is_not_a_number(m: int, n: int) -> None:
    assert mmd(draws(m), draws(n)).isnan()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=20))
def test_f1_is_the_macro_f1_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    said, true = (torch.tensor(column) for column in zip(*pairs, strict=True))
    logits = torch.nn.functional.one_hot(said, 3).double()
    wanted = f1_score(true, said, labels=range(3), average="macro", zero_division=0.0)
    assert f1(logits, true).item() == pytest.approx(wanted, abs=1e-12)


def test_f1_and_accuracy_of_a_population_are_those_of_each_model() -> None:
    logits, y = draws(60, d=4).reshape(3, 20, 4), torch.arange(60).reshape(3, 20) % 4
    for metric in (f1, accuracy):
        together = metric(logits, y)
        assert together.shape == (3,)
        assert together.tolist() == [metric(logits[i], y[i]).item() for i in range(3)]
        assert len(set(together.tolist())) > 1


def test_accuracy_is_the_share_of_rows_put_into_their_class() -> None:
    logits = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    assert accuracy(logits, torch.tensor([0, 1, 1, 1])).item() == 0.75


def test_validity_means_that_the_largest_logit_is_that_of_the_target() -> None:
    logits = torch.tensor([[0.2, 0.1, 0.0], [0.2, 0.3, 0.29], [-5.0, -4.0, -4.5]])
    assert validity(logits, torch.tensor([0, 2, 1])).tolist() == [True, False, True]


def test_cost_is_the_l1_distance_and_sparsity_the_share_of_untouched_features() -> None:
    factual = torch.tensor([[0.0, 1.0, 2.0, 3.0], [0.0, 0.0, 0.0, 0.0]])
    x = torch.tensor([[0.0, -1.0, 2.5, 3.0], [1.0, 1.0, 1.0, -1.0]])
    assert cost(x, factual).tolist() == [2.5, 4.0]
    assert sparsity(x, factual).tolist() == [0.5, 0.0]
