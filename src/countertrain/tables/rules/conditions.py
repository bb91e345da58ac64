"""Conditions on the values of columns: one of some levels, a sum that is not above zero, a number that is missing."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from countertrain.tables.rules.syntax import Arithmetic, Condition, Expression, Indicator, Name, Number

__all__ = ["Equal", "Floats", "LevelIn", "Missing", "NotAbove", "Rows", "Test", "Values", "evaluate"]

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
Values = dict[str, Floats]
"""The columns that rules speak of, (n,) each, in people's units; levels by their places; NaN where nothing is known."""
_TOLERANCE = 1e-9  # of the size of what is added up: sums of decimals are not exact


@dataclass(frozen=True)
class LevelIn:
    """A column holds one of some levels."""

    column: str
    places: tuple[int, ...]
    """Of the levels that will do, those to go to first."""
    n_levels: int
    advised: tuple[int, ...]
    """Of all levels those that people may be sent to, in their order."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    @property
    def default(self) -> int | None:
        """The place of the level that whoever must have one of them goes to, if there is nothing to choose by."""
        return next((place for place in self.places if place in self.advised), None)

    def holds(self, values: Mapping[str, Floats]) -> NDArray[np.bool_]:
        """(n,), where it is so."""
        return np.isin(values[self.column], self.places)

    def negate(self) -> Self:
        """That it is not so."""
        return replace(self, places=tuple(place for place in range(self.n_levels) if place not in self.places))


@dataclass(frozen=True)
class NotAbove:
    """A sum of columns with factors, and a number, is at most zero; below it, if `strict`."""

    factors: tuple[tuple[str, float], ...]
    constant: float
    strict: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are added up."""
        return tuple(name for name, _ in self.factors)

    def excess(self, values: Mapping[str, Floats]) -> Floats:
        """(n,), how far the sum is above zero; no more than that where it is a rounding error."""
        terms = [factor * values[name] for name, factor in self.factors]
        total = np.sum([*terms, np.full_like(terms[0], self.constant)], axis=0)
        if len(terms) + (self.constant != 0) <= 2 and all(abs(factor) == 1 for _, factor in self.factors):
            return np.asarray(total)  # the difference of two numbers has the right sign
        size = np.sum(np.abs(terms), axis=0) + abs(self.constant)
        return np.where(np.abs(total) <= _TOLERANCE * size, 0.0, total)

    def holds(self, values: Mapping[str, Floats]) -> NDArray[np.bool_]:
        """(n,), where it is so."""
        excess = self.excess(values)
        return excess < 0 if self.strict else excess <= 0

    def negate(self) -> Self:
        """That it is not so."""
        factors = tuple((name, -factor) for name, factor in self.factors)
        return replace(self, factors=factors, constant=-self.constant, strict=not self.strict)


@dataclass(frozen=True)
class Equal:
    """A column of numbers holds this one; or not, if `other`."""

    column: str
    number: float
    other: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    def holds(self, values: Mapping[str, Floats]) -> NDArray[np.bool_]:
        """(n,), where it is so."""
        return np.asarray((values[self.column] == self.number) != self.other)

    def negate(self) -> Self:
        """That it is not so."""
        return replace(self, other=not self.other)


@dataclass(frozen=True)
class Missing:
    """A column of numbers holds none; or one, if `known`."""

    column: str
    known: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    def holds(self, values: Mapping[str, Floats]) -> NDArray[np.bool_]:
        """(n,), where it is so."""
        return np.asarray(np.isnan(values[self.column]) != self.known)

    def negate(self) -> Self:
        """That it is not so."""
        return replace(self, known=not self.known)


Test = LevelIn | NotAbove | Equal | Missing


def evaluate(expression: Expression, values: Mapping[str, Floats], tests: Mapping[Condition, Test]) -> Floats:
    """(n,), what an expression comes to, with the conditions in it made out; not finite where it divides by zero."""
    n = len(next(iter(values.values())))
    if isinstance(expression, Indicator):
        return tests[expression.condition].holds(values).astype(np.float64)
    if isinstance(expression, Number):
        return np.full(n, expression.value)
    if isinstance(expression, Name):
        return values[expression.name]
    assert isinstance(expression, Arithmetic)
    left, right = (evaluate(side, values, tests) for side in (expression.left, expression.right))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        made = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[expression.sign](left, right)
    return np.asarray(made, dtype=np.float64)
