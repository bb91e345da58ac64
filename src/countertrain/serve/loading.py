"""Loading what stays: libraries and models, in which no garbage needs to be looked for."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["loading"]


@contextmanager
def loading() -> Iterator[None]:
    """Keep the garbage collector from going through all that is being loaded, now and later.

    That takes a sixth of the time in which a service starts, holds up answers, and copies pages that processes share.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collecting:
            gc.enable()
