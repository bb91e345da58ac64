"""`python -m tests.faults`, from a clone: kills, full disks, removed folders and limits, in processes of their own.

All of it takes half an hour (`make reliability`); the tests do a part of it, with --quick.
"""

import argparse
import importlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import torch

from tests.faults.engine import full_disk, remove
from tests.faults.jobs import JOBS
from tests.faults.killing import Tally, disturb_at_moments, kill_at_random
from tests.faults.limits import meet_limits

_NEEDED = (
    "countertrain.cli.console", "countertrain.runs.training", "countertrain.runs.fitting", "countertrain.runs.track",
    "countertrain.runs.tune.plot", "countertrain.runs.sweep", "optuna", "sklearn.ensemble", "rich.progress",
    "countertrain.training.ranks", "reproduction.cells", "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg", "optuna.storages", "sqlalchemy.dialects.sqlite", "captum.attr",
)  # fmt: skip
"""Imported once, so that a process that is forked has them."""


def main() -> None:
    """Disturb what was asked for, and write down what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=30, help="at random, of each job")
    parser.add_argument("--every", type=int, default=1, help="kill at every so-manieth change of a file, too")
    parser.add_argument("--jobs", nargs="+", default=list(JOBS), choices=list(JOBS))
    parser.add_argument("--quick", action="store_true", help="a few of each, within a minute")
    parser.add_argument("--parts", nargs="+", default=["random", "moments", "disk", "removed", "limits"])
    parser.add_argument("--out", type=Path, default=Path("results/reliability/faults.json"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["COUNTERTRAIN_THREADS"] = "1"
    for name in _NEEDED:
        importlib.import_module(name)
    out = asked.out.resolve()
    found = json.loads(out.read_text()) if out.exists() else {}
    for part in asked.parts:
        kept = {tally["job"]: tally for tally in found.get(part, ())}
        # written down one by one, since all of them take a while
        for tally in _run_quickly(part) if asked.quick else _run(part, asked.jobs, asked.kills, asked.every):
            kept[tally.job] = tally.to_json()
            found[part] = list(kept.values())
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(found, indent=1) + "\n")


def _run(part: str, jobs: list[str], kills: int, every: int) -> Iterator[Tally]:
    """One part of all."""
    here = [name for name in jobs if name != "sweep"]  # whose workers are processes that nobody can fork ahead
    trained = [name for name in here if name in ("table", "moons")]
    if part == "random":
        yield from (kill_at_random(JOBS[name], kills) for name in jobs)
    elif part == "moments":
        yield from (disturb_at_moments(JOBS[name], every=every) for name in here)
    elif part in ("disk", "removed"):
        act = full_disk if part == "disk" else remove
        yield from (disturb_at_moments(JOBS[name], act, every=every) for name in trained)
    else:
        yield meet_limits()


def _run_quickly(part: str) -> list[Tally]:
    """A few of each, which differ from part to part."""
    if part == "random":
        return [kill_at_random(JOBS["moons"], 3)]
    if part == "moments":
        return [disturb_at_moments(JOBS["table"], every=16, first=5), disturb_at_moments(JOBS["paper"], every=30)]
    if part == "disk":
        return [disturb_at_moments(JOBS["table"], full_disk, every=24, first=3)]
    if part == "removed":
        return [disturb_at_moments(JOBS["moons"], remove, every=40, first=9)]
    return [meet_limits(every=3)]


if __name__ == "__main__":
    main()
