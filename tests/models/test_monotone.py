"""Signs of weights make a chain monotone, whatever an optimiser does to it in between."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from countertrain.models.architectures import lenet, linear, mlp, piecewise
from countertrain.models.monotone import Monotone
from countertrain.models.population import Population

WAYS = torch.tensor([1, -1, 0, 0, 0, 0])  # two numbers, one that is free, and three levels, the worst first
LEVELS = [(slice(3, 6), 1)]
MODELS: dict[str, Callable[[int], nn.Module]] = {
    "linear": lambda k: linear(6, k, seed=1),
    "mlp": lambda k: mlp(6, k, hidden=(8, 6), seed=1),
    "tanh": lambda k: mlp(6, k, hidden=(5,), activation=nn.Tanh, seed=1),
    "piecewise": lambda k: piecewise(6, k, numbers=(0, 1, 2), hidden=(10,), n_pieces=4, seed=1),
}


def measure_falls(model: nn.Module, wanted: int, n: int = 2000) -> Tensor:
    """(3, n), by how much the wanted class becomes less probable as the two numbers and the level get better."""
    stream = torch.Generator().manual_seed(0)
    x = 2 * torch.randn(n, 6, generator=stream, dtype=torch.float64)
    x[:, 3:] = torch.eye(3)[torch.randint(2, (n,), generator=stream)]
    more, less, better = x.clone(), x.clone(), x.clone()
    more[:, 0] += 3 * torch.rand(n, generator=stream)
    less[:, 1] -= 3 * torch.rand(n, generator=stream)
    better[:, 3:] = x[:, 3:].roll(1, 1)
    p, *others = (model(rows).softmax(-1)[:, wanted] for rows in (x, more, less, better))
    return torch.stack([p - other for other in others]).detach()


def disturb(parameters: dict[str, Tensor], seed: int) -> None:
    """The worst that an optimiser could do in a step."""
    stream = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in parameters.values():
            parameter.copy_(torch.randn(parameter.shape, generator=stream))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_wanted_class_never_becomes_less_probable(name: str, n_classes: int) -> None:
    model = MODELS[name](n_classes).double()
    monotone = Monotone.of(model, WAYS, 1, LEVELS)
    parameters = dict(model.named_parameters())
    monotone.begin(parameters)
    assert measure_falls(model, 1).max() < 1e-12
    fell, rose = torch.zeros(3, dtype=torch.bool), torch.zeros(3, dtype=torch.bool)
    for seed in range(6):
        disturb(parameters, seed)
        fell |= (measure_falls(model, 1) > 0.01).any(1)
        monotone.project(parameters)
        falls = measure_falls(model, 1)
        assert falls.max() < 1e-12
        rose |= (falls < -0.01).any(1)
    assert fell.all()
    assert rose.all()


def test_nothing_is_done_to_weights_that_are_in_order() -> None:
    model = MODELS["piecewise"](2)
    monotone = Monotone.of(model, WAYS, 0, LEVELS)
    parameters = dict(model.named_parameters())
    sizes = {name: value.abs().sort().values for name, value in parameters.items() if value.ndim == 1}
    monotone.begin(parameters)
    before = {name: value.clone() for name, value in parameters.items()}
    monotone.project(parameters)
    monotone.begin(parameters)
    assert all(torch.equal(value, parameters[name]) for name, value in before.items())
    assert all(torch.equal(value, parameters[name].abs().sort().values) for name, value in sizes.items())


def test_several_models_are_projected_as_each_would_be_alone() -> None:
    models = [piecewise(6, 2, numbers=(0, 1, 2), hidden=(10,), n_pieces=4, seed=seed) for seed in (1, 2)]
    monotone = Monotone.of(models[0], WAYS, 1, LEVELS)
    for seed, model in enumerate(models):
        disturb(dict(model.named_parameters()), seed)
    together = Population(models).parameters
    monotone.project(together)
    for i, model in enumerate(models):
        alone = dict(model.named_parameters())
        monotone.project(alone)
        assert all(torch.equal(value[i], alone[name]) for name, value in together.items())


@pytest.mark.parametrize(
    "model",
    [
        lenet(64, 2),
        mlp(6, 2, activation=nn.GELU),
        mlp(6, 2, activation=lambda: nn.LeakyReLU(-0.1)),
        nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)),
    ],
)
def test_a_network_whose_units_may_turn_back_is_refused(model: nn.Module) -> None:
    with pytest.raises(ValueError, match=r"activations that never fall, such as nn.ReLU or nn.Tanh; got Sequential"):
        Monotone.of(model, WAYS, 1)


def test_levels_that_are_coded_as_numbers_are_refused() -> None:
    coded = piecewise(6, 2, hidden=(4,))
    Monotone.of(coded, WAYS, 1)
    with pytest.raises(ValueError, match="name the places of the numbers"):
        Monotone.of(coded, WAYS, 1, LEVELS)
