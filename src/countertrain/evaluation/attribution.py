"""Integrated gradients: how sensitive a model is to its protected features."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from countertrain.population import Population

__all__ = ["integrated_gradients", "sensitivity", "standardise"]


def integrated_gradients(model: nn.Module, x: Tensor, y: Tensor, baseline: Tensor, *, n_steps: int = 50) -> Tensor:
    """Contribution of each feature to the logit of class y, from `baseline` to x: (n, D) -> (n, D), with captum."""
    from captum.attr import IntegratedGradients

    with Population([model]).evaluating():
        attributed: Tensor = IntegratedGradients(model).attribute(
            x, baselines=baseline.expand_as(x), target=y, n_steps=n_steps, internal_batch_size=max(len(x), 10_000)
        )
    return attributed.detach()


def standardise(mean_attribution: Tensor) -> Tensor:
    """The paper's scale for a mean attribution (..., D): by its range; for two features |g| / range."""
    low, high = mean_attribution.amin(-1, keepdim=True), mean_attribution.amax(-1, keepdim=True)
    if mean_attribution.shape[-1] == 2:
        return mean_attribution.abs() / (high - low)
    return (mean_attribution - low) / (high - low)


def sensitivity(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    protected: Sequence[int],
    *,
    rounds: int = 100,
    rows: int = 2500,
    n_steps: int = 50,
    seed: int = 0,
) -> Tensor:
    """Standardised attribution of the protected columns in each round, (rounds,).

    A round draws `rows` rows with replacement and one baseline from U(-1, 1), attributes towards the true label and
    averages over rows.
    """
    stream = torch.Generator().manual_seed(seed)
    results = []
    for _ in range(rounds):
        drawn = torch.randint(len(x), (rows,), generator=stream).to(x.device)
        baseline = (2 * torch.rand(x.shape[1], generator=stream, dtype=x.dtype) - 1).to(x.device)
        g = integrated_gradients(model, x[drawn], y[drawn], baseline, n_steps=n_steps).mean(0)  # (D,)
        results.append(standardise(g)[list(protected)].mean())
    return torch.stack(results)
