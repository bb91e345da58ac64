"""Random numbers of a row's own: what a row draws depends on its seed and the step, never on the rows beside it.

A counter goes in, a number comes out (splitmix64): no state, no order, nothing to keep in a checkpoint.
"""

import torch
from torch import Tensor

__all__ = ["draw_normal", "draw_uniform", "seeds_of_rows"]

_GOLDEN, _FIRST, _SECOND = -7046029254386353131, -4658895280553007687, -7723592293110705685


def seeds_of_rows(x: Tensor, seed: int = 0) -> Tensor:
    """A seed for each row (P, n, *shape) -> (P, n), made of its numbers: the same row draws the same anywhere."""
    bits = x.contiguous().flatten(2).double().view(torch.int64)  # (P, n, D)
    place = torch.arange(bits.shape[-1], device=x.device) * _GOLDEN
    return _mix(_mix(bits + place).sum(-1) + _mix(torch.tensor(seed, device=x.device)))


def draw_uniform(seed: Tensor, step: int | Tensor, like: Tensor) -> Tensor:
    """Numbers in [0, 1) for rows of seeds (P, n) at a step, of the shape and type of `like` (P, n, *shape)."""
    return _draw(seed, step, like).to(like.dtype)


def draw_normal(seed: Tensor, step: int | Tensor, like: Tensor) -> Tensor:
    """Standard normal numbers for rows of seeds (P, n) at a step, of the shape and type of `like` (P, n, *shape)."""
    normal: Tensor = torch.special.ndtri(_draw(seed, step, like) + 2.0**-54)
    return normal.to(like.dtype)


def _draw(seed: Tensor, step: int | Tensor, like: Tensor) -> Tensor:
    key = _mix(seed + _mix(torch.as_tensor(step, device=seed.device).long() * _GOLDEN))  # (P, n)
    place = torch.arange(like[0, 0].numel(), device=seed.device) * _GOLDEN
    bits = _mix(key.unsqueeze(-1) + place)  # (P, n, D)
    return (_shift(bits, 11).double() * 2.0**-53).view(like.shape)


def _mix(z: Tensor) -> Tensor:
    """Integers that have nothing to do with one another any more; products wrap around at 64 bits."""
    z = (z ^ _shift(z, 30)) * _FIRST
    z = (z ^ _shift(z, 27)) * _SECOND
    return z ^ _shift(z, 31)


def _shift(z: Tensor, n: int) -> Tensor:
    """To the right, with zeros from the left."""
    return (z >> n) & ((1 << (64 - n)) - 1)
