"""The architectures of the paper, each mapping (n, D) rows to (n, K) logits."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

__all__ = ["Ensemble", "Initialisation", "lenet", "linear", "mlp"]

Initialisation = Literal["glorot", "torch"]


def linear(n_features: int, n_classes: int, *, seed: int = 0, init: Initialisation = "glorot") -> nn.Module:
    """Multinomial logistic regression."""
    return mlp(n_features, n_classes, hidden=(), seed=seed, init=init)


def mlp(
    n_features: int,
    n_classes: int,
    *,
    hidden: Sequence[int] = (32,),
    activation: Callable[[], nn.Module] = nn.ReLU,
    seed: int = 0,
    init: Initialisation = "glorot",
) -> nn.Module:
    """Multilayer perceptron; one hidden layer of 32 units is the model of the paper's tables."""
    layers: list[nn.Module] = []
    for width, following in pairwise((n_features, *hidden)):
        layers += [_blank(nn.Linear, width, following), activation()]
    layers.append(_blank(nn.Linear, hidden[-1] if hidden else n_features, n_classes))
    return _initialised(nn.Sequential(*layers), seed, init)


def lenet(n_features: int, n_classes: int, *, seed: int = 0, init: Initialisation = "glorot") -> nn.Module:
    """LeNet for square grey images that arrive as flat rows, e.g. 784 pixels for MNIST."""
    side = round(n_features**0.5)
    if side * side != n_features or side % 4:
        raise ValueError(
            f"lenet needs square images with a side divisible by 4, e.g. 784 = 28 x 28 pixels; got {n_features} "
            "features; use mlp for other rows"
        )
    network = nn.Sequential(
        nn.Unflatten(-1, (1, side, side)),
        _blank(nn.Conv2d, 1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        _blank(nn.Conv2d, 6, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(-3),
        _blank(nn.Linear, n_features, 120),
        nn.ReLU(),
        _blank(nn.Linear, 120, 84),
        nn.ReLU(),
        _blank(nn.Linear, 84, n_classes),
    )
    return _initialised(network, seed, init)


class Ensemble(nn.Module):
    """Several models as one, whose probabilities are the mean of theirs; its logits are the logarithm of that mean."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    def forward(self, x: Tensor) -> Tensor:
        """(n, D) rows -> (n, K) logits."""
        log_p = torch.stack([model(x).log_softmax(-1) for model in self.models])  # (P, n, K)
        return log_p.logsumexp(0) - math.log(len(self.models))


def _blank(layer: Callable[..., nn.Module], *args: int, **kwargs: int) -> nn.Module:
    """A layer with memory but no values, so that building one draws nothing from the global stream."""
    return nn.utils.skip_init(layer, *args, **kwargs)  # type: ignore[no-any-return]


def _initialised(network: nn.Module, seed: int, init: Initialisation) -> nn.Module:
    """Glorot-uniform weights and zero biases, or torch's own defaults, from a stream of its own."""
    if init not in ("glorot", "torch"):
        raise ValueError(f"init must be 'glorot' or 'torch'; got {init!r}")
    stream = torch.Generator().manual_seed(seed)
    for layer in network.modules():
        if not isinstance(layer, nn.Linear | nn.Conv2d):
            continue
        if init == "glorot":
            nn.init.xavier_uniform_(layer.weight, generator=stream)
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]  # all layers here have a bias
        else:
            bound = layer.weight[0].numel() ** -0.5
            nn.init.uniform_(layer.weight, -bound, bound, generator=stream)
            nn.init.uniform_(layer.bias, -bound, bound, generator=stream)  # type: ignore[arg-type]
    return network
