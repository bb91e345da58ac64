"""FGSM and PGD are foolbox's, stay in their ball, and leave the model alone."""

import warnings

import pytest
import torch
from torch import Tensor, nn

from countertrain import mlp
from countertrain.constraints import Constraints
from countertrain.evaluation import robustness
from countertrain.evaluation.metrics import accuracy
from countertrain.evaluation.robustness import robust_accuracy
from countertrain.models.population import Population
from countertrain.search.generators import fgsm, pgd
from countertrain.search.losses import cross_entropy
from countertrain.testing import toy_model, toy_rows

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # foolbox uses names that SciPy has moved
    import foolbox


@pytest.fixture(scope="module")
def rows() -> tuple[Tensor, Tensor]:
    x, y = toy_rows()
    return x / 3, y  # close together: a step of 0.1 matters


@pytest.fixture(scope="module")
def models(rows: tuple[Tensor, Tensor]) -> list[nn.Module]:
    return [toy_model(*rows, seed=seed) for seed in range(3)]


def in_foolbox(model: nn.Module) -> foolbox.PyTorchModel:
    return foolbox.PyTorchModel(model.eval(), bounds=(-1000, 1000), device="cpu")


@pytest.mark.parametrize("epsilon", [0.05, 0.5])
def test_fgsm_is_the_one_of_foolbox(models: list[nn.Module], rows: tuple[Tensor, Tensor], epsilon: float) -> None:
    attack = foolbox.attacks.LinfFastGradientAttack(random_start=False)
    _, wanted, _ = attack(in_foolbox(models[0]), *rows, epsilons=epsilon)
    found = fgsm(epsilon)(models[0], *rows).x
    assert torch.allclose(found, wanted, atol=1e-10)
    assert (found != rows[0]).any(1).all()


@pytest.mark.parametrize(("epsilon", "step_size", "n_steps"), [(0.1, 0.01, 40), (0.3, 0.05, 9), (0.25, 0.1, 20)])
def test_pgd_without_a_random_start_is_the_one_of_foolbox(
    models: list[nn.Module], rows: tuple[Tensor, Tensor], epsilon: float, step_size: float, n_steps: int
) -> None:
    attack = foolbox.attacks.LinfProjectedGradientDescentAttack(
        abs_stepsize=step_size, steps=n_steps, random_start=False
    )
    _, wanted, _ = attack(in_foolbox(models[0]), *rows, epsilons=epsilon)
    found = pgd(epsilon, step_size=step_size, n_steps=n_steps, random_start=False)(models[0], *rows).x
    assert torch.allclose(found, wanted, atol=1e-10)
    assert not torch.allclose(found, fgsm(epsilon)(models[0], *rows).x, atol=1e-3)


def test_attacked_rows_stay_inside_the_ball_and_reach_its_border(
    models: list[nn.Module], rows: tuple[Tensor, Tensor]
) -> None:
    for attack in (
        fgsm(0.2),
        pgd(0.2, step_size=0.15, n_steps=5, random_start=False),
        pgd(0.2, step_size=0.15, n_steps=5),
    ):
        away = (attack(models[0], *rows).x - rows[0]).abs().amax()
        assert away <= 0.2 + 1e-12
        assert away >= 0.2 - 1e-9  # two steps of 0.15 would leave it if they could


def test_a_random_start_is_uniform_in_the_ball_and_comes_from_the_seed(
    models: list[nn.Module], rows: tuple[Tensor, Tensor]
) -> None:
    def start(seed: int) -> Tensor:
        return pgd(0.2, n_steps=0)(models[0], *rows, seed=seed).x - rows[0]

    first = start(0)
    assert torch.equal(first, start(0))
    assert not torch.equal(first, start(1))
    assert first.abs().max() <= 0.2
    assert first.min() < -0.15
    assert first.max() > 0.15


def test_clipped_rows_stay_in_the_domain(models: list[nn.Module], rows: tuple[Tensor, Tensor]) -> None:
    low, high = rows[0].min().item(), rows[0].max().item()
    assert fgsm(0.5)(models[0], *rows).x.min() < low
    limits = Constraints.of(3, lower=low, upper=high)
    for attack in (fgsm(0.5), pgd(0.5)):
        attacked = attack(models[0], *rows, constraints=limits).x
        assert attacked.min() >= low
        assert attacked.max() <= high


def test_each_model_of_a_population_is_attacked_as_if_alone(
    models: list[nn.Module], rows: tuple[Tensor, Tensor]
) -> None:
    x, y = rows[0].expand(3, -1, -1), rows[1].expand(3, -1)
    for attack in (fgsm(0.3), pgd(0.3), pgd(0.3, random_start=False)):
        together = attack(Population(models), x, y).x
        for i, model in enumerate(models):
            assert torch.allclose(together[i], attack(model, *rows).x, atol=1e-10)
        assert not torch.allclose(together[0], together[1])


@pytest.mark.parametrize("attack", ["fgsm", "pgd"])
def test_robust_accuracy_starts_at_clean_accuracy_and_falls_with_epsilon(
    models: list[nn.Module], rows: tuple[Tensor, Tensor], attack: str
) -> None:
    found = robust_accuracy(Population(models), *rows, epsilons=[0.0, 0.1, 0.3, 0.6], attack=attack)
    with torch.no_grad():
        clean = [accuracy(model(rows[0]), rows[1]).item() for model in models]
    assert found.shape == (3, 4)
    assert found[:, 0].tolist() == clean
    assert (found[:, 1:] <= found[:, :-1] + 1e-9).all()
    assert (found[:, -1] < found[:, 0] - 0.1).all()


def test_robust_accuracy_of_a_population_is_that_of_each_model(
    models: list[nn.Module], rows: tuple[Tensor, Tensor]
) -> None:
    together = robust_accuracy(Population(models), *rows, epsilons=[0.1, 0.4])
    alone = torch.cat([robust_accuracy(model, *rows, epsilons=[0.1, 0.4]) for model in models])
    assert torch.equal(together, alone)


def test_many_small_steps_find_a_higher_loss_than_one_large_step(
    models: list[nn.Module], rows: tuple[Tensor, Tensor]
) -> None:
    x, y = rows
    one, many = fgsm(0.5)(models[0], x, y).x, pgd(0.5, step_size=0.05, random_start=False)(models[0], x, y).x
    with torch.no_grad():
        none, one, many = (cross_entropy(models[0](rows), y).mean() for rows in (x, one, many))
    assert none < one < many


def test_the_model_keeps_its_mode_its_weights_and_its_gradients(rows: tuple[Tensor, Tensor]) -> None:
    model = nn.Sequential(mlp(3, 8).double(), nn.Dropout(0.5), nn.Linear(8, 3, dtype=torch.float64))
    model[1].eval()
    modes = [layer.training for layer in model.modules()]
    before = [p.detach().clone() for p in model.parameters()]
    fgsm(0.1)(model, *rows)
    pgd(0.1, n_steps=2)(model, *rows)
    robust_accuracy(model, *rows, epsilons=[0.1])
    assert [layer.training for layer in model.modules()] == modes
    assert True in modes
    assert False in modes
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))


def test_dropout_is_off_during_an_attack(rows: tuple[Tensor, Tensor]) -> None:
    model = nn.Sequential(mlp(3, 8).double(), nn.Dropout(0.5), nn.Linear(8, 3, dtype=torch.float64)).train()
    assert not torch.equal(model(rows[0]), model(rows[0]))
    assert torch.equal(fgsm(0.1)(model, *rows).x, fgsm(0.1)(model, *rows).x)


def test_an_unknown_attack_is_refused(models: list[nn.Module], rows: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(ValueError) as error:
        robust_accuracy(models[0], *rows, epsilons=[0.1], attack="cw")
    assert str(error.value) == "attack must be 'fgsm' or 'pgd'; got 'cw'"


def test_rows_attacked_in_parts_are_attacked_as_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = mlp(2, 2, seed=1), torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    whole = robust_accuracy(model, x, y, epsilons=[0.0, 0.3])
    monkeypatch.setattr(robustness, "_BUDGET", 14)
    assert torch.equal(robust_accuracy(model, x, y, epsilons=[0.0, 0.3]), whole)
    assert whole[0, 0] != whole[0, 1]
