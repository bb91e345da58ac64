"""The template of a letter: the owner's own or ours, filled in where it can do no harm."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any, Self

from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError
from jinja2.sandbox import SandboxedEnvironment

__all__ = ["LetterTemplate", "read_templates"]

KINDS = {"html": "letter.html.j2", "text": "letter.txt.j2"}
"""The kinds of letters that are written from a template, and the file of ours."""


@dataclass(frozen=True, eq=False)
class LetterTemplate:
    """A template that sees plain values alone, and no file."""

    where: str
    digest: str
    """SHA-256 of its text."""
    template: Template

    @classmethod
    def of(cls, where: str, text: str, kind: str) -> Self:
        """The template of a text; in HTML, everything that is filled in is escaped."""
        environment = SandboxedEnvironment(
            autoescape=kind == "html", undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        try:
            template = environment.from_string(text)
        except TemplateSyntaxError as error:
            raise ValueError(f"{where}, line {error.lineno}: {error.message}") from error
        return cls(where, hashlib.sha256(text.encode()).hexdigest(), template)

    def fill(self, values: dict[str, Any]) -> str:
        """The letter."""
        try:
            return self.template.render(values).strip() + "\n"
        except TemplateError as error:
            names = ", ".join(values)
            raise ValueError(f"{self.where} cannot be filled in: {error.message}; there are {names}") from error
        except (TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise ValueError(f"{self.where} cannot be filled in: {error}") from error


def read_templates(given: Sequence[str | PathLike[str]]) -> dict[str, LetterTemplate]:
    """One template per kind: those of the owner, told apart by `.html` or `.txt` in their names, and else ours."""
    found: dict[str, LetterTemplate] = {}
    for path in map(Path, given):
        kind = "html" if ".html" in path.suffixes else "text" if ".txt" in path.suffixes else None
        if kind is None or kind in found:
            raise ValueError(
                "templates must be files such as letter.html.j2 and letter.txt.j2, one for each kind of letter; "
                f"got {', '.join(str(one) for one in given)}"
            )
        found[kind] = LetterTemplate.of(str(path), path.read_text(encoding="utf-8"), kind)
    for kind, name in KINDS.items():
        if kind not in found:
            text = files("countertrain.recourse.letters").joinpath(name).read_text(encoding="utf-8")
            found[kind] = LetterTemplate.of(f"our {name}", text, kind)
    return found
