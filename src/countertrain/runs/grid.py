"""Grids of settings: split into populations that train at once, evaluated, kept as one row a model."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from countertrain.evaluation.protocol import evaluate
from countertrain.files import write_text
from countertrain.runs.registry import VARYING, build_constraints, build_models, build_protocol, build_trainer
from countertrain.runs.scores import predictive
from countertrain.runs.settings import Settings
from countertrain.search.vae import fit_vae
from countertrain.tables import Dataset, load

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
    """Train and evaluate runs as one population, on training and validation rows: one row of outcomes a model."""
    data = load(runs[0].data, data_seed=runs[0].data_seed)
    vae = fit_vae(data.train.x, seed=runs[0].data_seed) if runs[0].generator == "revise" else None
    models = [build_models(run, data)[0] for run in runs]
    history = build_trainer(runs, data, vae).fit(models, data.train.x, data.train.y)
    records = evaluate(
        models,
        *_known(data),
        n_classes=data.n_classes,
        constraints=build_constraints(runs[0], data, test_time=True),
        protocol=build_protocol(runs[0], rounds=rounds, individuals=individuals, tau=0.95),
    )
    outcomes = records.groupby("model")[["validity", "ip", "cost"]].mean()
    last = history.records[-1].metrics
    rows = [json.loads(run.model_dump_json()) for run in runs]
    frame = pd.DataFrame(rows).assign(
        seed=[run.seeds[0] for run in runs],
        **predictive(models, data.test),
        mature=last.get("mature", [float("nan")] * len(runs)),
        **{name: outcomes[name].to_numpy() for name in ("validity", "ip", "cost")},
    )
    return frame.drop(columns=["seeds"])


def _known(data: Dataset) -> tuple[torch.Tensor, torch.Tensor]:
    """Training and validation rows together: the test rows of a grid are never looked at for choosing."""
    return torch.cat([data.train.x, data.validation.x]), torch.cat([data.train.y, data.validation.y])


def compute_population(runs: Sequence[Settings], path: Path, *, rounds: int = 5, individuals: int = 100) -> None:
    """`run_population` into a file, unless it is there already."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        frame = run_population(runs, rounds=rounds, individuals=individuals)
        write_text(path, frame.to_csv(index=False, float_format="%.5g"))
