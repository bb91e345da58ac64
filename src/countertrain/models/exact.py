"""A trained model in float64, on which all decisions rest."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from countertrain.models.architectures import Ensemble, Pieces
from countertrain.models.population import Population

__all__ = ["Exact"]

_AT_ONCE = 1024  # rows decided on together: what a layer makes of them stays in the cache

Step = Callable[[Tensor], Tensor]
"""A layer of P models: (w, n), where all see the same, or (P, w, n) -> (P, w', n)."""


class Exact:
    """A model as it stands, in float64 and evaluation mode: (n, D) rows -> (n, K) logits.

    No row is decided otherwise because of the rows beside it. Chains of layers, and ensembles of them, run with rows last
    and their first layers as one; what else there is, as it is.
    """

    def __init__(self, model: nn.Module) -> None:
        members = [*model.models] if type(model) is Ensemble else [model]
        chain = _list_steps(members)
        self._run = _call_plainly(model) if chain is None else _call_chain(chain, joined=type(model) is Ensemble)
        self._modes = Population([model])

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Logits (n, K) of rows x (n, D)."""
        with self._modes.evaluating():
            return torch.cat([self._run(part.double()) for part in x.split(_AT_ONCE)])


def _call_plainly(model: nn.Module) -> Step:
    """The module itself, with its tensors in float64."""
    tensors = dict((*model.named_parameters(), *model.named_buffers()))
    exact = {name: t.double() if t.is_floating_point() else t for name, t in tensors.items()}
    return lambda x: functional_call(model, exact, (x,))  # type: ignore[no-any-return]  # a module returns Any


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


def _list_steps(models: Sequence[nn.Module]) -> list[Step] | None:
    """The layers of models that are chains of one architecture, all models at once; None for any others."""
    if len({str(model) for model in models}) > 1 or not all(Population([model]).rows_last for model in models):
        return None
    steps: list[Step] = []
    for layers in zip(*map(_list_layers, models), strict=True):
        first = layers[0]
        if isinstance(first, nn.Linear):
            steps.append(_multiply(layers))
        else:
            steps.append(_spread(first) if isinstance(first, Pieces) else first)
    return steps


def _list_layers(model: nn.Module) -> list[nn.Module]:
    """The layers of a chain, in order; one that stands twice is there twice."""
    every = model.named_modules(remove_duplicate=False)
    return [layer for _, layer in every if not any(True for _ in layer.children())]


def _multiply(layers: Sequence[nn.Module]) -> Step:
    """A linear layer of each model; one product for all where they see the same rows."""
    size = len(layers)
    weight = torch.stack([layer.weight.detach().double() for layer in layers])  # (P, out, in)
    bias = torch.zeros_like(weight[:, :, :1])  # (P, out, 1)
    if layers[0].bias is not None:
        bias = torch.stack([layer.bias.detach().double() for layer in layers]).unsqueeze(-1)

    def run(h: Tensor) -> Tensor:
        if h.ndim == 2:
            return torch.addmm(bias.flatten(0, 1), weight.flatten(0, 1), h).unflatten(0, (size, -1))
        return torch.baddbmm(bias, weight, h)

    return run


def _spread(layer: Pieces) -> Step:
    """What `Pieces` make of rows, written at once to where the next layer reads it."""
    slope, shift = layer.slope.double(), layer.shift.double()  # (T, 1)
    n_pieces = (len(layer.numbers), len(slope))

    def run(h: Tensor) -> Tensor:
        out = h.new_empty(*h.shape[:-2], layer.n_outputs, h.shape[-1])
        out[..., : layer.n_features, :] = h
        pieces = out[..., layer.n_features :, :].unflatten(-2, n_pieces)  # (..., R, T, n)
        torch.addcmul(shift, h[..., layer.numbers, :].unsqueeze(-2), slope, out=pieces).clamp_(0, 1)
        return out

    return run
