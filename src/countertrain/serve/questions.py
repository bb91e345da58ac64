"""What people ask: request bodies made from the schema of a model, whose every mistake is said in one sentence."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field, create_model, with_config
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from countertrain.serve.answers import Problem, Refusal
from countertrain.serve.cells import cell, computable, example, one_of, range_of, whole
from countertrain.serve.limits import Limits
from countertrain.tables.encoder import Encoder
from countertrain.tables.schema import Level, Schema, SchemaError
from countertrain.words import say_mistake, suggest

__all__ = ["Question", "RecourseQuestion", "in_words", "question_types"]

Person = dict[str, Any]
ModelName = Literal["main", "baseline"]


class Question(BaseModel):
    """People to decide on."""

    model_config = ConfigDict(extra="forbid")

    rows: list[Person]
    model: ModelName = Field(default="main", description="Which of the models is asked.")


class RecourseQuestion(Question):
    """People who want another decision, and what they can change."""

    target: Level | None = None
    n_options: int = 1
    immutable: list[str] = Field(default=[], description="Columns that these people cannot change.")
    ranges: dict[str, Any] = {}


def question_types(
    encoder: Encoder, classes: Sequence[Level], *, baseline: bool, limits: Limits
) -> tuple[type[Question], type[RecourseQuestion]]:
    """The bodies of /predict and /recourse for a model of these columns and classes."""
    schema, limits_of = encoder.schema, computable(encoder)
    columns = {column.name: cell(column, limits_of) for column in schema.columns}
    optional = {column.name for column in schema.columns if column.missing != "refuse"}
    person = _object("Person", {name: NotRequired[t] if name in optional else t for name, t in columns.items()})
    ranges = _object("Ranges", {column.name: NotRequired[range_of(column)] for column in schema.columns})
    someone = {column.name: example(column) for column in schema.columns}
    common: dict[str, Any] = {
        "rows": (
            Annotated[list[person], Field(min_length=1, max_length=limits.rows, examples=[[someone]])],  # type: ignore[valid-type]
            ...,
        ),
    }
    if not baseline:
        common["model"] = (Literal["main"], Question.model_fields["model"])
    name, two = one_of(schema.names), len(classes) == 2
    target = one_of(classes) | None if two else one_of(classes)
    said = "The decision that is wanted" + ("; null: of the two the other one." if two else ".")
    return (
        create_model("Question", __base__=Question, **common),
        create_model(
            "RecourseQuestion",
            __base__=RecourseQuestion,
            **common,
            target=(target, Field(default=None if two else ..., description=said, examples=[classes[-1]])),
            n_options=(whole(1, limits.options), Field(default=1, description="Ways to another decision, at most.")),
            immutable=(list[name], RecourseQuestion.model_fields["immutable"]),  # type: ignore[valid-type]
            ranges=(ranges, Field(default={}, description="What columns may become for these people.")),
        ),
    )


def _object(name: str, fields: Mapping[str, Any]) -> Any:
    """The type of a JSON object with these keys and no others; keys may be any text."""
    made: Any = TypedDict(name, dict(fields))  # type: ignore[misc]  # made at run time
    return with_config(ConfigDict(extra="forbid"))(made)


def in_words(errors: Sequence[Mapping[str, Any]], schema: Schema) -> Refusal:
    """What is wrong with a request, from the errors that pydantic found; a typo explains what else is wrong."""
    errors = sorted(errors, key=lambda error: error["type"] != "extra_forbidden")
    problems = [Problem([*error["loc"]][1:], _message(error, schema)) for error in errors]
    first, cause = problems[0], errors[0].get("ctx", {}).get("error")
    said = first.message if isinstance(cause, SchemaError) else f"{_place(first.where)} {first.message}"
    return Refusal(said, problems)


def _message(error: Mapping[str, Any], schema: Schema) -> str:
    """A mistake in the words that follow its place."""
    kind, where = error["type"], [*error["loc"]][1:]
    if kind == "json_invalid":
        return f"is not valid JSON: {error['ctx']['error']}"
    if kind == "model_attributes_type":
        return "must be a JSON object, sent as application/json"
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        known = schema.names if len(where) > 1 else RecourseQuestion.model_fields
        return f"is not known; {suggest(where[-1], known)}"
    return say_mistake(error)


def _place(where: Sequence[str | int]) -> str:
    match where:
        case ["rows", int(row), str(name)]:
            return f"column {name!r}, row {row},"
        case ["rows", int(row)]:
            return f"row {row}"
        case ["ranges", str(name)]:
            return f"the range of column {name!r}"
        case [str(name), *_]:
            return name
    return "the body of the request"
