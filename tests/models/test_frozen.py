"""A model as it stands says what the module says of the same rows, in float64, whoever stands beside a row."""

import copy

import pytest
import torch
from torch import Tensor, nn

from countertrain.models.architectures import Ensemble, lenet, linear, mlp, piecewise
from countertrain.models.frozen import Frozen

_RELU = nn.ReLU()
MODELS = {
    "one chain": piecewise(16, 3, numbers=[0, 2, 5]),
    "a deep one": mlp(16, 2, hidden=(8, 5), activation=nn.GELU),
    "two that decide together": Ensemble([piecewise(16, 2, numbers=[1, 3], seed=seed) for seed in (0, 1)]),
    "three without hidden units": Ensemble([linear(16, 4, seed=seed) for seed in range(3)]),
    "a layer that stands twice, and none of bias": nn.Sequential(
        nn.Linear(16, 6, bias=False), _RELU, nn.Sequential(nn.Linear(6, 5), _RELU), nn.Linear(5, 2)
    ),
    "pieces after a layer": Ensemble(
        [nn.Sequential(nn.Linear(16, 4), *piecewise(4, 2, seed=seed).children()) for seed in (0, 1)]
    ),
    "of two kinds": Ensemble([mlp(16, 2), linear(16, 2)]),
    "no chain": nn.Sequential(nn.Linear(16, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2)),
    "images": lenet(16, 2),
}


def draw_rows(n: int) -> Tensor:
    return 2 * torch.randn(n, 16, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_a_frozen_model_says_what_the_module_says_in_float64(model: nn.Module) -> None:
    x = draw_rows(1500)  # more than one part
    plain = copy.deepcopy(model).double().eval()(x.double())
    assert model.training
    found = Frozen(model)(x)
    assert model.training
    assert found.dtype == torch.float64
    assert not found.requires_grad
    torch.testing.assert_close(found, plain, rtol=1e-11, atol=1e-11)
    guess = Frozen(model, torch.float32)(x)
    assert guess.dtype == torch.float32
    torch.testing.assert_close(guess.double(), plain, rtol=1e-4, atol=1e-4)
    assert not torch.equal(guess.double(), found)
    nobody = Frozen(model)(x[:0])
    assert nobody.shape == (0, found.shape[1])


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_a_row_is_told_in_company_what_it_is_told_alone(model: nn.Module) -> None:
    x, frozen = draw_rows(40), Frozen(model)
    together = frozen(x)
    alone = torch.cat([frozen(row.unsqueeze(0)) for row in x])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)
    assert torch.equal(together.argmax(1), alone.argmax(1))
    assert together.std(0).min() > 0


def test_a_frozen_model_stays_what_it_was_when_the_module_learns_on() -> None:
    model = piecewise(16, 2)
    frozen, x = Frozen(model), draw_rows(5)
    before = frozen(x)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
    assert torch.equal(frozen(x), before)
    assert not torch.allclose(Frozen(model)(x), before)
