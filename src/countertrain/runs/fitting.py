"""What only a classifier does around a training: rows held out, rows kept for reference, and a warning."""

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from countertrain.runs.settings import Settings
from countertrain.tables.dataset import Dataset, Split
from countertrain.tables.encoder import Encoder
from countertrain.tables.splits import split_off
from countertrain.training.history import History

__all__ = ["make_dataset", "sample_of_each_class", "warn_if_immature"]

Rows = NDArray[np.int64]
_TOO_FEW = 0.05  # of the counterfactuals of an epoch, for the divergence to learn from


def make_dataset(
    settings: Settings, encoder: Encoder, x: Tensor, y: Tensor, classes: NDArray[np.generic], rng: np.random.RandomState
) -> Dataset:
    """Encoded rows x (n, D) of classes y (n,) as data to train on; some held out where early stopping needs them."""
    train, held = np.arange(len(y)), np.arange(0)
    if settings.early_stopping:
        train, held = _hold_out(y.numpy(), settings.validation_fraction, rng)
    return Dataset(
        name=settings.data,
        title="rows given in Python",
        encoder=encoder,
        label=settings.label or "label",
        classes=tuple(classes.tolist()),
        train=Split(x[train], y[train]),
        validation=Split(x[held], y[held]),
        test=Split(x[:0], y[:0]),
    )


def _hold_out(codes: Rows, fraction: float, rng: np.random.RandomState) -> tuple[Rows, Rows]:
    """Rows to train on and rows to validate on, the same mix of classes in both."""
    try:
        return split_off(codes, fraction, rng)
    except ValueError as error:
        raise ValueError(
            f"early_stopping cannot hold out {fraction:g} of {len(codes)} rows with every class in both parts; change "
            "validation_fraction, or train without early_stopping"
        ) from error


def sample_of_each_class(codes: Rows, most: int, rng: np.random.RandomState) -> Rows:
    """Places of at most so many random rows of each class, in order."""
    places = [rng.permutation(np.flatnonzero(codes == k))[:most] for k in np.unique(codes)]
    return np.sort(np.concatenate(places))


def warn_if_immature(objective: str, history: History) -> None:
    """Warn where the divergence had next to nothing to learn from in the last epoch."""
    if objective not in ("ct", "cd") or not history.records:
        return
    share = float(np.nanmean(history["mature"][-1]))  # NaN: a model that had stopped before
    if share < _TOO_FEW:
        warnings.warn(
            f"only {share:.1%} of the last epoch's counterfactuals reached the probability tau, so that the divergence "
            "had next to nothing to learn from; lower tau, or raise n_steps or epochs",
            ConvergenceWarning,
            stacklevel=3,  # where fit was called
        )
