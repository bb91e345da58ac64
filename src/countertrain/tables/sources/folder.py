"""Rows that do not fit in memory: kept in a file, and read by the rows that are needed.

A folder holds `rows.npy` (float32, in the model's units) and `labels.npy`, training rows first, then those for
validation and test; `test.csv`, the test rows in people's units; and `description.json`, written last.
`countertrain.tables.sources.convert` makes one from a table.
"""

import json
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from countertrain.files import write_text
from countertrain.tables.dataset import Dataset, Split
from countertrain.tables.encoder import Encoder
from countertrain.tables.sources.files import read_rows

__all__ = ["Description", "check_new", "check_space", "open_folder", "write_folder"]


@dataclass(frozen=True)
class Description:
    """What there is to know of the rows of a folder, beside themselves."""

    name: str
    title: str
    label: str
    """The column that the classes come from."""
    data_seed: int
    splits: Sequence[int]
    """How many rows are for training, validation and test."""
    classes: Sequence[Any]
    encoder: dict[str, Any]
    """As its `to_json` writes it."""


def check_new(folder: Path) -> None:
    """Refuse to write over the rows of others."""
    if (folder / "description.json").exists():
        raise ValueError(f"{folder} holds rows already; choose another folder, or delete it first")


def check_space(folder: Path, n_bytes: int) -> None:
    """Refuse what would fill the disk: a mapped file on a full one would end the process without a word."""
    free = shutil.disk_usage(folder).free
    if n_bytes > free:
        raise ValueError(
            f"{folder} has room for {free / 1e9:.1f} GB, and the rows need {n_bytes / 1e9:.1f} GB; "
            "choose a folder on another disk"
        )


@contextmanager
def write_folder(folder: Path, description: Description) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Rows (n, D) and labels (n,) on disk, to be filled in; without an error, the folder is complete afterwards."""
    check_new(folder)
    folder.mkdir(parents=True, exist_ok=True)
    encoder = Encoder.from_json(json.dumps(description.encoder))
    shape = sum(description.splits), len(encoder.features)
    check_space(folder, shape[0] * (4 * shape[1] + 8))
    create = np.lib.format.open_memmap
    rows = create(folder / "rows.npy", mode="w+", dtype=np.float32, shape=shape)
    labels = create(folder / "labels.npy", mode="w+", dtype=np.int64, shape=shape[:1])
    yield rows, labels
    rows.flush()
    labels.flush()
    write_text(folder / "description.json", json.dumps(asdict(description), indent=1, ensure_ascii=False))


def open_folder(folder: Path, *, label: str | None = None, data_seed: int | None = 42) -> Dataset:
    """The data set of such a folder, of any label or seed if None. Its rows stay in the file and are never written."""
    path = folder / "description.json"
    if not path.is_file():
        raise ValueError(
            f"{folder} is not a folder of converted rows: it has no description.json; "
            "make one with: countertrain convert FILE FOLDER"
        )
    try:
        about = Description(**json.loads(path.read_text(encoding="utf-8")))
        encoder = Encoder.from_json(json.dumps(about.encoder))
        x, y = _map(folder / "rows.npy"), _map(folder / "labels.npy")
        if x.shape != (sum(about.splits), len(encoder.features)) or y.shape != x.shape[:1]:
            raise ValueError(f"rows {tuple(x.shape)} and labels {tuple(y.shape)} are not what its description says")
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{folder} is damaged ({error}); delete it, and convert its source again") from error
    for name, asked, given in (("label", label, about.label), ("data seed", data_seed, about.data_seed)):
        if asked not in (None, given):
            raise ValueError(f"{folder} was converted with {name} {given!r}, not {asked!r}; convert its source again")
    train, validation, test = (Split(*part) for part in zip(x.split(about.splits), y.split(about.splits), strict=True))
    people = folder / "test.csv"
    return Dataset(
        name=about.name,
        title=about.title,
        encoder=encoder,
        label=about.label,
        classes=tuple(about.classes),
        train=train,
        validation=validation,
        test=test,
        test_frame=read_rows(people, encoder, about.label, about.classes) if people.exists() else None,
        known=x[: len(train) + len(validation)],
    )


def _map(path: Path) -> Tensor:
    """A tensor whose numbers stay in the file until they are asked for."""
    array = np.load(path, mmap_mode="r")  # the kernel would refuse a writable copy of more than the memory
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
