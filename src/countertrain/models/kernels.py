"""Functions as compiled code, where torch has a compiler to do so."""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

__all__ = ["CompilerError", "compile_seconds", "compiled", "find_compiler", "settled"]

F = TypeVar("F", bound=Callable[..., Any])

# hidden units of small models are never stored
_INLINE: dict[str, Any] = {"realize_reads_threshold": 32, "realize_opcount_threshold": 200}


class CompilerError(RuntimeError):
    """torch cannot make compiled code here; the message says why."""


@cache
def compiled(function: F) -> F:
    """The function through torch.compile; it is compiled once for its first sizes and once for all others.

    What was compiled is kept on disk by torch, so that another process with the same model starts in a few seconds.
    """
    from torch._inductor.exc import CppCompileError, InductorError  # seconds to import, and seldom needed

    fast = torch.compile(function, options=_INLINE)

    @wraps(function)
    def run(*args: Any) -> Any:
        # gradients are taken inside; each model has code of its own
        with torch._dynamo.config.patch(trace_autograd_ops=True, recompile_limit=256):
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


def settled(x: Tensor) -> Tensor:
    """x itself, for no gradient to pass; compiled code stores it here, where else each reader would work it out anew.

    Between two layers of loops (all rows of all hidden units, say) that is the difference of one exp and of 32.
    """
    return x.as_strided(x.shape, x.stride()) if torch.compiler.is_compiling() else x


def compile_seconds() -> float:
    """What compiling has taken in this process so far."""
    return float(torch._dynamo.utils.calculate_time_spent()["total_wall_time"])
