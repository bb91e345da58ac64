"""A trained model as it stands, to ask it about many rows."""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from countertrain.models.architectures import Ensemble, Pieces
from countertrain.models.population import Population, full_precision

__all__ = ["Frozen"]

_AT_ONCE = 1024  # rows decided on together: what a layer makes of them stays in the cache

Step = Callable[[Tensor], Tensor]
"""A layer of P models: (w, n), where all see the same, or (P, w, n) -> (P, w', n)."""


class Frozen:
    """A model as it stands, in evaluation mode: (n, D) rows -> (n, K) logits.

    In float64, on which all decisions rest, no row is decided otherwise because of the rows beside it. Chains of
    layers, and ensembles of them, run with rows last and their first layers as one; any other module, as it is.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype = torch.float64) -> None:
        members = [*model.models] if isinstance(model, Ensemble) else [model]
        chain = _list_steps(members, dtype)
        joined = isinstance(model, Ensemble)
        self._dtype = dtype
        self._run = _call_plainly(model, dtype) if chain is None else _call_chain(chain, joined=joined)

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Logits (n, K) of rows x (n, D)."""
        with full_precision():
            if len(x) <= _AT_ONCE:
                return self._run(x.to(self._dtype))
            return torch.cat([self._run(part.to(self._dtype)) for part in x.split(_AT_ONCE)])


def _call_plainly(model: nn.Module, dtype: torch.dtype) -> Step:
    """The module itself in evaluation mode, with its tensors of that type."""
    tensors = dict((*model.named_parameters(), *model.named_buffers()))
    frozen = {name: t.to(dtype) if t.is_floating_point() else t for name, t in tensors.items()}
    modes = Population([model])

    def run(x: Tensor) -> Tensor:
        with modes.evaluating():
            return functional_call(model, frozen, (x,))  # type: ignore[no-any-return]  # a module returns Any

    return run


def _call_chain(steps: Sequence[Step], *, joined: bool) -> Step:
    """Layer after layer on rows that lie last; with `joined`, the logarithm of the mean of all probabilities."""

    def run(x: Tensor) -> Tensor:
        h = x.T.contiguous()  # (D, n)
        for step in steps:
            h = step(h)
        if joined:
            h = h.log_softmax(1).logsumexp(0, keepdim=True) - math.log(len(h))
        return h[0].T

    return run


def _list_steps(models: Sequence[nn.Module], dtype: torch.dtype) -> list[Step] | None:
    """The layers of models that are chains of one architecture, all models at once; None for any others."""
    if len({str(model) for model in models}) > 1 or not all(Population([model]).rows_last for model in models):
        return None
    steps: list[Step] = []
    for layers in zip(*map(_list_layers, models), strict=True):
        first = layers[0]
        if isinstance(first, nn.Linear):
            steps.append(_multiply(layers, dtype))
        else:
            steps.append(copy.deepcopy(first).to(dtype).rows_last if isinstance(first, Pieces) else first)
    return steps


def _list_layers(model: nn.Module) -> list[nn.Module]:
    """The layers of a chain, in order; one that stands twice is there twice."""
    every = model.named_modules(remove_duplicate=False)
    return [layer for _, layer in every if not any(True for _ in layer.children())]


def _multiply(layers: Sequence[Any], dtype: torch.dtype) -> Step:
    """A linear layer of each model; one product for all where they see the same rows."""
    weight = torch.stack([layer.weight.detach().to(dtype) for layer in layers])  # (P, out, in)
    bias: Tensor = torch.zeros_like(weight[:, :, :1])  # (P, out, 1)
    if layers[0].bias is not None:
        bias = torch.stack([layer.bias.detach().to(dtype) for layer in layers]).unsqueeze(-1)

    joined = bias.flatten(0, 1), weight.flatten(0, 1)

    def run(h: Tensor) -> Tensor:
        if h.ndim == 2:
            return torch.addmm(*joined, h).view(*weight.shape[:2], h.shape[1])
        return torch.baddbmm(bias, weight, h)

    return run
