"""Many models of one architecture, called as one; one model is the population of one."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from countertrain.models.architectures import Pieces
from countertrain.models.kernels import writes_out
from countertrain.models.traces import ChainTrace, find_chain, is_hooked, run_chain

__all__ = [
    "Model",
    "Models",
    "NotStackableError",
    "Population",
    "Weight",
    "as_population",
    "full_precision",
    "measure_width",
    "member",
    "per_model",
]

Model = Callable[[Tensor], Tensor]
"""(n, *shape) rows -> (n, K) logits, differentiable in the rows."""

Weight = float | Sequence[float] | Tensor
"""A number for all models, a sequence with one number per model, or a tensor that broadcasts to (P, n)."""


@runtime_checkable
class Models(Protocol):
    """P models called as one: (P, n, *shape) rows -> (P, n, K) logits."""

    @property
    def batch_dependent(self) -> bool:
        """Whether a row's logits depend on the rows beside it while the models train."""
        ...

    @property
    def rows_last(self) -> bool:
        """Whether (P, n, D) inputs should lie in memory as (P, D, n)."""
        ...

    def __len__(self) -> int: ...

    def __call__(self, x: Tensor, /) -> Tensor:
        """Logits of every model for its own rows."""
        ...

    def trainable(self) -> list[Tensor]:
        """The parameters that an optimiser should move."""
        ...

    def evaluating(self) -> AbstractContextManager[None]:
        """The models as they decide inside: evaluation mode, full precision; afterwards each layer is as it was."""
        ...


class NotStackableError(ValueError):
    """These modules cannot be run as one population; the message says why."""


class Population:
    """P models of one architecture: (P, n, *shape) rows -> (P, n, K) logits.

    For P > 1 the parameters are stacked copies with a leading axis P, and `write_back` brings them home to
    the modules; for P = 1 they are the module's own. Chains of linear layers, element-wise activations and `Pieces` run
    on rows-last memory (see `rows_last`), anything else as a plain call (P = 1) or under vmap.
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self.modules = tuple(modules)
        self._chain = find_chain(self.modules[0])
        self._overwrites = any(getattr(layer, "inplace", False) for layer in self._chain or ())
        self._running = list(self.modules[0].modules())  # the layers that a call looks at: of the others, only weights
        self.batch_dependent = any(isinstance(m, _BatchNorm) for m in self.modules[0].modules())
        if len(self.modules) == 1:
            self.parameters: dict[str, Tensor] = dict(self.modules[0].named_parameters())
            self._buffers: dict[str, Tensor] = {}
            return
        _check_stackable(self.modules)
        self.parameters = {
            name: torch.stack([m.get_parameter(name).detach() for m in self.modules]).requires_grad_(
                first.requires_grad
            )
            for name, first in self.modules[0].named_parameters()
        }
        self._buffers = {
            name: torch.stack([m.get_buffer(name) for m in self.modules]) for name, _ in self.modules[0].named_buffers()
        }
        self._skeleton = copy.deepcopy(self.modules[0]).to("meta")
        self._running += self._skeleton.modules()

    def __len__(self) -> int:
        return len(self.modules)

    @property
    def rows_last(self) -> bool:
        """Whether (P, n, D) inputs should lie in memory as (P, D, n): faster for chains of linear layers."""
        return self._chain is not None

    @property
    def width(self) -> int:
        """Numbers that `Pieces` make of a row; 0 where there are none."""
        return max((layer.n_outputs for layer in self._chain or () if isinstance(layer, Pieces)), default=0)

    def __call__(self, x: Tensor) -> Tensor:
        """Logits of every model for its own rows."""
        if self._chain is not None and x.ndim == 3:
            return run_chain(self._chain, self.parameters, len(self), x)
        if len(self.modules) == 1:
            return self.modules[0](x[0]).unsqueeze(0)  # type: ignore[no-any-return]  # a module returns Any
        return self._run_vmap(x)

    def trace(self, x: Tensor, *, learning: bool = False) -> ChainTrace | None:
        """A pass over rows x (P, n, D) whose derivatives are written out; None where only autograd knows them.

        Only where somebody is `learning` there are some by parameters, too; else these must stay as they are.
        """
        if self._chain is None or not self.traceable(x):
            return None
        with torch.no_grad():
            return ChainTrace(self._chain, self.parameters, len(self), x, learning=learning)

    def traceable(self, x: Tensor) -> bool:
        """Whether `trace` knows the derivatives at rows x (P, n, D)."""
        return self._chain is not None and x.ndim == 3 and not self._overwrites and writes_out(x)

    def trainable(self) -> list[Tensor]:
        """The parameters that an optimiser should move."""
        return [p for p in self.parameters.values() if p.requires_grad]

    @torch.no_grad()
    def write_back(self) -> None:
        """Copy the stacked parameters into the modules they came from."""
        if len(self.modules) > 1:
            for name, stacked in self.parameters.items():
                for module, value in zip(self.modules, stacked, strict=True):
                    module.get_parameter(name).copy_(value)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """The models as they decide inside: evaluation mode, full precision; afterwards each layer is as it was."""
        with _mode(self._running, training=False), full_precision():
            yield

    @contextmanager
    def training(self) -> Iterator[None]:
        """The layers that a call looks at in training mode inside; afterwards each is as it was."""
        with _mode(self._running, training=True):
            yield

    def _run_vmap(self, x: Tensor) -> Tensor:
        def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Tensor:
            return functional_call(self._skeleton, (parameters, buffers), (x,))  # type: ignore[no-any-return]

        return vmap(one)(self.parameters, self._buffers, x)

    @torch.no_grad()
    def verify(self, x: Tensor) -> None:
        """Compare the stacked models with plain calls on a few rows x (n, *shape); refuse to go on if they differ."""
        try:
            everyone = [*self._running, *(layer for module in self.modules[1:] for layer in module.modules())]
            with _mode(everyone, training=False):
                together = self(x.expand(len(self), *x.shape))
                alone = torch.stack([module(x) for module in self.modules])
            with self.training():
                self(x.expand(len(self), *x.shape))  # vmap refuses random numbers
            probe = copy.deepcopy(self.modules[0]).train()
            with torch.random.fork_rng():
                probe(x)
        except (RuntimeError, ValueError) as error:
            raise NotStackableError(f"vmap cannot run it ({str(error).splitlines()[0]})") from error
        if not torch.allclose(together, alone, rtol=1e-3, atol=1e-4, equal_nan=True):
            raise NotStackableError("stacked it gives other logits than alone")
        if any(not torch.equal(self.modules[0].get_buffer(name), buffer) for name, buffer in probe.named_buffers()):
            raise NotStackableError("it changes its buffers while it trains")


@contextmanager
def full_precision() -> Iterator[None]:
    """No autocast inside.

    Autocast keeps the weights that it has cast until its outermost block ends; those that were cast without a gradient,
    in a search, would be used for training afterwards, and nothing be learnt.
    """
    kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    with ExitStack() as stack:
        for kind in kinds:
            stack.enter_context(torch.autocast(kind, enabled=False))
        yield


@contextmanager
def _mode(layers: Sequence[nn.Module], *, training: bool) -> Iterator[None]:
    others = [layer for layer in layers if layer.training is not training]
    for layer in others:
        layer.training = training
    try:
        yield
    finally:
        for layer in others:
            layer.training = not training


class _Function:
    """A bare callable in the place of a population of one."""

    batch_dependent = False
    rows_last = False

    def __init__(self, function: Model) -> None:
        self._function = function

    def __len__(self) -> int:
        return 1

    def __call__(self, x: Tensor) -> Tensor:
        return self._function(x[0]).unsqueeze(0)

    def trainable(self) -> list[Tensor]:
        return []

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        with full_precision():
            yield


def measure_width(model: Models) -> int:
    """How many numbers a row becomes inside of a model before the first layer, as far as the model tells; else 0."""
    return getattr(model, "width", 0)


def as_population(model: Model | Models | Sequence[nn.Module]) -> Models:
    """A population from a module, a list of modules, or any callable (n, *shape) -> (n, K)."""
    if isinstance(model, nn.Module):
        return Population([model])
    if isinstance(model, Sequence):
        return Population(model)
    return model if isinstance(model, Models) else _Function(model)


def per_model(weight: Weight, size: int, like: Tensor) -> float | Tensor:
    """A weight as a number, or as a tensor that broadcasts against (P, n)."""
    if isinstance(weight, Tensor):
        weight = weight.to(like)
        if weight.ndim == 1:
            return weight.unsqueeze(-1 if weight.shape == (size,) else 0)
        return weight
    if isinstance(weight, Sequence):
        if len(weight) != size:
            raise ValueError(f"a sequence of weights needs one number per model, {size} of them; got {len(weight)}")
        return torch.tensor(weight, dtype=like.dtype, device=like.device).unsqueeze(-1)  # (P, 1)
    return float(weight)


def member(weight: Weight, i: int) -> float | Tensor:
    """What `weight` says for model i alone."""
    if isinstance(weight, Tensor):
        return weight if weight.ndim == 0 else weight[i]
    return weight[i] if isinstance(weight, Sequence) else weight


def _check_stackable(modules: Sequence[nn.Module]) -> None:
    """Refuse models that could not get in a population what they would get alone."""
    _check_separate(modules)
    first = modules[0]
    for layer in first.modules():
        if isinstance(layer, _DropoutNd):
            raise NotStackableError(f"{type(layer).__name__} draws from the global random stream")
        if isinstance(layer, _BatchNorm):
            raise NotStackableError(f"{type(layer).__name__} keeps statistics of its batches")
        if is_hooked(layer):
            raise NotStackableError(f"{type(layer).__name__} has hooks, which see one model at a time")
    if len(list(first.named_parameters(remove_duplicate=False))) != len(list(first.named_parameters())):
        raise NotStackableError("it has tied weights")
    for i, module in enumerate(modules[1:], 1):
        if type(module) is not type(first) or _signature(module) != _signature(first):
            raise NotStackableError(f"model {i} has another architecture than model 0")
        if str(module) != str(first):
            raise NotStackableError(f"model {i} has other layer settings than model 0")


def _check_separate(modules: Sequence[nn.Module]) -> None:
    owners: dict[int, int] = {}
    for i, module in enumerate(modules):
        if any(module is other for other in modules[:i]):
            raise ValueError(f"model {i} is the same object as an earlier one; make a copy of it")
        for tensor in (*module.parameters(), *module.buffers()):
            if owners.setdefault(id(tensor), i) != i:
                raise ValueError(f"model {i} shares a layer with model {owners[id(tensor)]}; make copies of the models")


def _signature(module: nn.Module) -> list[tuple[str, torch.Size, torch.dtype, torch.device, bool]]:
    parameters = [(n, p.shape, p.dtype, p.device, p.requires_grad) for n, p in module.named_parameters()]
    return parameters + [(n, b.shape, b.dtype, b.device, False) for n, b in module.named_buffers()]
