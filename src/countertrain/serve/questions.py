"""What people ask: request bodies made from the schema of a model, with every mistake explained in one sentence."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field, create_model, with_config
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from countertrain.recourse.defaults import OPTIONS
from countertrain.serve.answers import FieldError, Label, Refusal
from countertrain.serve.limits import Limits
from countertrain.serve.value_types import choice_type, find_limits, integer_type, make_example, range_type, value_type
from countertrain.tables.encoder import Encoder
from countertrain.tables.schema import SchemaError
from countertrain.words import say_mistake, suggest

__all__ = ["ExplainQuestion", "Question", "explain_errors", "question_types", "sample_type"]

Person = dict[str, Any]
ModelName = Literal["main", "baseline"]
SAMPLE = ("label", "n")  # what may be asked of /sample


class Question(BaseModel):
    """People to decide on."""

    model_config = ConfigDict(extra="forbid")

    rows: list[Person]
    model: ModelName = Field(default="main", description="Which of the models is asked.")


class ExplainQuestion(Question):
    """People who want another decision, and what they can change."""

    target: Label | None = None
    options: int = OPTIONS
    immutable: list[str] = Field(default=[], description="Columns that these people cannot change.")
    ranges: dict[str, Any] = {}
    reasons: bool = Field(default=False, description="Whether to say why, too: up to four reasons per person.")


def question_types(
    encoder: Encoder, classes: Sequence[Label], *, wanted: Label | None = None, baseline: bool, limits: Limits
) -> tuple[type[Question], type[ExplainQuestion]]:
    """The bodies of /predict and /explain for a model of these columns and classes, of which one may be `wanted`."""
    schema, limits_of = encoder.schema, find_limits(encoder)
    columns = {column.name: value_type(column, limits_of) for column in schema.columns}
    optional = {column.name for column in schema.columns if column.missing != "refuse"}
    person = _object_type("Person", {name: NotRequired[t] if name in optional else t for name, t in columns.items()})
    ranges = _object_type("Ranges", {column.name: NotRequired[range_type(column)] for column in schema.columns})
    someone = {column.name: make_example(column) for column in schema.columns}
    common: dict[str, Any] = {
        "rows": (
            Annotated[list[person], Field(min_length=1, max_length=limits.rows, examples=[[someone]])],  # type: ignore[valid-type]
            ...,
        ),
    }
    if not baseline:
        common["model"] = (Literal["main"], Question.model_fields["model"])
    name, optional_target = choice_type(schema.names), wanted is not None or len(classes) == 2
    target = choice_type(classes) | None if optional_target else choice_type(classes)
    said = "The decision that is wanted" + (
        f"; null: {wanted!r}, which people want."
        if wanted is not None
        else "; null: the other one of the two."
        if optional_target
        else "."
    )
    example = classes[-1] if wanted is None else wanted
    return (
        create_model("Question", __base__=Question, **common),
        create_model(
            "ExplainQuestion",
            __base__=ExplainQuestion,
            **common,
            target=(target, Field(default=None if optional_target else ..., description=said, examples=[example])),
            options=(
                integer_type(1, limits.options),
                Field(default=OPTIONS, description="Ways to another decision, at most."),
            ),
            immutable=(list[name], ExplainQuestion.model_fields["immutable"]),  # type: ignore[valid-type]
            ranges=(ranges, Field(default={}, description="What columns may become for these people.")),
        ),
    )


def sample_type(labels: Sequence[str], most: int) -> type[BaseModel]:
    """What may be asked of /sample."""
    label = choice_type(labels) | None
    return create_model(
        "SampleQuery",
        __config__=ConfigDict(extra="forbid"),
        label=(label, Field(default=None, description="Only people of this class.")),
        n=(Annotated[int, Field(ge=1, le=most)], 10),
    )


def _object_type(name: str, fields: Mapping[str, Any]) -> Any:
    """The type of a JSON object with these keys and no others; keys may be any text."""
    made: Any = TypedDict(name, dict(fields))  # type: ignore[misc]  # made at run time
    return with_config(ConfigDict(extra="forbid"))(made)


def explain_errors(errors: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Refusal:
    """What is wrong with a request, from the errors that pydantic found; a typo explains what else is wrong."""
    errors = sorted(errors, key=lambda error: error["type"] != "extra_forbidden")
    problems = [FieldError([*error["loc"]][1:], _say_error(error, names)) for error in errors]
    first, cause = problems[0], errors[0].get("ctx", {}).get("error")
    said = first.message if isinstance(cause, SchemaError) else f"{_name_place(first.where)} {first.message}"
    return Refusal(said, problems)


def _say_error(error: Mapping[str, Any], names: Sequence[str]) -> str:
    """A mistake in the words that follow its place."""
    kind, where = error["type"], [*error["loc"]][1:]
    if kind == "json_invalid":
        return f"is not valid JSON: {error['ctx']['error']}"
    if kind == "model_attributes_type":
        return "must be a JSON object, sent as application/json"
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        known = SAMPLE if error["loc"][0] == "query" else names if len(where) > 1 else ExplainQuestion.model_fields
        return f"is not known; {suggest(where[-1], known)}"
    return say_mistake(error)


def _name_place(where: Sequence[str | int]) -> str:
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
