"""What the parts of a search see of one another: protocols and values."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

__all__ = ["Counterfactuals", "Memory", "Penalty", "SearchState", "Slopes", "StateSpace", "StepRule"]

Memory = tuple[Tensor, ...]
"""What a step rule remembers, one entry a row: tensors of shape (P, n, L)."""


@dataclass(frozen=True, slots=True)
class SearchState:
    """All that a penalty may see of the iterate x_k."""

    x: Tensor  # (P, n, D)
    logits: Tensor  # (P, n, K)
    energy: Tensor  # (P, n) of the target class, E(x, y) = -M(x)[y]
    change: Tensor  # (P, n, D) = x - factual
    factual: Tensor  # (P, n, D)
    target: Tensor  # (P, n)
    step: int
    """k, the number of the step about to be made: 1 on the first."""
    n_steps: int
    """T, the most steps a row may make."""


@dataclass(frozen=True, slots=True)
class Slopes:
    """Derivatives of a penalty by what it depends on, for each row."""

    by_energy: Tensor | None = None  # (P, n)
    by_x: Tensor | None = None  # (P, n, D), the logits held fixed


@dataclass(frozen=True, eq=False)
class Counterfactuals:
    """What a search found for each factual; the shapes are those of the call, with or without the axis P."""

    factual: Tensor  # (..., n, D)
    target: Tensor  # (..., n)
    x: Tensor  # (..., n, D) the last iterate
    nascent: Tensor  # (..., n, D) the last iterate within epsilon of the factual, Eq. (adv)
    mature: Tensor  # (..., n) bool: reached tau
    n_steps: Tensor  # (..., n) int: steps made


class Penalty(Protocol):
    """A term of the search objective, Eq. (general): one number a row, rows independent of one another.

    One that knows its own derivatives has a method `slopes(state) -> Slopes`, too, and costs less; others are
    differentiated by autograd.
    """

    def __call__(self, state: SearchState, /) -> Tensor:
        """Penalty of each row, (P, n)."""
        ...


class StateSpace(Protocol):
    """The space in which the search walks, with maps from and to feature space."""

    def encode(self, x: Tensor, /) -> Tensor:
        """Where the walk for factual x starts: (P, n, D) -> (P, n, L)."""
        ...

    def decode(self, z: Tensor, /) -> Tensor:
        """The row that state z stands for, differentiable: (P, n, L) -> (P, n, D)."""
        ...

    def settle(self, z: Tensor, x: Tensor, /) -> Tensor:
        """The state to go on from after z's row was projected to x."""
        ...


class StepRule(Protocol):
    """How a gradient becomes a step."""

    def init(self, z: Tensor, /) -> Memory:
        """The memory before the first step."""
        ...

    def step(self, grad: Tensor, memory: Memory, k: int, /) -> tuple[Tensor, Memory]:
        """Step number k = 1, 2, ...: the change of z and the memory after it."""
        ...
