from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from countertrain.constraints import Constraints
from countertrain.models.architectures import mlp
from countertrain.search.fragility import Fragility
from countertrain.search.generator import Generator
from countertrain.search.generators import eccco, generic, gravitational, greedy, nearest, probe, revise
from countertrain.search.losses import log_odds, log_probabilities
from countertrain.search.penalties import Gravity, ScheduledEnergy, distance
from countertrain.search.rules import SGD, Adam
from countertrain.search.state import Penalty, SearchState
from countertrain.search.vae import fit_vae
from countertrain.testing import check_generator, toy_model, toy_rows


def pick(logits: Tensor, target: Tensor) -> Tensor:
    return logits.gather(-1, target.unsqueeze(-1)).mT


def state(step: int = 1, n_steps: int = 30) -> SearchState:
    factual = torch.tensor([[[0.0, 0.0], [1.0, 1.0]]])
    x = torch.tensor([[[1.0, -2.0], [1.0, 1.5]]])
    logits = torch.tensor([[[1.0, 2.0, 3.0], [-4.0, 0.0, 4.0]]])
    target = torch.tensor([[2, 0]])
    return SearchState(
        x, logits.mT, log_probabilities(logits), pick(logits, target), x - factual, factual, target, step, n_steps
    )


@pytest.mark.parametrize(
    ("n_steps", "k", "value"), [(30, 1, 0.0536), (30, 10, 0.0116), (30, 30, 0.0046), (50, 1, 0.0744), (50, 50, 0.0057)]
)
def test_phi_has_the_values_of_the_reference(n_steps: int, k: int, value: float) -> None:
    assert ScheduledEnergy.phi(k, n_steps) == pytest.approx(value, abs=6e-5)  # four decimals there


@pytest.mark.parametrize(("n_steps", "b"), [(13, 1), (25, 1), (30, 1), (50, 2), (62, 2), (63, 3), (100, 4)])
def test_phi_is_the_formula_of_the_reference_with_half_to_even_rounding(n_steps: int, b: int) -> None:
    for k in (1, 2, n_steps):
        assert ScheduledEnergy.phi(k, n_steps) == pytest.approx(0.1 * b / (b + k) ** 0.9, rel=1e-12)


@pytest.mark.parametrize("n_steps", range(14))
def test_up_to_twelve_steps_there_is_no_energy_at_all(n_steps: int) -> None:
    assert (ScheduledEnergy.phi(1, n_steps) == 0) == (n_steps <= 12)


def test_the_distance_is_the_sum_of_absolute_changes() -> None:
    assert distance(state()).tolist() == [[3.0, 0.5]]


def test_the_energy_penalty_is_phi_times_energy_and_its_square() -> None:
    phi = ScheduledEnergy.phi(4, 30)
    expected = [[phi * (-3 + 0.009), phi * (4 + 0.016)]]
    torch.testing.assert_close(ScheduledEnergy()(state(step=4)), torch.tensor(expected))


def test_as_written_there_is_neither_schedule_nor_square() -> None:
    assert ScheduledEnergy(schedule=False, rho=0.0)(state(step=4)).tolist() == [[-3.0, 4.0]]


def test_the_step_number_that_penalties_see_runs_from_1_to_t(model: nn.Module) -> None:
    seen = []

    def spy(seen_state: SearchState) -> torch.Tensor:
        seen.append((seen_state.step, seen_state.n_steps))
        return distance(seen_state)

    x, y = toy_rows()
    Generator(((1e-9, spy),), n_steps=4, tau=0.9999)(model, x, (y + 1) % 3)
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize("weight", [3.0, torch.tensor([3.0])])
def test_a_penalty_that_does_not_know_its_slopes_is_differentiated(model: nn.Module, weight: float) -> None:
    x, y = toy_rows()
    model, x, target = model.double(), x.double(), (y + 1) % 3
    egy = ScheduledEnergy()

    def found(*penalties: Penalty) -> torch.Tensor:
        return Generator([(weight, penalty) for penalty in penalties], tau=0.9999)(model, x, target).x

    knowing = found(distance, egy)
    torch.testing.assert_close(found(lambda s: distance(s), lambda s: egy(s)), knowing, rtol=0, atol=1e-12)
    torch.testing.assert_close(found(lambda s: distance(s) + egy(s)), knowing, rtol=0, atol=1e-12)
    assert not torch.allclose(found(distance), knowing)
    torch.testing.assert_close(found(lambda s: torch.zeros_like(s.energy)), found())


def test_defaults_are_those_that_produced_the_tables() -> None:
    for generator, weights in ((generic(), [0.001]), (eccco(), [0.001, 5.0])):
        assert (generator.n_steps, generator.tau, generator.rule) == (30, 0.75, SGD(0.1))
        assert [weight for weight, _ in generator.penalties] == weights
    assert eccco().penalties[1][1] == ScheduledEnergy(schedule=True, rho=1e-3)


def test_energy_makes_a_difference_to_the_search(model: nn.Module) -> None:
    x, y = toy_rows()
    target = (y + 1) % 3
    with_energy, without = eccco(n_steps=30)(model, x, target), eccco(lambda_egy=0.0)(model, x, target)
    assert not torch.allclose(with_energy.x, without.x)
    assert torch.equal(without.x, generic()(model, x, target).x)
    assert torch.equal(eccco(n_steps=12)(model, x, target).x, generic(n_steps=12)(model, x, target).x)


@pytest.mark.parametrize(
    "generator",
    [
        generic(),
        eccco(),
        eccco(schedule=False, rho=0.0, lambda_egy=0.1),
        generic(rule=Adam(0.03)),
        generic(n_steps=4),
    ],
    ids=["generic", "eccco", "eccco as written", "adam", "few steps"],
)
def test_generators_in_feature_space_keep_the_contract(generator: Generator) -> None:
    check_generator(generator)


def test_generators_keep_the_contract_with_more_features_and_two_classes() -> None:
    check_generator(eccco(), n_features=5, n_classes=2, seed=1)


def test_revise_keeps_the_contract() -> None:
    x, _ = toy_rows(dtype=torch.float32)
    check_generator(revise(fit_vae(x, epochs=300), n_steps=50))


def test_a_feature_that_cannot_move_does_not_pull_the_latent_state() -> None:
    x, y = toy_rows()
    only_first = nn.Linear(3, 3, bias=False).double()
    with torch.no_grad():
        only_first.weight[:, 1:] = 0.0
    start, end = (revise(fit_vae(x, epochs=20), lambda_cost=0.0, n_steps=n, tau=0.999) for n in (0, 10))
    pinned = Constraints.of(3, mutability={0: "none"})
    assert torch.equal(end(only_first, x, y, constraints=pinned).x, start(only_first, x, y, constraints=pinned).x)
    assert not torch.allclose(end(only_first, x, y).x, start(only_first, x, y).x)


def test_the_contract_refuses_a_penalty_that_looks_at_other_rows() -> None:
    def crowd(seen: SearchState) -> torch.Tensor:
        return (seen.x - seen.x.mean(1, keepdim=True)).square().sum(-1)

    with pytest.raises(AssertionError, match=r"row \d+ must be searched in a batch as it is alone"):
        check_generator(Generator(((0.1, crowd),)))


def test_the_contract_refuses_a_random_rule() -> None:
    class Jitter(SGD):
        def step(self, grad: torch.Tensor, memory: tuple, k: int) -> tuple[torch.Tensor, tuple]:
            return -0.1 * grad + 0.01 * torch.randn_like(grad), memory

    with pytest.raises(AssertionError, match="two searches must give the same x"):
        check_generator(generic(rule=Jitter()))


@pytest.mark.parametrize(
    ("generator", "reason"),
    [
        (generic(n_steps=0), "no row matures"),
        (generic(tau=0.99999), "no factual has reached tau"),
    ],
)
def test_the_contract_says_when_it_checked_nothing(generator: Generator, reason: str) -> None:
    with pytest.raises(AssertionError, match=f"nothing was checked: {reason}"):
        check_generator(generator)


def test_the_nearest_real_row_is_the_one_that_a_loop_finds() -> None:
    x, y = toy_rows(3, 3)
    model = toy_model(x, y)
    target = (y + 1) % 3
    limits = Constraints.of(3, mutability={0: "none"})
    found = nearest(tau=0.5).bind(x, y)(model, x, target, constraints=limits)
    for row, aim, end, mature in zip(x, target, found.x, found.mature, strict=True):
        real = min(x[y == aim], key=lambda other: float((other - row).abs().sum()))
        by_hand = torch.cat([row[:1], real[1:]])
        assert torch.equal(end, by_hand)
        assert bool(mature) == bool(model(by_hand[None]).softmax(-1)[0, aim] >= 0.5)
    assert found.mature.any()
    assert not found.mature.all()


def test_gravity_is_the_mean_distance_to_the_nearest_rows_of_the_target() -> None:
    x, y = toy_rows(3, 3)
    model = toy_model(x, y)
    pull = Gravity(k=4).bind(x, y)
    rows, target = x[None, :5] + 0.1, (y[None, :5] + 1) % 3
    logits = model(rows[0])[None]
    here = SearchState(
        rows, logits.mT, logits.log_softmax(-1).mT, pick(logits, target), rows - x[None, :5], x[None, :5], target, 1, 1
    )
    for i, (row, aim) in enumerate(zip(rows[0], target[0], strict=True)):
        distances = (x[y == aim] - row).abs().sum(-1).sort().values
        torch.testing.assert_close(pull(here)[0, i], distances[:4].mean())
    taped = rows.clone().requires_grad_()
    (by_x,) = torch.autograd.grad(pull(replace(here, x=taped)).sum(), taped)
    torch.testing.assert_close(pull.slopes(here).by_x, by_x)
    few = Gravity(k=99).bind(x, y)  # a class has fewer rows: the nearest stands in for the others
    assert torch.isfinite(few(here)).all()


def test_searches_by_real_rows_keep_the_contract_and_say_that_they_need_rows() -> None:
    x, y = toy_rows(3, 3)
    check_generator(gravitational(n_near=5, tau=0.5, lambda_pull=0.1).bind(x, y))
    with pytest.raises(ValueError, match="has not seen any; bind the generator to training rows"):
        nearest()(toy_model(x, y), x, y)


def test_a_greedy_search_changes_few_features_and_never_wastes_a_step_on_what_is_fixed() -> None:
    check_generator(greedy(tau=0.8, n_steps=12, step_size=0.3))
    x, y = toy_rows(6, 3)
    model = toy_model(x, y)
    limits = Constraints.of(6, mutability={0: "none", 1: "none"})
    once = greedy(tau=0.999, n_steps=3, step_size=0.1, most=1)(model, x, (y + 1) % 3, constraints=limits)
    moved = (once.x - x).abs()
    assert not moved[:, :2].any()
    torch.testing.assert_close(moved.sum(-1)[~once.mature], torch.full((int((~once.mature).sum()),), 0.3).double())
    assert moved.max() < 0.1 + 1e-9


def test_the_log_odds_are_those_of_the_target_against_all_others() -> None:
    logits, target = torch.randn(2, 7, 4, dtype=torch.float64), torch.arange(14).view(2, 7) % 4
    p = logits.softmax(-1).gather(-1, target.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(log_odds(logits.mT, target), p.logit())


def fragility_at(model: nn.Module, rows: Tensor, target: Tensor) -> SearchState:
    """The state of a search at rows (n, D), with the slopes of the model."""
    x = rows.clone().requires_grad_()
    logits = model(x)
    z = logits.detach().mT[None]
    return SearchState(
        rows[None], z, z.log_softmax(1), pick(logits.detach()[None], target[None]), 0 * rows[None], rows[None],
        target[None], 1, 1, lambda by: torch.autograd.grad(logits, x, by[0].mT, retain_graph=True)[0][None],
    )  # fmt: skip


def test_the_share_of_noisy_copies_that_lose_the_target_is_as_probe_estimates_it() -> None:
    x, y = toy_rows(3, 2)
    model, sigma = nn.Linear(3, 2).double(), 0.7
    target, stream = 1 - y, torch.Generator().manual_seed(0)
    fragile = Fragility(sigma=sigma, most=0.2)
    share = fragile.measure(fragility_at(model, x, target))[0]
    noise = sigma * torch.randn(20_000, *x.shape, generator=stream, dtype=torch.float64)
    lost = (model(x + noise).argmax(-1) != target).double().mean(0)
    torch.testing.assert_close(share, lost, rtol=0, atol=0.015)  # of a linear model, the estimate is exact
    assert share.min() < 0.1
    assert share.max() > 0.9
    penalty = fragile(fragility_at(model, x, target))[0]
    assert torch.equal(penalty, (share - 0.2).clamp(min=0))


def test_the_slopes_of_fragility_are_those_of_finite_differences_where_the_slope_of_the_model_stays() -> None:
    x, y = toy_rows(3, 2)
    model, target, fragile = mlp(3, 2, hidden=(8,), seed=1).double(), 1 - y, Fragility(sigma=0.5, most=0.3)
    here = fragility_at(model, x, target)
    known = here.by_rows(fragile.slopes(here).by_logits)[0].clone()
    for j in range(3):
        step = torch.eye(3, dtype=torch.float64)[j] * 1e-6
        up, down = (fragile(fragility_at(model, x + way * step, target))[0] for way in (1, -1))
        torch.testing.assert_close(known[:, j], (up - down) / 2e-6, rtol=1e-4, atol=1e-7)
    moving = (known != 0).any(-1)
    assert moving.any()
    assert not moving.all()


def test_advice_of_probe_survives_the_errors_for_which_it_was_made_and_keeps_the_contract() -> None:
    check_generator(probe(tau=0.6, most=0.2))
    x, y = toy_rows(3, 3)
    model, target = toy_model(x, y), (y + 1) % 3
    stream = torch.Generator().manual_seed(0)
    noise = 0.25 * torch.randn(500, *x.shape, generator=stream, dtype=torch.float64)

    def lost(found: Tensor) -> float:
        return float((model(found + noise).argmax(-1) != target).double().mean())

    sturdy = probe(tau=0.5, sigma=0.25, most=0.05, n_steps=200)(model, x, target)
    plain = generic(tau=0.5, n_steps=200)(model, x, target)
    assert plain.mature.all()
    assert sturdy.mature.all()
    assert lost(sturdy.x) < 0.08
    assert lost(plain.x) > 0.15
    assert (sturdy.n_steps >= plain.n_steps).all()
    with pytest.raises(ValueError, match="which this state of a search does not have"):
        Fragility()(state())
