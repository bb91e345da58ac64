"""What is wrong with a schema, said in one sentence with the way out."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from countertrain.words import first_mistake, say_mistake, suggest

__all__ = ["SchemaError", "in_one_sentence", "say_all"]


class SchemaError(ValueError):
    """A column or a schema is declared in a way that it cannot be; the message says which and what would do."""


def in_one_sentence(self: BaseModel, /, **values: Any) -> None:
    """The constructor of a model that refuses what is wrong in one sentence."""
    try:
        BaseModel.__init__(self, **values)
    except ValidationError as error:
        raise SchemaError(_sentence(type(self), values, error)) from error


def say_all(sentences: Sequence[str]) -> str:
    """All that is wrong at once: one sentence as it is, several with numbers."""
    if len(sentences) == 1:
        return sentences[0]
    listed = " ".join(f"({i}) {one}{'' if one.endswith('?') else '.'}" for i, one in enumerate(sentences, 1))
    return f"{len(sentences)} things are in the way: {listed}"


def _sentence(model: type[BaseModel], values: Mapping[str, Any], error: ValidationError) -> str:
    first = first_mistake(error.errors())
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, SchemaError):  # a column of the schema has said it all
        return str(cause)
    kind = model.__name__.lower()
    who = "the schema" if kind == "schema" else f"column {values['name']!r}" if "name" in values else f"a {kind} column"
    key = str(first["loc"][0]) if first["loc"] else None
    if first["type"] == "extra_forbidden":
        return f"{who} has no setting {key!r}; {suggest(key, model.model_fields)}"
    if first["type"] == "missing":
        return f"{who} needs the setting {key!r}"
    if first["type"].startswith("union_tag"):
        return f"every column needs a kind, 'numeric', 'categorical' or 'boolean'; got {first['input']!r}"
    said = say_mistake(first)
    return f"{who}: {said}" if key is None else f"{who}: {key} {said}; got {first['input']!r}"
