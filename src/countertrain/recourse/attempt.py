"""What was tried for people, and what a simpler row must keep."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

__all__ = ["Attempt", "Least", "choose", "is_everybody"]


def is_everybody(rows: object, n: int) -> bool:
    """Whether places (m,) of people among n are the only one that there is: then nothing needs to be copied."""
    return n == 1 and isinstance(rows, Tensor) and rows.dtype == torch.int64 and rows.shape == (1,)


@dataclass(frozen=True, eq=False)
class Attempt:
    """Rows within reach and on the grid, and what the model says of exactly these rows."""

    x: Tensor  # (n, D) float64
    probability: Tensor  # (n,) of the target class
    valid: Tensor  # (n,) bool

    def __getitem__(self, rows: Tensor) -> Self:
        """The attempts for some of the people."""
        if is_everybody(rows, len(self.x)):
            return self
        return type(self)(self.x[rows], self.probability[rows], self.valid[rows])

    def put(self, rows: Tensor, other: "Attempt") -> "Attempt":
        """With other attempts for these people."""
        if is_everybody(rows, len(self.x)):
            return other
        pairs = ((self.x, other.x), (self.probability, other.probability), (self.valid, other.valid))
        return Attempt(*(mine.index_copy(0, rows, theirs) for mine, theirs in pairs))


@dataclass(frozen=True, eq=False)
class Least:
    """What a simpler row must keep."""

    floor: Tensor  # (n,) the probability
    ceiling: Tensor  # (n,) how far from real people it may be
    near: Tensor | None
    """(n, k) places of real people who were near the row at first; None where it need not be typical."""

    def __getitem__(self, rows: Tensor) -> Self:
        """For some of the people."""
        if is_everybody(rows, len(self.floor)):
            return self
        return type(self)(self.floor[rows], self.ceiling[rows], None if self.near is None else self.near[rows])


def choose(where: Tensor, one: Attempt, other: Attempt) -> Attempt:
    """One attempt for the people named (n,), the other for everybody else."""
    return Attempt(
        torch.where(where.unsqueeze(1), one.x, other.x),
        torch.where(where, one.probability, other.probability),
        torch.where(where, one.valid, other.valid),
    )
