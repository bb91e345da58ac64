"""A cell of the paper's tables: one objective on one data set, trained with many seeds as one population."""

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from countertrain.evaluation.attribution import sensitivity
from countertrain.evaluation.robustness import robust_accuracy
from countertrain.files import write_bytes, write_text
from countertrain.models.population import Population
from countertrain.runs.measure import Scores, measure
from countertrain.runs.registry import build_protocol
from countertrain.runs.run import Run
from countertrain.runs.settings import Settings
from countertrain.runs.training import train
from countertrain.tables import load

__all__ = [
    "EPSILONS",
    "SYNTHETIC",
    "TABULAR",
    "Cell",
    "CellResult",
    "Effort",
    "Variant",
    "compute_cell",
    "compute_pooled",
    "paper_cells",
    "read_cell",
    "read_pooled",
]

Variant = Literal["free", "protected"]
SYNTHETIC = ("ls", "circles", "moons", "ol")
TABULAR = (*SYNTHETIC, "adult", "california", "credit", "gmsc")
_ATTACKED = 2_000_000  # numbers in the test rows that are attacked: 2551 images, or all rows of any table
POOLED = 2500  # individuals for each energy weight
EPSILONS = tuple(i / 90 for i in range(10))


@dataclass(frozen=True)
class Effort:
    """How much is spent on each cell; the defaults are the paper's, with ten training seeds instead of one."""

    n_seeds: int = 10
    rounds: int = 100
    individuals: int | None = None
    """In each round and for each energy weight; None: 250 for synthetic data, 100 for tables, 25 for MNIST."""
    epochs: int | None = None

    def individuals_of(self, data: str) -> int:
        """Individuals of a data set."""
        if self.individuals is not None:
            return self.individuals
        return 250 if data in SYNTHETIC else 25 if data == "mnist" else 100


@dataclass(frozen=True)
class Cell:
    """An objective on a data set, with or without its protected feature, under a profile."""

    data: str
    objective: Literal["bl", "ct", "ar", "cd"]
    variant: Variant = "free"
    profile: str = "as-run"

    @property
    def name(self) -> str:
        """A name for files."""
        return f"{self.data}-{self.objective}" + ("-protected" if self.variant == "protected" else "")

    @property
    def cost(self) -> float:
        """Relative cost of the cell, rough; conventional training is cheap."""
        size = {"mnist": 40, "adult": 12, "credit": 5, "gmsc": 4, "california": 4}.get(self.data, 1)
        return size * (0.15 if self.objective == "bl" else 1.0)

    def settings(self, effort: Effort) -> Settings:
        """The settings of the cell: the paper's final ones."""
        overrides: dict[str, Any] = {
            "objective": self.objective,
            "profile": self.profile,
            "seeds": list(range(effort.n_seeds)),
        }
        if self.variant == "protected":
            overrides["immutable"] = load(self.data).protected
        if effort.epochs is not None:
            overrides["epochs"] = effort.epochs
        return Settings.resolve(self.data, overrides)


@dataclass(frozen=True, eq=False)
class CellResult:
    """What is kept of a cell: records of the evaluation, and scores with everything needed to trace them."""

    cell: Cell
    records: pd.DataFrame
    scores: dict[str, Any]


def paper_cells(datasets: Iterable[str], profile: str = "as-run", *, ablation: bool = True) -> list[Cell]:
    """The six models of each data set: BL, CT, AR, CD, and BL, CT with the protected feature."""
    objectives: Sequence[Literal["bl", "ct", "ar", "cd"]] = ("bl", "ct", "ar", "cd") if ablation else ("bl", "ct")
    cells = []
    for data in datasets:
        cells += [Cell(data, objective, profile=profile) for objective in objectives]
        cells += [Cell(data, objective, "protected", profile) for objective in ("bl", "ct")]
    return cells


def compute_cell(cell: Cell, effort: Effort, results: Path, runs: Path) -> None:
    """Train and evaluate a cell, unless it is stored already; can be killed and started again at any point."""
    settings = cell.settings(effort)
    if _is_stored(cell, settings, effort, results):
        return
    run = train(settings, runs / cell.profile / f"{cell.name}-{effort.n_seeds}", resume=True)
    individuals = effort.individuals_of(cell.data)
    protocol = build_protocol(settings, rounds=effort.rounds, individuals=individuals)
    measured = measure(run.models, settings, run.data, run.data.test, protocol)
    scores = {
        "settings": settings.model_dump(mode="json"),
        "effort": [effort.n_seeds, effort.rounds, individuals],
        "environment": dict(run.environment),
        "train_seconds": round(sum(record.seconds for record in run.history.records), 2),
        "mature": [round(v, 4) for v in run.history.records[-1].metrics.get("mature", [])],
        **_predict(run, measured),
    }
    if cell.variant == "protected":
        scores["sensitivity"] = _sensitivity(run, effort.rounds)
    folder = _folder(cell, results)
    folder.mkdir(parents=True, exist_ok=True)
    text = measured.records.to_csv(index=False, float_format="%.5g")
    write_bytes(folder / f"{cell.name}.csv.gz", gzip.compress(text.encode(), mtime=0))
    write_text(folder / f"{cell.name}.json", json.dumps(scores) + "\n")


def compute_pooled(cell: Cell, effort: Effort, results: Path, runs: Path) -> None:
    """IP* of a cell pooled over factual classes and rounds, one number per model, unless it is stored already."""
    path = _folder(cell, results) / f"{cell.name}-pooled.json"
    if path.exists():
        return
    settings = cell.settings(effort)
    run = train(settings, runs / cell.profile / f"{cell.name}-{effort.n_seeds}", resume=True)
    protocol = replace(build_protocol(settings, rounds=1, individuals=POOLED), pooled=True)
    pooled = measure(run.models, settings, run.data, run.data.test, protocol).table["ip_star"].tolist()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps({"ip_star_pooled": pooled}) + "\n")


def read_pooled(cell: Cell, results: Path) -> list[float] | None:
    """Pooled IP* of each model of a cell, if it was computed."""
    path = _folder(cell, results) / f"{cell.name}-pooled.json"
    return list(json.loads(path.read_text(encoding="utf-8"))["ip_star_pooled"]) if path.exists() else None


def read_cell(cell: Cell, results: Path) -> CellResult | None:
    """The records of a cell, if it was computed."""
    base = _folder(cell, results) / cell.name
    scores, records = base.with_name(f"{cell.name}.json"), base.with_name(f"{cell.name}.csv.gz")
    if not (scores.exists() and records.exists()):
        return None
    return CellResult(cell, pd.read_csv(records), json.loads(scores.read_text(encoding="utf-8")))


def _folder(cell: Cell, results: Path) -> Path:
    return results / cell.profile


def _is_stored(cell: Cell, settings: Settings, effort: Effort, results: Path) -> bool:
    result = read_cell(cell, results)
    if result is None:
        return False
    wanted = [effort.n_seeds, effort.rounds, effort.individuals_of(cell.data)]
    return Settings.model_validate(result.scores["settings"]) == settings and bool(result.scores["effort"] == wanted)


def _predict(run: Run, measured: Scores) -> dict[str, Any]:
    """Accuracy, F1, and accuracy under attack for each model; (models, epsilons) for the attacks."""
    population, test = Population(run.models), run.data.test
    scores: dict[str, Any] = {name: measured.table[name].tolist() for name in ("accuracy", "f1")}
    if not run.settings.immutable:
        some = slice(_ATTACKED // run.data.n_features)
        for attack in ("fgsm", "pgd"):
            under = robust_accuracy(population, test.x[some], test.y[some], epsilons=EPSILONS, attack=attack)
            scores[attack] = [[round(v, 4) for v in row] for row in under.tolist()]
    return scores


def _sensitivity(run: Run, rounds: int) -> list[list[float]]:
    """Standardised integrated gradients of the protected features, (models, rounds)."""
    columns, test = run.data.columns(run.settings.immutable), run.data.test
    return [
        [float(f"{v:.4g}") for v in sensitivity(model, test.x, test.y, columns, rounds=rounds).tolist()]
        for model in run.models
    ]
