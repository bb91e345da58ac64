"""Grids of settings: split into populations that train at once, measured, kept as one row per model."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from countertrain.files import write_text
from countertrain.runs.measure import Training, measure, predictive
from countertrain.runs.registry import VARYING, build_protocol, load_data
from countertrain.runs.settings import Settings
from countertrain.tables import Dataset
from countertrain.tables.dataset import Split

__all__ = ["compute_population", "expand", "populations", "run_population"]

_OF_SEARCH = ("generator", "n_steps", "n_ce", "burn_in", "generate", "immature")  # no matter to conventional training


def expand(data: str, grid: Mapping[str, Sequence[Any]], **fixed: Any) -> list[Settings]:
    """The Cartesian product of all listed values, each with a seed of its own."""
    combinations = itertools.product(*grid.values())
    return [
        Settings.resolve(data, {**fixed, **dict(zip(grid, values, strict=True)), "seeds": [i]})
        for i, values in enumerate(combinations)
    ]


def populations(runs: Iterable[Settings], *, largest: int = 64) -> list[list[Settings]]:
    """Runs grouped by everything in which the models of one population may not differ."""
    groups: dict[str, list[Settings]] = {}
    for run in runs:
        key = run.model_dump_json(exclude={*VARYING, *(_OF_SEARCH if run.objective == "bl" else ())})
        groups.setdefault(key, []).append(run)
    return [group[i : i + largest] for group in groups.values() for i in range(0, len(group), largest)]


def run_population(runs: Sequence[Settings], *, rounds: int = 5, individuals: int = 100) -> pd.DataFrame:
    """Train runs as one population and measure them on training and validation rows: one row of outcomes per model."""
    data = load_data(runs[0])
    training = Training.begin(runs, data)
    last = training.fit().records[-1].metrics
    protocol = build_protocol(runs[0], rounds=rounds, individuals=individuals, tau=0.95)
    table = measure(training.models, runs[0], data, _join_known(data), protocol).table
    rows = [json.loads(run.model_dump_json(exclude={"seeds"})) for run in runs]
    return pd.DataFrame(rows).assign(
        seed=[run.seeds[0] for run in runs],
        **predictive(training.models, data.test),
        mature=last.get("mature", [float("nan")] * len(runs)),
        **{name: table[name] for name in ("validity", "ip", "cost")},
    )


def _join_known(data: Dataset) -> Split:
    """Training and validation rows together: the test rows of a grid are never looked at for choosing."""
    known, held = data.train, data.validation
    return Split(torch.cat([known.x, held.x]), torch.cat([known.y, held.y]))


def compute_population(runs: Sequence[Settings], path: Path, *, rounds: int = 5, individuals: int = 100) -> None:
    """`run_population` into a file, unless it is there already."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        frame = run_population(runs, rounds=rounds, individuals=individuals)
        write_text(path, frame.to_csv(index=False, float_format="%.5g"))
