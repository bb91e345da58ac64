"""The parts that attacks and samplers are made of, and rows of any shape."""

import pytest
import torch
from torch import Tensor, nn

from countertrain.constraints import Constraints
from countertrain.search.generator import Generator
from countertrain.search.generators import eccco, fgsm, generic, langevin, pgd, revise
from countertrain.search.penalties import CrossEntropy, Energy, Escape, FreeEnergy, Margin, ScheduledEnergy, distance
from countertrain.search.rules import SGD, Langevin, Sign
from countertrain.search.starts import Around
from countertrain.search.state import Penalty
from countertrain.search.streams import draw_normal, draw_uniform, seeds_of_rows
from countertrain.testing import check_generator, toy_rows


@pytest.mark.parametrize(
    "generator",
    [
        fgsm(0.3),
        pgd(0.3, step_size=0.1, n_steps=7),
        langevin(step_size=0.05, noise=0.2, n_steps=6),
        langevin(step_size=0.05, noise=0.2, n_steps=6, conditional=False),
        Generator([(0.1, distance)], loss=Margin(0.5), n_steps=40, tau=0.8),
        Generator([], start=Around(0.2), rule=Langevin(0.1, 0.05), n_steps=30, tau=0.8),
    ],
    ids=["fgsm", "pgd", "langevin", "langevin of any class", "hinge", "noisy search"],
)
def test_attacks_samplers_and_other_losses_keep_the_contract_of_a_generator(generator: Generator) -> None:
    check_generator(generator)


@pytest.mark.parametrize("penalty", [CrossEntropy(), Escape(), Energy(), FreeEnergy()])
def test_slopes_are_the_derivatives(penalty: Penalty, model: nn.Module) -> None:
    x, y = toy_rows()
    knowing, blind = (
        Generator([(2.5, part)], loss=None, rule=SGD(0.05), n_steps=4, tau=None)(model, x, y).x
        for part in (penalty, lambda state: penalty(state))
    )
    torch.testing.assert_close(knowing, blind, rtol=0, atol=1e-12)
    assert (knowing - x).abs().max() > 1e-3


def test_slopes_of_several_penalties_add_up(model: nn.Module) -> None:
    """Also where each by itself gets steeper with the energy."""
    x, y = toy_rows()
    twice, once = (
        Generator(parts, n_steps=30, tau=None)(model, x, y).x
        for parts in ([(30.0, ScheduledEnergy(rho=0.1))] * 2, [(60.0, ScheduledEnergy(rho=0.1))])
    )
    torch.testing.assert_close(twice, once)
    assert not torch.allclose(once, Generator([(60.0, ScheduledEnergy(rho=0.05))], n_steps=30, tau=None)(model, x, y).x)


def test_escaping_is_the_cross_entropy_the_other_way(model: nn.Module) -> None:
    x, y = toy_rows()
    away = Generator([], loss=Escape(), n_steps=1, tau=None)(model, x, y).x
    towards = Generator([], loss=CrossEntropy(), n_steps=1, tau=None)(model, x, y).x
    torch.testing.assert_close(away - x, x - towards)


def test_a_row_draws_the_same_numbers_whatever_rows_are_beside_it_and_others_at_each_step() -> None:
    seed, like = torch.arange(40).view(2, 20) * 7919, torch.zeros(2, 20, 3, dtype=torch.float64)
    for draw in (draw_uniform, draw_normal):
        whole = draw(seed, 5, like)
        assert torch.equal(draw(seed[:, 4:5], 5, like[:, 4:5]), whole[:, 4:5])
        assert not torch.equal(draw(seed, 6, like), whole)
        assert len(whole.unique()) == whole.numel()


def test_drawn_numbers_have_the_moments_of_their_distribution() -> None:
    seed, like = torch.arange(2000).view(1, -1), torch.zeros(1, 2000, 50)
    u, z = draw_uniform(seed, 1, like), draw_normal(seed, 1, like)
    assert u.dtype == z.dtype == torch.float32
    assert 0 <= u.min() < 1e-4
    assert 1 - 1e-4 < u.max() <= 1
    for value, mean, sd in ((u, 0.5, 12**-0.5), (z, 0.0, 1.0)):
        assert value.mean().item() == pytest.approx(mean, abs=0.01)
        assert value.std().item() == pytest.approx(sd, rel=0.01)
    assert (z > 1.96).float().mean().item() == pytest.approx(0.025, abs=0.002)
    neighbours = torch.corrcoef(torch.stack([z[0, :-1].flatten(), z[0, 1:].flatten()]))[0, 1]
    assert neighbours.abs() < 0.01


def test_seeds_of_rows_are_of_their_numbers_and_of_the_seed() -> None:
    x = torch.randn(2, 6, 3)
    x[1, 2] = x[0, 1]
    seeds = seeds_of_rows(x, 3)
    assert seeds[1, 2] == seeds[0, 1]
    assert len(seeds.unique()) == 11
    assert not (seeds_of_rows(x, 4) == seeds).any()


def test_a_seed_per_row_decides_what_it_draws(model: nn.Module) -> None:
    x, y = toy_rows(n=12)
    search, seeds = langevin(noise=0.5, n_steps=3), torch.arange(12)
    found = search(model, x, y, seed=seeds).x
    again, other = search(model, x[3:4], y[3:4], seed=seeds[3:4]).x, search(model, x, y, seed=seeds + 1).x
    torch.testing.assert_close(found[3:4], again)
    assert not torch.isclose(found, other).any()


def test_a_signed_step_is_as_long_in_every_feature(model: nn.Module) -> None:
    x, y = toy_rows()
    found = Generator([], rule=Sign(0.07), n_steps=1, tau=None)(model, x, (y + 1) % 3)
    torch.testing.assert_close((found.x - x).abs(), torch.full_like(x, 0.07))


def test_no_feature_leaves_the_radius_nor_the_constraints(model: nn.Module) -> None:
    x, y = toy_rows()
    limits = Constraints.of(3, mutability={0: "none"}, lower=-1.5, upper=1.5)
    x = x.clamp(-1.5, 1.5)
    found = pgd(0.25, step_size=0.2, n_steps=5)(model, x, y, constraints=limits).x
    assert torch.equal(found[:, 0], x[:, 0])
    assert (found - x).abs().max().item() == pytest.approx(0.25)
    assert found.abs().max() <= 1.5


class Image(nn.Module):
    """A network of rows (1, 2, 3) that is the given network of their six numbers."""

    def __init__(self, flat: nn.Module) -> None:
        super().__init__()
        self.flat = flat

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[1:] == (1, 2, 3)
        return self.flat(x.flatten(1))


@pytest.mark.parametrize(
    "search",
    [
        generic(n_steps=25),
        eccco(n_steps=25),
        pgd(0.3, step_size=0.1, n_steps=5, random_start=False),
        langevin(n_steps=5),
        revise(n_steps=20, tau=0.6),
    ],
    ids=["generic", "eccco", "pgd", "langevin", "revise"],
)
@pytest.mark.parametrize("size", [1, 2])
def test_rows_of_any_shape_find_what_their_numbers_in_a_row_find(search: Generator, size: int) -> None:
    x, y = toy_rows(6, n=30)
    images = x.view(30, 1, 2, 3)
    models = [nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double() for _ in range(size)]
    limits = Constraints.infer(x, mutability={1: "none", 2: "increase"}, categories=[slice(3, 6)])
    target = ((y + 1) % 3).expand(size, -1)
    flat = search.bind(x, y)(models, x.expand(size, -1, -1), target, constraints=limits, epsilon=0.2)
    shaped = search.bind(images, y)(
        [Image(model) for model in models], images.expand(size, *images.shape), target, constraints=limits, epsilon=0.2
    )
    assert shaped.x.shape == shaped.nascent.shape == (size, 30, 1, 2, 3)
    for name in ("x", "nascent"):
        torch.testing.assert_close(getattr(shaped, name).flatten(2), getattr(flat, name))
    assert torch.equal(shaped.n_steps, flat.n_steps)
    assert torch.equal(shaped.x.flatten(2)[..., 1], x[:, 1].expand(size, -1))
    assert (shaped.x != shaped.factual).any()


def test_a_latent_space_without_an_autoencoder_says_how_to_get_one(model: nn.Module) -> None:
    x, y = toy_rows()
    with pytest.raises(ValueError, match=r"has not seen any rows; give one, or bind the generator.*generator.bind"):
        revise()(model, x, y)


def test_every_part_that_wants_to_is_bound_to_the_training_rows(model: nn.Module) -> None:
    x, y = toy_rows()

    class Centre:
        def __init__(self, mean: Tensor | None = None) -> None:
            self.mean = mean

        def bind(self, x: Tensor, y: Tensor) -> "Centre":
            return Centre(torch.stack([x[y == k].mean(0) for k in range(3)]))

        def __call__(self, state: object) -> Tensor:
            return (state.x - self.mean[state.target]).square().sum(-1)

    bound = Generator([(0.5, Centre())], loss=None, n_steps=60, tau=None).bind(x, y)
    found = bound(model, x, (y + 1) % 3).x
    torch.testing.assert_close(
        found, torch.stack([x[y == k].mean(0) for k in range(3)])[(y + 1) % 3], atol=0.05, rtol=0
    )


@pytest.mark.parametrize("given", [[[0.1, 0.2, 0.3]], "rows"])
def test_rows_that_are_no_tensor_are_refused_in_one_sentence(given: object, model: nn.Module) -> None:
    with pytest.raises(TypeError, match=r"factual must be a tensor; got \w+; convert it with torch.as_tensor"):
        generic()(model, given, torch.tensor([1]))
