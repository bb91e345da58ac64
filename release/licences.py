"""`python -m release.licences docs/licences.md`: the licences of all that is installed with the package."""

import sys
from importlib.metadata import Distribution
from pathlib import Path

from release.requirements import USED, find_needed

__all__ = ["find_licence", "main", "render"]

_LONGEST = 120  # some put the whole text of their licence where its name belongs
_HEAD = """# Licences

Our own files are under the MIT licence. These libraries are installed with them, each under a licence of its own.
*With* names the extras that need a library; where it is empty, the library is always installed.
Versions are in `constraints.txt`, and in the bill of materials that `make sbom` writes.

This page is written by `make licences` from what the libraries say of themselves, on Linux. A torch with CUDA also
brings libraries of NVIDIA, under licences of their own.

| library | licence | with |
|---|---|---|
"""


def find_licence(installed: Distribution) -> str:
    """The licence by the metadata of a library: its expression, else its classifiers, else what it calls it."""

    def say(field: str) -> list[str]:
        return installed.metadata.get_all(field) or []

    named = [line.split(" :: ")[-1] for line in say("Classifier") if line.startswith("License :: ")]
    called = "".join(say("License")).strip().splitlines()[:1]
    for names in (say("License-Expression"), [name for name in named if name != "OSI Approved"], called):
        if names:
            return ", ".join(names)[:_LONGEST]
    return ""


def render() -> str:
    """The page; a library that is not installed, or does not name its licence, is an error."""
    base, found = find_needed(), find_needed(USED)
    by_extra = {extra: find_needed([extra]) for extra in USED}
    lines = []
    for name, installed in found.items():
        if installed is None:
            raise ValueError(f"{name} is needed, but not installed; pip install '.[{','.join(USED)}]'")
        licence = find_licence(installed)
        if not licence:
            raise ValueError(f"{name} does not name its licence; look it up, and say it in release/licences.py")
        extras = "" if name in base else ", ".join(extra for extra in USED if name in by_extra[extra])
        lines.append(f"| {installed.metadata['Name']} | {licence} | {extras} |")
    return _HEAD + "\n".join(sorted(lines, key=str.lower)) + "\n"


def main() -> None:
    """Write the page."""
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
