"""Rules that know the columns of a schema: what breaks them, and what follows from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from countertrain.tables.rules import syntax
from countertrain.tables.rules.conditions import Floats, LevelIn, Missing, Test, Values, evaluate
from countertrain.tables.rules.syntax import Expression, list_columns

__all__ = ["Condition", "Exclusion", "Follower", "Formula", "LinkedMoves", "Moves", "Rule", "find_moved"]

_ABOUT = 0.25  # of what a formula comes to: what is about that differs by no more
_ROUNDING = 1e-6  # of what a formula comes to: numbers of a file without a step are rounded somehow


@dataclass(frozen=True, eq=False)
class Condition:
    """Where all of `when` hold, all of `then` must."""

    text: str
    when: tuple[Test, ...]
    then: tuple[Test, ...]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns that it speaks of."""
        return tuple(dict.fromkeys(name for test in (*self.when, *self.then) for name in test.columns))

    def applies(self, values: Mapping[str, Floats]) -> NDArray[np.bool_]:
        """(n,), where all of `when` hold."""
        n = len(values[self.columns[0]])
        return _join([np.ones(n, dtype=bool), *(test.holds(values) for test in self.when)])

    def is_broken(self, values: Mapping[str, Floats]) -> NDArray[np.bool_]:
        """(n,), which rows break it; where a value is not known, nobody can say so."""
        kept = _join([test.holds(values) for test in self.then])
        return self.applies(values) & ~kept & _are_known(values, self._valued)

    @cached_property
    def _valued(self) -> tuple[str, ...]:
        """The columns whose values it asks for, and not only whether there are any."""
        tests = [test for test in (*self.when, *self.then) if not isinstance(test, Missing)]
        return tuple(dict.fromkeys(name for test in tests for name in test.columns))


@dataclass(frozen=True, eq=False)
class Exclusion:
    """At most one of some conditions holds."""

    text: str
    of: tuple[LevelIn, ...]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns that it speaks of."""
        return tuple(dict.fromkeys(test.column for test in self.of))

    def is_broken(self, values: Mapping[str, Floats]) -> NDArray[np.bool_]:
        """(n,), which rows break it."""
        many = np.sum([test.holds(values) for test in self.of], axis=0) > 1
        return np.asarray(many & _are_known(values, self.columns))


Rule = Condition | Exclusion


@dataclass(frozen=True, eq=False)
class Formula:
    """A column that is what others come to; or about that, where everybody keeps a difference of their own."""

    text: str
    column: str
    value: Expression
    about: bool
    step: float | None
    tests: Mapping[syntax.Condition, Test]
    """The conditions in it, made out."""

    @cached_property
    def causes(self) -> tuple[str, ...]:
        """The columns that it follows."""
        return tuple(dict.fromkeys(list_columns(self.value)))

    def follow(self, values: Values, own: Values) -> Floats:
        """(n,), what the column comes to for rows that began as `own`; its own number where nothing moved."""
        found = evaluate(self.value, values, self.tests)
        if self.about:
            found = own[self.column] + found - evaluate(self.value, own, self.tests)
        known = _are_known(values, self.causes) & ~np.isnan(own[self.column])
        return np.where(known & find_moved(values, own, self.causes), found, own[self.column])

    def is_broken(self, values: Mapping[str, Floats]) -> NDArray[np.bool_]:
        """(n,), which rows are farther from it than rounding explains; or, where it holds about, than a quarter."""
        found = evaluate(self.value, values, self.tests)
        slack = _ROUNDING * np.abs(found) + (self.step or 0.0) * (0.5 + _ROUNDING)
        if self.about:
            slack = slack + _ABOUT * np.abs(found)
        with np.errstate(invalid="ignore"):
            off = ~(np.abs(values[self.column] - found) <= slack)
        return off & _are_known(values, (self.column, *self.causes))


@dataclass(frozen=True)
class Moves:
    """So much of an effect for so much of a cause."""

    text: str
    cause: str
    by: float
    effect: float

    def measure(self, values: Values, own: Values) -> Floats:
        """(n,), how far the effect goes; nowhere if the cause went the other way."""
        times = (values[self.cause] - own[self.cause]) / self.by
        return np.where(times > 0, times * self.effect, 0.0)  # NaN: nobody knows, nothing moves


@dataclass(frozen=True, eq=False)
class LinkedMoves:
    """A column that moves with others, of which the one that takes it farthest counts: they happen side by side."""

    column: str
    links: tuple[Moves, ...]

    @property
    def text(self) -> str:
        """All that moves it."""
        return "; ".join(link.text for link in self.links)

    @cached_property
    def causes(self) -> tuple[str, ...]:
        """The columns that it follows."""
        return tuple(dict.fromkeys(link.cause for link in self.links))

    def follow(self, values: Values, own: Values) -> Floats:
        """(n,), where the column comes to for rows that began as `own`."""
        moves = np.stack([link.measure(values, own) for link in self.links])
        return np.asarray(own[self.column] + moves.max(0).clip(min=0) + moves.min(0).clip(max=0))


Follower = Formula | LinkedMoves


def find_moved(values: Values, own: Values, names: tuple[str, ...]) -> NDArray[np.bool_]:
    """(n,), the rows in which any of these columns is no longer what it was."""
    moved = [(values[name] != own[name]) & ~(np.isnan(values[name]) & np.isnan(own[name])) for name in names]
    return np.asarray(np.logical_or.reduce(moved))


def _are_known(values: Mapping[str, Floats], names: tuple[str, ...]) -> NDArray[np.bool_]:
    unknown = [np.isnan(values[name]) for name in names]
    return np.asarray(~np.logical_or.reduce([np.zeros(len(next(iter(values.values()))), dtype=bool), *unknown]))


def _join(tests: Sequence[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    return np.asarray(np.logical_and.reduce(tests))
