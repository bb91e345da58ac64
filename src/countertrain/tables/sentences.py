"""What is wrong with a schema, said in one sentence with the way out."""

import difflib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

__all__ = ["SchemaError", "in_one_sentence", "plain", "suggestion"]


class SchemaError(ValueError):
    """A column or a schema is declared in a way that it cannot be; the message says which and what would do."""


def plain(value: Any) -> Any:
    """A number or truth value of NumPy as Python's own."""
    return value.item() if isinstance(value, np.generic) else value


def suggestion(name: object, known: Collection[object]) -> str:
    """The way out for a name that is not known: the nearest known one, or the first of them."""
    names = [str(one) for one in known]
    near = difflib.get_close_matches(str(name), names, n=1)
    more = ", ..." if len(names) > 12 else ""
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(map(repr, names[:12]))}{more}"


def in_one_sentence(self: BaseModel, /, **values: Any) -> None:
    """The constructor of a model that refuses what is wrong in one sentence."""
    try:
        BaseModel.__init__(self, **values)
    except ValidationError as error:
        raise SchemaError(_sentence(type(self), values, error)) from error


def _sentence(model: type[BaseModel], values: Mapping[str, Any], error: ValidationError) -> str:
    first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")  # a typo explains what else is wrong
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, SchemaError):  # a column of the schema has said it all
        return str(cause)
    kind = model.__name__.lower()
    who = "the schema" if kind == "schema" else f"column {values['name']!r}" if "name" in values else f"a {kind} column"
    key = str(first["loc"][0]) if first["loc"] else None
    if first["type"] == "extra_forbidden":
        return f"{who} has no setting {key!r}; {suggestion(key, model.model_fields)}"
    if first["type"] == "missing":
        return f"{who} needs the setting {key!r}"
    if first["type"].startswith("union_tag"):
        return f"every column needs a kind, 'numeric', 'categorical' or 'boolean'; got {first['input']!r}"
    said = first["msg"].removeprefix("Value error, ").replace("Input should", "must")
    return f"{who}: {said}" if key is None else f"{who}: {key} {said[0].lower()}{said[1:]}; got {first['input']!r}"
