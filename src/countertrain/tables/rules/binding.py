"""What a rule says, made out against the columns of a schema: names, levels and kinds are checked here."""

from collections.abc import Mapping, Sequence
from typing import NoReturn

from countertrain.tables.columns import MISSING, Boolean, Categorical, Numeric
from countertrain.tables.rules import syntax
from countertrain.tables.rules.bound import Condition, Exclusion, Formula, Moves, Rule
from countertrain.tables.rules.conditions import Equal, LevelIn, Missing, NotAbove, Test
from countertrain.tables.rules.syntax import (
    Arithmetic,
    AtMostOne,
    Comparison,
    Derived,
    Expression,
    IfThen,
    Indicator,
    Link,
    Move,
    Name,
    Number,
    OneOf,
    Statement,
    Text,
    Truth,
    list_columns,
)
from countertrain.tables.sentences import SchemaError
from countertrain.words import suggest

__all__ = ["bind_rule"]

AnyColumn = Numeric | Categorical | Boolean
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


def bind_rule(
    text: str, statement: Statement, columns: Mapping[str, AnyColumn]
) -> tuple[list[Rule], list[Formula], list[tuple[str, Moves]]]:
    """Conditions, derived columns and linked moves (with the column that moves) that a rule comes to."""
    binder = _Binder(text, columns)
    if isinstance(statement, Derived):
        return [], [binder.bind_formula(statement)], []
    if isinstance(statement, Link):
        return [], [], [binder.bind_link(statement)]
    if isinstance(statement, AtMostOne):
        tests = [binder.bind_test(one) for one in statement.of]
        levels = [test for test in tests if isinstance(test, LevelIn)]
        if len(levels) < len(tests):
            raise SchemaError(f"the rule {text!r} may list truth values and levels only, not numbers")
        return [Exclusion(text, tuple(levels))], [], []
    return binder.bind_conditions(statement), [], []


class _Binder:
    """One rule and the columns that it may speak of."""

    def __init__(self, text: str, columns: Mapping[str, AnyColumn]) -> None:
        self.text, self.columns = text, columns

    def bind_formula(self, rule: Derived) -> Formula:
        column = self._find_number(rule.column)
        tests: dict[syntax.Condition, Test] = {}
        self._check_arithmetic(rule.value, tests)
        if not [*list_columns(rule.value)]:
            raise SchemaError(f"the rule {self.text!r} has {column.name!r} follow from no other column")
        return Formula(self.text, column.name, rule.value, rule.about, column.step, tests)

    def bind_link(self, rule: Link) -> tuple[str, Moves]:
        for move in (rule.cause, rule.effect):
            self._check_move(move)
        return rule.effect.column, Moves(self.text, rule.cause.column, rule.cause.by, rule.effect.by)

    def bind_conditions(self, rule: IfThen) -> list[Rule]:
        if not rule.when:
            return [self._bind_order(one) for one in rule.then]
        when, then = (tuple(self.bind_test(one) for one in side) for side in (rule.when, rule.then))
        if not rule.both_ways:
            return [Condition(self.text, when, then)]
        if len(when) > 1 or len(then) > 1:
            raise SchemaError(f"the rule {self.text!r} must have one condition on each side of '<=>'; write two rules")
        back = Condition(self.text, (when[0].negate(),), (then[0].negate(),))
        return [Condition(self.text, when, then), back]

    def _bind_order(self, one: object) -> Condition:
        """What always holds; of two truth values, where one may not be without the other, as a condition."""
        test = self.bind_test(one)
        if isinstance(test, NotAbove) and not test.strict and test.constant == 0 and len(test.factors) == 2:
            truths = {factor: name for name, factor in test.factors if isinstance(self._find(name), Boolean)}
            if truths.keys() == {1.0, -1.0}:
                when, then = (self._bind_levels(truths[sign], (Number(1.0),), by_place=True) for sign in (1.0, -1.0))
                return Condition(self.text, (when,), (then,))
        if not isinstance(test, NotAbove):
            raise SchemaError(
                f"the rule {self.text!r} says of everybody what a column holds; rules without '=>' compare numbers by "
                "'<=', '<', '>=' or '>', and a column that follows from others is written as a = b + c"
            )
        return Condition(self.text, (), (test,))

    def bind_test(self, one: object) -> Test:
        """One condition on the values of columns."""
        if isinstance(one, Truth):
            if not isinstance(self._find(one.column.name), Boolean):
                raise SchemaError(
                    f"the rule {self.text!r} takes {one.column.name!r} for a truth value, which it is not; compare it "
                    "with something"
                )
            return self._bind_levels(one.column.name, (Number(1.0),), by_place=True)
        if isinstance(one, OneOf):
            return self._bind_levels(one.column.name, one.levels)
        assert isinstance(one, Comparison)
        if self._is_level(one.right) and not self._is_level(one.left):
            one = Comparison(one.right, _TURNED[one.operator], one.left)  # type: ignore[arg-type]
        if self._is_level(one.left):
            return self._bind_level_comparison(one)
        if one.right == Text(MISSING) and isinstance(one.left, Name):
            return self._bind_missing(one.left.name, one.operator)
        return self._bind_numbers(one)

    def _bind_missing(self, name: str, operator: str) -> Missing:
        column = self._find_number(name)
        if operator not in ("==", "!="):
            raise SchemaError(
                f"the rule {self.text!r} compares {name!r} with 'missing', which is no number; write '=='"
            )
        if column.missing == "refuse":
            raise SchemaError(
                f"the rule {self.text!r} asks if {name!r} is missing, which it must not be; declare missing='level'"
            )
        return Missing(name, known=operator == "!=")

    def _is_level(self, side: Expression) -> bool:
        """Whether it is a column that is compared with one of its levels."""
        return isinstance(side, Name) and isinstance(self.columns.get(side.name), Categorical | Boolean)

    def _bind_level_comparison(self, one: Comparison) -> Test:
        assert isinstance(one.left, Name)
        name, right = one.left.name, one.right
        column = self._find(name)
        if isinstance(column, Boolean) and not isinstance(right, Text | Number):
            return self._bind_numbers(one)
        if isinstance(right, Name) and right.name not in self.columns:
            raise SchemaError(
                f"the rule {self.text!r} compares {name!r} with {right.name!r}, which is no column; write levels in "
                f"quotes, {name} {one.operator} \"{right.name}\""
            )  # fmt: skip
        if not isinstance(right, Text | Number):
            raise SchemaError(f"the rule {self.text!r} must compare {name!r} with one of its levels, in quotes")
        test = self._bind_levels(name, (right,))
        if one.operator in ("==", "!="):
            return test if one.operator == "==" else test.negate()
        if not (isinstance(column, Boolean) or (isinstance(column, Categorical) and column.ordered)):
            raise SchemaError(
                f"the rule {self.text!r} puts levels of {name!r} in an order, which they have not; declare ordered=True"
            )
        n, at = len(column.levels), test.places[0]
        place = {"<": range(at), "<=": range(at + 1), ">": range(at + 1, n), ">=": range(at, n)}[one.operator]
        return LevelIn(name, tuple(place), test.n_levels, test.advised)

    def _bind_levels(self, name: str, levels: Sequence[Text | Number], *, by_place: bool = False) -> LevelIn:
        column = self._find(name)
        if isinstance(column, Numeric):
            raise SchemaError(f"the rule {self.text!r} speaks of levels of {name!r}, which holds numbers")
        labels = column.labels
        places = [int(one.value) if by_place else self._find_level(column, one) for one in levels]
        unadvised = column.unadvised if isinstance(column, Categorical) else ()
        advised = tuple(i for i, label in enumerate(labels) if label not in unadvised)
        return LevelIn(name, tuple(places), len(labels), advised)

    def _find_level(self, column: Categorical | Boolean, written: Text | Number) -> int:
        shown = written.value if isinstance(written, Text) else f"{written.value:g}"
        for place, label in enumerate(column.labels):
            level = column.levels[place] if place < len(column.levels) else label
            if label == shown or (not isinstance(level, str) and level == written.value):
                return place
        raise SchemaError(
            f"the rule {self.text!r} names {shown!r}, which is no level of {column.name!r}; "
            f"{suggest(shown, column.labels)}"
        )

    def _bind_numbers(self, one: Comparison) -> Test:
        factors, constant = self._add_up(Arithmetic("-", one.left, one.right))
        if not factors:
            raise SchemaError(f"the rule {self.text!r} compares no column with anything")
        if one.operator in ("==", "!="):
            ((name, factor), *more) = factors.items()
            if more:
                raise SchemaError(
                    f"the rule {self.text!r} has numbers of several columns equal; write one of them as what follows "
                    "from the others, a = b + c"
                )
            return Equal(name, -constant / factor, one.operator == "!=")
        sign = 1.0 if one.operator in ("<", "<=") else -1.0
        listed = tuple((name, sign * factor) for name, factor in factors.items())
        return NotAbove(listed, sign * constant, one.operator in ("<", ">"))

    def _add_up(self, expression: Expression) -> tuple[dict[str, float], float]:
        """A sum as the factor of each column and a number."""
        if isinstance(expression, Number):
            return {}, expression.value
        if isinstance(expression, Name):
            if isinstance(self._find(expression.name), Categorical):
                self._refuse_levels(expression.name)
            return {expression.name: 1.0}, 0.0
        if isinstance(expression, Text):
            raise SchemaError(f"the rule {self.text!r} has the level {expression.value!r} where a number must stand")
        if isinstance(expression, Indicator):
            raise SchemaError(
                f"the rule {self.text!r} compares a condition in brackets with numbers; only a column that follows may "
                "reckon with conditions, and others are written with '=>'"
            )
        (left, a), (right, b) = self._add_up(expression.left), self._add_up(expression.right)
        if expression.sign in "+-":
            sign = 1.0 if expression.sign == "+" else -1.0
            total = {name: left.get(name, 0.0) + sign * right.get(name, 0.0) for name in (left | right)}
            return {name: factor for name, factor in total.items() if factor}, a + sign * b
        if expression.sign == "*" and not left:
            left, a, right, b = right, b, left, a
        if right or (expression.sign == "/" and b == 0):
            raise SchemaError(
                f"the rule {self.text!r} compares products of columns; only sums with fixed factors can be kept: write "
                "a <= 3 * b for a / b <= 3, or a column that follows, total = a * b"
            )
        times = b if expression.sign == "*" else 1.0 / b
        return {name: factor * times for name, factor in left.items()}, a * times

    def _check_arithmetic(self, expression: Expression, tests: dict[syntax.Condition, Test]) -> None:
        """Refuse what cannot be reckoned with, and make out the conditions in it."""
        if isinstance(expression, Text):
            raise SchemaError(f"the rule {self.text!r} has the level {expression.value!r} where a number must stand")
        if isinstance(expression, Name) and isinstance(self._find(expression.name), Categorical):
            self._refuse_levels(expression.name)
        if isinstance(expression, Indicator):
            tests[expression.condition] = self.bind_test(expression.condition)
        if isinstance(expression, Arithmetic):
            self._check_arithmetic(expression.left, tests)
            self._check_arithmetic(expression.right, tests)

    def _check_move(self, move: Move) -> None:
        column = self._find(move.column)
        if isinstance(column, Numeric):
            return
        if isinstance(column, Boolean) or not column.ordered:
            raise SchemaError(
                f"the rule {self.text!r} moves {move.column!r} up or down, which holds neither numbers nor levels in "
                "an order; declare ordered=True, or use a condition"
            )
        if not move.by.is_integer():
            raise SchemaError(
                f"the rule {self.text!r} moves {move.column!r} by a part of a level; write a whole number"
            )

    def _find(self, name: str) -> AnyColumn:
        if name not in self.columns:
            hint = suggest(name, self.columns)
            raise SchemaError(f"the rule {self.text!r} names {name!r}, which is no column of the schema; {hint}")
        return self.columns[name]

    def _find_number(self, name: str) -> Numeric:
        column = self._find(name)
        if not isinstance(column, Numeric):
            self._refuse_levels(name)
        return column

    def _refuse_levels(self, name: str) -> NoReturn:
        raise SchemaError(f"the rule {self.text!r} reckons with {name!r}, which does not hold numbers")
