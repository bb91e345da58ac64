"""docs/map.md lists every module with its own first sentence; COUNTERTRAIN_WRITE_DOCUMENTS=1 writes it anew."""

import ast
import os
from pathlib import Path

import countertrain

ROOT = Path(countertrain.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "map.md"
ROOMS = "words files constraints models search training testing tables evaluation plots recourse judge report runs"
ROOMS += " estimator regressor demo serve cli"
HEAD = """# Every module

What each file of the package says of itself, room by room, in the order in which imports go.
[Design](design.md) tells how they hang together.
"""


def describe(file: Path) -> str:
    """A line of the page."""
    said = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    assert said, f"{file} says nothing of itself"
    name = file.relative_to(ROOT).with_suffix("").as_posix()
    return f"| `{name}` | {said.splitlines()[0]} |"


def render() -> str:
    """The page as it should be."""
    lines = [HEAD]
    for room in ROOMS.split():
        files = sorted((ROOT / room).rglob("*.py")) or [ROOT / f"{room}.py"]
        lines += [f"## {room}\n", "| module | what it is |", "|---|---|"]
        lines += [describe(file) for file in files if file.name != "__init__.py"]
        lines.append("")
    return "\n".join(lines)


def test_the_map_has_every_module_and_what_it_says_of_itself() -> None:
    expected = render()
    if os.environ.get("COUNTERTRAIN_WRITE_DOCUMENTS"):
        PAGE.write_text(expected, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == expected
    assert {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()} == {
        *ROOMS.split(),
        "__init__",
        "__main__",
    }
