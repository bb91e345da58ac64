"""Integrated gradients: how sensitive a model is to its protected features."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from countertrain.models.population import Population

__all__ = ["integrated_gradients", "relu_network_gradients", "sensitivity", "standardise"]


def integrated_gradients(model: nn.Module, x: Tensor, y: Tensor, baseline: Tensor, *, n_steps: int = 50) -> Tensor:
    """Contribution of each feature to the logit of class y, from `baseline` (*shape) to x (n, *shape), with captum."""
    from captum.attr import IntegratedGradients

    with Population([model]).evaluating():
        attributed: Tensor = IntegratedGradients(model).attribute(
            x, baselines=baseline.expand_as(x), target=y, n_steps=n_steps, internal_batch_size=max(len(x), 10_000)
        )
    return attributed.detach()


def relu_network_gradients(model: nn.Module, x: Tensor, y: Tensor, baseline: Tensor) -> Tensor | None:
    """Integrated gradients of a linear model, or of a network with one hidden layer of ReLUs, in closed form.

    Along the straight way from baseline to x each hidden unit is active on one stretch, whose share of the way is known
    exactly: no steps, no error. (n, D) -> (n, D); None for any other module.
    """
    layers = list(model.children()) if type(model) is nn.Sequential else []
    kinds = [type(layer) for layer in layers]
    with torch.no_grad():
        if kinds == [nn.Linear]:
            return (x - baseline) * layers[0].weight[y]  # type: ignore[index]
        if kinds != [nn.Linear, nn.ReLU, nn.Linear]:
            return None
        hidden, out = layers[0], layers[2]
        start, end = hidden(baseline), hidden(x)  # (H,), (n, H)
        up = end - start
        crossing = (-start / torch.where(up == 0, 1, up)).clamp(0, 1)
        active = torch.where(up > 0, 1 - crossing, torch.where(up < 0, crossing, (start > 0).to(x.dtype)))  # (n, H)
        return (x - baseline) * ((active * out.weight[y]) @ hidden.weight)  # type: ignore[index, operator]


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
    """Standardised attribution of the protected features in each round, (rounds,), of rows (n, *shape).

    Features are numbered as in a flattened row. A round draws `rows` rows with replacement and one baseline from
    U(-1, 1), attributes towards the true label and averages over rows.
    """
    stream = torch.Generator().manual_seed(seed)
    results = []
    for _ in range(rounds):
        drawn = torch.randint(len(x), (rows,), generator=stream).to(x.device)
        baseline = (2 * torch.rand(x.shape[1:], generator=stream, dtype=x.dtype) - 1).to(x.device)
        attributed = relu_network_gradients(model, x[drawn], y[drawn], baseline)
        if attributed is None:
            attributed = integrated_gradients(model, x[drawn], y[drawn], baseline, n_steps=n_steps)
        g = attributed.mean(0).flatten()  # (D,)
        results.append(standardise(g)[list(protected)].mean())
    return torch.stack(results)
