"""Imports go one way, along the line of rooms that docs/design.md draws."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer

import countertrain
from countertrain import cli

ROOT = Path(countertrain.__file__).parent
OUTSIDE = {"pandas", "matplotlib", "sklearn", "typer", "rich", "captum", "fastapi", "uvicorn", "jinja2", "pydantic"}
HEAVY = {"torch", "numpy", "safetensors", "optuna", "fsspec", "markdown_it", "pygments"} | OUTSIDE - {"typer"}
TYPER = {"rich", "pydantic"}  # which typer itself needs for help and arguments
_GROUP: Any = typer.main.get_command(cli.app)

# A part may import the parts of its own line and of the lines above it.
LINE = [
    {"files", "words"},
    {"constraints"},
    {"models"},
    {"search"},
    {"training"},
    {"testing"},
    {"tables"},
    {"evaluation", "plots"},
    {"recourse"},
    {"judge"},
    {"report"},
    {"runs"},
    {"estimator"},
    {"regressor"},
    {"demo"},
    {"serve"},
    {"cli", "__main__"},
]
PLACE = {part: i for i, parts in enumerate(LINE) for part in parts}
PURE = [part for part, i in PLACE.items() if i <= PLACE["training"]]


def imported(file: Path) -> Iterator[str]:
    """Full names of all modules that a file imports, also inside functions."""
    package = ("countertrain", *file.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) + 1 - node.level]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


@cache
def parts() -> dict[str, set[str]]:
    """Each part of the package, with what its files import."""
    found: dict[str, set[str]] = {}
    for file in sorted(ROOT.rglob("*.py")):
        part = file.relative_to(ROOT).parts[0].removesuffix(".py")
        if part != "__init__":
            found.setdefault(part, set()).update(imported(file))
    return found


def inside(names: set[str]) -> set[str]:
    """The parts of the package among imported names."""
    return {name.split(".")[1] for name in names if name.startswith("countertrain.")} & set(PLACE)


def test_every_part_has_its_place_in_the_line() -> None:
    missing = {part for part in parts() if part not in PLACE}
    assert not missing, f"say in LINE where {sorted(missing)} belongs"
    assert {"search", "training", "tables"} <= set(parts())


def test_imports_go_one_way() -> None:
    edges = {(part, other) for part, names in parts().items() for other in inside(names) if other != part}
    wrong = [f"{part} imports {other}" for part, other in edges if PLACE[other] > PLACE[part]]
    assert not wrong, wrong
    assert {("training", "search"), ("search", "models"), ("search", "constraints")} <= edges


def test_no_two_parts_import_one_another() -> None:
    edges = {(part, other) for part, names in parts().items() for other in inside(names) if other != part}
    assert not [edge for edge in edges if edge[::-1] in edges and PLACE[edge[0]] != PLACE[edge[1]]]


def test_search_objective_and_trainer_import_no_table_plot_or_command() -> None:
    for part, names in parts().items():
        if part in PURE:
            assert not {name.split(".")[0] for name in names} & OUTSIDE, part
            assert not inside(names) & {"tables", "evaluation", "runs", "cli"}, part
            assert "countertrain" not in names, f"{part} must import from the module, not from the package"
    assert {"search", "training", "models", "constraints"} <= set(PURE)
    assert {"pandas", "typer"} <= {name.split(".")[0] for names in parts().values() for name in names}


def test_evaluation_knows_no_runs_and_runs_know_no_command() -> None:
    found = parts()
    assert not inside(found["evaluation"]) & {"runs", "cli"}
    assert not inside(found["runs"]) & {"cli"}
    assert not inside(found["tables"]) - {"tables", "constraints", "files", "words"}


def test_importing_the_package_draws_in_no_heavy_library_and_prints_nothing() -> None:
    code = (
        "import sys, countertrain\n"
        f"print(*{HEAVY} & set(sys.modules))\n"
        "countertrain.CounterfactualTrainer, countertrain.generators, countertrain.rules, countertrain.metrics\n"
        f"print(*sorted({HEAVY - {'numpy'}} & set(sys.modules)))\n"
        "import torch\n"
        "print(torch.is_grad_enabled(), torch.get_default_dtype(), len(countertrain.__all__) <= 20)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["", "torch", "True torch.float32 True"]
    assert done.stderr == ""


def test_every_public_name_is_there_and_a_typo_is_answered_with_the_nearest() -> None:
    for name in countertrain.__all__:
        assert getattr(countertrain, name) is not None
    assert set(countertrain.__all__) <= set(dir(countertrain))
    assert countertrain.generators.__name__ == "countertrain.search.generators"
    assert countertrain.methods.ct is not None
    assert countertrain.metrics.__name__ == "countertrain.evaluation.metrics"
    assert countertrain.__version__ == version("countertrain")
    with pytest.raises(AttributeError, match=r"^module 'countertrain' has no attribute 'generator'; did you mean 'gen"):
        countertrain.generator  # noqa: B018
    with pytest.raises(AttributeError, match=r"'xyzzy'; dir\(countertrain\) lists them all$"):
        countertrain.xyzzy  # noqa: B018
    assert not hasattr(countertrain, "__path")


# What a command line may have imported: each line allows whatever those above it do, since one process runs them all.
ASKED = [
    (["--version"], 0, set[str]()),
    (["--help"], 0, {"rich"}),
    *(([command, "--help"], 0, TYPER) for command in _GROUP.commands),
    (["trian"], 2, TYPER),
    (["train"], 2, TYPER),
    (["train", "moons", "--batch", "3"], 2, TYPER),
    (["list", "settings"], 0, TYPER),
]


@pytest.fixture(scope="module")
def answers() -> list[tuple[int, str, set[str]]]:
    """The exit code of each command line, what it printed, and the heavy modules that it was the first to import."""
    program = (
        "import contextlib, io, json, sys\nfrom countertrain.cli import main\n"
        f"seen, answers = set(), []\nfor args in {[args for args, _, _ in ASKED]}:\n"
        "    out, code = io.StringIO(), None\n"
        "    try:\n        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):\n"
        "            main(args)\n"
        "    except SystemExit as end:\n        code = end.code\n"
        f"    new = {HEAVY} & set(sys.modules) - seen\n    seen |= new\n"
        "    answers.append((code, out.getvalue(), sorted(new)))\n"
        "print(json.dumps(answers))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return [(code, out, set(new)) for code, out, new in json.loads(done.stdout)]


@pytest.mark.parametrize("i", range(len(ASKED)), ids=lambda i: " ".join(ASKED[i][0]))
def test_help_version_and_mistakes_are_answered_without_heavy_imports(
    i: int, answers: list[tuple[int, str, set[str]]]
) -> None:
    """By what is imported and not by the clock: torch alone takes seconds."""
    (_, code, allowed), (ended, printed, new) = ASKED[i], answers[i]
    assert ended == code
    assert new <= allowed
    assert printed or code == 2


def test_the_version_is_that_of_the_package() -> None:
    said = subprocess.check_output([sys.executable, "-m", "countertrain", "--version"], text=True)
    assert said == f"countertrain {version('countertrain')}\n"
