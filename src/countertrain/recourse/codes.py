"""The words for reasons: a code and a text per column, from a table of the owner's or from the schema."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from countertrain.recourse.rendering import as_text
from countertrain.tables.schema import Numeric, Schema
from countertrain.tables.sentences import say_all
from countertrain.words import explain_mistakes, suggest

__all__ = ["CodeSource", "Codes", "Side"]

Side = Literal["low", "high", "other", "missing"]
"""Where a person's value is, compared with what is typical: a number below or above, another level, or unknown."""
_WORDS: dict[Side, str] = {
    "low": "{label} is low: {value} (typical of {target}: {typical})",
    "high": "{label} is high: {value} (typical of {target}: {typical})",
    "other": "{label} is {value} (typical of {target}: {typical})",
    "missing": "{label} is not known (typical of {target}: {typical})",
}
_TOGETHER: dict[Side, str] = {
    side: text.replace("(typical of {target}: {typical})", "(with other changes, {typical} would do)")
    for side, text in _WORDS.items()
}
_KNOWN = ("label", "value", "typical", "target")
_PLACE = re.compile(r"\{(\w*)\}")


class _Wording(BaseModel):
    """A text with a code of its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    code: str | None = None


class _Entry(BaseModel):
    """What the owner says of a column."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str | None = None
    label: str | None = None
    text: str | _Wording | None = None
    low: str | _Wording | None = None
    high: str | _Wording | None = None
    missing: str | _Wording | None = None
    levels: dict[str, str | _Wording] = {}

    def list_texts(self) -> Iterator[str]:
        """All texts of the column."""
        for said in (self.text, self.low, self.high, self.missing, *self.levels.values()):
            if said is not None:
                yield said if isinstance(said, str) else said.text


@dataclass(frozen=True)
class Codes:
    """A code table for the columns of a schema; what the owner leaves out is said in the words of the schema."""

    schema: Schema
    entries: Mapping[str, _Entry] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    """What columns are called, where the table has no label for them."""
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What levels of columns are called, by the text of the level."""
    decisions: Mapping[str, str] = field(default_factory=dict)
    """What decisions are called, by the text of the label."""

    @classmethod
    def read(cls, source: "CodeSource", schema: Schema) -> Self:
        """A table for a schema: a TOML file, a mapping of the same form, or None for the words of the schema."""
        if isinstance(source, cls):
            return source
        if source is None:
            return cls(schema)
        where = "the code table" if isinstance(source, Mapping) else str(source)
        given = source if isinstance(source, Mapping) else _read_toml(Path(source))  # type: ignore[arg-type]
        entries: dict[str, _Entry] = {}
        wrong: list[str] = []
        for name, values in given.items():
            if name not in schema.names:
                wrong.append(f"{where} names {name!r}, which is no column of the model; {suggest(name, schema.names)}")
                continue
            try:
                entries[name] = _Entry.model_validate(values)
            except ValidationError as error:
                wrong.append(f"{where}, column {name!r}: {explain_mistakes(error, _Entry.model_fields)}")
            else:
                wrong += [f"{where}, column {name!r}: {said}" for said in _check_entry(entries[name], schema[name])]
        if wrong:
            raise ValueError(say_all(wrong))
        return cls(schema, entries)

    def call(
        self, labels: Mapping[str, str], values: Mapping[str, Mapping[str, str]], decisions: Mapping[str, str]
    ) -> Self:
        """The table with names for columns, levels and decisions; a label in the table itself goes first."""
        return replace(self, labels=labels, values=values, decisions=decisions)

    def name(self, column: str) -> str:
        """What a column is called: by the owner, or by its own name with spaces."""
        entry = self.entries.get(column)
        return (entry.label if entry else None) or self.labels.get(column, column.replace("_", " "))

    def show(self, column: str, value: Any) -> str:
        """A value of a column as people read it, with its unit, or as the owner calls the level."""
        known = self.values.get(column, {}).get(str(value))
        if isinstance(value, bool):
            return known or ("yes" if value else "no")
        if isinstance(value, float) and getattr(self.schema[column], "step", 1.0) is None:
            value = _round(value)
        unit = getattr(self.schema[column], "unit", None)
        return known or (f"{as_text(value)} {unit}" if unit and value is not None else as_text(value))

    def word(
        self, column: str, side: Side, value: Any, typical: Any, target: Any, *, together: bool = False
    ) -> tuple[str, str]:
        """Code and text of a reason: that of the level, of the side, or of the column, whichever is there first.

        Reasons that count only `together` compare with what is advised, not with what is typical.
        """
        entry = self.entries.get(column, _Entry())
        own = entry.levels.get(str(value)) if side == "other" else getattr(entry, side, None)
        said = own if own is not None else entry.text
        wording = _Wording(text=said) if isinstance(said, str) else said
        code = (wording.code if wording else None) or entry.code or f"{column}.{side}"
        shown = {
            "label": self.name(column),
            "value": self.show(column, value),
            "typical": self.show(column, typical),
            "target": self.decisions.get(str(target), as_text(target)),
        }
        text = wording.text if wording else (_TOGETHER if together else _WORDS)[side]
        return code, _PLACE.sub(lambda place: shown[place[1]], text)


CodeSource = Codes | Mapping[str, Any] | str | PathLike[str] | None
"""Where a code table may come from."""


def _round(number: float) -> float:
    """A number without a step as a person would write it: cents of what is large, four digits of what is small."""
    return round(number, 2) if abs(number) >= 100 else float(f"{number:.4g}")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from error


def _check_entry(entry: _Entry, column: Any) -> Iterator[str]:
    """What is wrong with the words for a column."""
    for text in entry.list_texts():
        for name in _PLACE.findall(text):
            if name not in _KNOWN:
                yield f"{text!r} has the place {{{name}}}; there are {', '.join(f'{{{one}}}' for one in _KNOWN)}"
    if isinstance(column, Numeric):
        if entry.levels:
            yield "a number has no levels; say `low` and `high`"
        return
    if entry.low is not None or entry.high is not None:
        yield "a category is neither low nor high; say `levels` or `text`"
    for level in entry.levels:
        if level not in column.labels:
            yield f"there is no level {level!r}; {suggest(level, column.labels)}"
