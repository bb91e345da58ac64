"""What the parts of a search see of one another: protocols and values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

__all__ = [
    "Amount",
    "Amounts",
    "Counterfactuals",
    "Memory",
    "Penalty",
    "SearchState",
    "Slopes",
    "Start",
    "StateSpace",
    "StepRule",
    "Weighed",
    "knows",
    "mix",
]

Memory = tuple[Tensor, ...]
"""What a step rule remembers, one entry per row: tensors of shape (P, n) or (P, n, ...)."""
Amount = Any
"""A number for all rows, or a tensor or an array with one per row or per model."""


@dataclass(frozen=True, slots=True)
class SearchState:
    """All that a penalty may see of the iterate x_k."""

    x: Tensor  # (P, n, *shape)
    by_class: Tensor  # (P, K, n) logits, classes first
    log_p: Tensor  # (P, K, n) logarithm of the probability of each class
    own_logit: Tensor  # (P, 1, n) of the target class
    change: Tensor  # (P, n, *shape) = x - factual
    factual: Tensor  # (P, n, *shape)
    target: Tensor  # (P, n)
    step: int
    """k, the number of the step about to be made: 1 on the first."""
    n_steps: int
    """T, the most steps a row may make."""
    by_rows: Callable[[Tensor], Tensor] | None = None
    """What has these derivatives by the logits (P, K, n), differentiated by the rows (P, n, *shape); good until it is
    called again. None where nobody has written down how the logits came about."""

    @property
    def logits(self) -> Tensor:
        """(P, n, K)."""
        return self.by_class.transpose(1, 2)

    @property
    def energy(self) -> Tensor:
        """(P, n) of the target class, E(x, y) = -M(x)[y]."""
        return -self.own_logit.squeeze(1)


@dataclass(frozen=True, slots=True)
class Amounts:
    """A penalty as a sum of what every search knows of a row: how much of each there is in it."""

    loss: Amount = 0.0
    """Of the cross-entropy with the target."""
    energy: Amount = 0.0
    square: Amount = 0.0
    """Of the energy squared."""
    distance: Amount = 0.0
    """Of the l1 distance to the factual."""


@dataclass(frozen=True, slots=True)
class Slopes:
    """Derivatives of a penalty by what it depends on, for each row."""

    by_logits: Tensor | None = None  # (P, K, n)
    by_x: Tensor | None = None  # (P, n, *shape), the logits held fixed


@dataclass(frozen=True, eq=False)
class Counterfactuals:
    """What a search found for each factual; the shapes are those of the call, with or without the axis P."""

    factual: Tensor  # (..., n, *shape)
    target: Tensor  # (..., n)
    x: Tensor  # (..., n, *shape) the last iterate
    nascent: Tensor  # (..., n, *shape) the last iterate within epsilon of the factual, Eq. (adv)
    mature: Tensor  # (..., n) bool: reached tau
    n_steps: Tensor  # (..., n) int: steps made


class Penalty(Protocol):
    """A term of the search objective, Eq. (general): one number per row, rows independent of one another.

    One that is made of known quantities has a method `amounts(step, n_steps) -> Amounts`, too, and one that knows its
    own derivatives `slopes(state) -> Slopes`: both cost less than one that is differentiated by autograd. One that
    needs training rows has a method `bind(x, y)` that returns it ready. One that asks for more than tau has a method
    `allows(state)`: a row is mature only where that is true, (P, n).
    """

    def __call__(self, state: SearchState, /) -> Tensor:
        """Penalty of each row, (P, n)."""
        ...


Weighed = tuple[Amount, Penalty]
"""A term of the search objective with its weight."""


def mix(terms: Sequence[Weighed], step: int, n_steps: int) -> Amounts:
    """What terms that know their `amounts` are made of together, at a step."""
    loss = energy = square = distance = 0.0
    for weight, term in terms:
        some: Amounts = term.amounts(step, n_steps)  # type: ignore[attr-defined]  # as was asked before
        loss = weight * some.loss + loss
        energy = weight * some.energy + energy
        square = weight * some.square + square
        distance = weight * some.distance + distance
    return Amounts(loss, energy, square, distance)


class Start(Protocol):
    """Where a search starts. One that needs training rows has a method `bind(x, y)` that returns it ready.

    One that has to learn from a model has methods `begin(x, n_classes, seeds)`, for whoever trains a model beside it,
    and `learn(generator, models, constraints)`, for models that are trained already: see `search/writing.py`.
    """

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers, by the seed of each row."""
        ...

    def __call__(self, factual: Tensor, target: Tensor, seed: Tensor, /) -> Tensor:
        """The rows to start from: factuals (P, n, *shape), targets and seeds (P, n) -> (P, n, *shape)."""
        ...


class StateSpace(Protocol):
    """The space in which the search walks, with maps from and to feature space."""

    def encode(self, x: Tensor, /) -> Tensor:
        """Where the walk for a row starts: (P, n, *shape) -> (P, n, L)."""
        ...

    def decode(self, z: Tensor, /) -> Tensor:
        """The row that state z stands for: (P, n, L) -> (P, n, *shape)."""
        ...

    def pull_back(self, z: Tensor, grad: Tensor, low: Tensor | None, high: Tensor | None, /) -> Tensor:
        """The gradient by z of what has gradient `grad` by the row of z, which may move from `low` to `high`."""
        ...

    def settle(self, z: Tensor, x: Tensor, /) -> Tensor:
        """The state to go on from after z's row was projected to x."""
        ...


class StepRule(Protocol):
    """How a gradient becomes a step."""

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers, by the seed of each row."""
        ...

    def init(self, z: Tensor, seed: Tensor, /) -> Memory:
        """The memory before the first step, for states z (P, n, ...) of rows with seeds (P, n)."""
        ...

    def step(self, grad: Tensor, memory: Memory, k: int, /) -> tuple[Tensor, Memory]:
        """Step number k = 1, 2, ...: the change of z and the memory after it."""
        ...


def knows(part: object, short_cut: str, *methods: str) -> bool:
    """Whether a part has a short cut for what these methods do; a subclass that changes one of them alone has none."""
    for kind in type(part).__mro__:
        if short_cut in vars(kind):
            return True
        if any(method in vars(kind) for method in methods):
            return False
    return False
