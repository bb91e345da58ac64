"""What the service answers, as dataclasses: the OpenAPI page describes them, and pydantic writes them as JSON."""

from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict, with_config

from countertrain.recourse.explanation import Explanation
from countertrain.recourse.why import PersonReasons
from countertrain.tables.schema import Level

__all__ = [
    "Chance",
    "Decision",
    "ExplainAnswer",
    "FieldError",
    "Form",
    "Health",
    "Label",
    "ModelMark",
    "PredictAnswer",
    "Refusal",
    "Sample",
    "SampleRow",
]

Label = Level
"""A class, as the table has it."""
_DESCRIBED = ConfigDict(use_attribute_docstrings=True)  # of this class and of all within it that have no settings


@with_config(_DESCRIBED)
@dataclass(frozen=True)
class ModelMark:
    """Which model has answered."""

    name: str
    """Its name in the service, or main and baseline where there is one."""
    id: str | None
    """Made of the content of its folder: the same settings, weights and rows have the same; null if never saved."""
    version: str
    """Of countertrain, which has answered."""


@dataclass(frozen=True)
class Chance:
    """How probable a class is."""

    label: Label
    probability: float


@dataclass(frozen=True)
class Decision:
    """What the model decides for a person, and the probability of every class: the most probable one is decided for.

    Where a threshold is set, it is the class that reaches it.
    """

    decision: Label
    probabilities: list[Chance]


@dataclass(frozen=True)
class PredictAnswer:
    """One decision per person, in the order of the request, and which model has decided."""

    decisions: list[Decision]
    model: ModelMark


@with_config(_DESCRIBED)
@dataclass(frozen=True)
class ExplainAnswer:
    """One explanation per person, in the order of the request; the first option is the one to recommend."""

    explanations: list[Explanation]
    reasons: list[PersonReasons] | None
    """The reasons for each decision, where they were asked for."""
    model: ModelMark


@dataclass(frozen=True)
class SampleRow:
    """A person, and the class that this one was in, or is like where it is made up."""

    label: Label
    values: dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """Some people: real ones of the training rows, or made up from what is usual there."""

    rows: list[SampleRow]
    real: bool
    model: ModelMark


@with_config(_DESCRIBED)
@dataclass(frozen=True)
class Form:
    """What a person is asked for, and what may be asked of the service."""

    columns: list[dict[str, Any]]
    """Each column of the schema; of levels also their `labels`, the texts by which ranges name them.

    Of numbers also their `fifths`: the four numbers that part people into fifths, null where nobody counted. And the
    `evidence`: what the training rows say of a column for the class that people want, null where it is not clear.
    """
    fifths: list[str]
    """The fifths in words, from the lowest to the highest: what `places` of a change are called."""
    cost: dict[str, str]
    """What a cost of 1 means, for each model."""
    classes: list[Label]
    target: Label | None
    """The class that people want, and that is asked for where a question names none; null where nobody said."""
    needed: dict[str, list[float]]
    """For each model the probability that each class needs to be decided for; none where the likeliest one is."""
    models: list[str]
    max_rows: int
    max_options: int
    max_sample: int
    real_people: bool
    """Whether people who are shown are real ones; else they are made up."""
    identifying: list[str]
    """Columns in which real people show what is usual in a group, so that nobody is known by them; none elsewhere."""
    model: ModelMark


@dataclass(frozen=True)
class Health:
    """That the service is alive, its version, and the models that it serves."""

    status: str
    version: str
    models: list[ModelMark]


@dataclass(frozen=True)
class FieldError:
    """One mistake in a request, and the path to it in the body: ["rows", 0, "income"]."""

    where: list[str | int]
    message: str


@dataclass(frozen=True)
class Refusal:
    """Why a request was not answered, in one sentence; and all mistakes in it, if there are any."""

    detail: str
    errors: list[FieldError]
