"""Tables: the two that come with scikit-learn, and any CSV file with a header."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from countertrain.tables.dataset import Dataset, Split, hold_out
from countertrain.words import suggest

__all__ = [
    "MAX_LEVELS",
    "Rows",
    "assemble",
    "breast_cancer",
    "check_labels",
    "check_missing",
    "check_size",
    "digits",
    "is_number",
    "read_csv",
    "split_rows",
    "target_of",
    "usable_scale",
]

Rows = NDArray[np.int64]

MAX_LEVELS = 50
"""Most classes, and most different texts of a column."""


def breast_cancer(*, data_seed: int = 42) -> Dataset:
    """Wisconsin diagnostic breast cancer, 569 rows of 30 measurements; bundled with scikit-learn."""
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    frame = pd.DataFrame(bunch.data, columns=list(bunch.feature_names))
    classes = tuple(str(name) for name in bunch.target_names)
    return _prepare("breast-cancer", "Breast cancer (Wisconsin)", frame, bunch.target, classes, data_seed)


def digits(*, data_seed: int = 42) -> Dataset:
    """Handwritten digits, 1797 images of 8 x 8 pixels scaled to [-1, 1]; bundled with scikit-learn."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = torch.from_numpy((bunch.data / 8.0 - 1.0).astype(np.float32))
    y = torch.from_numpy(bunch.target.astype(np.int64))
    train, validation, test = split_rows(bunch.target, data_seed)
    d = x.shape[1]
    return Dataset(
        name="digits",
        title="Handwritten digits (8 x 8)",
        train=Split(x[train], y[train]),
        validation=Split(x[validation], y[validation]),
        test=Split(x[test], y[test]),
        features=tuple(f"pixel {i // 8},{i % 8}" for i in range(d)),
        classes=tuple(str(k) for k in range(10)),
        centre=torch.full((d,), 8.0),
        scale=torch.full((d,), 8.0),
        domain=(-1.0, 1.0),
    )


def read_csv(path: Path, *, target: str | None = None, data_seed: int = 42) -> Dataset:
    """A CSV file with a header, whose column `target` (or else its last one) is to be predicted.

    Columns of numbers are standardised, all others one-hot coded.
    """
    try:
        frame = pd.read_csv(path)
    except (OSError, UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise ValueError(f"{path} cannot be read as a CSV file with a header: {error}") from error
    check_size(path, *frame.shape)
    target = target_of(path, list(frame.columns), target)
    check_missing(path, frame)
    labels, classes = pd.factorize(frame[target], sort=True)
    check_labels(path, target, np.bincount(labels))
    names = tuple(str(c) for c in classes)
    return _prepare(path.stem, str(path.name), frame.drop(columns=target), labels, names, data_seed)


def check_size(path: Path, n_rows: int, n_columns: int) -> None:
    """Refuse a table that is too small."""
    if n_columns < 2 or n_rows < 10:
        raise ValueError(f"{path} needs at least 2 columns and 10 rows; it has {n_columns} and {n_rows}")


def target_of(path: Path, columns: Sequence[Any], target: str | None) -> str:
    """The column to predict, which is the last one if none is named."""
    target = target or str(columns[-1])
    if target not in columns:
        raise ValueError(f"{path} has no column {target!r} to predict; {suggest(target, columns)}")
    return target


def check_missing(path: Path, frame: pd.DataFrame) -> None:
    """Refuse missing values."""
    missing = frame.columns[frame.isna().any()]
    if len(missing):
        raise ValueError(
            f"{path} has missing values in {', '.join(map(str, missing))}; fill them in or drop those rows first"
        )


def check_labels(path: Path, target: str, counts: NDArray[np.int64]) -> None:
    """Refuse too few or too many classes, and classes of too few rows."""
    if not 2 <= len(counts) <= MAX_LEVELS or counts.min() < 5:
        raise ValueError(
            f"column {target!r} of {path} must hold 2 to {MAX_LEVELS} classes with at least 5 rows each; "
            f"it has {len(counts)}, the rarest with {counts.min()}"
        )


def is_number(values: "pd.Series[Any]") -> bool:
    """Whether a column holds numbers; truth values are categories."""
    return pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)


def usable_scale(centre: float, spread: float) -> float:
    """The spread of a column, or 1 if it never changes."""
    return spread if spread > 1e-12 * max(1.0, abs(centre)) else 1.0


def _prepare(
    name: str,
    title: str,
    frame: pd.DataFrame,
    y: NDArray[np.int64],
    classes: tuple[str, ...],
    data_seed: int,
) -> Dataset:
    """A data set split at random, scaled by its training rows."""
    y = np.asarray(y, dtype=np.int64)
    train, validation, test = split_rows(y, data_seed)
    return assemble(name, title, frame, y, classes, splits=(train, validation, test), fit_on=train)


def assemble(
    name: str,
    title: str,
    frame: pd.DataFrame,
    y: NDArray[np.int64],
    classes: tuple[str, ...],
    *,
    splits: tuple[Rows, Rows, Rows],
    fit_on: Rows,
    categorical: Collection[str] = (),
    protected: tuple[str, ...] = (),
) -> Dataset:
    """Columns of numbers standardised by mean and spread of the rows `fit_on`, all others one-hot coded in place."""
    blocks: list[NDArray[np.float64]] = []
    features: list[str] = []
    centre: list[float] = []
    scale: list[float] = []
    categories: list[slice] = []
    for column in frame.columns:
        values = frame[column]
        if is_number(values) and column not in categorical:
            numbers = values.to_numpy(dtype=np.float64)
            if not np.isfinite(numbers).all():
                raise ValueError(f"column {column!r} of {title} holds infinite values; replace or drop them")
            features.append(str(column))
            centre.append(float(numbers[fit_on].mean()))
            scale.append(usable_scale(centre[-1], float(numbers[fit_on].std(ddof=1))))
            blocks.append(((numbers - centre[-1]) / scale[-1])[:, None])
            continue
        codes, levels = pd.factorize(values.astype(str), sort=True)
        if len(levels) > MAX_LEVELS:
            raise ValueError(
                f"column {column!r} of {title} has {len(levels)} different texts, more than {MAX_LEVELS}; "
                "drop it or group its values"
            )
        categories.append(slice(len(features), len(features) + len(levels)))
        features += [f"{column}={level}" for level in levels]
        centre += [0.0] * len(levels)
        scale += [1.0] * len(levels)
        blocks.append(np.eye(len(levels))[codes])
    x = torch.from_numpy(np.hstack(blocks).astype(np.float32))
    labels = torch.from_numpy(y)
    train, validation, test = (Split(x[rows], labels[rows]) for rows in splits)
    return Dataset(
        name=name,
        title=title,
        train=train,
        validation=validation,
        test=test,
        features=tuple(features),
        classes=classes,
        centre=torch.tensor(centre, dtype=torch.float32),
        scale=torch.tensor(scale, dtype=torch.float32),
        categories=tuple(categories),
        protected=protected,
    )


def split_rows(y: NDArray[np.int64], data_seed: int, *, most: int | None = None) -> tuple[Rows, Rows, Rows]:
    """Rows for training (70 %), validation (10 %) and test (20 %), shuffled, the same mix of classes in each.

    `most` is how many are held out at most for validation, and again for the test.
    """
    rng = np.random.default_rng(data_seed)
    n_validation, n_test = (min(round(share * len(y)), most or len(y)) for share in (0.1, 0.2))
    test = hold_out(y, n_test, rng)
    known = np.flatnonzero(~test)
    held = hold_out(y[known], n_validation, rng)
    return rng.permutation(known[~held]), known[held], np.flatnonzero(test)
