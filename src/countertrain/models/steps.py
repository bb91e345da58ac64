"""A step of an optimiser: Adam as one kernel, at a tenth of torch's overhead; any other as it does."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.optim import optimizer as torch_optimizer

from countertrain.models.kernels import as_array

__all__ = ["fused_adam", "lay_out_like", "set_gradients", "take_step"]


def lay_out_like(parameter: Tensor, value: Tensor) -> Tensor:
    """The value as it was, lying in memory as the parameter does.

    A fused optimiser walks through parameter, gradient and moments as if they lay alike, and looks at no strides. Under
    vmap, or from a file, they need not: autograd may well hand back the transpose of what it computed.
    """
    return value if value.stride() == parameter.stride() else torch.empty_like(parameter).copy_(value)


def set_gradients(parameters: Iterable[Tensor], gradients: Iterable[Tensor | None]) -> None:
    """Give each parameter its gradient, laid out as it is; one that was written where it already is stays there."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if parameter.grad is not gradient:
            parameter.grad = None if gradient is None else lay_out_like(parameter, gradient)


def fused_adam(parameters: Iterable[Tensor], *, lr: float) -> torch.optim.Optimizer:
    """Adam as one kernel, where every parameter fills its piece of memory; a view with gaps is none of its business."""
    parameters = list(parameters)
    _spare_the_compiler()
    return torch.optim.Adam(parameters, lr=lr, fused=all(_is_dense(p) for p in parameters))


def take_step(optimizer: torch.optim.Optimizer) -> None:
    """A step of the optimiser; a fused Adam makes it without torch's overhead, and without torch's compiler."""
    if not _is_plain_adam(optimizer):
        optimizer.step()
        return
    group = optimizer.param_groups[0]
    gradients = [p.grad for p in group["params"]]
    moments = _known_moments.get(optimizer)
    if moments is None or not moments.hold(optimizer, gradients):
        moments = _known_moments[optimizer] = _Moments(optimizer, gradients)
    moments.step(group, [gradient for gradient in gradients if gradient is not None])


class _Moments:
    """What Adam remembers of the parameters that have gradients, as one kernel takes it."""

    def __init__(self, optimizer: torch.optim.Optimizer, gradients: Sequence[Tensor | None]) -> None:
        parameters = optimizer.param_groups[0]["params"]
        self._moving = [p for p, gradient in zip(parameters, gradients, strict=True) if gradient is not None]
        self._missing = [gradient is None for gradient in gradients]
        for p in self._moving:
            if not optimizer.state[p]:
                zeros = {name: torch.zeros_like(p) for name in ("exp_avg", "exp_avg_sq")}
                optimizer.state[p] = {"step": torch.zeros(()), **zeros}
        self._values, self._places = [p.detach() for p in self._moving], [p.data_ptr() for p in self._moving]
        self._states: list[dict[str, Tensor]] = [optimizer.state[p] for p in self._moving]
        self._memories = [id(state) for state in self._states]
        count = torch.tensor([float(state["step"]) for state in self._states])
        self._steps, self._count = list(count.unbind()), as_array(count)  # counted up together
        for state, step in zip(self._states, self._steps, strict=True):
            state["step"] = step
        self._means, self._squares = ([state[name] for state in self._states] for name in ("exp_avg", "exp_avg_sq"))

    def hold(self, optimizer: torch.optim.Optimizer, gradients: Sequence[Tensor | None]) -> bool:
        """Whether the optimiser still remembers the same of the same parameters, and these lie where they lay."""
        remembered = optimizer.state
        return (
            [gradient is None for gradient in gradients] == self._missing
            and [p.data_ptr() for p in self._moving] == self._places
            and [id(remembered.get(p)) for p in self._moving] == self._memories
        )

    def step(self, group: dict[str, Any], gradients: list[Tensor]) -> None:
        """Move all parameters."""
        if not gradients:
            return
        self._count += 1
        torch._fused_adam_(
            self._values,
            gradients,
            self._means,
            self._squares,
            [],
            self._steps,
            lr=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=group["maximize"],
        )


_known_moments: WeakKeyDictionary[torch.optim.Optimizer, _Moments] = WeakKeyDictionary()


def _is_plain_adam(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it is Adam as `fused_adam` makes it, and nobody watches its steps: neither hooks nor a schedule."""
    if type(optimizer) is not torch.optim.Adam or "step" in optimizer.__dict__ or len(optimizer.param_groups) != 1:
        return False
    group = optimizer.param_groups[0]
    watched = (
        optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
        or torch_optimizer._global_optimizer_pre_hooks
        or torch_optimizer._global_optimizer_post_hooks
    )
    return bool(group["fused"] and not group["amsgrad"] and not watched and group["params"][0].is_cpu)


@cache
def _spare_the_compiler() -> None:
    """Whatever makes an optimiser imports torch's compiler (seconds), to tell it to keep out; nobody compiles here."""
    for name in ("add_param_group", "state_dict", "load_state_dict", "zero_grad"):
        method = getattr(getattr(torch.optim.Optimizer, name), "__wrapped__", None)
        if method is not None and not hasattr(method, "__dynamo_disable"):
            setattr(method, "__dynamo_disable", method)  # what torch looks for first


def _is_dense(x: Tensor) -> bool:
    """Whether the numbers of x lie side by side in memory, in whatever order."""
    return torch.empty_like(x).stride() == x.stride()
