"""`python -m tests.mutants`, from a clone: deliberate bugs, planted one at a time in a copy, and who notices them.

Those of mutants.toml (`make mutants`), or some drawn at random (`--random 30 --seed 0`): a comparison turned round, a
number one off, a `not` left out. The tests run in processes that are forked off one which has the large libraries, but
nothing of the package.
"""

import argparse
import ast
import compileall
import contextlib
import importlib
import itertools
import json
import os
import py_compile
import random
import shutil
import signal
import sys
import time
import tomllib
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

__all__ = ["Mutant", "draw_mutants", "plant", "read_mutants"]

ROOT = Path(__file__).parent.parent
_HEAVY = (
    "torch", "pandas", "sklearn.ensemble", "sklearn.linear_model", "scipy.optimize", "scipy.stats", "pytest",
    "safetensors.torch", "pydantic", "typer", "rich.progress", "tomli_w", "optuna",
    "matplotlib.figure", "captum.attr", "jinja2", "torch.func",
)  # fmt: skip  # nothing that is a plug-in of pytest, which must see it imported
_PASSED, _FAILED = 0, 1  # as pytest says it; anything else proves nothing
_PATIENCE = 900.0  # seconds, after which a mutant that hangs counts as noticed
_ROOMS = {
    "search": ["tests/search"],
    "training": ["tests/training", "tests/runs/test_measure.py"],
    "constraints.py": ["tests/test_constraints.py", "tests/search"],
    "files.py": ["tests/test_files.py", "tests/runs/test_folder.py"],
    "recourse/threshold.py": ["tests/recourse/test_threshold.py"],
    "recourse/evidence.py": ["tests/recourse/test_evidence.py"],
    "recourse/proof": ["tests/recourse/test_proof.py"],
    "tables/rules": ["tests/tables/test_column_rules.py", "tests/recourse/test_rules_kept.py"],
    "tables/scales.py": ["tests/tables/test_scales.py", "tests/tables/test_encoder.py"],
    "evaluation": ["tests/evaluation"],
}
"""Where mutants are drawn, and the tests of these rooms; a module whose tests have its name is asked of these alone."""


@dataclass(frozen=True)
class Mutant:
    """A text of a file that becomes another, and the tests that must fail then."""

    name: str
    file: str
    """Within the package."""
    old: str
    new: str
    tests: tuple[str, ...]


def read_mutants(path: Path = ROOT / "tests" / "mutants.toml") -> list[Mutant]:
    """The mutants of the list."""
    listed = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**{**one, "tests": tuple(one["tests"])}) for one in listed]


def plant(mutant: Mutant, root: Path) -> str:
    """Write a mutant into a copy; what stood there before."""
    file = root / "src" / "countertrain" / mutant.file
    text = file.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name}: {mutant.file} has its text {text.count(mutant.old)} times, not once")
    file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    return text


def draw_mutants(n: int, seed: int) -> list[Mutant]:
    """Mutants at random, each in another line, of the rooms that have tests of their own."""
    rng, package = random.Random(seed), ROOT / "src" / "countertrain"
    files = [file for room in _ROOMS for file in (package.glob(room if room.endswith(".py") else f"{room}/*.py"))]
    found = [mutant for file in sorted(files) for mutant in _list_mutants(file, str(file.relative_to(package)))]
    rng.shuffle(found)
    one_to_a_line = {(mutant.file, mutant.old): mutant for mutant in found}
    return list(itertools.islice(filter(_is_program, one_to_a_line.values()), n))


def _is_program(mutant: Mutant) -> bool:
    text = (ROOT / "src" / "countertrain" / mutant.file).read_text(encoding="utf-8")
    with contextlib.suppress(SyntaxError):
        compile(text.replace(mutant.old, mutant.new), mutant.file, "exec")
        return True
    return False


def _list_mutants(file: Path, name: str) -> Iterator[Mutant]:
    """Every small bug that a file could have, one to a line that stands in it once."""
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    tests = next(tests for room, tests in _ROOMS.items() if name.startswith(room))
    namesake = f"tests/{Path(name).parent}/test_{file.stem}.py"
    tests = [namesake] if (ROOT / namesake).exists() else tests
    for node in ast.walk(ast.parse(text)):
        for change, what in _CHANGES:
            with contextlib.suppress(LookupError, TypeError, AttributeError):
                start, end, new = change(node)
                if start[0] != end[0] or "__all__" in lines[start[0] - 1]:
                    continue
                line = lines[start[0] - 1]
                raw = line.encode()
                changed = (raw[: start[1]] + new.encode() + raw[end[1] :]).decode()
                if text.count(line) == 1 and changed != line:
                    yield Mutant(f"{name}:{start[0]}: {what}", name, line, changed, tuple(tests))


Change = Callable[[ast.AST], tuple[tuple[int, int], tuple[int, int], str]]
_OPPOSITE = {
    ast.Lt: ">=", ast.LtE: ">", ast.Gt: "<=", ast.GtE: "<", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip


def _turn_comparison(node: ast.AST) -> tuple[tuple[int, int], tuple[int, int], str]:
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        raise LookupError
    left, right = node.left, node.comparators[0]
    start, end = (left.end_lineno or 0, left.end_col_offset or 0), (right.lineno, right.col_offset)
    return start, end, f" {_OPPOSITE[type(node.ops[0])]} "


def _shift_number(node: ast.AST) -> tuple[tuple[int, int], tuple[int, int], str]:
    if not isinstance(node, ast.Constant) or type(node.value) is not int:
        raise LookupError
    return (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0), str(node.value + 1)


def _drop_not(node: ast.AST) -> tuple[tuple[int, int], tuple[int, int], str]:
    if not isinstance(node, ast.UnaryOp) or not isinstance(node.op, ast.Not | ast.Invert | ast.USub):
        raise LookupError
    return (node.lineno, node.col_offset), (node.operand.lineno, node.operand.col_offset), ""


_CHANGES: tuple[tuple[Change, str], ...] = (
    (_turn_comparison, "a comparison turned round"),
    (_shift_number, "a number one off"),
    (_drop_not, "a not or a minus left out"),
)


def notice(mutants: Sequence[Mutant]) -> Iterator[tuple[str, bool]]:
    """Plant one after the other in a copy, and run its tests; whether any test noticed."""
    for name in _HEAVY:
        importlib.import_module(name)
    with TemporaryDirectory() as folder:
        root = Path(folder)
        for name in ("src", "tests", "reproduction", "benchmarks"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        shutil.copy(ROOT / "pyproject.toml", root)
        # by their hashes, since mutants are written within one second and may be as long as what they replace
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(root, quiet=2, invalidation_mode=mode)
        for mutant in mutants:
            before, started = plant(mutant, root), time.monotonic()
            code = _test_apart(root, mutant.tests)
            (root / "src" / "countertrain" / mutant.file).write_text(before, encoding="utf-8")
            if code not in (_PASSED, _FAILED, -signal.SIGKILL):
                raise RuntimeError(f"{mutant.name}: the tests could not be run (exit {code}): {mutant.tests}")
            mark = "SURVIVED" if code == _PASSED else "noticed"
            print(f"{mark} after {time.monotonic() - started:.0f} s: {mutant.name}", flush=True)  # noqa: T201
            yield mutant.name, code != _PASSED


class _InAHurry:
    """A plug-in of pytest: that a property is broken is enough, and nobody waits for the smallest example."""

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings

        settings.register_profile("in a hurry", parent=settings(), phases=[Phase.explicit, Phase.generate])
        settings.load_profile("in a hurry")


def _test_apart(root: Path, tests: Sequence[str]) -> int:
    """The exit code of pytest in a forked process."""
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            os.chdir(root)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            sys.path[:0] = [str(root / "src"), str(root), str(root / "tests")]
            sys.dont_write_bytecode = True
            os.environ["PYTHONPATH"] = os.pathsep.join([str(root / "src"), str(root), str(root / "tests")])
            import pytest

            code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests], plugins=[_InAHurry()]))
        except BaseException:  # it must not reach what the parent does after the fork
            traceback.print_exc()
        finally:
            os._exit(code)
    deadline = time.monotonic() + _PATIENCE
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    return os.waitstatus_to_exitcode(ended[1])


def main() -> None:
    """Show that each mutant is caught; write down how many were."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--random", type=int, metavar="N", help="draw N of them instead of taking those of the list")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="those of the list whose names have this text")
    parser.add_argument("--resume", action="store_true", help="leave out those that were noticed by the record")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "reliability" / "mutants.json")
    asked = parser.parse_args()
    mutants = read_mutants() if asked.random is None else draw_mutants(asked.random, asked.seed)
    if asked.only is not None:
        mutants = [mutant for mutant in mutants if asked.only in mutant.name]
    part = "list" if asked.random is None else "random"
    record = json.loads(asked.out.read_text()) if asked.out.exists() else {}
    record[part] = record.get(part, {}) if asked.only is not None or asked.resume else {}
    if asked.resume:
        mutants = [mutant for mutant in mutants if not record[part].get(mutant.name)]
    for name, caught in notice(mutants):  # written down one by one, since all of them take a while
        record[part][name] = caught
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.write_text(json.dumps(record, indent=1) + "\n")
    survived = [name for name, caught in record[part].items() if not caught]
    print(f"{len(record[part]) - len(survived)} of {len(record[part])} mutants were noticed")  # noqa: T201
    sys.exit(bool(survived) and asked.random is None)


if __name__ == "__main__":
    main()
