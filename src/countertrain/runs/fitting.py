"""What only a classifier does around a training: rows held out, rows kept for reference, and a warning."""

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from torch import Tensor

from countertrain.runs.settings import Settings
from countertrain.tables.dataset import Dataset, Split
from countertrain.tables.encoder import Encoder
from countertrain.training.history import History

__all__ = ["make_dataset", "name_weighted_classes", "sample_of_each_class", "warn_if_immature"]

Rows = NDArray[np.int64]
_TOO_FEW = 0.05  # of the counterfactuals of an epoch, for the divergence to learn from


def make_dataset(
    settings: Settings, encoder: Encoder, x: Tensor, y: Tensor, classes: NDArray[np.generic], rng: np.random.RandomState
) -> Dataset:
    """Encoded rows x (n, D) of classes y (n,) as data to train on; some held out where early stopping needs them."""
    train, held = np.arange(len(y)), np.arange(0)
    if settings.early_stopping:
        train, held = _hold_out(y.numpy(), settings.validation_fraction, rng)
    nothing = Split(x[:0], y[:0])
    ones = x.new_ones(x.shape[1])
    return Dataset(
        name=settings.data,
        title="rows given in Python",
        train=Split(x[train], y[train]),
        validation=Split(x[held], y[held]),
        test=nothing,
        features=encoder.features,
        classes=tuple(map(str, classes.tolist())),
        centre=0 * ones,
        scale=ones,
        categories=encoder.categories,
        encoder=encoder,
    )


def name_weighted_classes(settings: Settings, classes: NDArray[np.generic]) -> Settings:
    """Weights by label as weights by the name of a class: 1 and 1.0 are the same label, but not the same text."""
    if not isinstance(settings.class_weight, tuple):
        return settings
    names = {label: str(label) for label in classes.tolist()}
    return settings.change(class_weight={names.get(label, label): weight for label, weight in settings.class_weight})


def _hold_out(codes: Rows, fraction: float, rng: np.random.RandomState) -> tuple[Rows, Rows]:
    """Rows to train on and rows to validate on, the same mix of classes in both."""
    try:
        train, held = train_test_split(np.arange(len(codes)), test_size=fraction, stratify=codes, random_state=rng)
    except ValueError as error:
        raise ValueError(
            f"early_stopping cannot hold out {fraction:g} of {len(codes)} rows with every class in both parts "
            f"({str(error).splitlines()[0]}); change validation_fraction, or train without early_stopping"
        ) from error
    return train, held


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
