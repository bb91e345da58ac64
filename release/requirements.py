"""What the package needs, by the metadata of what is installed."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["PACKAGE", "ROOT", "USED", "find_needed", "read_pins", "read_project"]

ROOT = Path(__file__).parents[1]
PACKAGE = "countertrain"
USED = ("serve", "tune", "ray", "track", "onnx", "parquet", "excel")
"""The extras that users install; the others are for work on the package itself."""


def find_needed(extras: Iterable[str] = ()) -> dict[str, Distribution | None]:
    """Everything that the package needs here with these extras, by canonical name; None where it is not installed."""
    found: dict[str, Distribution | None] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(text) for text in _list_requirements(extras)]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name not in found:
            found[name] = _find(name)
        installed = found[name]
        for extra in ("", *requirement.extras):
            if installed is not None and (name, extra) not in seen:
                seen.add((name, extra))
                waiting += _applying(installed.requires or [], extra)
    return dict(sorted(found.items()))


def read_project() -> dict[str, Any]:
    """The table [project] of pyproject.toml."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project


def read_pins() -> dict[str, str]:
    """The versions of constraints.txt by canonical name."""
    pins: dict[str, str] = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        name, _, pinned = re.sub(r"\s*#.*", "", line).partition("==")
        if name:
            pins[canonicalize_name(name)] = pinned
    return pins


def _list_requirements(extras: Iterable[str]) -> Iterator[str]:
    """The requirements of the package itself, from pyproject.toml: what is installed may be of another state."""
    project = read_project()
    yield from project["dependencies"]
    for extra in extras:
        for text in project["optional-dependencies"][extra]:
            inner = Requirement(text)
            if inner.name == PACKAGE:
                yield from _list_requirements(inner.extras)
            else:
                yield text


def _applying(texts: Iterable[str], extra: str) -> list[Requirement]:
    """The requirements that hold on this machine and with this extra, or without any."""
    requirements = [Requirement(text) for text in texts]
    return [one for one in requirements if one.marker is None or one.marker.evaluate({"extra": extra})]


@cache
def _find(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None
