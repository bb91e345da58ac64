"""The words and signs that a rule is made of."""

import re
from dataclasses import dataclass
from typing import Literal

from countertrain.tables.sentences import SchemaError

__all__ = ["Token", "tokenise"]

Kind = Literal["number", "text", "name", "word", "sign", "end"]
_WORDS = {"and", "in", "at", "most", "one", "of"}
_TRUTHS = {"true": "True", "false": "False"}
_PATTERN = re.compile(
    r"""\s*(?:
        (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<text>"[^"]*"|'[^']*')
      | `(?P<quoted>[^`]+)`
      | (?P<name>[^\W\d][\w.]*)
      | (?P<sign><=>|=>|<=|>=|==|!=|[<>=~+\-*/(),])
    )""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Token:
    """One word or sign."""

    kind: Kind
    value: str


def tokenise(text: str) -> list[Token]:
    """The words and signs of a rule, with an end; names that are no plain words stand between backticks."""
    tokens, at = [], 0
    while text[at:].strip():
        match = _PATTERN.match(text, at)
        if match is None:
            rest = text[at:].strip()
            raise SchemaError(
                f"the rule {text!r} cannot be read from {rest!r} on; levels stand in quotes, and names with other "
                "characters than letters, digits, '_' and '.' between backticks"
            )
        tokens.append(_make_token(match))
        at = match.end()
    return [*tokens, Token("end", "")]


def _make_token(match: re.Match[str]) -> Token:
    kind, value = next((kind, value) for kind, value in match.groupdict().items() if value is not None)
    if kind == "name" and value.lower() in _TRUTHS:
        return Token("text", _TRUTHS[value.lower()])
    if kind == "name" and value in _WORDS:
        return Token("word", value)
    if kind == "text":
        return Token("text", value[1:-1])
    if kind == "quoted":
        return Token("name", value)
    return Token(kind, value)  # type: ignore[arg-type]  # the other groups are called as their kinds
