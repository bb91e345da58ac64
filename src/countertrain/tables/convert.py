"""From a CSV or parquet file that does not fit in memory to rows that training can read by their numbers."""

import importlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from countertrain.tables.frames import (
    MAX_LEVELS,
    check_labels,
    check_missing,
    check_size,
    is_number,
    split_rows,
    target_of,
    usable_scale,
)
from countertrain.tables.memmap import Description, check_new, writing

__all__ = ["convert"]

Progress = Callable[[int, int | None], None]
"""Told how many rows have been read, and of how many if that is known; each is read three times."""

_ROWS = 2**15  # held at a time
_HELD_OUT = 10_000  # most rows for validation, and most for the test: they are scored as a whole


def convert(
    source: Path,
    folder: Path,
    *,
    target: str | None = None,
    data_seed: int = 42,
    progress: Progress = lambda done, total: None,
) -> None:
    """Turn a CSV file with a header, or a parquet file, into a folder that `load` opens without reading its rows.

    Coded and split as `read_csv` does it, but with at most 10,000 rows each for validation and test. The source is read
    three times, some rows at a time: for columns and labels, for the spread of the training rows, and for the rows. Of
    all rows at once, only numbers and labels are held.
    """
    check_new(folder)
    first = next(_frames(source), pd.DataFrame())
    if first.shape[1] < 2:
        check_size(source, *first.shape)
    names = list(first.columns)
    target = target_of(source, names, target)
    names.remove(target)
    numbers, y, classes = _survey(source, names, target, progress)
    texts = [name for name in names if name not in numbers]
    splits = split_rows(y, data_seed, most=_HELD_OUT)
    order = np.concatenate(splits)  # (n,) where each row of the folder is in the source
    place = order.argsort()  # (n,) where each row of the source comes to lie

    def again(passes: int) -> Iterator[tuple[slice, pd.DataFrame]]:
        done = 0
        for frame in _frames(source, texts):
            yield slice(done, done + len(frame)), frame
            done += len(frame)
            progress(passes * len(y) + done, 3 * len(y))

    columns = _measure(again(1), source, names, texts, in_training=place < len(splits[0]))
    description = _describe(source, target, data_seed, columns, classes, [len(split) for split in splits])
    with writing(folder, description) as (rows, labels):
        labels[:] = y[order]
        for part, frame in again(2):
            rows[place[part]] = np.hstack([column.encode(frame[column.name]) for column in columns])


@dataclass(frozen=True)
class _Column:
    """A column of the table, and how its values become numbers."""

    name: str
    levels: Sequence[str] | None = None
    """Of a one-hot group; None: a column of numbers."""
    centre: float = 0.0
    scale: float = 1.0

    @property
    def features(self) -> list[str]:
        return [self.name] if self.levels is None else [f"{self.name}={level}" for level in self.levels]

    def encode(self, values: "pd.Series[Any]") -> NDArray[np.float64]:
        """(n,) values -> (n, 1) standardised, or (n, L) one-hot."""
        if self.levels is None:
            return ((values.to_numpy(dtype=np.float64) - self.centre) / self.scale)[:, None]
        return np.eye(len(self.levels))[pd.Index(self.levels).get_indexer(pd.Index(values.astype(str)))]


def _frames(source: Path, texts: Collection[str] = ()) -> Iterator[pd.DataFrame]:
    """The rows of the source, some at a time; `texts` are columns to be read as texts."""
    is_parquet = source.suffix.lower() in (".parquet", ".pq")
    try:
        if is_parquet:
            with _parquet().ParquetFile(source) as file:
                for batch in file.iter_batches(_ROWS):
                    yield batch.to_pandas()
        else:
            types = dict.fromkeys(texts, str)
            with pd.read_csv(source, chunksize=_ROWS, dtype=types, low_memory=False) as frames:
                yield from frames
    except (OSError, ValueError) as error:
        kind = "parquet file" if is_parquet else "CSV file with a header"
        raise ValueError(f"{source} cannot be read as a {kind}: {error}") from error


def _parquet() -> Any:
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ValueError("that needs pyarrow; pip install pyarrow, or bring a CSV file") from None


def _survey(
    source: Path, names: Sequence[str], target: str, progress: Progress
) -> tuple[set[str], NDArray[np.int64], list[str]]:
    """The columns that hold nothing but numbers; the class of each row, and the names of the classes."""
    numbers = set(names)
    known: dict[str, int] = {}
    parts: list[NDArray[np.int64]] = []
    n = 0
    for frame in _frames(source, [target]):
        check_missing(source, frame)
        numbers = {name for name in numbers if is_number(frame[name])}
        codes, labels = pd.factorize(frame[target].astype(str))
        parts.append(np.array([known.setdefault(label, len(known)) for label in labels], dtype=np.int64)[codes])
        _check_levels(source, target, known)
        n += len(frame)
        progress(n, None)
    check_size(source, n, len(names) + 1)
    classes = _sorted(known)
    y = np.array([classes.index(label) for label in known])[np.concatenate(parts)]
    check_labels(source, target, np.bincount(y))
    return numbers, y, classes


def _measure(
    frames: Iterator[tuple[slice, pd.DataFrame]],
    source: Path,
    names: Sequence[str],
    texts: Collection[str],
    in_training: NDArray[np.bool_],
) -> list[_Column]:
    """Levels of the texts; mean and spread of the numbers over the training rows, merged part by part."""
    numbers = [name for name in names if name not in texts]
    levels: dict[str, set[str]] = {name: set() for name in texts}
    n, mean, squares = 0, np.zeros(len(numbers)), np.zeros(len(numbers))  # squares: of the distances to the mean
    for part, frame in frames:
        for name, known in levels.items():
            known.update(frame[name].astype(str).unique())
            _check_levels(source, name, known)
        values = frame[numbers].to_numpy(dtype=np.float64)
        if not np.isfinite(values).all():
            name = numbers[int((~np.isfinite(values)).any(0).argmax())]
            raise ValueError(f"column {name!r} of {source} holds infinite values; replace or drop them")
        values = values[in_training[part]]
        if m := len(values):
            away = values.mean(0) - mean
            squares += ((values - values.mean(0)) ** 2).sum(0) + away**2 * (n * m / (n + m))
            mean += away * (m / (n + m))
            n += m
    spread = np.sqrt(squares / (n - 1))
    scales = {name: (c, usable_scale(c, s)) for name, c, s in zip(numbers, mean.tolist(), spread.tolist(), strict=True)}
    return [
        _Column(name, sorted(levels[name])) if name in levels else _Column(name, None, *scales[name]) for name in names
    ]


def _check_levels(source: Path, name: str, known: Collection[str]) -> None:
    if len(known) > MAX_LEVELS:
        raise ValueError(
            f"column {name!r} of {source} has more than {MAX_LEVELS} different values; drop it or group its values"
        )


def _sorted(labels: Collection[str]) -> list[str]:
    """Numbers by size, anything else by spelling."""
    try:
        return sorted(labels, key=float)
    except ValueError:
        return sorted(labels)


def _describe(
    source: Path,
    target: str,
    data_seed: int,
    columns: Sequence[_Column],
    classes: Sequence[str],
    splits: Sequence[int],
) -> Description:
    features = [feature for column in columns for feature in column.features]
    groups = [column.features for column in columns if column.levels is not None]
    return Description(
        name=source.stem,
        title=source.name,
        target=target,
        data_seed=data_seed,
        splits=splits,
        classes=classes,
        features=features,
        centre=[column.centre for column in columns for _ in column.features],
        scale=[column.scale for column in columns for _ in column.features],
        categories=[(features.index(group[0]), features.index(group[0]) + len(group)) for group in groups],
    )
