"""Rows of any shape are measured as the same rows flattened: images need no other evaluation than tables."""

from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from countertrain import Counterfactuals
from countertrain.evaluation import protocol as module
from countertrain.evaluation.attribution import integrated_gradients, sensitivity
from countertrain.evaluation.divergence import GroupedDivergence, mmd
from countertrain.evaluation.metrics import Implausibility, cost, sparsity
from countertrain.evaluation.protocol import EvaluationProtocol, evaluate
from countertrain.evaluation.robustness import fgsm, pgd, robust_accuracy
from countertrain.models.population import Population
from countertrain.search.generators import eccco

SHAPE = (1, 4, 3)
N_CLASSES = 3


def convolutional(seed: int) -> nn.Module:
    """A small network that takes images (n, 1, 4, 3) and nothing else."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Flatten(-3), nn.Linear(48, N_CLASSES)).double()


def flat(model: nn.Module) -> nn.Module:
    """The same network for flattened rows (n, 12)."""
    return nn.Sequential(nn.Unflatten(-1, SHAPE), model)


@pytest.fixture(scope="module")
def images() -> tuple[Tensor, Tensor]:
    y = torch.arange(90) % N_CLASSES
    noise = torch.randn(90, *SHAPE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return noise + y.view(-1, 1, 1, 1), y


@pytest.fixture(scope="module")
def models() -> list[nn.Module]:
    return [convolutional(seed) for seed in range(2)]


@pytest.fixture
def changed(images: tuple[Tensor, Tensor]) -> Tensor:
    """The images with some pixels changed."""
    noise = torch.randn(90, *SHAPE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return images[0] + noise.clamp(min=0)


def test_cost_and_sparsity_of_images_are_those_of_their_pixels(images: tuple[Tensor, Tensor], changed: Tensor) -> None:
    x, _ = images
    for metric in (cost, sparsity):
        wanted = metric(changed.flatten(1), x.flatten(1))
        assert wanted.shape == (90,)
        assert wanted.unique().numel() > 3
        assert torch.equal(metric(changed, x), wanted)
        stacked = (values.view(2, 45, *SHAPE) for values in (changed, x))
        assert torch.equal(metric(*stacked, start=2), wanted.view(2, 45))


def test_implausibility_of_images_is_that_of_their_pixels(images: tuple[Tensor, Tensor], changed: Tensor) -> None:
    x, y = images
    target = (y + 1) % N_CLASSES
    wanted = Implausibility.of(x.flatten(1), y, N_CLASSES)(changed.flatten(1), target)
    ip = Implausibility.of(x, y, N_CLASSES)
    assert torch.equal(ip(changed, target), wanted)
    assert torch.equal(ip(changed.view(2, 45, *SHAPE), target.view(2, 45)), wanted.view(2, 45))
    with pytest.raises(ValueError, match=r"rows must be of shape \(\*\(90,\), \*shape\), one for each target"):
        ip(changed[:5], target)


def test_divergence_of_images_is_that_of_their_pixels(images: tuple[Tensor, Tensor], changed: Tensor) -> None:
    x, y = images
    assert torch.equal(mmd(changed, x), mmd(changed.flatten(1), x.flatten(1)))
    label, target = y.view(2, 45), (y.view(2, 45) + 1) % N_CLASSES
    rows, valid = changed.view(1, 2, 45, *SHAPE), torch.ones(1, 2, 45, dtype=torch.bool)
    found = []
    for reference, counterfactuals in ((x, rows), (x.flatten(1), rows.flatten(3))):
        divergence = GroupedDivergence(reference, y, N_CLASSES, length_scale=1.5, n_rows=8)
        found.append(divergence(counterfactuals, label, target, valid, torch.Generator().manual_seed(0)))
    assert torch.equal(*found)
    assert (found[0] > 0).all()


@pytest.mark.parametrize("attack", [fgsm, pgd])
def test_attacks_on_images_are_those_on_their_pixels(
    attack: Callable[..., Tensor], images: tuple[Tensor, Tensor], models: list[nn.Module]
) -> None:
    x, y = images
    found = attack(models[0], x, y, epsilon=0.2)
    assert found.shape == x.shape
    assert torch.allclose(found.flatten(1), attack(flat(models[0]), x.flatten(1), y, epsilon=0.2))
    both = attack(Population(models), x.expand(2, *x.shape), y.expand(2, -1), epsilon=0.2)
    assert torch.allclose(both[0], found)
    assert not torch.allclose(both[1], found)
    with pytest.raises(ValueError, match=r"with \(P, n\) for a population; got \(90, 1, 4, 3\) with \(89,\)"):
        attack(models[0], x, y[1:], epsilon=0.2)


@pytest.mark.parametrize("attack", ["fgsm", "pgd"])
def test_robust_accuracy_on_images_is_that_on_their_pixels(
    attack: str, images: tuple[Tensor, Tensor], models: list[nn.Module]
) -> None:
    x, y = images
    epsilons = [0.0, 0.1, 0.4]
    found = robust_accuracy(Population(models), x, y, epsilons=epsilons, attack=attack)
    flattened = Population([flat(model) for model in models])
    assert torch.equal(found, robust_accuracy(flattened, x.flatten(1), y, epsilons=epsilons, attack=attack))
    assert found.unique().numel() > 3


def test_attributions_of_images_are_those_of_their_pixels(
    images: tuple[Tensor, Tensor], models: list[nn.Module]
) -> None:
    x, y = images
    baseline = torch.full(SHAPE, 0.1, dtype=torch.float64)
    found = integrated_gradients(models[0], x, y, baseline)
    assert torch.allclose(found.flatten(1), integrated_gradients(flat(models[0]), x.flatten(1), y, baseline.flatten()))
    few = {"rounds": 2, "rows": 20, "n_steps": 10}
    wanted = sensitivity(flat(models[0]), x.flatten(1), y, [0, 7], **few)
    assert torch.allclose(sensitivity(models[0], x, y, [0, 7], **few), wanted)


@pytest.fixture
def searching_flat(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search of flattened rows behind one of images."""

    def flattening(**settings: object) -> object:
        generator = eccco(**settings)  # type: ignore[arg-type]

        def search(population: Population, x: Tensor, target: Tensor, **kwargs: object) -> Counterfactuals:
            shape = x.shape
            through = population if x.ndim == 3 else Population([flat(model) for model in population.modules])
            found = generator(through, x.flatten(2), target, **kwargs)  # type: ignore[arg-type]
            rows = {name: getattr(found, name).reshape(shape) for name in ("x", "factual", "nascent")}
            return replace(found, **rows)

        return search

    monkeypatch.setattr(module, "eccco", flattening)


@pytest.mark.usefixtures("searching_flat")
def test_evaluating_models_of_images_gives_the_records_of_their_pixels(
    images: tuple[Tensor, Tensor], models: list[nn.Module]
) -> None:
    x, y = images
    few = EvaluationProtocol(rounds=2, individuals=30, lambda_egy=(0.1, 1.0), n_steps=50, step_size=0.5)
    found = evaluate(models, x, y, n_classes=N_CLASSES, protocol=few)
    wanted = evaluate([flat(m) for m in models], x.flatten(1), y, n_classes=N_CLASSES, protocol=few)
    pd.testing.assert_frame_equal(found, wanted)
    assert (found["validity"] > 0).all()
    assert found["cost"].nunique() == len(found)
