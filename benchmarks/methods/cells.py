"""A cell of the comparison: a method on a data set, how much is spent on it, and where its records are."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.methods.contenders import COMMON, CONTENDERS
from countertrain.runs.registry import load_data
from countertrain.runs.settings import Settings
from countertrain.tables import Dataset
from countertrain.tables.dataset import Split
from reproduction.cells import Effort as PaperEffort

__all__ = ["Cell", "Effort", "is_stored", "load_rows"]


@dataclass(frozen=True)
class Effort:
    """How much is spent on each cell; part of its record."""

    seeds: int = 5
    rows: int = 3000
    """Most training rows, drawn from all."""
    epochs: int = 40
    rounds: int = 5
    """Of the paper's evaluation, for each energy weight."""
    individuals: int | None = None
    """In a round; None: as many as the paper."""

    def individuals_of(self, data: str) -> int:
        """Individuals of a data set."""
        return self.individuals or PaperEffort().individuals_of(data)


@dataclass(frozen=True)
class Cell:
    """A method on a data set, with or without its protected feature, and the folder of its records."""

    data: str
    method: str
    effort: Effort
    folder: Path
    protected: bool = False

    @property
    def name(self) -> str:
        """A name for files."""
        return f"{self.data}-{self.method}" + ("-protected" if self.protected else "")

    def file(self, seed: int) -> Path:
        """The record of a seed."""
        return self.folder / f"{self.name}-{seed}.json"

    @property
    def tuning(self) -> Path:
        """What the trials came to, and which of them was chosen."""
        return self.folder / "tuning" / f"{self.data}-{self.method}.json"

    def settings(self, trial: Mapping[str, Any]) -> Settings:
        """The settings of one trial, with all seeds."""
        contender, n = CONTENDERS[self.method], self.effort.seeds
        seeds = list(range(n * contender.members))
        spent = {"epochs": self.effort.epochs, "n_ce": self.effort.rows // 3, "seeds": seeds}
        told: dict[str, Any] = {**COMMON, **contender.settings, **trial, **spent}
        if self.protected:
            told["immutable"] = load_rows(self).protected
        return Settings.resolve(self.data, told)


def is_stored(cell: Cell) -> bool:
    """Whether every seed of the cell has a record that as much was spent on."""
    files = [cell.file(seed) for seed in range(cell.effort.seeds)]
    return all(f.exists() and json.loads(f.read_text(encoding="utf-8"))["effort"] == asdict(cell.effort) for f in files)


def load_rows(cell: Cell) -> Dataset:
    """The data with no more training rows than are to be spent, which are the same for all methods and seeds."""
    data = load_data(Settings.resolve(cell.data))
    order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(0))
    some = order[: cell.effort.rows].sort().values
    return replace(data, train=Split(data.train.x[some], data.train.y[some]))
