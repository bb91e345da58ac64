from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from countertrain.models.architectures import lenet, linear, mlp

Build = Callable[..., nn.Module]
everyone = pytest.mark.parametrize("build", [linear, mlp, lenet])


@everyone
def test_rows_become_one_logit_a_class(build: Build) -> None:
    model = build(16, 5)
    assert model(torch.zeros(3, 16)).shape == (3, 5)
    assert model(torch.zeros(0, 16)).shape == (0, 5)


@everyone
@pytest.mark.parametrize("init", ["glorot", "torch"])
def test_the_same_seed_gives_the_same_weights_and_another_seed_others(
    build: Build, init: str, weights: Callable[[nn.Module], Tensor]
) -> None:
    assert torch.equal(weights(build(16, 5, seed=1, init=init)), weights(build(16, 5, seed=1, init=init)))
    assert not torch.equal(weights(build(16, 5, seed=1, init=init)), weights(build(16, 5, seed=2, init=init)))


@everyone
@pytest.mark.parametrize("init", ["glorot", "torch"])
def test_building_a_model_draws_nothing_from_the_global_random_stream(build: Build, init: str) -> None:
    before = torch.get_rng_state()
    build(16, 5, init=init)
    assert torch.equal(torch.get_rng_state(), before)
    nn.Linear(2, 2)
    assert not torch.equal(torch.get_rng_state(), before)  # a plain layer does draw


@everyone
def test_glorot_weights_fill_their_bounds_and_biases_are_zero(build: Build) -> None:
    for layer in build(16, 30, init="glorot").modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            receptive = layer.weight[0, 0].numel()
            fan_in, fan_out = layer.weight.shape[1] * receptive, layer.weight.shape[0] * receptive
            bound = (6 / (fan_in + fan_out)) ** 0.5
            assert 0.9 * bound < layer.weight.abs().max() <= bound
            assert layer.weight.mean().abs() < 0.2 * bound
            assert not layer.bias.any()


@everyone
def test_torch_initialisation_has_torchs_bounds_for_weights_and_biases(build: Build) -> None:
    for layer in build(16, 30, init="torch").modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            bound = layer.weight[0].numel() ** -0.5
            assert 0.9 * bound < layer.weight.abs().max() <= bound
            assert 0 < layer.bias.abs().max() <= bound


def test_linear_is_one_linear_layer() -> None:
    model = linear(4, 3)
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    (layer,) = model.children()
    torch.testing.assert_close(model(x), x @ layer.weight.T)


def test_the_paper_s_mlp_has_one_hidden_layer_of_32_relu_units() -> None:
    assert [type(layer) for layer in mlp(2, 2)] == [nn.Linear, nn.ReLU, nn.Linear]
    assert sum(p.numel() for p in mlp(2, 2).parameters()) == 3 * 32 + 33 * 2


def test_hidden_layers_and_activations_can_be_chosen() -> None:
    model = mlp(3, 2, hidden=(8, 5), activation=nn.SiLU)
    assert [type(layer) for layer in model] == [nn.Linear, nn.SiLU, nn.Linear, nn.SiLU, nn.Linear]
    assert [tuple(layer.weight.shape) for layer in model[::2]] == [(8, 3), (5, 8), (2, 5)]


def test_lenet_sees_the_row_as_an_image() -> None:
    model = lenet(784, 10)
    image = torch.randn(1, 28, 28, generator=torch.Generator().manual_seed(0))
    assert model(image.flatten(1)).shape == (1, 10)
    by_hand = model[1](image.unsqueeze(1))  # the first convolution keeps 28 x 28
    assert torch.equal(model[:2](image.flatten(1)), by_hand)
    assert by_hand.shape == (1, 6, 28, 28)


@pytest.mark.parametrize("n_features", [20, 25, 2])
def test_lenet_refuses_rows_that_are_no_square_image(n_features: int) -> None:
    with pytest.raises(ValueError, match=rf"side divisible by 4, e\.g\. 784 = 28 x 28 pixels; got {n_features}"):
        lenet(n_features, 10)


def test_an_unknown_initialisation_is_refused() -> None:
    with pytest.raises(ValueError, match="init must be 'glorot' or 'torch'; got 'xavier'"):
        mlp(2, 2, init="xavier")
