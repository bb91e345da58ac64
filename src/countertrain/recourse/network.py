"""Networks of ReLUs that decide together, read as one chain of linear layers, so that bounds can be worked out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from countertrain.models.architectures import Ensemble, Pieces

__all__ = ["Codes", "Network"]

Layer = tuple[Tensor, Tensor]
"""Weights (out, in) and bias (out,), float64."""


@dataclass(frozen=True, eq=False)
class Codes:
    """The piecewise-linear codes that `Pieces` put beside the numbers of a row: clamp(shift + slope x, 0, 1)."""

    numbers: Tensor  # (R,) places of the numbers among the features
    slope: Tensor  # (T,)
    shift: Tensor  # (T,)

    @classmethod
    def of(cls, pieces: Pieces) -> Self:
        """Those of a layer, as it computes them in double precision."""
        return cls(pieces.numbers, pieces.slope.double().flatten(), pieces.shift.double().flatten())

    @property
    def knots(self) -> Tensor:
        """(J,), ascending: where a code begins or ends to rise; between two of them everything is linear."""
        return torch.cat([-self.shift / self.slope, (1 - self.shift) / self.slope]).sort().values

    def __call__(self, x: Tensor) -> Tensor:
        """The codes of numbers x (..., R): (..., R, T)."""
        return (self.shift + x.unsqueeze(-1) * self.slope).clamp(0, 1)


@dataclass(frozen=True, eq=False)
class Network:
    """P networks of one depth as one: codes of the numbers, then linear layers with ReLUs between, P K logits at last.

    What has no codes has R = 0 of them.
    """

    codes: Codes
    layers: tuple[Layer, ...]
    n_models: int
    n_classes: int

    @classmethod
    def of(cls, model: nn.Module) -> Self | None:
        """The network that a model is, or an ensemble of such; None where it holds anything else."""
        steps = list(_walk(model))
        members = [*steps[0].models] if len(steps) == 1 and isinstance(steps[0], Ensemble) else [model]
        read = [_read(member) for member in members]
        known = [one for one in read if one is not None]
        if len(known) < len(read) or len({(len(layers), _describe(codes)) for codes, layers in known}) > 1:
            return None
        first, *others = zip(*(layers for _, layers in known), strict=True)
        joined = [_stack(first, shared=True), *(_stack(layers) for layers in others)]
        n_logits = len(joined[-1][1])
        return cls(known[0][0], tuple(joined), len(known), n_logits // len(known))

    @property
    def first(self) -> tuple[Tensor, Tensor, Tensor]:
        """Weights of the first layer: of the features (h, D), of the codes (h, R, T); and its bias."""
        weight, bias = self.layers[0]
        shape = len(self.codes.numbers), len(self.codes.slope)
        n_features = weight.shape[1] - shape[0] * shape[1]
        return weight[:, :n_features], weight[:, n_features:].view(len(weight), *shape), bias

    @property
    def adds_up(self) -> bool:
        """Whether the decision is that of a sum of margins: of one model's, or of two models' with two classes.

        The mean of two probabilities is above 1/2 exactly if the sum of their log-odds is above 0.
        """
        return self.n_models == 1 or (self.n_models, self.n_classes) == (2, 2)

    def compare_with(self, target: int) -> Tensor:
        """(P, K - 1, P K): what makes of logits the margins of a class over each other one, in each model."""
        size = self.n_models * self.n_classes
        unit = torch.eye(size, dtype=torch.float64).view(self.n_models, self.n_classes, size)
        others = [k for k in range(self.n_classes) if k != target]
        return unit[:, [target]] - unit[:, others]


def _read(module: nn.Module) -> tuple[Codes, list[Layer]] | None:
    """The codes of a chain and its linear layers, between any two of which there is one ReLU."""
    steps = list(_walk(module))
    nothing = torch.empty(0, dtype=torch.float64)
    codes = Codes(torch.empty(0, dtype=torch.int64), nothing, nothing)
    if steps and isinstance(steps[0], Pieces):
        codes, steps = Codes.of(steps[0]), steps[1:]
    layers: list[Layer] = []
    bent = True  # whether a new layer begins: two linear ones in a row are one
    for step in steps:
        if type(step) is nn.Linear:
            mine = _exact(step)
            layers = [*layers, mine] if bent else [*layers[:-1], _merge(layers[-1], mine)]
            bent = False
        elif type(step) is nn.ReLU and not bent:
            bent = True
        else:
            return None
    return None if bent else (codes, layers)


def _walk(module: nn.Module) -> Iterator[nn.Module]:
    """The modules of a chain one after another; one with hooks may do anything, and is given as a bare module."""
    if module._forward_hooks or module._forward_pre_hooks:
        yield nn.Module()
    elif type(module) is nn.Sequential:
        for child in module.children():
            yield from _walk(child)
    elif type(module) not in (nn.Identity, nn.Dropout):  # decisions are made in evaluation mode
        yield module


def _exact(linear: nn.Linear) -> Layer:
    weight = linear.weight.detach().double()
    return weight, weight.new_zeros(len(weight)) if linear.bias is None else linear.bias.detach().double()


def _merge(first: Layer, second: Layer) -> Layer:
    return second[0] @ first[0], second[0] @ first[1] + second[1]


def _stack(layers: Sequence[Layer], *, shared: bool = False) -> Layer:
    """Layers side by side, of which each sees the same inputs, or its own."""
    weights, biases = zip(*layers, strict=True)
    return torch.cat(weights) if shared else torch.block_diag(*weights), torch.cat(biases)


def _describe(codes: Codes) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(part.tolist()) for part in (codes.numbers, codes.slope, codes.shift))
