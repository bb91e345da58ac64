"""Too little of something, or parameters that make no sense: one sentence, exit code 2, and nothing left behind."""

import os
import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from countertrain.cli import main
from tests.faults.engine import work_apart
from tests.faults.jobs import list_files, write_table
from tests.faults.killing import Tally, find_trouble

__all__ = ["CASES", "meet_limits"]

_PATIENCE = 300.0  # seconds, after which something does not return
_QUICK = ["--epochs", "1", "--set", "n_steps=2", "--set", "n_ce=20", "--set", "teacher=none"]


@dataclass(frozen=True)
class _Case:
    """A training that cannot be done, or only just."""

    args: tuple[str, ...] = ()
    limit: Callable[[], object] = int
    table: str = "table.csv"
    may_succeed: bool = False
    """Where it is not said whether this much is enough."""
    may_leave: bool = False
    """Where nobody could tidy up: without a descriptor, no folder can be listed. The next one does."""


def _lower(kind: int, value: int) -> Callable[[], object]:
    return lambda: resource.setrlimit(kind, (value, value))


def _allow_memory(more: int) -> Callable[[], object]:
    """So many bytes beyond what the process has already."""

    def lower() -> None:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + more, used + more))

    return lower


def _set(name: str, value: str) -> _Case:
    return _Case(("--set", f"{name}={value}"))


def _threads(value: str) -> _Case:
    return _Case(limit=lambda: os.environ.update(COUNTERTRAIN_THREADS=value))


CASES = {
    **{f"files of at most {n} bytes": _Case(limit=_lower(resource.RLIMIT_FSIZE, n)) for n in (0, 500, 5_000)},
    **{
        f"at most {n} open files": _Case(limit=_lower(resource.RLIMIT_NOFILE, n), may_succeed=True, may_leave=True)
        for n in (4, 6, 8, 12, 24)
    },
    **{
        f"{n} MB of memory": _Case(("--set", "hidden=[30000,30000]"), limit=_allow_memory(n * 2**20))
        for n in (50, 500)  # with hardly any, libraries end the process before Python hears of it
    },
    **{f"{name}={value}": _set(name, value) for name, value in (
        ("n_neighbours", "1000000000"), ("n_neighbours", "0"), ("hidden", "[1000000000]"), ("hidden", "[0]"),
        ("n_pieces", "1000000000"), ("tau", "nan"), ("tau", "1e308"), ("learning_rate", "inf"), ("epochs", "-1"),
        ("lambda_clf", "1e308"), ("batch_size", "0"), ("data_seed", "-1"), ("seeds", "[]"), ("seeds", "[-1]"),
        ("n_ce", "1000000000"), ("patience", "0"), ("validation_fraction", "1e308"), ("n_steps", "-5"),
        ("hidden", "[1e308]"), ("threshold", "1e308"), ("profile", "none"),
    )},
    **{f"COUNTERTRAIN_THREADS={value}": _threads(value) for value in ("abc", "0", "-1", "99999999999", "1.5", "")},
    "a million million seeds": _Case(("--seeds", "0-999999999999")),
    "a folder that is a file": _Case(("--out", "table.csv/below")),
    "labels of mixed types": _Case(table="mixed.csv", may_succeed=True),
    "numbers of 1e308": _Case(table="large.csv", may_succeed=True),
    "numbers of 1e400": _Case(table="infinite.csv", may_succeed=True),
    "one class only": _Case(table="one.csv"),
    "no rows": _Case(table="none.csv"),
    "one row": _Case(table="row.csv"),
}  # fmt: skip


def _write_tables(place: Path) -> None:
    """The table, and some that are no use."""
    write_table(place)
    lines = (place / "table.csv").read_text().splitlines()
    head, rows = lines[0], [line.split(",") for line in lines[1:]]

    def write(name: str, changed: list[list[str]]) -> None:
        (place / name).write_text("\n".join([head, *map(",".join, changed)]) + "\n")

    write("mixed.csv", [[*row[:3], ("1", "2.0", "yes", "True")[i % 4]] for i, row in enumerate(rows)])
    write("large.csv", [[row[0], "1e308" if i % 3 else "-1e308", *row[2:]] for i, row in enumerate(rows)])
    write("infinite.csv", [[row[0], "1e400" if i == 7 else row[1], *row[2:]] for i, row in enumerate(rows)])
    write("one.csv", [[*row[:3], "yes"] for row in rows])
    write("none.csv", [])
    write("row.csv", rows[:1])


def meet_limits(every: int = 1) -> Tally:
    """Train under each limit, or every third, say; what is not said in one sentence, or left behind, is wrong."""
    with TemporaryDirectory() as name:
        place, tally = Path(name).resolve(), Tally("`train` under limits")
        _write_tables(place)
        os.chdir(place)
        for i, (title, case) in enumerate(CASES.items()):
            if i % every:
                continue
            folder = place / f"limit{i}"
            target = [] if case.table == "mixed.csv" else ["--target", "yes"]
            args = ["train", case.table, *target, *_QUICK, "--out", str(folder), *case.args]
            ended = work_apart(lambda args=args: main(args), folder, limit=case.limit, after=_PATIENCE)
            tally.disturbed += 1
            if trouble := find_trouble(ended):
                tally.wrong.append(f"{title}: {trouble}")
            elif ended.code == 0 and not case.may_succeed:
                tally.wrong.append(f"{title}: nobody noticed")
            odd = [] if ended.code == 0 or not folder.exists() else [f for f in list_files(folder) if _is_odd(f)]
            if odd and not case.may_leave:
                tally.wrong.append(f"{title}: left behind: {', '.join(odd)}")
            print(f"{title}: exit {ended.code}: {ended.said.strip().splitlines()[-1:]}")  # noqa: T201
        os.chdir("/")
    return tally


def _is_odd(file: str) -> bool:
    """What nobody needs to go on: temporary files and locks."""
    return any(part.startswith(".") for part in Path(file).parts)
