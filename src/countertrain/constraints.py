"""What a counterfactual may change: mutability, domain and one-hot groups of the features."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self, get_args

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["Constraints", "Mutability", "Repair"]

Mutability = Literal["both", "increase", "decrease", "none"]
Bound = float | Sequence[float] | Tensor
Repair = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""From rows (..., D), where their people start, and the ends of where they can go, to rows that keep rules."""


@dataclass(frozen=True, eq=False)
class Constraints:
    """Which way each of D features may move, how far, and which columns are one category.

    A feature that may not move stays bit for bit what it was, even outside the domain.
    Build one with `Constraints.of` (a given domain) or `Constraints.infer` (a domain from data). Mutability and
    domain may also differ from row to row: any of the four tensors may be (n, D) for a search of n rows. Rows of any
    `shape` are D numbers in a row, in the order in which they lie: pixel (0, 1) of an image is feature 1.
    """

    may_increase: Tensor  # (D,) or (n, D) bool
    may_decrease: Tensor  # (D,) or (n, D) bool
    lower: Tensor  # (D,) or (n, D)
    upper: Tensor  # (D,) or (n, D)
    categories: tuple[slice, ...] = ()
    transitions: Mapping[int, Tensor] = field(default_factory=dict)
    """For category i (by place), (L, L) bool: row a says which levels a person at level a may go to."""
    shape: tuple[int, ...] | None = None
    """Of a row, where it is not (D,)."""
    held: tuple[tuple[int, int], ...] = ()
    """Pairs of features of which the first may not move in rows where the second is 1: a number that is missing."""
    repair: Repair | None = None
    """What holds between features, kept after a search, not at every step; None: nothing does."""

    def __post_init__(self) -> None:
        d = self.n_features
        rows = {len(value) for value in self._tensors().values() if value.ndim == 2}
        for name, value in self._tensors().items():
            if value.ndim not in (1, 2) or value.shape[-1] != d or len(rows) > 1:
                raise ValueError(
                    f"{name} must have shape ({d},) or (n, {d}), one entry per feature; got {tuple(value.shape)}"
                )
        empty = (~(self.lower <= self.upper)).nonzero()
        if len(empty):
            i = int(empty[0, -1])
            lower, upper = (float(bound[..., i].reshape(-1)[0]) for bound in (self.lower, self.upper))
            raise ValueError(
                f"the domain of feature {i} is empty: its lower bound {lower:g} must not exceed "
                f"its upper bound {upper:g}; swap or widen them"
            )
        if math.prod(self.row_shape) != d:
            raise ValueError(f"rows of shape {self.row_shape} have {math.prod(self.row_shape)} numbers, not {d}")
        last = 0
        for group in sorted(self.categories, key=lambda group: group.start):
            if not (group.step in (None, 1) and last <= group.start < group.stop <= d):
                raise ValueError(
                    f"categories must be disjoint slices of the {d} feature columns; got {list(self.categories)}"
                )
            last = group.stop
        for i, allowed in self.transitions.items():
            width = self.categories[i].stop - self.categories[i].start if 0 <= i < len(self.categories) else None
            if width is None or allowed.shape != (width, width):
                raise ValueError(
                    f"transitions must name a category by its place, 0..{len(self.categories) - 1}, and hold one row "
                    f"and one column per level; got {tuple(allowed.shape)} for category {i}"
                )

    @property
    def n_features(self) -> int:
        """D, the number of feature columns."""
        return self.lower.shape[-1]

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of a row, with D numbers in all."""
        return self.shape or (self.n_features,)

    @property
    def n_rows(self) -> int | None:
        """The number of rows that the constraints are for; None: for any, all rows being treated alike."""
        return next((len(value) for value in self._tensors().values() if value.ndim == 2), None)

    def rows(self, part: slice) -> Self:
        """The constraints of some of the rows, where they differ from row to row."""
        mine = {name: value[part] if value.ndim == 2 else value for name, value in self._tensors().items()}
        return replace(self, **mine)  # type: ignore[arg-type]  # all four are tensors

    def _tensors(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in ("may_increase", "may_decrease", "lower", "upper")}

    @classmethod
    def of(
        cls,
        n_features: int | Sequence[int],
        *,
        mutability: Mapping[int, Mutability] | Sequence[Mutability] | None = None,
        lower: Bound = -torch.inf,
        upper: Bound = torch.inf,
        categories: Sequence[slice] = (),
    ) -> Self:
        """Constraints with a given domain, for D features or for rows of a shape such as (1, 28, 28).

        Features left out of `mutability` may move both ways.
        """
        shape = (n_features,) if isinstance(n_features, int) else tuple(n_features)
        n_features = math.prod(shape)
        ways = _mutability(mutability, n_features)
        return cls(
            may_increase=torch.tensor([way in ("both", "increase") for way in ways]),
            may_decrease=torch.tensor([way in ("both", "decrease") for way in ways]),
            lower=_bound(lower, n_features, "lower"),
            upper=_bound(upper, n_features, "upper"),
            categories=tuple(categories),
            shape=shape if len(shape) != 1 else None,
        )

    @classmethod
    def infer(
        cls,
        x: Tensor,
        *,
        n_sigma: float = 2.0,
        mutability: Mapping[int, Mutability] | Sequence[Mutability] | None = None,
        categories: Sequence[slice] = (),
    ) -> Self:
        """Constraints whose domain is inferred from the rows of x (n, *shape), Eq. (domain)."""
        if x.ndim < 2 or len(x) == 0:
            raise ValueError(f"x must have shape (n, D) with at least one row; got {tuple(x.shape)}")
        shape, x = x.shape[1:], x.flatten(1)
        mean = x.mean(0)
        spread = n_sigma * (x.std(0) if len(x) > 1 else torch.zeros_like(mean))
        return cls.of(
            shape,
            mutability=mutability,
            lower=torch.minimum(mean - spread, x.amin(0)),
            upper=torch.maximum(mean + spread, x.amax(0)),
            categories=categories,
        )

    def to(self, like: Tensor) -> Self:
        """The same constraints on the device and in the float type of `like`."""
        return replace(
            self,
            may_increase=self.may_increase.to(like.device),
            may_decrease=self.may_decrease.to(like.device),
            lower=self.lower.to(like),
            upper=self.upper.to(like),
            transitions={i: allowed.to(like.device) for i, allowed in self.transitions.items()},
        )

    def for_shape(self, shape: Sequence[int]) -> Self:
        """The same constraints for rows of another shape with as many numbers."""
        return self if tuple(shape) == self.row_shape else replace(self, shape=tuple(shape))

    def reachable(self, x: Tensor, origin: Tensor) -> Tensor:
        """x with every feature that may not move that way put back to `origin`."""
        low, high = self._reach(self._flat(origin))
        return x.clamp(self._shaped(low), self._shaped(high))

    def box(self, origin: Tensor) -> tuple[Tensor, Tensor]:
        """Lowest and highest value that each feature of each row (..., *shape) may take: domain within reach."""
        origin = self._flat(origin)
        low, high = self._reach(origin)
        lower, upper = self.lower.to(origin), self.upper.to(origin)
        low, high = torch.minimum(torch.maximum(lower, low), high), torch.maximum(torch.minimum(upper, high), low)
        for i, allowed in self.transitions.items():
            group = self.categories[i]
            stays = origin[..., group] >= 1
            open_to = allowed[origin[..., group].argmax(-1)] | stays  # (..., n, L)
            high[..., group] = torch.where(open_to, high[..., group], high[..., group].clamp(max=0.0))
        return self._shaped(low), self._shaped(high)

    def project(self, x: Tensor, origin: Tensor) -> Tensor:
        """The admissible row next to x for a person who starts at `origin`."""
        low, high = self.box(origin)
        return self.project_into(x, low, high)

    def project_into(self, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """`project` for a box that is already known: clamp, then one-hot groups."""
        x = x.clamp(low, high)
        if not self.categories:
            return x
        flat, flat_low, flat_high = self._flat(x), self._flat(low), self._flat(high)
        for group in self.categories:
            flat[..., group] = _one_hot(flat[..., group], flat_low[..., group], flat_high[..., group])
        return self._shaped(flat).clamp(low, high)  # an immutable column wins over its group

    def mend(self, x: Tensor, origin: Tensor) -> Tensor:
        """x with all that must hold between its features, for people who start at `origin`."""
        return x if self.repair is None else self.repair(x, origin, *self.box(origin))

    def _reach(self, origin: Tensor) -> tuple[Tensor, Tensor]:
        low, high = origin.masked_fill(self.may_decrease, -torch.inf), origin.masked_fill(self.may_increase, torch.inf)
        for feature, holder in self.held:
            stays = origin[..., holder] >= 1
            for end in (low, high):
                end[..., feature] = torch.where(stays, origin[..., feature], end[..., feature])
        return low, high

    def _flat(self, x: Tensor) -> Tensor:
        """(..., *shape) -> (..., D)."""
        return x if self.shape is None else x.flatten(-len(self.shape))

    def _shaped(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., *shape)."""
        return x if self.shape is None else x.unflatten(-1, self.shape)


def _one_hot(block: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The largest admissible entry becomes 1, the others 0; a single column is rounded."""
    if block.shape[-1] == 1:
        return block.clamp(0, 1).round()
    score = block.masked_fill(high < 1, -torch.inf).masked_fill(low >= 1, torch.inf)
    return functional.one_hot(score.argmax(-1), block.shape[-1]).to(block.dtype)


def _mutability(
    mutability: Mapping[int, Mutability] | Sequence[Mutability] | None, n_features: int
) -> list[Mutability]:
    ways: list[Mutability] = ["both"] * n_features
    if isinstance(mutability, Mapping):
        for i, way in mutability.items():
            if not 0 <= i < n_features:
                raise ValueError(f"mutability names feature {i}, but features are 0..{n_features - 1}")
            ways[i] = way
    elif mutability is not None:
        if len(mutability) != n_features:
            raise ValueError(f"mutability must name {n_features} features; got {len(mutability)}")
        ways = list(mutability)
    for i, way in enumerate(ways):
        if way not in get_args(Mutability):
            raise ValueError(f"mutability of feature {i} must be one of {', '.join(get_args(Mutability))}; got {way!r}")
    return ways


def _bound(value: Bound, n_features: int, name: str) -> Tensor:
    bound = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
    if bound.ndim == 0:
        return bound.repeat(n_features)
    if bound.shape != (n_features,):
        raise ValueError(f"{name} must be one number or {n_features} numbers; got {tuple(bound.shape)}")
    return bound.detach()
