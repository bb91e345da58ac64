"""Cells of a comparison of advice: a method on a table with a seed, each computed once and kept as a file."""

import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.measuring import AbsentError
from countertrain.cli.console import console
from countertrain.files import write_text

__all__ = ["Cell", "Compute", "compute_cells", "list_cells", "read_records"]

Compute = Callable[[str, str, int], pd.DataFrame]
"""Names of table and method, and a seed -> the record, a row for each tau. A function that another process finds."""


@dataclass(frozen=True)
class Cell:
    """What is to be computed, and where it is kept."""

    table: str
    method: str
    seed: int
    folder: Path

    @property
    def file(self) -> Path:
        """Its record."""
        return self.folder / f"{self.table}-{self.method.replace(' ', '_')}-{self.seed}.csv"

    def __str__(self) -> str:
        return f"{self.table}, {self.method}, seed {self.seed}"


def list_cells(tables: str, methods: str, seeds: int, folder: Path, known: tuple[Any, Any]) -> list[Cell]:
    """All cells of tables "a,b", methods "a,b" and so many seeds; names must be among the known ones."""
    asked = [tables.split(","), methods.split(",")]
    for names, there in zip(asked, known, strict=True):
        if strange := [name for name in names if name not in there]:
            raise ValueError(f"{strange[0]!r} is not known; choose from {', '.join(there)}")
    return [Cell(t, m, s, folder) for s in range(seeds) for t in asked[0] for m in asked[1]]


def compute_cells(cells: Sequence[Cell], compute: Compute, *, jobs: int = 1) -> None:
    """Compute what has no record yet, in so many processes of one thread each."""
    missing = [cell for cell in cells if not cell.file.exists()]
    for cell in missing:
        cell.folder.mkdir(parents=True, exist_ok=True)
    with _workers(jobs) as share_out:
        for _ in share_out(_compute_cell, missing, [compute] * len(missing)):
            pass


def _compute_cell(cell: Cell, compute: Compute) -> None:
    console.print(str(cell), soft_wrap=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            record = compute(cell.table, cell.method, cell.seed)
    except AbsentError as why:
        console.print(f"{cell}: left out, {why}", soft_wrap=True)
        return
    record = record.assign(seed=cell.seed, method=cell.method, table=cell.table)
    write_text(cell.file, record.to_csv(index=False, float_format="%.5g"))


@contextmanager
def _workers(jobs: int) -> Iterator[Callable[..., Any]]:
    """Something like `map`, in this process or in several."""
    if jobs == 1:
        yield map
        return
    os.environ["OMP_NUM_THREADS"] = "1"  # read by the libraries of the new processes, not by ours
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_use_one_thread) as pool:
        yield pool.map


def _use_one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def read_records(folder: Path) -> pd.DataFrame:
    """All cells that were computed, one row for each tau."""
    parts = [pd.read_csv(file) for file in sorted(folder.glob("*-*-*.csv"))]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
