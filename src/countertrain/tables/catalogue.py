"""All sources of rows behind one door: data sets by name, files, frames, converted folders, other packages."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from countertrain.tables import cells
from countertrain.tables.dataset import Dataset
from countertrain.tables.encoder import Encoder, FitEncoder
from countertrain.tables.inspection import Inspection, inspect
from countertrain.tables.inspection.findings import RowNames
from countertrain.tables.inspection.whole import name_apart
from countertrain.tables.names import find_fixed
from countertrain.tables.scales import Ranks
from countertrain.tables.schema import Schema
from countertrain.tables.sources.dialects import find_lines, read_header
from countertrain.tables.sources.files import is_csv, is_excel, is_table, read_table, short_name
from countertrain.tables.sources.folder import open_folder
from countertrain.tables.sources.frames import breast_cancer, from_frame
from countertrain.tables.sources.images import digits, mnist
from countertrain.tables.sources.loans import TITLE, draw_table, loans
from countertrain.tables.sources.paper import TABLES, table, table_frame
from countertrain.tables.sources.synthetic import SYNTHETIC, make
from countertrain.words import list_names, suggest

__all__ = ["ENTRY_POINTS", "catalogue", "inspect_source", "load", "load_frame", "naming_lines", "propose_fixed"]

ENTRY_POINTS = "countertrain.datasets"
"""The entry points under which other packages offer data sets: callables that take `data_seed` by name."""


class _Loader(Protocol):
    def __call__(self, *, data_seed: int) -> Dataset: ...


_LOADERS: dict[str, tuple[str, _Loader]] = {
    **{name: (title, partial(make, name)) for name, (title, _, _) in SYNTHETIC.items()},
    **{name: (spec.title, partial(table, name)) for name, spec in TABLES.items()},
    "mnist": ("MNIST, handwritten digits of 28 x 28 pixels", mnist),
    "loans": (TITLE, loans),
    "breast-cancer": ("Breast cancer (Wisconsin), 30 features", breast_cancer),
    "digits": ("Handwritten digits, 8 x 8 pixels", digits),
}


def catalogue() -> dict[str, str]:
    """Names and titles of the data sets that can be loaded, those of other packages last."""
    own = {name: title for name, (title, _) in _LOADERS.items()}
    return own | {name: f"from {_package(point)}" for name, point in _find_plugins().items()}


def load(
    source: str | Path | pd.DataFrame,
    *,
    label: str | None = None,
    data_seed: int = 42,
    schema: Schema | None = None,
    drop: Sequence[str] = (),
    fit_encoder: FitEncoder = Encoder.fit,
    hear: Callable[[Inspection], None] | None = None,
) -> Dataset:
    """A data set by name, a CSV, Excel or Parquet file or a converted folder by path, or a DataFrame.

    `label` is the column to predict, the last one of a table if left out; `schema` says what the columns of a table
    mean, inferred if left out; the model does not see the columns to `drop`; `fit_encoder` makes numbers of a table.
    `hear` is told what a look at the table of a file has shown, before anything is made of it.
    """
    options: dict[str, Any] = {"label": label, "data_seed": data_seed, "schema": schema, "drop": drop}
    if isinstance(source, pd.DataFrame):
        return from_frame(source, fit_encoder=fit_encoder, **options)
    name, path = str(source), Path(source)
    plugins = {} if name in _LOADERS else _find_plugins()
    if is_table(path) and name not in _LOADERS and name not in plugins and not path.is_dir():
        frame = read_table(path)
        if hear is not None:
            hear(_inspect_file(path, frame, label=label, schema=schema, drop=drop))
        with naming_lines(path, len(frame)):
            options |= {"name": short_name(path), "title": path.name}
            return from_frame(frame, fit_encoder=fit_encoder, **options)
    given = fit_encoder != Encoder.fit
    own_encoder = (name in _LOADERS and name not in TABLES and name != "loans") or name in plugins
    if given and own_encoder:
        raise ValueError(
            f"{name} has an encoder of its own, and another one can be given for tables only; leave it out"
        )
    if name in _LOADERS or name in plugins:
        if name == "loans":
            data = loans(data_seed=data_seed, schema=schema, fit_encoder=fit_encoder)
        elif name in TABLES:
            data = table(name, data_seed=data_seed, schema=schema, fit_encoder=fit_encoder)
        else:
            _refuse_schema(name, schema)
            data = _load_plugin(plugins[name], data_seed) if name in plugins else _LOADERS[name][1](data_seed=data_seed)
        _check_label(data, label)
        return data.drop(drop) if drop else data
    if path.is_dir():
        _refuse_schema(name, schema)
        data = open_folder(path, label=label, data_seed=data_seed)
        return data.drop(drop) if drop else data
    known = [*_LOADERS, *plugins]
    there = f"there are {list_names(known, len(known))}, or the path of a CSV or Parquet file"
    raise ValueError(f"unknown data set {name!r}; {suggest(name, known, there)}")


def inspect_source(
    source: str | Path | pd.DataFrame,
    label: str | None = None,
    *,
    schema: Schema | None = None,
    drop: Sequence[str] = (),
) -> Inspection:
    """A look at a table before training, whether it is a DataFrame, a file, or has a name.

    Where nothing stands in the way, the table is made ready for training once, so that nothing is left to be refused.
    """
    options: dict[str, Any] = {"label": label, "schema": schema, "drop": drop}
    if isinstance(source, pd.DataFrame):
        frame, look, title, rows = source, inspect(source, **options), "the table", RowNames()
    elif str(source) in _LOADERS:
        frame, labels = load_frame(str(source))
        if label not in (None, labels.name):
            raise ValueError(f"{source} has the label {str(labels.name)!r}, not {label!r}; leave it out")
        frame = frame.assign(**{str(labels.name): labels.to_numpy()})
        title, rows = str(source), RowNames()
        look = inspect(frame, str(labels.name), schema=schema, drop=drop, title=title)
    else:
        path = Path(source)
        if path.is_dir():
            raise ValueError(f"{source} is a folder of converted rows; check the file that it was converted from")
        frame, title = read_table(path), path.name
        rows = _name_rows(path, len(frame))
        look = _inspect_file(path, frame, **options)
    if look.refused:
        return look
    try:
        fit = partial(Encoder.fit, fit_scale=Ranks.fit)  # as training does with a table of one's own
        with cells.naming_rows(rows.name), cells.as_declared():
            from_frame(frame, label=look.label, schema=schema, drop=drop, title=title, fit_encoder=fit)
    except ValueError as error:
        return look.refuse(str(error))
    return look


def _inspect_file(path: Path, frame: pd.DataFrame, **options: Any) -> Inspection:
    """A look at the table of a file, whose rows are called by their lines."""
    header = read_header(path) if is_csv(path) else None
    return inspect(frame, title=path.name, header=header, rows=_name_rows(path, len(frame)), **options)


def _name_rows(path: Path, n: int) -> RowNames:
    """How the n rows of a file are called: by their lines, where they stand on lines."""
    if is_csv(path):
        return RowNames("line", cache(lambda: find_lines(path, n)))
    return RowNames("line", lambda: np.arange(n) + 2) if is_excel(path) else RowNames()


def propose_fixed(source: str, label: str | None) -> list[str]:
    """The columns of a file or converted folder that people rarely can or should change, by their names."""
    path = Path(source)
    if source in _LOADERS or not path.exists() or source in _find_plugins():
        return []
    if path.is_dir():
        return find_fixed(open_folder(path, data_seed=None).schema.names)
    read = read_header(path) if is_csv(path) else [str(name) for name in read_table(path).columns]
    names = name_apart([name or f"Unnamed: {i}" for i, name in enumerate(read)])  # as pandas calls them
    return [name for name in find_fixed(names) if name != (label or names[-1])]


def naming_lines(path: Path, n: int) -> AbstractContextManager[None]:
    """Whatever is said of the n rows of a file names them as they stand there."""
    return cells.naming_rows(_name_rows(path, n).name)


def load_frame(name: str) -> tuple[pd.DataFrame, "pd.Series[str]"]:
    """The rows of a named table in people's units, with names for codes, and the class of each row by name."""
    if name == "loans":
        return draw_table()
    if name not in TABLES:
        raise ValueError(f"{name!r} is not the name of a table; there are {list_names([*TABLES, 'loans'])}")
    return table_frame(name)


def _refuse_schema(name: str, schema: Schema | None) -> None:
    if schema is not None:
        raise ValueError(f"{name} has a schema of its own, and another one can be given for tables only; leave it out")


def _check_label(data: Dataset, label: str | None) -> None:
    if label not in (None, data.label):
        raise ValueError(f"{data.name} has the label {data.label!r}, not {label!r}; leave it out")


@cache
def _find_plugins() -> dict[str, EntryPoint]:
    """The data sets that other packages offer, by name."""
    points = {point.name: point for point in metadata.entry_points(group=ENTRY_POINTS)}
    for name, point in points.items():
        if name in _LOADERS:
            raise ValueError(
                f"{_package(point)} offers a data set {name!r}, which is the name of one of countertrain's own; "
                "uninstall it, or ask its authors to rename the data set"
            )
    return points


def _load_plugin(point: EntryPoint, data_seed: int) -> Dataset:
    try:
        data = point.load()(data_seed=data_seed)
    except Exception as error:  # whatever the code of others may do
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(f"the data set {point.name!r} of {_package(point)} cannot be loaded ({why})") from error
    if not isinstance(data, Dataset):
        raise TypeError(
            f"the data set {point.name!r} of {_package(point)} must be a Dataset; got {type(data).__name__}"
        )
    return data


def _package(point: EntryPoint) -> str:
    return f"the package {point.dist.name}" if point.dist else f"the module {point.module}"
