"""What a rule says, as plain values: sums and products of columns, comparisons, and the kinds of rules made of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "Arithmetic", "AtMostOne", "Comparison", "Condition", "Derived", "Expression", "IfThen", "Indicator", "Link",
    "Move", "Name", "Number", "OneOf", "Operator", "Statement", "Text", "Truth", "list_columns",
]  # fmt: skip

Operator = Literal["==", "!=", "<", "<=", ">", ">="]


@dataclass(frozen=True)
class Number:
    """A number as it is written."""

    value: float


@dataclass(frozen=True)
class Text:
    """A level, in quotes."""

    value: str


@dataclass(frozen=True)
class Name:
    """A column."""

    name: str


@dataclass(frozen=True)
class Arithmetic:
    """Two expressions added, subtracted, multiplied or divided."""

    sign: str
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True)
class Indicator:
    """A condition in brackets that counts as a number: 1 where it holds, else 0."""

    condition: "Condition"


Expression = Number | Text | Name | Arithmetic | Indicator


@dataclass(frozen=True)
class Comparison:
    """`left <= right` and the like."""

    left: Expression
    operator: Operator
    right: Expression


@dataclass(frozen=True)
class OneOf:
    """`column in ("a", "b")`."""

    column: Name
    levels: tuple[Text | Number, ...]


@dataclass(frozen=True)
class Truth:
    """A column of truth values that is true."""

    column: Name


Condition = Comparison | OneOf | Truth


@dataclass(frozen=True)
class Derived:
    """`total = tenure * monthly`; or `total ~ tenure * monthly`, where everybody keeps a difference of their own."""

    column: str
    value: Expression
    about: bool = False


@dataclass(frozen=True)
class IfThen:
    """`when => then`, each one condition or several joined by `and`; `<=>` holds both ways. Without `when`: always."""

    when: tuple[Condition, ...]
    then: tuple[Condition, ...]
    both_ways: bool = False


@dataclass(frozen=True)
class Move:
    """`column + 2`: so far up, or down."""

    column: str
    by: float


@dataclass(frozen=True)
class Link:
    """`education + 1 => age + 2`: whoever moves one column moves another with it."""

    cause: Move
    effect: Move


@dataclass(frozen=True)
class AtMostOne:
    """`at most one of a, b, c`."""

    of: tuple[Condition, ...]


Statement = Derived | IfThen | Link | AtMostOne


def list_columns(expression: Expression) -> Iterator[str]:
    """The columns that an expression speaks of."""
    if isinstance(expression, Name):
        yield expression.name
    elif isinstance(expression, Arithmetic):
        yield from list_columns(expression.left)
        yield from list_columns(expression.right)
    elif isinstance(expression, Indicator):
        sides = expression.condition
        for side in (sides.left, sides.right) if isinstance(sides, Comparison) else (sides.column,):
            yield from list_columns(side)
