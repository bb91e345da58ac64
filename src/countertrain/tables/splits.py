"""Which rows are for training, validation and test: the same mix of classes in each."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["Rows", "Splits", "hold_out", "split_off", "split_rows"]

Rows = NDArray[np.int64]
"""Places of rows."""
Splits = tuple[Rows, Rows, Rows]
"""Rows for training, validation and test."""
Stream = np.random.Generator | np.random.RandomState


def hold_out(y: NDArray[np.int64], n: int, rng: Stream) -> NDArray[np.bool_]:
    """A mask of n rows, of each class its share (largest remainders are rounded up)."""
    held = np.zeros(len(y), dtype=bool)
    labels, counts = np.unique(y, return_counts=True)
    shares = n * counts / len(y)
    quota = np.floor(shares).astype(int)
    quota[np.argsort(quota - shares, kind="stable")[: n - quota.sum()]] += 1
    for label, wanted in zip(labels, quota, strict=True):
        held[rng.permutation(np.flatnonzero(y == label))[:wanted]] = True
    return held


def split_rows(y: NDArray[np.int64], data_seed: int, *, most: int | None = None) -> Splits:
    """Rows for training (70 %), validation (10 %) and test (20 %), the training rows shuffled.

    `most` is how many are held out at most for validation, and again for the test.
    """
    rng = np.random.default_rng(data_seed)
    n_validation, n_test = (min(round(share * len(y)), most or len(y)) for share in (0.1, 0.2))
    test = hold_out(y, n_test, rng)
    known = np.flatnonzero(~test)
    held = hold_out(y[known], n_validation, rng)
    return rng.permutation(known[~held]), known[held], np.flatnonzero(test)


def split_off(y: NDArray[np.int64], share: float, rng: Stream) -> tuple[Rows, Rows]:
    """Rows to keep, shuffled, and a share of all rows to hold out; refused unless every class is in both parts."""
    held = hold_out(y, round(share * len(y)), rng)
    n_classes = len(np.unique(y))
    if min(len(np.unique(y[held])), len(np.unique(y[~held]))) < n_classes:
        raise ValueError(
            f"{share:g} of {len(y)} rows cannot be held out with all {n_classes} classes in both parts; "
            "choose another share, or bring more rows"
        )
    return rng.permutation(np.flatnonzero(~held)), np.flatnonzero(held)
