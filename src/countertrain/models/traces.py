"""One pass of models over rows, kept for its derivatives: written out for chains, by autograd for anything else.

A small network is overhead, not arithmetic: what autograd notes down on the way costs more than the products. A chain
of linear layers and activations knows its own derivatives.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn

from countertrain.models.architectures import Pieces
from countertrain.models.kernels import as_array, multiply_rows_last, runs_in_numpy
from countertrain.models.piece_table import PieceTable, looks_up

__all__ = ["ACTIVATIONS", "Chain", "ChainTrace", "Lasting", "Trace", "Tracer", "find_chain", "is_hooked", "run_chain"]

aten = torch.ops.aten
Link = nn.Module | tuple[str, str | None]
"""A layer: an activation, Pieces, or the names of weight and bias of a linear layer."""
Chain = Sequence[Link]
Numbers = Any
"""A tensor, or an array in its memory, features or units before rows: (P, D, n)."""
PullBack = Callable[[Any, Tensor, Tensor, Tensor], Tensor]
"""An activation, the derivative by its output, its input and its output -> the derivative by its input."""

_SMALL = 2**15  # numbers of a layer up to which numpy's calls take less than torch's
_ONE_THREAD = (
    2**18
)  # multiplications of a product up to which numpy's BLAS has no threads, of which torch knows nothing
_MANY_ROWS = 256  # from which a table of pieces pays for being made
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

    @property
    def rows_last(self) -> Tensor:
        """The logits, (P, K, n)."""
        ...

    def by_rows(self, by_logits: Tensor, /) -> Tensor:
        """The derivative by the rows, (P, n, *shape), of what has the derivative (P, K, n) by the logits."""
        ...


class Lasting(Trace, Protocol):
    """One that can be made again over other rows, in the same memory; what it said before is then lost."""

    def look(self, x: Tensor, /) -> Self:
        """The same pass over other rows, as many as before."""
        ...


class Tracer:
    """Passes of the same models over rows, ready for derivatives by the rows.

    A pass may take the memory of the one before it, over as many rows; what that one said is then lost.
    """

    def __init__(self, model: Callable[[Tensor], Tensor]) -> None:
        self._model = model
        self._write_out: Callable[[Tensor], Lasting | None] | None = getattr(model, "trace", None)
        self._before: Lasting | None = None
        self._shape: torch.Size | None = None

    def __call__(self, x: Tensor) -> Trace:
        """A pass over rows x (P, n, *shape)."""
        if self._before is not None and x.shape == self._shape:
            return self._before.look(x)
        seen = None if self._write_out is None else self._write_out(x)
        if seen is None:
            return _Taped(self._model, x)
        self._before, self._shape = seen, x.shape
        return seen


class _Taped:
    """A pass that autograd has noted down."""

    def __init__(self, model: Callable[[Tensor], Tensor], x: Tensor) -> None:
        with torch.enable_grad():
            self._x = x.detach().requires_grad_()
            self._logits = model(self._x).transpose(1, 2)
        self.rows_last = self._logits.detach()

    def by_rows(self, by_logits: Tensor) -> Tensor:
        again = not torch.compiler.is_compiling()  # may be asked again; compiled code makes one graph of it all
        (grad,) = torch.autograd.grad(self._logits, self._x, by_logits, retain_graph=again)
        return grad


class ChainTrace:
    """A pass through a chain of layers of P models, rows last in memory: (P, out, in) @ (P, in, n).

    So there is no copy and no narrow matrix product. `look` makes the pass again over other rows in the same memory:
    whatever was handed out before is then overwritten, derivatives too. Few rows go through numpy, in torch's memory:
    its calls take less, and compute the same. What is not finite is found elsewhere: callers keep numpy quiet.
    """

    def __init__(self, chain: Chain, parameters: Mapping[str, Tensor], size: int, x: Tensor, *, learning: bool) -> None:
        weights, n = [parameters[layer[0]] for layer in chain if isinstance(layer, tuple)], x.shape[1]
        self._small = runs_in_numpy(x) and all(
            size * weight.shape[-2] * n <= _SMALL and weight.shape[-2:].numel() * n <= _ONE_THREAD for weight in weights
        )
        self._stations: list[_Station] = []
        if not (learning or self._small) and size * n >= _MANY_ROWS and looks_up(x):
            self._stations += _look_up_pieces(chain, parameters, size)
        for layer in chain[2 * len(self._stations) :]:
            self._stations.append(self._build(layer, parameters, size))
        first = next((i for i, station in enumerate(self._stations) if station.learns), len(self._stations))
        self._learning = self._stations[first:][::-1]  # before these, nothing is learnt
        self._trained = [name for name, parameter in parameters.items() if parameter.requires_grad]
        self._slopes: list[Tensor] = []
        self._x: Tensor | None = None
        self._last: Numbers = None
        self.look(x)

    def look(self, x: Tensor) -> Self:
        """The same pass over other rows, as many as before."""
        if x is not self._x:
            self._x, self._first_given = x, self.take(x.transpose(-1, -2))  # (P, D, n)
        self.run(self._first_given)
        return self

    def run(self, h: Numbers) -> Numbers:
        """The logits (P, K, n) of rows that lie as `take` gives them, (P, D, n)."""
        for station in self._stations:
            h = station.run(h)
        if h is not self._last:
            self._last, self.rows_last = h, self._give(h)
        return h

    def by_rows(self, by_logits: Tensor) -> Tensor:
        """The derivative by the rows, (P, n, D)."""
        return self._give(self.pull_back(self.take(by_logits))).transpose(-1, -2)

    def pull_back(self, g: Numbers) -> Numbers:
        """The derivative by the rows, (P, D, n), of what has the derivative g (P, K, n) by the logits."""
        for station in reversed(self._stations):
            g = station.pull_back(g)
        return g

    def learn(self, g: Numbers) -> Sequence[Tensor]:
        """The derivatives by all trainable parameters, in their order and shapes, always in the same memory."""
        last = self._learning[-1] if self._learning else None
        for station in self._learning:
            if station.learns:
                station.learn(g)
            if station is not last:
                g = station.pull_back(g)
        if not self._slopes:
            known = {name: slope for station in self._learning for name, slope in station.slopes.items()}
            self._slopes = [known[name] for name in self._trained]
        return self._slopes

    def by_parameters(self, by_logits: Tensor) -> dict[str, Tensor]:
        """The same by name, of what has the derivative `by_logits` (P, K, n) by the logits."""
        return dict(zip(self._trained, self.learn(self.take(by_logits)), strict=True))

    def _build(self, layer: Link, parameters: Mapping[str, Tensor], size: int) -> "_Station":
        """The place at which a layer of the chain works, behind those that are there already."""
        if isinstance(layer, tuple):
            return _Linear(layer, parameters, size, small=self._small)
        if type(layer) is nn.ReLU and self._stations and isinstance(self._stations[-1], _Linear):
            return _SmallRectifier() if self._small else _Rectifier()
        return _Layer(layer, self.take, self._give)

    def take(self, x: Tensor) -> Numbers:
        """Numbers as the layers work on them, where they lie."""
        return as_array(x) if self._small else x

    def _give(self, x: Numbers) -> Tensor:
        return torch.from_numpy(x) if self._small else x


class _Linear:
    """A linear layer of P models at work, in memory that is used again."""

    def __init__(
        self, names: tuple[str, str | None], parameters: Mapping[str, Tensor], size: int, *, small: bool
    ) -> None:
        weight, bias = (None if name is None else parameters[name].detach() for name in names)
        assert weight is not None
        self._by: Any = np if small else torch  # whose calls are made: they have the same names
        self._add_up: Any = np.add.reduce if small else torch.sum
        weight = weight.view(size, *weight.shape[-2:])  # (P, out, in)
        bias = None if bias is None else bias.view(size, -1, 1)  # (P, out, 1)
        pieces = (weight, weight.transpose(1, 2), bias)
        self._weight, self._back, self._bias = (as_array(p) if small and p is not None else p for p in pieces)
        self._learnt = [
            (name, parameters[name].shape) if name is not None and parameters[name].requires_grad else None
            for name in names
        ]
        self.learns = any(self._learnt)
        self._turned: Numbers = None
        self._out: Numbers = None
        self._by_input: Numbers = None
        self._by_weight: Numbers = None
        self._by_bias: Numbers = None
        self.slopes: dict[str, Tensor] = {}

    def run(self, h: Numbers) -> Numbers:
        self._given = h
        self._out = self._by.matmul(self._weight, h, out=self._out)
        return self._out if self._bias is None else self._by.add(self._out, self._bias, out=self._out)

    def learn(self, g: Numbers) -> None:
        """The derivatives by weight and bias, as far as they are trained."""
        weight, bias = self._learnt
        if weight is not None:
            if self._given is not self._turned:
                self._turned, self._by_row = self._given, self._given.swapaxes(1, 2)
            self._by_weight = self._by.matmul(g, self._by_row, out=self._by_weight)
        if bias is not None:
            self._by_bias = self._add_up(g, -1, out=self._by_bias)
        if not self.slopes:
            both = zip(self._learnt, (self._by_weight, self._by_bias), strict=True)
            self.slopes = {known[0]: torch.as_tensor(slope).view(known[1]) for known, slope in both if known}

    def pull_back(self, g: Numbers) -> Numbers:
        self._by_input = self._by.matmul(self._back, g, out=self._by_input)
        return self._by_input


class _Rectifier:
    """ReLU behind a linear layer, in whose memory it works."""

    learns = False
    slopes: Mapping[str, Tensor] = {}

    def learn(self, g: Numbers) -> None: ...

    def __init__(self) -> None:
        self._by_input: Numbers = None

    def run(self, h: Numbers) -> Numbers:
        self._out = h.relu_()
        return self._out

    def pull_back(self, g: Numbers) -> Numbers:
        if self._by_input is None:
            self._by_input = torch.empty_like(self._out)
        aten.threshold_backward.grad_input(g, self._out, 0, grad_input=self._by_input)
        return self._by_input


class _SmallRectifier(_Rectifier):
    """The same in numpy."""

    def __init__(self) -> None:
        super().__init__()
        self._zeros: Numbers = None

    def run(self, h: Numbers) -> Numbers:
        if self._zeros is None:  # a row of zeros, as with a number alone numpy takes three times as long
            self._zeros = np.zeros_like(h[:, :1])
        self._out = np.maximum(h, self._zeros, out=h)
        return self._out

    def pull_back(self, g: Numbers) -> Numbers:
        if self._by_input is None:
            self._by_input, self._active = np.empty_like(self._out), np.empty(self._out.shape, bool)
        return np.multiply(g, np.greater(self._out, 0.0, out=self._active), out=self._by_input)


class _Layer:
    """An activation, or `Pieces`, by torch."""

    learns = False
    slopes: Mapping[str, Tensor] = {}

    def learn(self, g: Numbers) -> None: ...

    def __init__(self, layer: nn.Module, take: Callable[[Tensor], Numbers], give: Callable[[Numbers], Tensor]) -> None:
        self._layer, self._take, self._give = layer, take, give

    def run(self, h: Numbers) -> Numbers:
        self._given = self._give(h)
        if isinstance(self._layer, Pieces):
            with torch.no_grad():  # then it writes in place
                self._out = self._layer.rows_last(self._given)
        else:
            self._out = self._layer(self._given)
        return self._take(self._out)

    def pull_back(self, g: Numbers) -> Numbers:
        if isinstance(self._layer, Pieces):
            return self._take(self._layer.pull_back(self._give(g), self._given))
        return self._take(ACTIVATIONS[type(self._layer)](self._layer, self._give(g), self._given, self._out))


_Station = _Linear | _Rectifier | _Layer | PieceTable


def _look_up_pieces(chain: Chain, parameters: Mapping[str, Tensor], size: int) -> list[_Station]:
    """The first two layers as one, where they are `Pieces` and a linear layer."""
    first, second = (*chain, None, None)[:2]
    if not isinstance(first, Pieces) or not isinstance(second, tuple):
        return []
    weight, bias = (None if name is None else parameters[name].detach() for name in second)
    assert weight is not None
    weight = weight.view(size, *weight.shape[-2:])
    return [PieceTable(first, weight, None if bias is None else bias.view(size, -1, 1))]


def run_chain(chain: Chain, parameters: Mapping[str, Tensor], size: int, x: Tensor) -> Tensor:
    """Logits (P, n, K) of rows x (P, n, D), for autograd to note down and compilers to look through."""
    h = x.transpose(-1, -2)  # (P, D, n)
    for layer in chain:
        if isinstance(layer, Pieces):
            h = layer.rows_last(h)
        elif isinstance(layer, nn.Module):
            h = layer(h)
        else:
            weight, bias = (None if name is None else parameters[name] for name in layer)
            assert weight is not None
            weight = weight.unsqueeze(0) if weight.ndim == 2 else weight
            h = multiply_rows_last(weight, None if bias is None else bias.view(size, -1, 1), h)
    return h.transpose(-1, -2)


def find_chain(module: nn.Module) -> Chain | None:
    """The module as a chain of linear layers, activations and Pieces, if it is one."""
    chain: list[Link] = []

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
