"""All data sets by name."""

from functools import partial
from pathlib import Path
from typing import Protocol

from countertrain.tables.dataset import Dataset
from countertrain.tables.frames import breast_cancer, digits, read_csv
from countertrain.tables.memmap import read_folder
from countertrain.tables.real import TABLES, mnist, table
from countertrain.tables.synthetic import SYNTHETIC, make
from countertrain.words import list_names, suggest

__all__ = ["catalogue", "load"]


class _Loader(Protocol):
    def __call__(self, *, data_seed: int) -> Dataset: ...


_LOADERS: dict[str, tuple[str, _Loader]] = {
    **{name: (title, partial(make, name)) for name, (title, _, _) in SYNTHETIC.items()},
    **{name: (spec.title, partial(table, name)) for name, spec in TABLES.items()},
    "mnist": ("MNIST, handwritten digits of 28 x 28 pixels", mnist),
    "breast-cancer": ("Breast cancer (Wisconsin), 30 features", breast_cancer),
    "digits": ("Handwritten digits, 8 x 8 pixels", digits),
}


def catalogue() -> dict[str, str]:
    """Names and titles of the data sets that can be loaded."""
    return {name: title for name, (title, _) in _LOADERS.items()}


def load(name: str | Path, *, target: str | None = None, data_seed: int = 42) -> Dataset:
    """A data set by name; a CSV file by path, with `target` (or its last column) to predict; a converted folder."""
    if str(name) in _LOADERS:
        return _LOADERS[str(name)][1](data_seed=data_seed)
    path = Path(name)
    if path.suffix.lower() == ".csv" or path.is_file():
        if not path.is_file():
            raise ValueError(f"there is no file {path}; check the path")
        return read_csv(path, target=target, data_seed=data_seed)
    if path.is_dir():
        return read_folder(path, target=target, data_seed=data_seed)
    there = f"there are {list_names(_LOADERS, len(_LOADERS))}, or the path of a CSV file"
    raise ValueError(f"unknown data set {str(name)!r}; {suggest(name, _LOADERS, there)}")
