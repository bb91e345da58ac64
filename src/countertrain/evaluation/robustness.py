"""Accuracy under attack: FGSM and PGD in the sup-norm, for one model or a population."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from countertrain.models.population import Population, as_population
from countertrain.search.losses import cross_entropy, predict

__all__ = ["fgsm", "pgd", "robust_accuracy"]

_BUDGET = 2**23  # numbers in one tensor of attacked rows: 32 MB of float32


def fgsm(
    model: nn.Module | Population, x: Tensor, y: Tensor, *, epsilon: float, clip: tuple[float, float] | None = None
) -> Tensor:
    """Fast gradient sign method: one step of size epsilon up the loss.

    Rows (n, *shape) with classes (n,), or (P, n, *shape) with (P, n) for a population.
    """
    return _attack(model, x, y, x, epsilon=epsilon, step_size=epsilon, n_steps=1, clip=clip)


def pgd(
    model: nn.Module | Population,
    x: Tensor,
    y: Tensor,
    *,
    epsilon: float,
    step_size: float = 0.01,
    n_steps: int = 40,
    stream: torch.Generator | None = None,
    clip: tuple[float, float] | None = None,
) -> Tensor:
    """Projected gradient descent: signed steps inside the epsilon-ball, from a random start if a `stream` is given."""
    start = x
    if stream is not None:
        start = x + epsilon * (2 * torch.rand(x.shape, generator=stream, dtype=x.dtype).to(x.device) - 1)
    return _attack(model, x, y, start, epsilon=epsilon, step_size=step_size, n_steps=n_steps, clip=clip)


def robust_accuracy(
    model: nn.Module | Population,
    x: Tensor,
    y: Tensor,
    *,
    epsilons: Sequence[float],
    attack: str = "fgsm",
    seed: int = 0,
    clip: tuple[float, float] | None = None,
) -> Tensor:
    """Accuracy of each model on attacked rows x (n, *shape), for each epsilon: (P, len(epsilons))."""
    if attack not in ("fgsm", "pgd"):
        raise ValueError(f"attack must be 'fgsm' or 'pgd'; got {attack!r}")
    population = as_population(model)
    size = len(population)
    part = max(1, _BUDGET // (size * x[0].numel()))
    results = []
    for epsilon in epsilons:
        stream = torch.Generator().manual_seed(seed)
        correct = torch.zeros(size, dtype=torch.float64, device=x.device)
        for some, wanted in zip(x.split(part), y.split(part), strict=True):
            rows, labels = some.expand(size, *some.shape), wanted.expand(size, -1)
            if attack == "fgsm":
                attacked = fgsm(model, rows, labels, epsilon=epsilon, clip=clip)
            else:
                attacked = pgd(model, rows, labels, epsilon=epsilon, stream=stream, clip=clip)
            with torch.no_grad(), population.evaluating():
                correct += (predict(population(attacked)) == labels).sum(-1)
        results.append(correct / len(x))
    return torch.stack(results, dim=-1)


def _attack(
    model: nn.Module | Population,
    x: Tensor,
    y: Tensor,
    start: Tensor,
    *,
    epsilon: float,
    step_size: float,
    n_steps: int,
    clip: tuple[float, float] | None,
) -> Tensor:
    if y.ndim not in (1, 2) or x.shape[: y.ndim] != y.shape:
        raise ValueError(
            "an attack takes rows (n, *shape) with their classes (n,), or (P, n, *shape) with (P, n) for a population; "
            f"got {tuple(x.shape)} with {tuple(y.shape)}"
        )
    population = as_population(model)
    origin, current, labels = (values if y.ndim == 2 else values.unsqueeze(0) for values in (x, start, y))
    with population.evaluating():
        for _ in range(n_steps):
            leaf = current.detach().requires_grad_()
            with torch.enable_grad():
                (grad,) = torch.autograd.grad(cross_entropy(population(leaf), labels).sum(), leaf)
            current = current + step_size * grad.sign()
            current = torch.minimum(torch.maximum(current, origin - epsilon), origin + epsilon)
            if clip is not None:
                current = current.clamp(*clip)
    return current.detach().reshape(x.shape)
