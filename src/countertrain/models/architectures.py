"""Architectures: those of the paper and one for tables, each mapping (n, D) rows to (n, K) logits."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from countertrain.models.kernels import append_pieces
from countertrain.models.layers import blank

__all__ = ["Ensemble", "Initialisation", "Pieces", "lenet", "linear", "mlp", "piecewise"]

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
        layers += [blank(nn.Linear, width, following), activation()]
    layers.append(blank(nn.Linear, hidden[-1] if hidden else n_features, n_classes))
    return _initialised(nn.Sequential(*layers), seed, init)


class Pieces(nn.Module):
    """Numbers as they are, and beside each one how far it has come on each of T pieces of the line: 0 to 1.

    A network then bends where it must, as trees do, instead of everywhere a little. The pieces hold about equally many
    people where numbers are normal scores. Beyond the first and the last, the number itself still has a slope.
    """

    slope: Tensor  # (T, 1)
    shift: Tensor  # (T, 1)
    edges: Tensor  # (T + 1,)
    numbers: Tensor  # (R,) places of the numbers among the features

    def __init__(self, n_features: int, numbers: Sequence[int], n_pieces: int = 16) -> None:
        super().__init__()
        if n_pieces < 2:
            raise ValueError(f"n_pieces must be at least 2, one below and one above the middle; got {n_pieces}")
        self.n_features, self.n_pieces = n_features, n_pieces
        edges = torch.special.ndtri(torch.arange(1, n_pieces, dtype=torch.float64) / n_pieces)  # (T - 1,)
        edges = torch.cat([edges[:1] - 1, edges, edges[-1:] + 1])
        slope = (1 / edges.diff()).float().unsqueeze(-1)
        buffers = {"slope": slope, "shift": -edges[:-1].float().unsqueeze(-1) * slope, "edges": edges.float()}
        for name, tensor in {**buffers, "numbers": torch.tensor(list(numbers), dtype=torch.int64)}.items():
            self.register_buffer(name, tensor, persistent=False)

    @property
    def n_outputs(self) -> int:
        """Numbers per row that come out."""
        return self.n_features + len(self.numbers) * self.n_pieces

    def forward(self, x: Tensor) -> Tensor:
        """(n, D) rows -> (n, D + R T)."""
        return self.rows_last(x.mT).mT

    def rows_last(self, h: Tensor) -> Tensor:
        """The same for (..., D, n): (..., D + R T, n)."""
        return append_pieces(h, h[..., self.numbers, :], self.shift, self.slope)

    def pull_back(self, by_out: Tensor, h: Tensor) -> Tensor:
        """The derivative by h (..., D, n) of what has the derivative `by_out` by what came out (..., D + R T, n).

        A number moves on one piece only; at an edge on the one that begins there (autograd would add up both).
        """
        parts = by_out[..., self.n_features :, :].unflatten(-2, (len(self.numbers), self.n_pieces))  # (..., R, T, n)
        place = torch.bucketize(h[..., self.numbers, :], self.edges, right=True)  # (..., R, n), 0 and T + 1 outside
        by_piece = parts.gather(-2, (place - 1).clamp_(0, self.n_pieces - 1).unsqueeze(-2)).squeeze(-2)
        slope = functional.pad(self.slope.squeeze(-1), (1, 1))[place]
        return by_out[..., : self.n_features, :].index_add(-2, self.numbers, by_piece.mul_(slope))

    def extra_repr(self) -> str:
        """What makes it this one."""
        return f"{self.n_features}, {self.numbers.tolist()}, {self.n_pieces}"


def piecewise(
    n_features: int,
    n_classes: int,
    *,
    numbers: Sequence[int] | None = None,
    hidden: Sequence[int] = (128,),
    n_pieces: int = 16,
    seed: int = 0,
    init: Initialisation = "glorot",
) -> nn.Module:
    """Multilayer perceptron over piecewise-linear codes of the features at places `numbers`; all if left out."""
    pieces = Pieces(n_features, range(n_features) if numbers is None else numbers, n_pieces)
    network = mlp(pieces.n_outputs, n_classes, hidden=hidden, seed=seed, init=init)
    return nn.Sequential(pieces, *network.children())


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
        blank(nn.Conv2d, 1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        blank(nn.Conv2d, 6, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(-3),
        blank(nn.Linear, n_features, 120),
        nn.ReLU(),
        blank(nn.Linear, 120, 84),
        nn.ReLU(),
        blank(nn.Linear, 84, n_classes),
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
