"""From the text of a rule to what it says: a parser by hand, so that nothing in a schema is ever run."""

from typing import NoReturn, cast

from countertrain.tables.rules.syntax import (
    Arithmetic,
    AtMostOne,
    Comparison,
    Condition,
    Derived,
    Expression,
    IfThen,
    Indicator,
    Link,
    Move,
    Name,
    Number,
    OneOf,
    Operator,
    Statement,
    Text,
    Truth,
)
from countertrain.tables.rules.tokens import Token, tokenise
from countertrain.tables.sentences import SchemaError

__all__ = ["parse_rule"]

_COMPARING = ("==", "!=", "<", "<=", ">", ">=")
_KINDS = (
    "a rule is a derived column (total = a * b), a condition (a == \"x\" => b == \"y\"), an order (a <= b), "
    "a link (a + 1 => b + 2) or 'at most one of a, b'"
)  # fmt: skip


def parse_rule(text: str) -> Statement:
    """What a rule says; refused in one sentence where it cannot be read."""
    return _Parser(text).read()


class _Parser:
    """Reads from left to right, one token ahead."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.at = text, tokenise(text), 0

    @property
    def next(self) -> Token:
        return self.tokens[self.at]

    def read(self) -> Statement:
        statement = self._read_statement()
        if self.next.kind != "end":
            self._refuse("the end of the rule")
        return statement

    def _read_statement(self) -> Statement:
        if self.next == Token("word", "at"):
            return self._read_at_most_one()
        start = self.at
        first = self._read_sum()
        for sign, about in (("=", False), ("~", True)):
            if self._take(sign):
                if not isinstance(first, Name):
                    raise SchemaError(f"the rule {self.text!r} must have one column on the left of {sign!r}; {_KINDS}")
                return Derived(first.name, self._read_sum(), about)
        move = _as_move(first)
        if move is not None and self._take("=>"):
            effect = _as_move(self._read_sum())
            if effect is None:
                raise SchemaError(
                    f"the rule {self.text!r} says how far {move.column!r} moves, and must say so of another column, "
                    "too: a + 1 => b + 2"
                )
            return Link(move, effect)
        self.at = start
        return self._read_if_then()

    def _read_if_then(self) -> IfThen:
        side = self._read_side()
        if self._take("=>"):
            return IfThen(side, self._read_side())
        if self._take("<=>"):
            return IfThen(side, self._read_side(), both_ways=True)
        if any(not isinstance(condition, Comparison) for condition in side):
            self._refuse("'=>' and what follows")
        return IfThen((), side)

    def _read_at_most_one(self) -> AtMostOne:
        for word in ("at", "most", "one", "of"):
            if self.next != Token("word", word):
                self._refuse("'at most one of'")
            self.at += 1
        listed = list(self._read_condition())
        while self._take(","):
            listed += self._read_condition()
        if len(listed) < 2:
            raise SchemaError(f"the rule {self.text!r} must list at least two columns or conditions, with commas")
        return AtMostOne(tuple(listed))

    def _read_side(self) -> tuple[Condition, ...]:
        conditions = self._read_condition()
        while self.next == Token("word", "and"):
            self.at += 1
            conditions += self._read_condition()
        return conditions

    def _read_condition(self) -> tuple[Condition, ...]:
        """One condition, or several where comparisons stand in a chain: a <= b <= c."""
        left = self._read_sum()
        if self.next == Token("word", "in"):
            self.at += 1
            if not isinstance(left, Name):
                raise SchemaError(f"the rule {self.text!r} must have one column on the left of 'in'")
            return (OneOf(left, self._read_levels()),)
        found: list[Condition] = []
        while self.next.kind == "sign" and self.next.value in _COMPARING:
            operator = cast(Operator, self.next.value)
            self.at += 1
            right = self._read_sum()
            found.append(Comparison(left, operator, right))
            left = right
        if not found and isinstance(left, Name):
            return (Truth(left),)
        if not found:
            self._refuse("a comparison such as '<='")
        return tuple(found)

    def _read_levels(self) -> tuple[Text | Number, ...]:
        self._expect("(")
        levels = [self._read_level()]
        while self._take(","):
            levels.append(self._read_level())
        self._expect(")")
        return tuple(levels)

    def _read_level(self) -> Text | Number:
        level = self._read_sum()
        if not isinstance(level, Text | Number):
            self._refuse("a level in quotes")
        return level

    def _read_sum(self) -> Expression:
        value = self._read_product()
        while self.next.kind == "sign" and self.next.value in "+-":
            sign = self.next.value
            self.at += 1
            value = Arithmetic(sign, value, self._read_product())
        return value

    def _read_product(self) -> Expression:
        value = self._read_atom()
        while self.next.kind == "sign" and self.next.value in "*/":
            sign = self.next.value
            self.at += 1
            value = Arithmetic(sign, value, self._read_atom())
        return value

    def _read_atom(self) -> Expression:
        token = self.next
        if self._take("("):
            return self._read_brackets()
        if self._take("-"):
            inner = self._read_atom()
            return Number(-inner.value) if isinstance(inner, Number) else Arithmetic("-", Number(0.0), inner)
        if token.kind not in ("number", "text", "name"):
            self._refuse("a column, a number or a level in quotes")
        self.at += 1
        if token.kind == "number":
            return Number(float(token.value))
        return Text(token.value) if token.kind == "text" else Name(token.value)

    def _read_brackets(self) -> Expression:
        """What stands in brackets: an expression, or a condition that counts as 1 or 0."""
        start = self.at
        value = self._read_sum()
        if self._take(")"):
            return value
        self.at = start
        condition, *more = self._read_condition()
        if more:
            raise SchemaError(f"the rule {self.text!r} must have one comparison in each pair of brackets")
        self._expect(")")
        return Indicator(condition)

    def _take(self, sign: str) -> bool:
        found = self.next == Token("sign", sign)
        self.at += found
        return found

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            self._refuse(repr(sign))

    def _refuse(self, wanted: str) -> NoReturn:
        token = self.next
        got = "it ends there" if token.kind == "end" else f"got {token.value!r}"
        after = f" after {self.tokens[self.at - 1].value!r}" if self.at else ""
        raise SchemaError(f"the rule {self.text!r} must have {wanted}{after}; {got}; {_KINDS}")


def _as_move(expression: Expression) -> Move | None:
    """`column + 2` as a move."""
    if not isinstance(expression, Arithmetic) or expression.sign not in "+-":
        return None
    column, by = expression.left, expression.right
    if not isinstance(column, Name) or not isinstance(by, Number) or by.value == 0:
        return None
    return Move(column.name, by.value if expression.sign == "+" else -by.value)
