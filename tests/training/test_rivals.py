"""Training methods of others: each keeps the contract, and computes what a slow, plain writing of its formula does."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from countertrain.constraints import Constraints
from countertrain.models.architectures import mlp
from countertrain.models.population import Population
from countertrain.runs.registry import build_objective
from countertrain.runs.settings import Settings
from countertrain.search.generators import langevin
from countertrain.tables import load
from countertrain.testing import check_method, check_term, toy_rows
from countertrain.training import methods
from countertrain.training.adversarial import drift, reach
from countertrain.training.jem import gap, marginal_gap, size
from countertrain.training.loss import make_task
from countertrain.training.method import Blocks, Method, Task, add_up, slopes
from countertrain.training.trainer import CounterfactualTrainer

METHODS: dict[str, Method] = {
    "pgd": methods.pgd(n_steps=3),
    "trades": methods.trades(n_steps=3),
    "ross": methods.ross(),
    "ross, one class, as released": methods.ross(target_class=1, direction="away"),
    "jem": methods.jem(n_steps=3, n_kept=30, restart=0.2),
    "jem, the original": methods.jem(n_steps=3, n_kept=30, conditional=False),
    "gradsup": methods.gradsup(n_neighbours=3),
    "counternet": methods.counternet(hidden_writer=(8,)),
}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_keeps_the_contract(name: str) -> None:
    check_method(METHODS[name])


# `alignment` looks at slopes of the model, not at its logits, so the contract of terms is none of its business
@pytest.mark.parametrize("term", [drift, reach, gap, marginal_gap, size], ids=lambda t: t.function.__name__)
def test_every_term_keeps_the_contract(term) -> None:
    check_term(term)


def begin(model: nn.Module, *, fixed: bool = True) -> tuple[Population, Task, Tensor, Tensor]:
    """A population of one with rows of which feature 0 cannot move, and a mini-batch of them."""
    x, y = toy_rows(4, 3, n=60)
    population = Population([model])
    limits = Constraints.of(4, mutability={0: "none"} if fixed else None)
    task = make_task(population, x, y, constraints=limits, seed=[0], n_epochs=1)
    return population, task, x[None, :20], y[None, :20]


def network() -> nn.Module:
    return mlp(4, 3, hidden=(8,), activation=nn.Tanh, seed=3).double()


def slope_at(model: nn.Module, x: Tensor, loss) -> Tensor:
    x = x.detach().requires_grad_()
    return torch.autograd.grad(loss(model(x)).sum(), x)[0]


class Shifted:
    """A start that draws nothing, so that a plain loop can begin there, too."""

    draws = False

    def __call__(self, factual: Tensor, target: Tensor, seed: Tensor) -> Tensor:
        return factual + 1e-3


def attack_by_hand(model: nn.Module, x: Tensor, epsilon: float, n: int, loss) -> Tensor:
    """Signed steps up the loss within the ball; feature 0 stays."""
    found = x + 1e-3
    found[:, 0] = x[:, 0]
    for _ in range(n):
        found = found + 2.5 * epsilon / n * slope_at(model, found, loss).sign()
        found = found.clamp(x - epsilon, x + epsilon)
        found[:, 0] = x[:, 0]
    return found


def start_at(method, start) -> Method:
    attack = method.attack
    return replace(method, attack=replace(attack, generator=replace(attack.generator, start=start)))


def test_pgd_learns_from_the_worst_row_that_a_plain_loop_finds() -> None:
    model = network()
    population, task, x, y = begin(model)
    made = start_at(methods.pgd(epsilon=0.4, n_steps=5), Shifted()).bind(task).rows(population, x, y)
    by_hand = attack_by_hand(model, x[0], 0.4, 5, lambda z: functional.cross_entropy(z, y[0], reduction="none"))
    assert made is not None
    torch.testing.assert_close(made.x[0], by_hand)
    assert (by_hand - x[0]).abs().amax(0)[1:].min() > 0.1


def test_trades_attacks_and_learns_by_the_divergence_of_its_formula() -> None:
    model, method = network(), start_at(methods.trades(epsilon=0.4, n_steps=5, lambda_drift=6.0), Shifted())
    population, task, x, y = begin(model)
    made = method.bind(task).rows(population, x, y)
    with torch.no_grad():
        p = model(x[0]).softmax(-1)
    by_hand = attack_by_hand(
        model, x[0], 0.4, 5, lambda z: functional.kl_div(z.log_softmax(-1), p, reduction="none").sum(-1)
    )
    assert made is not None
    torch.testing.assert_close(made.x[0], by_hand)
    total, _ = add_up(method.terms, population, x, y, made)
    clean, attacked = model(x[0]), model(by_hand)
    divergence = functional.kl_div(
        attacked.log_softmax(-1), clean.log_softmax(-1), log_target=True, reduction="batchmean"
    )
    torch.testing.assert_close(total[0], functional.cross_entropy(clean, y[0]) + 6.0 * divergence)


@pytest.mark.parametrize(("direction", "sign"), [("towards", -1), ("away", 1)])
def test_ross_takes_the_optimal_step_of_the_linearised_loss(direction, sign) -> None:
    model = network()
    population, task, x, y = begin(model)
    method = methods.ross(epsilon=0.75, target_class=2, direction=direction, lambda_reach=0.8)
    made = method.bind(task).rows(population, x, y)
    target = torch.full_like(y[0], 2)
    step = slope_at(model, x[0], lambda z: functional.cross_entropy(z, target, reduction="none")).sign()
    step[:, 0] = 0
    by_hand = x[0] + sign * 0.75 * step
    assert made is not None
    torch.testing.assert_close(made.x[0], by_hand)
    total, _ = add_up(method.terms, population, x, y, made)
    losses = functional.cross_entropy(model(x[0]), y[0]), functional.cross_entropy(model(by_hand), target)
    torch.testing.assert_close(total[0], losses[0] + 0.8 * losses[1])


@pytest.mark.parametrize("conditional", [True, False])
def test_jem_samples_by_langevin_and_contrasts_energies_by_its_formula(conditional: bool) -> None:
    model = network()
    population, task, x, y = begin(model, fixed=False)
    method = methods.jem(n_kept=50, restart=0.0, conditional=conditional, lambda_div=0.7, lambda_reg=0.1)
    quiet = replace(method, sample=langevin(step_size=0.2, noise=0.0, n_steps=4, conditional=conditional))
    session = quiet.bind(task)
    kept = session.state()["kept"].clone()
    made = session.rows(population, x, y)
    assert made is not None

    def energy(z: Tensor) -> Tensor:
        return -z.gather(-1, y[0].unsqueeze(-1))[:, 0] if conditional else -z.logsumexp(-1)

    # every sample begins in the buffer, and goes back to its place
    changed = (session.state()["kept"] != kept)[0].any(-1)
    assert 0 < changed.sum() <= 20
    ends = [_sample_by_hand(model, kept[0], label, conditional) for label in range(3)]
    for sample, label in zip(made.x[0], y[0].tolist(), strict=True):
        assert (sample - ends[label]).abs().sum(-1).min() < 1e-9
    total, _ = add_up(quiet.terms, population, x, y, made)
    real, sampled = model(x[0]), model(made.x[0])
    own = [-z.gather(-1, y[0].unsqueeze(-1))[:, 0] for z in (real, sampled)]
    ridge = (own[0].square() + own[1].square()).mean()
    expected = functional.cross_entropy(real, y[0]) + 0.7 * (energy(real) - energy(sampled)).mean() + 0.1 * ridge
    torch.testing.assert_close(total[0], expected)


def _sample_by_hand(model: nn.Module, x: Tensor, label: int, conditional: bool) -> Tensor:
    for _ in range(4):
        x = x - 0.2 * slope_at(model, x, lambda z: -z[:, label] if conditional else -z.logsumexp(-1))
    return x


def test_gradient_supervision_points_slopes_at_real_rows() -> None:
    model = network()
    population, task, x, y = begin(model)
    method = methods.gradsup(lambda_align=2.0, n_neighbours=4)
    made = method.bind(task).rows(population, x, y)
    assert made is not None
    target = made.labels["x_plus"][0]
    assert (target != model(x[0]).argmax(-1)).all()
    assert torch.equal(made.x[..., 0], x[..., 0])  # what nobody can change has no part in the way
    slope = slope_at(model, x[0], lambda z: z.gather(-1, target.unsqueeze(-1)))
    apart = 1 - functional.cosine_similarity(slope, made.x[0] - x[0], dim=-1)
    total, _ = add_up(method.terms, population, x, y, made)
    torch.testing.assert_close(total[0], functional.cross_entropy(model(x[0]), y[0]) + 2.0 * apart.mean())


@pytest.mark.parametrize("name", ["pgd", "trades", "ross", "jem", "jem, the original", "gradsup"])
def test_derivatives_are_finite_differences(name: str) -> None:
    """Whichever way the derivatives are found: by terms that know them, or by autograd through a slope."""
    method, model = METHODS[name], network()
    population, task, x, y = begin(model)
    made = method.bind(task).rows(population, x, y)
    _, gradients = slopes(method.terms, population, x, y, made)
    for parameter, gradient in zip(population.trainable(), gradients, strict=True):
        assert gradient is not None
        at = int(gradient.abs().argmax())
        difference = (
            _nudge(method, population, x, y, made, parameter, at, 1e-6)
            - _nudge(method, population, x, y, made, parameter, at, -1e-6)
        ) / 2e-6
        assert abs(float(gradient.flatten()[at]) - difference) < 1e-6 * max(1.0, abs(difference))


def _nudge(
    method: Method, population: Population, x: Tensor, y: Tensor, made: Blocks | None, p: Tensor, at: int, by: float
) -> float:
    with torch.no_grad():
        p.view(-1)[at] += by
    total, _ = add_up(method.terms, population, x, y, made)
    with torch.no_grad():
        p.view(-1)[at] -= by
    return float(total.detach())


def test_the_network_that_writes_leaves_the_classifier_alone_and_learns_to_reach_its_targets() -> None:
    x, y = toy_rows(4, 3, n=120)
    limits = Constraints.of(4, mutability={0: "none"}, lower=-4.0, upper=4.0)
    alone, beside = (mlp(4, 3, seed=1).double() for _ in range(2))
    trainer = CounterfactualTrainer(methods.bl(), limits, epochs=60, batch_size=20)
    trainer.fit(alone, x, y)
    method = methods.counternet(hidden_writer=(16,))
    history = replace(trainer, objective=method).fit(beside, x, y)
    assert all(torch.equal(a, b) for a, b in zip(alone.parameters(), beside.parameters(), strict=True))
    assert history["written_valid"][-1][0] > 0.9 > history["written_valid"][0][0]
    session = method.bind(make_task(Population([beside]), x, y, constraints=limits, seed=[0], n_epochs=1))
    written = session.write(x[None], y[None])
    assert torch.equal(written[..., 0], x[None, :, 0])
    assert (written - x).abs().amax(dim=(0, 1))[1:].min() > 0


@pytest.mark.parametrize("objective", ["pgd", "trades", "jem", "ross", "gradsup", "counternet"])
def test_every_method_is_made_by_name(objective: str) -> None:
    data = load("moons")
    settings = Settings.resolve("moons", {"objective": objective, "class_weight": "balanced", "n_steps": 7})
    made = build_objective(settings, data, weight=torch.ones(2))
    assert made.terms
    own = {"pgd": "advloss", "trades": "drift", "jem": "gap", "ross": "reach", "gradsup": "alignment"}
    name = own.get(objective, "yloss")
    weighed = build_objective(settings.change(terms={name: 9.0}), data)
    assert weighed.terms[name][0] == 9.0
    with pytest.raises(ValueError, match="'teach', of which the method has no use"):
        build_objective(settings.change(terms={"teach": 1.0}), data)


def test_one_reach_is_for_all_models() -> None:
    with pytest.raises(ValueError, match="epsilon of an attack must be one number for all models"):
        methods.pgd(epsilon=[0.1, 0.2])  # type: ignore[arg-type]
