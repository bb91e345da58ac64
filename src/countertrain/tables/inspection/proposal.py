"""A proposed schema, and the file in which it can be read, edited and given back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tomli_w

from countertrain.tables.columns import Column
from countertrain.tables.schema import Schema, SchemaError

__all__ = ["Proposal"]

_WIDTH = 110
_KEYS = {"kind", "name", "mutability"}
"""What is always written; of all else, what is not as it is anyway."""


@dataclass(frozen=True, eq=False)
class Proposal:
    """Columns as they are proposed, and why."""

    columns: tuple[Column, ...]
    dropped: Mapping[str, str]
    """The columns to drop, and why."""
    reasons: Mapping[str, Mapping[str, str]]
    """By column: why a setting is as it is, and under `""` what the column is."""
    rules: tuple[str, ...] | None = None
    """What holds between columns, as it was declared."""

    @property
    def schema(self) -> Schema:
        """The schema, refused where no column is left."""
        if not self.columns:
            raise SchemaError("no column is left to learn from; see what was found, and correct the table")
        return Schema(columns=self.columns, dropped=tuple(self.dropped) or None, rules=self.rules)

    def to_toml(self, heading: Sequence[str] = ()) -> str:
        """The schema with a comment on every line that was decided."""
        lines = [f"# {one}" if one else "#" for one in heading]
        if self.dropped:
            lines += ["", "dropped = [  # the model does not see these; take one out, and declare it below, to keep it"]
            lines += [f"    {_write(name)},  # {_comment(why)}" for name, why in self.dropped.items()]
            lines += ["]"]
        if self.rules:
            lines += ["", "rules = [", *(f"    {_write(rule)}," for rule in self.rules), "]"]
        for column in self.columns:
            lines += ["", *self._write_column(column)]
        return "\n".join(lines) + "\n"

    def _write_column(self, column: Column) -> list[str]:
        reasons = self.reasons.get(column.name, {})
        about = reasons.get("")
        lines = [f"[[columns]]{f'  # {_comment(about)}' if about else ''}"]
        for key, value in column.model_dump(exclude_none=True).items():
            default = type(column).model_fields[key].get_default()
            if key in _KEYS or repr(value) != repr(default):  # 0 and 1 are not false and true to a reader, or a rule
                comment = f"  # {_comment(reasons[key])}" if key in reasons else ""
                lines.append(f"{key} = {_write(value)}{comment}")
        return lines


def _write(value: Any) -> str:
    """A value in TOML, on one line where it fits."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_write(str(key))} = {_write(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list | tuple):
        parts = [_write(one) for one in value]
        line = f"[{', '.join(parts)}]"
        return line if len(line) <= _WIDTH else "[\n" + "".join(f"    {one}\n" for one in _fill(parts)) + "]"
    return tomli_w.dumps({"value": value}).removeprefix("value = ").rstrip("\n")


def _fill(parts: Sequence[str]) -> list[str]:
    """As many values on a line as fit."""
    lines = [""]
    for part in parts:
        if lines[-1] and len(lines[-1]) + len(part) > _WIDTH:
            lines.append("")
        lines[-1] += f"{' ' if lines[-1] else ''}{part},"
    return lines


def _comment(text: str) -> str:
    """A text that can stand in a comment: on one line, and of nothing but characters that can be seen."""
    return "".join(one if one.isprintable() else " " for one in " ".join(text.split()))
