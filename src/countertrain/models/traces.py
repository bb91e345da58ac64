"""One pass of models over rows, kept for its derivatives: written out for chains, by autograd for anything else.

A small network is overhead, not arithmetic: what autograd notes down on the way costs more than the products. A chain
of linear layers and activations knows its own derivatives.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from countertrain.models.architectures import Pieces
from countertrain.models.kernels import multiply_rows_last

__all__ = ["ACTIVATIONS", "Chain", "ChainTrace", "Trace", "find_chain", "is_hooked", "trace"]

aten = torch.ops.aten
Chain = Sequence[nn.Module | tuple[str, str | None]]
"""Layers: an activation, Pieces, or the names of weight and bias of a linear layer."""
PullBack = Callable[[Any, Tensor, Tensor, Tensor], Tensor]
"""An activation, the derivative by its output, its input and its output -> the derivative by its input."""

_SELU = 1.6732632423543772, 1.0507009873554805  # alpha and scale, as torch has them

ACTIVATIONS: Mapping[type[nn.Module], PullBack] = {
    nn.ReLU: lambda a, g, h, out: aten.threshold_backward(g, out, 0),
    nn.LeakyReLU: lambda a, g, h, out: aten.leaky_relu_backward(g, h, a.negative_slope, False),
    nn.ELU: lambda a, g, h, out: aten.elu_backward(g, a.alpha, 1, 1, False, h),
    nn.SELU: lambda a, g, h, out: aten.elu_backward(g, *_SELU, 1, False, h),
    nn.CELU: lambda a, g, h, out: aten.elu_backward(g, a.alpha, 1, 1 / a.alpha, False, h),
    nn.GELU: lambda a, g, h, out: aten.gelu_backward(g, h, approximate=a.approximate),
    nn.SiLU: lambda a, g, h, out: aten.silu_backward(g, h),
    nn.Mish: lambda a, g, h, out: aten.mish_backward(g, h),
    nn.Softplus: lambda a, g, h, out: aten.softplus_backward(g, h, a.beta, a.threshold),
    nn.Tanh: lambda a, g, h, out: aten.tanh_backward(g, out),
    nn.Sigmoid: lambda a, g, h, out: aten.sigmoid_backward(g, out),
    nn.Hardtanh: lambda a, g, h, out: aten.hardtanh_backward(g, h, a.min_val, a.max_val),
    nn.Identity: lambda a, g, h, out: g,
}
"""Element-wise activations, each with its derivative, by the kernels that autograd uses."""


class Trace(Protocol):
    """What models said of rows, and the derivatives of that."""

    logits: Tensor  # (P, n, K)

    def by_rows(self, by_logits: Tensor, /) -> Tensor:
        """The derivative by the rows, (P, n, *shape), of what has the derivative (P, K, n) by the logits."""
        ...


def trace(model: Callable[[Tensor], Tensor], x: Tensor) -> Trace:
    """A pass over rows x (P, n, *shape), ready for derivatives by the rows."""
    chain = getattr(model, "trace", None)
    seen: Trace | None = None if chain is None else chain(x)
    return _Taped(model, x) if seen is None else seen


class _Taped:
    """A pass that autograd has noted down."""

    def __init__(self, model: Callable[[Tensor], Tensor], x: Tensor) -> None:
        with torch.enable_grad():
            self._x = x.detach().requires_grad_()
            self._logits = model(self._x)
        self.logits = self._logits.detach()

    def by_rows(self, by_logits: Tensor) -> Tensor:
        (grad,) = torch.autograd.grad(self._logits, self._x, by_logits.transpose(1, 2))
        return grad


class ChainTrace:
    """A pass through a chain of layers of P models, rows last in memory: (P, out, in) @ (P, in, n).

    So there is no copy and no narrow matrix product.
    """

    def __init__(self, chain: Chain, parameters: Mapping[str, Tensor], size: int, x: Tensor) -> None:
        self._chain, self._parameters, self._size = chain, parameters, size
        h = x.transpose(-1, -2)  # (P, D, n)
        self._between = [h]  # what each layer was given, and last the logits
        for layer in chain:
            h = self._run(layer, h)
            self._between.append(h)
        self.logits = h.transpose(-1, -2)  # (P, n, K)

    @torch.no_grad()
    def by_rows(self, by_logits: Tensor) -> Tensor:
        """The derivative by the rows, (P, n, D)."""
        g = by_logits  # (P, out, n)
        for i in reversed(range(len(self._chain))):
            g = self._pull_back(i, g)
        return g.transpose(-1, -2)

    @torch.no_grad()
    def by_parameters(self, by_logits: Tensor) -> dict[str, Tensor]:
        """The derivatives by all trainable parameters, by name, each in the shape of its parameter."""
        slopes: dict[str, Tensor] = {}
        wanted = {name for name, parameter in self._parameters.items() if parameter.requires_grad}
        g = by_logits  # (P, out, n)
        for i in reversed(range(len(self._chain))):
            layer = self._chain[i]
            if isinstance(layer, tuple):
                weight, bias = layer
                if weight in wanted:
                    slopes[weight] = torch.bmm(g, self._between[i].transpose(1, 2))
                if bias is not None and bias in wanted:
                    slopes[bias] = g.sum(-1)
            if len(slopes) == len(wanted):
                break
            g = self._pull_back(i, g)
        return {name: slope.view(self._parameters[name].shape) for name, slope in slopes.items()}

    def _run(self, layer: nn.Module | tuple[str, str | None], h: Tensor) -> Tensor:
        if isinstance(layer, Pieces):
            return layer.rows_last(h)
        if isinstance(layer, nn.Module):
            return layer(h)  # type: ignore[no-any-return]  # a module returns Any
        bias = None if layer[1] is None else self._parameters[layer[1]].view(self._size, -1, 1)
        return multiply_rows_last(self._weight(layer), bias, h)

    def _pull_back(self, i: int, g: Tensor) -> Tensor:
        """The derivative by what layer i was given, of what has the derivative g by what it gave."""
        layer, h = self._chain[i], self._between[i]
        if isinstance(layer, tuple):
            return torch.bmm(self._weight(layer).transpose(1, 2), g)
        if isinstance(layer, Pieces):
            return layer.pull_back(g, h)
        return ACTIVATIONS[type(layer)](layer, g, h, self._between[i + 1])

    def _weight(self, layer: tuple[str, str | None]) -> Tensor:
        weight = self._parameters[layer[0]]
        return weight.unsqueeze(0) if weight.ndim == 2 else weight


def find_chain(module: nn.Module) -> Chain | None:
    """The module as a chain of linear layers, activations and Pieces, if it is one."""
    chain: list[nn.Module | tuple[str, str | None]] = []

    def visit(prefix: str, layer: nn.Module) -> bool:
        if is_hooked(layer):
            return False
        if type(layer) is nn.Sequential:
            return all(child is not None and visit(f"{prefix}{name}.", child) for name, child in layer._modules.items())
        if type(layer) is nn.Linear:
            chain.append((f"{prefix}weight", f"{prefix}bias" if layer.bias is not None else None))
            return True
        if type(layer) in ACTIVATIONS or type(layer) is Pieces:
            chain.append(layer)
            return True
        return False

    names = {name for name, _ in module.named_parameters()}
    if not visit("", module) or not names:
        return None
    used = [name for layer in chain if isinstance(layer, tuple) for name in layer if name]
    return chain if set(used) == names and len(used) == len(names) else None  # tied weights: a plain call


def is_hooked(layer: nn.Module) -> bool:
    """Whether somebody else looks at every call of the layer."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(hooks)
