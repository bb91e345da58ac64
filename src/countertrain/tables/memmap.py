"""Rows that do not fit in memory: kept in a file, and read by the rows that are needed.

A folder holds `rows.npy` (float32, in the model's units) and `labels.npy`, training rows first, then those for
validation and test; and `description.json`, written last. `countertrain.tables.convert` makes one from a table.
"""

import json
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from countertrain.files import write_text
from countertrain.tables.dataset import Dataset, Split

__all__ = ["Description", "check_new", "read_folder", "writing"]


@dataclass(frozen=True)
class Description:
    """What there is to know of the rows of a folder, beside themselves."""

    name: str
    title: str
    target: str
    """The column that the classes come from."""
    data_seed: int
    splits: Sequence[int]
    """How many rows are for training, validation and test."""
    classes: Sequence[str]
    features: Sequence[str]
    centre: Sequence[float]
    scale: Sequence[float]
    categories: Sequence[Sequence[int]] = ()
    """First column of each one-hot group, and the one after its last."""


def check_new(folder: Path) -> None:
    """Refuse to write over the rows of others."""
    if (folder / "description.json").exists():
        raise ValueError(f"{folder} holds rows already; choose another folder, or delete it first")


@contextmanager
def writing(folder: Path, description: Description) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Rows (n, D) and labels (n,) on disk, to be filled in; without an error, the folder is complete afterwards."""
    check_new(folder)
    folder.mkdir(parents=True, exist_ok=True)
    shape = sum(description.splits), len(description.features)
    needed, free = shape[0] * (4 * shape[1] + 8), shutil.disk_usage(folder).free
    if needed > free:  # a mapped file on a full disk would end the process without a word
        raise ValueError(
            f"{folder} has room for {free / 1e9:.1f} GB, and the rows need {needed / 1e9:.1f} GB; "
            "choose a folder on another disk"
        )
    create = np.lib.format.open_memmap
    rows = create(folder / "rows.npy", mode="w+", dtype=np.float32, shape=shape)
    labels = create(folder / "labels.npy", mode="w+", dtype=np.int64, shape=shape[:1])
    yield rows, labels
    rows.flush()
    labels.flush()
    write_text(folder / "description.json", json.dumps(asdict(description), indent=1))


def read_folder(folder: Path, *, target: str | None = None, data_seed: int = 42) -> Dataset:
    """The data set of such a folder. Its rows stay in the file and cannot be written to."""
    path = folder / "description.json"
    if not path.is_file():
        raise ValueError(
            f"{folder} is not a folder of converted rows: it has no description.json; "
            "make one with: countertrain convert FILE FOLDER"
        )
    try:
        told = Description(**json.loads(path.read_text(encoding="utf-8")))
        x, y = _mapped(folder / "rows.npy"), _mapped(folder / "labels.npy")
        if x.shape != (sum(told.splits), len(told.features)) or y.shape != x.shape[:1]:
            raise ValueError(f"rows {tuple(x.shape)} and labels {tuple(y.shape)} are not what its description says")
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{folder} is damaged ({error}); delete it, and convert its source again") from error
    for name, asked, given in (("target column", target, told.target), ("data seed", data_seed, told.data_seed)):
        if asked not in (None, given):
            raise ValueError(f"{folder} was converted with {name} {given!r}, not {asked!r}; convert its source again")
    train, validation, test = (Split(*part) for part in zip(x.split(told.splits), y.split(told.splits), strict=True))
    return Dataset(
        name=told.name,
        title=told.title,
        train=train,
        validation=validation,
        test=test,
        features=tuple(told.features),
        classes=tuple(told.classes),
        centre=torch.tensor(told.centre, dtype=torch.float32),
        scale=torch.tensor(told.scale, dtype=torch.float32),
        categories=tuple(slice(*group) for group in told.categories),
        known=x[: len(train) + len(validation)],
    )


def _mapped(path: Path) -> Tensor:
    """A tensor whose numbers stay in the file until they are asked for."""
    array = np.load(path, mmap_mode="r")  # the kernel would refuse a writable copy of more than the memory
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
