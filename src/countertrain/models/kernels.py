"""Every trick for speed, behind a plain name: layouts of memory, fused kernels, and what compiled code must be told.

Each function here computes what its name says, whoever calls it; how, depends on whether torch is compiling. Nobody
else asks.
"""

from collections.abc import Callable
from functools import cache, reduce, wraps
from typing import Any, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = [
    "CompilerError",
    "add_at_label",
    "append_pieces",
    "as_array",
    "choose",
    "compile_seconds",
    "compiled",
    "find_compiler",
    "join_rows",
    "keep_label",
    "lay_rows_last",
    "materialise",
    "multiply_rows_last",
    "pick_label",
    "rows_last",
    "runs_in_numpy",
    "writes_out",
    "zero_nan",
]

F = TypeVar("F", bound=Callable[..., Any])

# hidden units of small models are never stored
_INLINE: dict[str, Any] = {"realize_reads_threshold": 32, "realize_opcount_threshold": 200}
_THIN = 4  # features or classes up to which compiled code does better without a matrix product
_WIDE = 16  # features from which a look at all rows is cheaper than a copy of them


class CompilerError(RuntimeError):
    """torch cannot make compiled code here; the message says why."""


@cache
def compiled(function: F) -> F:
    """The function through torch.compile; it is compiled once for its first sizes and once for all others.

    What was compiled is kept on disk by torch, so that another process with the same model starts in a few seconds.
    """
    from torch._inductor.exc import CppCompileError, InductorError  # seconds to import, and seldom needed

    fast = torch.compile(function, options=_INLINE)
    # gradients are taken inside; each model has code of its own; making a patch takes as long as half a step
    settings = torch._dynamo.config.patch(trace_autograd_ops=True, recompile_limit=256)

    @wraps(function)
    def run(*args: Any) -> Any:
        with settings:
            try:
                return fast(*args)
            except (CppCompileError, InductorError) as error:
                said = str(error).strip().splitlines()[0]
                raise CompilerError(
                    f"torch could not compile it ({said}); install a C++ compiler such as g++, or go without compiled "
                    "code (--no-compile, or compiled=False)"
                ) from error

    return run  # type: ignore[return-value]  # the same signature


def find_compiler() -> str | None:
    """The C++ compiler that torch would use, if it finds one."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        return get_cpp_compiler()
    except InvalidCxxCompiler:
        return None


def compile_seconds() -> float:
    """What compiling has taken in this process so far."""
    return float(torch._dynamo.utils.calculate_time_spent()["total_wall_time"])


def writes_out(x: Tensor) -> bool:
    """Whether derivatives at rows x are written out here: a compiler makes its own, and autocast its own casts."""
    return not (torch.compiler.is_compiling() or torch.is_autocast_enabled(x.device.type))


def runs_in_numpy(x: Tensor) -> bool:
    """Whether numpy can work on rows x where they lie, which takes less than torch's calls where they are few."""
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64) and not torch.compiler.is_compiling()


def as_array(x: Tensor) -> NDArray[Any]:
    """The numbers of x where they lie: what is written to the array is written to x."""
    return (x.detach() if x.requires_grad else x).numpy()


def materialise(x: Tensor) -> Tensor:
    """x itself, for no gradient to pass; compiled code stores it here, where else each reader would work it out anew.

    Between two layers of loops (all rows of all hidden units, say) that is the difference of one exp and of 32.
    """
    return x.as_strided(x.shape, x.stride()) if torch.compiler.is_compiling() else x


def rows_last(x: Tensor) -> Tensor:
    """x (..., n, D) as it was, lying in memory as (..., D, n)."""
    return x.mT.contiguous().mT


def lay_rows_last(x: Tensor) -> Tensor:
    """x itself; compiled code, which reads a feature of several rows at once, gets (..., n, D) rows last."""
    return materialise(rows_last(x)) if torch.compiler.is_compiling() and x.ndim == 3 else x


def join_rows(x: Tensor, more: Tensor, *, last: bool) -> Tensor:
    """Rows (P, b, *shape) and (P, m, *shape) as (P, b + m, *shape); `last` tells rows-last memory, see `rows_last`."""
    if last and torch.compiler.is_compiling():  # it reads a feature of several rows at once
        return torch.cat([x.mT, more.mT], dim=2).mT
    return torch.cat([x, more], dim=1)


def multiply_rows_last(weight: Tensor, bias: Tensor | None, h: Tensor) -> Tensor:
    """(P, out, in) @ (P, in, n) + (P, out, 1)."""
    if torch.compiler.is_compiling() and min(weight.shape[1:]) <= _THIN:
        product = _multiply_thin(weight, h)
        return product if bias is None else product + bias
    return torch.bmm(weight, h) if bias is None else torch.baddbmm(bias, weight, h)


def _multiply_thin(weight: Tensor, h: Tensor) -> Tensor:
    """(P, out, in) @ (P, in, n) where one of both is thin, in terms that compiled code fuses with their neighbours."""
    n_out, n_in = weight.shape[1:]
    if n_in <= n_out:
        return reduce(torch.add, [weight[:, :, i, None] * h[:, None, i] for i in range(n_in)])
    return torch.stack([(weight[:, i, :, None] * h).sum(1) for i in range(n_out)], dim=1)


def append_pieces(h: Tensor, numbers: Tensor, shift: Tensor, slope: Tensor) -> Tensor:
    """h (..., D, n), then shift + slope * numbers between 0 and 1 for R numbers (..., R, n) and T pieces, (T, 1)."""
    numbers = numbers.unsqueeze(-2)  # (..., R, 1, n)
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or torch._C._functorch.is_batchedtensor(h):
        return torch.cat([h, torch.addcmul(shift, numbers, slope).clamp(0, 1).flatten(-3, -2)], dim=-2)
    n_features, (n_numbers, _, n) = h.shape[-2], numbers.shape[-3:]
    out = h.new_empty(*h.shape[:-2], n_features + n_numbers * len(slope), n)  # written once, and in its place
    out[..., :n_features, :] = h
    pieces = out[..., n_features:, :].unflatten(-2, (n_numbers, len(slope)))
    torch.addcmul(shift, numbers, slope, out=pieces).clamp_(0, 1)
    return out


def pick_label(values: Tensor, label: Tensor) -> Tensor:
    """The value of each row's label: (..., K, n) values and (..., n) labels -> (..., n)."""
    return keep_label(values, label.unsqueeze(-2)).squeeze(-2)


def keep_label(values: Tensor, label: Tensor) -> Tensor:
    """The value of each row's label, in its place: (..., K, n) values and (..., 1, n) labels -> (..., 1, n)."""
    if torch.compiler.is_compiling():  # a look at every class, but of many rows at once
        return torch.where(_is_label(values, label), values, 0.0).sum(-2, keepdim=True)
    return values.gather(-2, label)


def add_at_label(values: Tensor, label: Tensor, more: Tensor) -> Tensor:
    """(..., K, n) values with more (..., 1, n) at each row's label (..., 1, n)."""
    if torch.compiler.is_compiling():
        return torch.where(_is_label(values, label), values + more, values)
    return values.scatter_add(-2, label, more)


def _is_label(values: Tensor, label: Tensor) -> Tensor:
    return label == torch.arange(values.shape[-2], device=label.device).unsqueeze(-1)


def zero_nan(x: Tensor) -> Tensor:
    """x with 0 for what is not a number; x itself is written to where that is faster."""
    if torch.compiler.is_compiling():
        return torch.where(x == x, x, 0.0)
    return x.nan_to_num_(nan=0.0, posinf=torch.inf, neginf=-torch.inf)


def choose(which: Tensor, these: Tensor, those: Tensor) -> Tensor:
    """Rows of `these` (P, n, *shape) where `which` (P, n) says so, else of `those`; not copied where all agree."""
    if those.device.type == "cpu" and those.shape[-1] > _WIDE and not torch.compiler.is_compiling():
        if which.all():
            return these
        if not which.any():
            return those
    return torch.where(which.view(*which.shape, *[1] * (those.ndim - which.ndim)), these, those)
