"""Trials that follow one another: of a few people, all that may come next are tried together, and then gone through.

They are a tree: where trial i is as good as what there is, 2 i + 1 is the next one, and 2 i + 2 where it is not. A call
costs about as much for sixty rows as for a few.
"""

import math
from functools import cache

import numpy as np
import torch
from torch import Tensor

from countertrain.recourse.attempt import Attempt

__all__ = ["choose_depth", "follow", "list_shares"]

_ROWS = 63  # tried together, where there are fewer people


def choose_depth(n: int, n_trials: int) -> int:
    """How many of the trials of n people to look ahead at once, so that all rounds are about as large."""
    most = max(1, (_ROWS // max(1, n) + 1).bit_length() - 1)
    return math.ceil(n_trials / math.ceil(n_trials / most))


@cache
def _list_middles(depth: int) -> Tensor:
    """(2^depth - 1,), the middles that halving between 0 and 1 may come to."""
    low, high, found = [0.0], [1.0], []
    for _ in range(depth):
        middle = [(a + b) / 2 for a, b in zip(low, high, strict=True)]
        found += middle
        low = [end for pair in zip(low, middle, strict=True) for end in pair]
        high = [end for pair in zip(middle, high, strict=True) for end in pair]
    return torch.tensor(found, dtype=torch.float64)


def list_shares(too_little: Tensor, enough: Tensor, depth: int) -> Tensor:
    """(n, 2^depth - 1), the middles that halving between two shares (n,) may come to."""
    low = too_little.unsqueeze(1)
    return low + (enough.unsqueeze(1) - low) * _list_middles(depth)  # exactly: all are parts of a power of 2


def follow(found: Attempt, trial: Attempt, fine: Tensor, depth: int) -> tuple[Attempt, Tensor]:
    """What comes of trials (n T) for people who have `found` (n), and for each trial gone through if it was as good.

    `fine` (n T) says which may be taken. Who has a valid row does not give it up; the same row as before is as good.
    The second is (n, depth).
    """
    n, everybody = len(found.x), np.arange(len(found.x))
    x, p, valid = found.x.numpy(), found.probability.numpy(), found.valid.numpy()
    tried = trial.x.view(n, -1, x.shape[1]).numpy(), trial.probability.view(n, -1).numpy()
    holds, may = (each.view(n, -1).numpy() for each in (trial.valid, fine))
    place, went = np.zeros(n, dtype=np.int64), np.empty((n, depth), dtype=bool)
    for step in range(depth):
        at = everybody, place
        same = (tried[0][at] == x).all(1)
        takes = may[at] & (holds[at] | ~valid) & ~same
        x, p = np.where(takes[:, None], tried[0][at], x), np.where(takes, tried[1][at], p)
        valid = np.where(takes, holds[at], valid)
        went[:, step] = takes | same
        place = 2 * place + 2 - went[:, step]
    return Attempt(*map(torch.from_numpy, (x, p, valid))), torch.from_numpy(went)
