"""Layers that are given their values elsewhere."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

__all__ = ["blank"]

Layer = TypeVar("Layer", bound=nn.Module)


def blank(layer: Callable[..., Layer], *args: Any, **kwargs: Any) -> Layer:
    """A layer whose values are yet to be set: building it draws nothing from the global random stream.

    torch's `skip_init` builds it on a device without memory, and loads half a second of libraries to do so.
    """
    with torch.random.fork_rng(devices=[]):
        return layer(*args, **kwargs, device="cpu")
