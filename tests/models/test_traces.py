"""Derivatives that are written out are those of autograd, and of finite differences, for every chain they accept."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from countertrain.models import traces
from countertrain.models.architectures import Pieces, mlp, piecewise
from countertrain.models.deciding import Committee
from countertrain.models.piece_table import PieceTable
from countertrain.models.population import Population
from countertrain.models.traces import ACTIVATIONS, ChainTrace, Tracer

D, K, N = 3, 4, 7


@pytest.fixture(autouse=True, params=["few rows", "many rows"])
def by_numpy_or_torch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows go through numpy, many through torch."""
    if request.param == "many rows":
        monkeypatch.setattr(traces, "_SMALL", 0)


def chain(activation: Callable[[], nn.Module], *, bias: bool = True, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    layers = [nn.Linear(D, 6, bias=bias), activation(), nn.Linear(6, 5, bias=bias), activation(), nn.Linear(5, K)]
    return nn.Sequential(*layers).double()


def over_pieces(seed: int = 0) -> nn.Module:
    return piecewise(D, K, numbers=[0, 2], hidden=(6,), n_pieces=5, seed=seed).double()


def beginning_with_an_activation(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Tanh(), nn.Sequential(nn.Linear(D, K), nn.Identity())).double()


def rectified_at_both_ends(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.ReLU(), nn.Linear(D, K), nn.ReLU()).double()


def rectified_behind_nothing(seed: int = 0) -> nn.Module:
    """The first layer hands on the very rows, which are not ours to write to."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Identity(), nn.ReLU(), nn.Linear(D, K)).double()


def linear(seed: int = 0) -> nn.Module:
    return mlp(D, K, hidden=(), seed=seed).double()


KINDS: dict[str, Callable[[int], nn.Module]] = {
    **{kind.__name__: lambda seed, kind=kind: chain(kind, seed=seed) for kind in ACTIVATIONS},
    "LeakyReLU 0.3": lambda seed: chain(lambda: nn.LeakyReLU(0.3), seed=seed),
    "ELU 0.5": lambda seed: chain(lambda: nn.ELU(0.5), seed=seed),
    "CELU 0.5": lambda seed: chain(lambda: nn.CELU(0.5), seed=seed),
    "GELU tanh": lambda seed: chain(lambda: nn.GELU("tanh"), seed=seed),
    "Softplus 2": lambda seed: chain(lambda: nn.Softplus(2.0, 0.1), seed=seed),
    "Hardtanh": lambda seed: chain(lambda: nn.Hardtanh(-0.2, 0.3), seed=seed),
    "no bias": lambda seed: chain(nn.ReLU, bias=False, seed=seed),
    "pieces": over_pieces,
    "an activation first": beginning_with_an_activation,
    "rectified at both ends": rectified_at_both_ends,
    "rectified behind nothing": rectified_behind_nothing,
    "linear": linear,
}


def rows(size: int, n: int = N) -> Tensor:
    return torch.randn(size, n, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def by_autograd(population: Population, x: Tensor, by_logits: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
    """Plain calls of the modules themselves, one by one."""
    x = x.clone().requires_grad_()
    logits = torch.stack([module(one) for module, one in zip(population.modules, x, strict=True)])
    scalar = (logits * by_logits.transpose(1, 2)).sum()
    names = dict(population.modules[0].named_parameters())
    each = [[module.get_parameter(name) for module in population.modules] for name in names]
    (by_x, *flat) = torch.autograd.grad(scalar, [x, *(p for same in each for p in same)])
    size, gradients = len(population), []
    for i in range(len(each)):
        mine = torch.stack(flat[i * size : (i + 1) * size])
        gradients.append(mine if size > 1 else mine[0])
    return by_x, gradients


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_written_out_derivatives_are_those_of_plain_modules(kind: str, size: int) -> None:
    population = Population([KINDS[kind](seed) for seed in range(size)])
    x, by_logits = rows(size), torch.randn(size, K, N, dtype=torch.float64)
    seen = population.trace(x - 1, learning=True)
    assert isinstance(seen, ChainTrace)
    seen.by_rows(by_logits + 1), seen.by_parameters(by_logits + 1)
    given = x.clone()
    seen.look(x)  # in the same memory
    by_x, gradients = by_autograd(population, x, by_logits)
    assert by_x.abs().max() > 1e-3
    assert all(gradient.abs().max() > 1e-4 for gradient in gradients)
    torch.testing.assert_close(seen.by_rows(by_logits), by_x, rtol=1e-10, atol=1e-12)
    mine = seen.by_parameters(by_logits)
    assert set(mine) == set(population.parameters)
    assert torch.equal(x, given)
    for name, gradient in zip(population.parameters, gradients, strict=True):
        assert mine[name].shape == population.parameters[name].shape
        torch.testing.assert_close(mine[name], gradient, rtol=1e-10, atol=1e-12)


def test_written_out_derivatives_are_finite_differences() -> None:
    population = Population([over_pieces(seed) for seed in range(2)])
    x, by_logits = rows(2), torch.randn(2, K, N, dtype=torch.float64)
    seen = population.trace(x, learning=True)
    assert seen is not None

    def value() -> float:
        again = population.trace(x)
        assert again is not None
        return float((again.rows_last * by_logits).sum())

    step = 1e-6
    for tensor, slope in ((x, seen.by_rows(by_logits)), *_with_slopes(population, seen, by_logits)):
        flat, slopes = tensor.detach().reshape(-1), slope.reshape(-1)
        assert flat.data_ptr() == tensor.data_ptr()
        for place in range(0, len(flat), 5):
            was = float(flat[place])
            flat[place] = was + step
            up = value()
            flat[place] = was - step
            down = value()
            flat[place] = was
            assert (up - down) / (2 * step) == pytest.approx(float(slopes[place]), rel=1e-5, abs=1e-6)


def _with_slopes(population: Population, seen: ChainTrace, by_logits: Tensor) -> list[tuple[Tensor, Tensor]]:
    return [(population.parameters[name], slope) for name, slope in seen.by_parameters(by_logits).items()]


def test_only_trainable_parameters_have_derivatives() -> None:
    model = chain(nn.ReLU)
    frozen = ("0.weight", "4.bias")
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)
    population = Population([model])
    seen = population.trace(rows(1), learning=True)
    assert seen is not None
    by_logits = torch.randn(1, K, N, dtype=torch.float64)
    _, gradients = by_autograd(Population([chain(nn.ReLU)]), rows(1), by_logits)
    mine = seen.by_parameters(by_logits)
    assert set(mine) == set(population.parameters) - set(frozen)
    for name, gradient in zip(population.parameters, gradients, strict=True):
        if name not in frozen:
            torch.testing.assert_close(mine[name], gradient)


def test_at_an_edge_the_slope_is_that_of_the_piece_that_begins_there() -> None:
    """Zero is the end of a piece and the beginning of the next one; beyond the last edge there is no piece."""
    pieces = Pieces(1, [0], 4).double()
    edges = pieces.edges
    x = torch.cat([edges, edges - 1e-3, edges + 1e-3]).view(1, 1, -1)  # (1, 1, 15)
    by_out = torch.randn(1, 5, 15, dtype=torch.float64)
    right = x + 1e-6
    way = pieces.rows_last(right + 1e-6) - pieces.rows_last(right)
    torch.testing.assert_close(
        pieces.pull_back(by_out, x), (by_out * way / 1e-6).sum(1, keepdim=True), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize(
    "build",
    [
        lambda: nn.Sequential(nn.Linear(D, 5), nn.LayerNorm(5), nn.Linear(5, K)),
        lambda: nn.Sequential(nn.Linear(D, 5), nn.ELU(inplace=True), nn.Linear(5, K)),
        lambda: nn.Sequential(nn.Linear(D, 5), nn.PReLU(), nn.Linear(5, K)),
    ],
)
def test_what_nobody_wrote_out_is_left_to_autograd(build: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    population = Population([build().double()])
    x, by_logits = rows(1), torch.randn(1, K, N, dtype=torch.float64)
    assert population.trace(x) is None
    seen = Tracer(population)(x)
    expected, _ = by_autograd(population, x, by_logits)
    torch.testing.assert_close(seen.by_rows(by_logits), expected)
    assert not seen.rows_last.requires_grad


def test_under_autocast_nothing_is_written_out() -> None:
    population = Population([mlp(D, K)])
    assert population.trace(rows(1).float()) is not None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert population.trace(rows(1).float()) is None


@pytest.mark.parametrize("kind", ["ReLU", "pieces"])
def test_a_committee_knows_the_derivatives_of_its_mean_probability(kind: str) -> None:
    models = [KINDS[kind](seed) for seed in range(3)]
    committee = Committee(models)
    x, by_logits = rows(1), torch.randn(1, K, N, dtype=torch.float64)
    see = Tracer(committee)
    see(x - 1)
    seen = see(x)  # in the same memory
    inside = x.clone().requires_grad_()
    mean = torch.stack([model(inside[0]).softmax(-1) for model in models]).mean(0)  # (n, K)
    torch.testing.assert_close(seen.rows_last[0].T, mean.log())
    (expected,) = torch.autograd.grad((mean.log().T * by_logits[0]).sum(), inside)
    assert expected.abs().max() > 1e-3
    torch.testing.assert_close(seen.by_rows(by_logits), expected)


@pytest.mark.parametrize("kind", ["ReLU", "pieces"])
def test_passes_over_other_rows_are_as_new_ones_however_many_rows_there_are(kind: str) -> None:
    population = Population([KINDS[kind](seed) for seed in range(2)])
    see = Tracer(population)
    for n in (N, N, 3, N, 1):
        x, by_logits = rows(2)[:, :n] + n, torch.randn(2, K, n, dtype=torch.float64)
        seen, new = see(x), population.trace(x)
        assert new is not None
        assert torch.equal(seen.rows_last, new.rows_last)
        assert torch.equal(seen.by_rows(by_logits), new.by_rows(by_logits))


@pytest.mark.parametrize("levels", [0, 2])
@pytest.mark.parametrize("bias", [True, False])
def test_what_many_rows_look_up_is_what_their_pieces_are_multiplied_to(
    levels: int, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "_SMALL", 0)
    torch.manual_seed(0)
    nets = [piecewise(5, K, numbers=[0, 1, 2, 3, 4][levels:], hidden=(9,), n_pieces=6, seed=seed) for seed in range(2)]
    for net in nets:
        net[1].bias = nn.Parameter(torch.randn(9)) if bias else None
    population, edges = Population(nets), nets[0][0].edges
    x = 1.5 * torch.randn(2, 200, 5)
    x[:, : len(edges)] = edges.view(1, -1, 1)  # where a piece begins and another one ends
    x[:, 20:22] = torch.tensor([-40.0, 40.0]).view(1, 2, 1)
    by_logits = torch.randn(2, K, 200)
    seen = population.trace(x + 1)
    assert seen is not None
    assert isinstance(seen._stations[0], PieceTable)
    seen.look(x)
    multiplied = population.trace(x, learning=True)
    assert multiplied is not None
    assert not isinstance(multiplied._stations[0], PieceTable)
    torch.testing.assert_close(seen.rows_last, multiplied.rows_last, rtol=1e-4, atol=1e-4)
    expected = multiplied.by_rows(by_logits)
    assert expected.abs().max() > 1e-2
    torch.testing.assert_close(seen.by_rows(by_logits), expected, rtol=1e-4, atol=1e-4)


def test_few_rows_and_double_precision_are_multiplied() -> None:
    for x, double in ((torch.randn(1, 20, D), False), (torch.randn(1, 900, D), True)):
        net = piecewise(D, K, hidden=(6,), n_pieces=5)
        seen = Population([net.double() if double else net]).trace(x.double() if double else x)
        assert seen is not None
        assert not isinstance(seen._stations[0], PieceTable)
