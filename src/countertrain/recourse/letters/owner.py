"""Who writes letters: name, contact, how to object, and what columns, levels and decisions are called."""

import tomllib
from collections.abc import Mapping
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from countertrain.recourse.rendering import as_text
from countertrain.tables.schema import Schema
from countertrain.tables.sentences import say_all
from countertrain.words import explain_mistakes, suggest

__all__ = ["Owner", "OwnerSource"]

_DECISIONS = """accepted admitted agreed approved granted hired declined denied disapproved refused rejected
    angenommen bewilligt genehmigt zugesagt abgelehnt verweigert accepté accordé approuvé refusé rejeté aceptado
    aprobado concedido denegado rechazado goedgekeurd toegekend afgewezen geweigerd"""


class Owner(BaseModel):
    """What a letter needs to know of whoever sends it; everything may be left out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = ""
    """Of the organisation."""
    address: str = ""
    contact: str = ""
    """Whom to ask: an address, a number."""
    object: str = "You may ask for the decision to be looked at again by a person, and say why you disagree."
    """How to object."""
    role: str = "The decision was made by a statistical model from the details below."
    """What part the model had in it."""
    subject: str = "Your application"
    date_format: str = ""
    """As `strftime` takes it; left out: 5 March 2026."""
    labels: dict[str, str] = {}
    """What columns are called."""
    values: dict[str, dict[str, str]] = {}
    """What levels of columns are called, by column and level."""
    decisions: dict[str, str] = {}
    """What decisions are called; left out: as their labels, where these are words for decisions, else "accepted" and
    "not accepted".
    """

    @classmethod
    def read(cls, source: "OwnerSource", schema: Schema, classes: tuple[Any, ...]) -> Self:
        """The owner in a TOML file or a mapping of the same form; refused where it names what is not there."""
        if isinstance(source, cls):
            return source
        where = "the owner" if isinstance(source, Mapping | None) else str(source)
        given = dict(source or {}) if isinstance(source, Mapping | None) else _read_toml(Path(source))  # type: ignore[arg-type]
        try:
            owner = cls.model_validate(given)
        except ValidationError as error:
            raise ValueError(f"{where}: {explain_mistakes(error, cls.model_fields)}") from error
        wrong = [
            f"{where}, {part}: {name!r} is no column of the model; {suggest(name, schema.names)}"
            for part, names in (("labels", owner.labels), ("values", owner.values))
            for name in names
            if name not in schema.names
        ]
        labels = [str(label) for label in classes]
        wrong += [
            f"{where}, decisions: there is no {name!r}; {suggest(name, labels)}"
            for name in owner.decisions
            if name not in labels
        ]
        if wrong:
            raise ValueError(say_all(wrong))
        return owner

    def name_decision(self, label: Any, wanted: Any) -> str:
        """What a decision is called in a letter to somebody who wants another one, or that one.

        A label such as `default` or `0` says what became of people, and is no answer to an application.
        """
        if self.knows(label):
            return self.decisions.get(str(label), as_text(label))
        return "accepted" if label == wanted else "not accepted"

    def knows(self, label: Any) -> bool:
        """Whether there is a word for a decision: the owner's, or its label."""
        return str(label) in self.decisions or str(label).lower().removeprefix("not ") in _DECISIONS.split()

    def write_date(self, day: datetime) -> str:
        """A date as the owner writes it."""
        return day.strftime(self.date_format) if self.date_format else f"{day.day} {day:%B %Y}"


OwnerSource = Owner | Mapping[str, Any] | str | PathLike[str] | None
"""Where an owner may come from."""


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from error
