"""Models that are too sure of themselves are made as sure as validation rows show them to be."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from countertrain.models.architectures import mlp
from countertrain.models.deciding import as_one, logits_of
from countertrain.runs.calibration import calibrate
from countertrain.tables.dataset import Split


def draw_rows(n: int = 400) -> Split:
    """Rows whose class is the sign of their first number, up to noise."""
    stream = torch.Generator().manual_seed(0)
    x = torch.randn(n, 2, generator=stream)
    return Split(x, (x[:, 0] + torch.randn(n, generator=stream) > 0).long())


def make_overconfident(seed: int) -> nn.Module:
    model = mlp(2, 2, hidden=(4,), seed=seed)
    with torch.no_grad():
        model[-1].weight.mul_(0.0)  # type: ignore[index]
        model[0].weight.copy_(torch.tensor([[1.0, 0.1 * seed], [-1.0, 0], [0, 0], [0, 0]]))  # type: ignore[index]
        model[-1].weight[1, 0] = model[-1].weight[0, 1] = 9.0  # type: ignore[index]
    return model


@pytest.mark.parametrize("n_models", [1, 3])
def test_probabilities_are_likelier_afterwards_and_decisions_of_one_model_are_the_same(n_models: int) -> None:
    rows, models = draw_rows(), [make_overconfident(seed) for seed in range(n_models)]
    before = logits_of(as_one(models), rows.x)
    temperature = calibrate(models, rows)
    after = logits_of(as_one(models), rows.x)
    assert temperature > 1.5
    assert functional.cross_entropy(after, rows.y) < 0.8 * functional.cross_entropy(before, rows.y)
    if n_models == 1:
        assert torch.equal(before.argmax(-1), after.argmax(-1))
        torch.testing.assert_close(after * temperature, before, rtol=1e-4, atol=1e-4)


def test_with_too_few_rows_or_another_last_layer_models_stay_as_they_are() -> None:
    rows, model = draw_rows(20), make_overconfident(0)
    before = copy.deepcopy(model.state_dict())
    assert calibrate([model], rows) == 1.0
    wrapped = nn.Sequential(model, nn.Identity())
    assert calibrate([wrapped], draw_rows()) == 1.0
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
