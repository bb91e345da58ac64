import statistics
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from countertrain.models.architectures import Pieces, lenet, linear, mlp, piecewise
from countertrain.models.merging import Merged
from countertrain.models.population import NotStackableError, Population

Build = Callable[..., nn.Module]
everyone = pytest.mark.parametrize("build", [linear, mlp, lenet, piecewise])


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


def in_pieces(z: float, n_pieces: int) -> list[float]:
    """How far a number has come on each piece of the line, one by one."""
    ends = [statistics.NormalDist().inv_cdf(i / n_pieces) for i in range(1, n_pieces)]
    ends = [ends[0] - 1, *ends, ends[-1] + 1]
    return [min(max((z - start) / (end - start), 0.0), 1.0) for start, end in pairwise(ends)]


@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-5), (torch.float64, 1e-6)])
@pytest.mark.parametrize(("numbers", "n_pieces"), [([0, 3], 12), ([2], 5), ([4, 1, 0], 2), ([], 3)])
def test_pieces_are_what_a_naive_loop_finds_beside_the_numbers_themselves(
    numbers: list[int], n_pieces: int, dtype: torch.dtype, within: float
) -> None:
    x = 2 * torch.randn(40, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)
    pieces = Pieces(5, numbers, n_pieces).to(dtype)
    found = pieces(x)
    assert found.dtype == dtype
    assert found.shape == (40, pieces.n_outputs) == (40, 5 + len(numbers) * n_pieces)
    expected = [[*row, *(p for j in numbers for p in in_pieces(row[j], n_pieces))] for row in x.tolist()]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=dtype), rtol=within, atol=within)
    if numbers and n_pieces > 2:
        assert {0.0, 1.0} <= {*found[:, 5:].flatten().tolist()}


def test_pieces_of_rows_that_lie_last_are_the_same_pieces() -> None:
    x = torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(0))
    pieces = Pieces(5, [1, 3], 4)
    by_model = torch.stack([pieces(rows) for rows in x])
    assert torch.equal(pieces.rows_last(x.mT).mT, by_model)
    assert torch.equal(pieces.rows_last(x[0].mT).mT, by_model[0])
    assert torch.equal(pieces(x), by_model)


@pytest.mark.parametrize("n_pieces", [2, 3, 12])
def test_there_is_a_slope_to_follow_however_far_a_number_is(n_pieces: int) -> None:
    pieces = Pieces(1, [0], n_pieces).double()
    rise = torch.rand(1 + n_pieces, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.1
    z = torch.tensor([-50.0, -9, -1, -0.01, 0.01, 1, 9, 50], dtype=torch.float64).unsqueeze(1).requires_grad_()
    (slope,) = torch.autograd.grad((pieces(z) @ rise).sum(), z)  # of a linear probe
    assert (slope[[0, 1, -2, -1]] == rise[0]).all()  # a line
    assert (slope[2:-2] > rise[0] + 0.05).all()


def test_pieces_hold_about_equally_many_where_numbers_are_normal_scores() -> None:
    z = torch.randn(20_000, 1, generator=torch.Generator().manual_seed(0))
    come = Pieces(1, [0], 8)(z)[:, 1:]
    inside = (come > 0) & (come < 1)
    inside[:, 0], inside[:, -1] = come[:, 0] < 1, come[:, -1] > 0
    assert ((come == 1).int().diff() <= 0).all()  # a piece begins where the one before it ends
    assert (inside.sum(1) == 1).all()
    torch.testing.assert_close(inside.float().mean(0), torch.full((8,), 1 / 8), atol=0.01, rtol=0)


@pytest.mark.parametrize("n_pieces", [1, 0, -3])
def test_a_line_in_less_than_two_pieces_is_refused(n_pieces: int) -> None:
    with pytest.raises(ValueError) as error:
        piecewise(3, 2, n_pieces=n_pieces)
    assert str(error.value) == f"n_pieces must be at least 2, one below and one above the middle; got {n_pieces}"


def test_piecewise_is_a_perceptron_over_the_pieces_of_the_numbers_only() -> None:
    model = piecewise(4, 3, numbers=[0, 2], hidden=(8,), n_pieces=5, seed=3)
    assert [type(layer) for layer in model] == [Pieces, nn.Linear, nn.ReLU, nn.Linear]
    assert model[1].weight.shape == (8, 4 + 2 * 5)
    assert repr(model[0]) == "Pieces(4, [0, 2], 5)"
    twin = mlp(14, 3, hidden=(8,), seed=3)
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(model(x), twin(model[0](x)))
    assert set(model.state_dict()) == {"1.weight", "1.bias", "3.weight", "3.bias"}  # knots are no weights
    assert piecewise(4, 3)[0].numbers.tolist() == [0, 1, 2, 3]


def test_piecewise_models_run_as_one_chain_and_only_with_the_same_pieces() -> None:
    models = [piecewise(4, 3, numbers=[0, 2], seed=seed) for seed in range(3)]
    population = Population(models)
    assert population.rows_last
    x = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(population(x), torch.stack([model(rows) for model, rows in zip(models, x, strict=True)]))
    with pytest.raises(NotStackableError, match="model 1 has other layer settings than model 0"):
        Population([piecewise(4, 3, numbers=[0, 2]), piecewise(4, 3, numbers=[0, 1])])


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


def test_pieces_inside_of_a_network_that_is_no_chain_run_in_a_population() -> None:
    models = [Merged(piecewise(3, 4, hidden=(5,), n_pieces=4, seed=seed), [0, 0, 1, 1]) for seed in range(2)]
    x = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0))
    population = Population(models)
    assert not population.rows_last
    with torch.no_grad():
        together = population(x)
    torch.testing.assert_close(together, torch.stack([model(rows) for model, rows in zip(models, x, strict=True)]))
