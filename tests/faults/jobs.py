"""What is disturbed: each command on a small scale, what makes up its result, and what it leaves in its folder."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from countertrain.cli import main
from countertrain.runs.folder import read_run

__all__ = ["JOBS", "Job", "list_files", "write_table"]

_TABLE = ["--set", "hidden=[4]", "--set", "n_steps=3", "--set", "n_ce=20", "--set", "teacher=none"]
_MOONS = ["--set", "hidden=[4]", "--set", "n_steps=3", "--set", "n_ce=20", "--set", "batch_size=700"]


@dataclass(frozen=True)
class Job:
    """A command that works in a folder, with all that its result depends on."""

    title: str
    run: Callable[[Path, Path], None]
    """Begin or go on in a folder; the other one holds the table. Ends with SystemExit, as commands do."""
    summarise: Callable[[Path], str]
    """A checksum of what must be the same however often it was killed."""


def write_table(folder: Path, n: int = 240) -> None:
    """Applications, in a file that all jobs may read."""
    rng = np.random.default_rng(0)
    income, job = rng.gamma(3, 10, n).round(1), rng.choice(list("abc"), n)
    accepted = np.where(income + 10 * (job == "a") + rng.normal(0, 5, n) > 30, "yes", "no")
    lines = [f"{a},{i},{j},{y}" for a, i, j, y in zip(rng.integers(18, 80, n), income, job, accepted, strict=True)]
    (folder / "table.csv").write_text("\n".join(["age,income,job,accepted", *lines]) + "\n")


def _train_table(folder: Path, place: Path) -> None:
    """With early stopping and calibration, which a table is trained with by default."""
    args = ["--target", "yes", "--twin", "--epochs", "4", "--set", "patience=2", *_TABLE]
    main(["train", str(place / "table.csv"), *args, "--resume", "--out", str(folder)])


def _train_moons(folder: Path, place: Path) -> None:
    args = ["--twin", "--epochs", "4", "--seeds", "0-1", *_MOONS]
    main(["train", "moons", *args, "--resume", "--out", str(folder)])


def _tune(folder: Path, place: Path) -> None:
    args = ["--trials", "6", "--batch", "2", "--seeds", "1", "--constraint", "accuracy >= 0.1", "--prune"]
    main(["tune", "moons", *args, "--set", "epochs=4", *_MOONS, "--out", str(folder)])


def _sweep(folder: Path, place: Path) -> None:
    spec = place / "sweep.toml"
    if not spec.exists():
        spec.write_text(
            'data = "moons"\nseeds = [0, 1]\n[fixed]\nepochs = 3\nhidden = [4]\nn_ce = 20\nbatch_size = 700\n'
            "[grid]\ntau = [0.6, 0.8]\nn_steps = [2, 3]\n[evaluation]\nrounds = 2\nindividuals = 10\n"
        )
    main(["sweep", str(spec), "--workers", "1", "--out", str(folder)])


def _compute_cell(folder: Path, place: Path) -> None:
    from reproduction.cells import Cell, Effort, compute_cell

    effort = Effort(n_seeds=2, rounds=2, individuals=10, epochs=4)
    compute_cell(Cell("moons", "ct", "protected"), effort, folder / "records", folder / "runs")


def _sum_run(folder: Path) -> str:
    run = read_run(folder)
    histories = [[record.metrics for record in one.history.records] for one in (run, run.twin) if one is not None]
    assert run.twin is not None
    return _digest(run.id, run.twin.id, histories)


def _sum_tuning(folder: Path) -> str:
    return _digest(*((folder / name).read_text() for name in ("chosen.toml", "trials.csv")))


def _sum_sweep(folder: Path) -> str:
    return _digest(*(file.read_text() for file in [*sorted((folder / "runs").iterdir()), folder / "results.csv"]))


def _sum_cell(folder: Path) -> str:
    (scores,) = folder.glob("records/*/*.json")
    kept = {k: v for k, v in json.loads(scores.read_text()).items() if k not in ("environment", "train_seconds")}
    (run,) = folder.glob("runs/*/*")
    return _digest(kept, scores.with_name(f"{scores.stem}.csv.gz").read_bytes().hex(), read_run(run).id)


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def list_files(folder: Path) -> list[str]:
    """All that lies in a folder, and beside it under a name that is like its own."""
    beside = [path.name for path in folder.parent.iterdir() if path.name.startswith(f".{folder.name}.")]
    return sorted([str(path.relative_to(folder)) for path in folder.rglob("*")] + beside)


JOBS = {
    "table": Job("`train` of a table, with a twin", _train_table, _sum_run),
    "moons": Job("`train` of a named data set, two models, with a twin", _train_moons, _sum_run),
    "tune": Job("`tune`, six trials, pruned", _tune, _sum_tuning),
    "sweep": Job("`sweep`, eight runs", _sweep, _sum_sweep),
    "paper": Job("a cell of `python -m reproduction`", _compute_cell, _sum_cell),
}
