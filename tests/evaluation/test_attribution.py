"""Integrated gradients add up, are exact for linear models, and are put on the paper's scale."""

import pytest
import torch
from torch import Tensor, nn

from countertrain import linear, mlp
from countertrain.evaluation import attribution
from countertrain.evaluation.attribution import (
    integrated_gradients,
    relu_network_gradients,
    sensitivity,
    standardise,
)
from countertrain.testing import toy_model, toy_rows


@pytest.fixture(scope="module")
def rows() -> tuple[Tensor, Tensor]:
    return toy_rows()


@pytest.fixture(scope="module")
def model(rows: tuple[Tensor, Tensor]) -> nn.Module:
    return toy_model(*rows)


BASELINE = torch.tensor([0.3, -0.9, 0.1], dtype=torch.float64)


def test_attributions_add_up_to_the_change_of_the_true_class_logit(
    model: nn.Module, rows: tuple[Tensor, Tensor]
) -> None:
    x, y = rows
    found = integrated_gradients(model, x, y, BASELINE, n_steps=300)
    with torch.no_grad():
        change = (model(x) - model(BASELINE)).gather(1, y[:, None])[:, 0]
    assert found.shape == x.shape
    assert change.abs().max() > 1
    assert torch.allclose(found.sum(1), change, atol=0.01 * change.abs().max().item())


def test_more_steps_bring_the_sum_closer(model: nn.Module, rows: tuple[Tensor, Tensor]) -> None:
    x, y = rows
    with torch.no_grad():
        change = (model(x) - model(BASELINE)).gather(1, y[:, None])[:, 0]
    errors = [
        (integrated_gradients(model, x, y, BASELINE, n_steps=n).sum(1) - change).abs().mean() for n in (2, 20, 200)
    ]
    assert errors[0] > errors[1] > errors[2]


def test_attributions_of_a_linear_model_are_its_weights_times_the_change_of_the_features(
    rows: tuple[Tensor, Tensor],
) -> None:
    x, y = rows
    model = linear(3, 3, seed=1).double()
    found = integrated_gradients(model, x, y, BASELINE, n_steps=1)
    assert torch.allclose(found, model[0].weight.detach()[y] * (x - BASELINE), atol=1e-12)
    assert not found.requires_grad


def test_the_closed_form_for_relu_networks_adds_up_exactly_and_is_what_many_steps_come_to(
    model: nn.Module, rows: tuple[Tensor, Tensor]
) -> None:
    x, y = rows
    x = torch.cat([x, BASELINE[None]])  # a row that does not move at all
    y = torch.cat([y, y[:1]])
    found = relu_network_gradients(model, x, y, BASELINE)
    assert found is not None
    with torch.no_grad():
        change = (model(x) - model(BASELINE)).gather(1, y[:, None])[:, 0]
    assert torch.allclose(found.sum(1), change, atol=1e-10)
    assert torch.allclose(found, integrated_gradients(model, x, y, BASELINE, n_steps=1000), atol=0.02)
    assert found.abs().max() > 1


def test_the_closed_form_is_for_linear_models_and_one_hidden_layer_of_relus_only(rows: tuple[Tensor, Tensor]) -> None:
    x, y = rows
    flat = linear(3, 3, seed=1).double()
    exact = relu_network_gradients(flat, x, y, BASELINE)
    assert exact is not None
    assert torch.allclose(exact, integrated_gradients(flat, x, y, BASELINE, n_steps=1), atol=1e-12)
    for other in (
        mlp(3, 3, hidden=(4, 4)).double(),
        mlp(3, 3, activation=nn.Tanh).double(),
        nn.Sequential(*flat, nn.Softmax(-1)),
        nn.Sequential(flat),
    ):
        assert relu_network_gradients(other, x, y, BASELINE) is None


def test_sensitivity_is_the_same_for_a_module_without_a_closed_form(rows: tuple[Tensor, Tensor]) -> None:
    flat = linear(3, 3, seed=1).double()
    wrapped = nn.Sequential(flat)
    assert torch.allclose(
        sensitivity(flat, *rows, [0], rounds=3, rows=30), sensitivity(wrapped, *rows, [0], rounds=3, rows=30)
    )


def test_attribution_leaves_mode_and_gradients_alone(model: nn.Module, rows: tuple[Tensor, Tensor]) -> None:
    model.train()
    integrated_gradients(model, *rows, BASELINE)
    assert model.training
    assert all(p.grad is None for p in model.parameters())


def test_two_features_are_scaled_to_size_over_range() -> None:
    found = standardise(torch.tensor([[-1.0, 3.0], [2.0, 6.0]]))
    assert torch.allclose(found, torch.tensor([[0.25, 0.75], [0.5, 1.5]]))


def test_more_features_are_scaled_to_zero_and_one() -> None:
    found = standardise(torch.tensor([[-1.0, 3.0, 0.0], [2.0, 4.0, 6.0]]))
    assert torch.allclose(found, torch.tensor([[0.0, 1.0, 0.25], [0.0, 0.5, 1.0]]))


def test_sensitivity_is_deterministic_in_its_seed(model: nn.Module, rows: tuple[Tensor, Tensor]) -> None:
    first = sensitivity(model, *rows, [0], rounds=4, rows=20, seed=3)
    assert first.shape == (4,)
    assert torch.equal(first, sensitivity(model, *rows, [0], rounds=4, rows=20, seed=3))
    assert not torch.equal(first, sensitivity(model, *rows, [0], rounds=4, rows=20, seed=4))
    assert len(set(first.tolist())) > 1


def test_sensitivity_to_a_feature_without_weight_is_zero_and_to_one_that_decides_is_one() -> None:
    model = linear(2, 2)
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[0.0, -1.0], [0.0, 1.0]]))
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    y = (x[:, 1] > 0).long()
    assert torch.equal(sensitivity(model, x, y, [0], rounds=3, rows=30), torch.zeros(3))
    assert torch.allclose(sensitivity(model, x, y, [1], rounds=3, rows=30), torch.ones(3))


def test_a_round_draws_rows_with_their_labels_and_one_baseline_between_minus_one_and_one(
    monkeypatch: pytest.MonkeyPatch, model: nn.Module, rows: tuple[Tensor, Tensor]
) -> None:
    seen: list[tuple[Tensor, Tensor, Tensor]] = []

    def spy(model: nn.Module, x: Tensor, y: Tensor, baseline: Tensor, *, n_steps: int) -> Tensor:
        seen.append((x, y, baseline))
        return x * torch.tensor([1.0, 2.0, 4.0], dtype=x.dtype)

    monkeypatch.setattr(attribution, "integrated_gradients", spy)
    monkeypatch.setattr(attribution, "relu_network_gradients", lambda *args: None)
    x, y = rows
    found = sensitivity(model, x, y, [1, 2], rounds=60, rows=70)
    label_of = {tuple(row): label for row, label in zip(x.tolist(), y.tolist(), strict=True)}
    for drawn, labels, baseline in seen:
        assert [label_of[tuple(row)] for row in drawn.tolist()] == labels.tolist()
        assert len(drawn) == 70  # more than there are: with replacement
        assert baseline.shape == (3,)
    baselines = torch.stack([baseline for _, _, baseline in seen])
    assert baselines.abs().max() <= 1
    assert baselines.min() < -0.9
    assert baselines.max() > 0.9
    means = torch.stack([drawn.mean(0) for drawn, _, _ in seen]) * torch.tensor([1.0, 2.0, 4.0], dtype=x.dtype)
    assert torch.allclose(found, standardise(means)[:, 1:].mean(1))
