"""What only a classifier does around a training: rows held out and kept, parameters looked at and remembered."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from countertrain.recourse.decider import Decider
from countertrain.runs.measure import Training
from countertrain.runs.registry import NOTHING_OWN, OwnCode, build_constraints
from countertrain.runs.run import Run, keep_reference
from countertrain.runs.settings import Settings, settings_to_mapping
from countertrain.tables.dataset import Dataset, Split
from countertrain.tables.encoder import Encoder
from countertrain.tables.schema import Schema
from countertrain.tables.splits import split_off
from countertrain.training.history import History
from countertrain.words import plain, suggest

__all__ = [
    "FEWEST_ROWS",
    "LOST",
    "answer_typos",
    "keep_rows",
    "make_dataset",
    "parameters_from_json",
    "parameters_to_json",
    "retrain",
    "warn_if_immature",
]

FEWEST_ROWS = 200
"""Of a table, for some to be held out unasked."""
LOST = "own code"
"""Stands for code that was not given again: no name that a fit would take for one of ours."""

Rows = NDArray[np.int64]
Init = TypeVar("Init", bound=Callable[..., None])
_TOO_FEW = 0.05  # of the counterfactuals of an epoch, for the divergence to learn from


def answer_typos(init: Init) -> Init:
    """An `__init__` that says which parameter was meant; scikit-learn still sees the signature that it has."""
    known = [*signature(init).parameters][1:]

    @wraps(init)
    def checked(self: object, *args: Any, **given: Any) -> None:
        for name in given:
            if name not in known:
                hint = (
                    f"give it as settings={{{name!r}: ...}}" if name in Settings.model_fields else suggest(name, known)
                )
                raise TypeError(f"{type(self).__name__} got an unexpected keyword argument {name!r}; {hint}")
        init(self, *args, **given)

    return cast(Init, checked)


def make_dataset(
    settings: Settings,
    encoder: Encoder,
    x: Tensor,
    y: Tensor,
    classes: NDArray[np.generic],
    rng: np.random.RandomState,
    label: str = "label",
) -> Dataset:
    """Encoded rows x (n, D) of classes y (n,) as data to train on; some held out where early stopping needs them."""
    train, held = np.arange(len(y)), np.arange(0)
    if settings.early_stopping:
        train, held = _hold_out(y.numpy(), settings.validation_fraction, rng)
    return Dataset(
        name=settings.data,
        title="rows given in Python",
        encoder=encoder,
        label=settings.label or label,
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


def retrain(run: Run, rows: Rows, seed: int, own: OwnCode = NOTHING_OWN) -> Decider:
    """Whoever the same settings and some of the reference rows of a run make, with other seeds: its next version."""
    settings = run.settings.change(seeds=[(one + seed) % 2**31 for one in run.settings.seeds])
    x, y, classes = run.data.train.x[rows], run.data.train.y[rows], np.array(run.data.classes, dtype=object)
    data = make_dataset(settings, run.data.encoder, x, y, classes, np.random.RandomState(seed))
    training = Training.begin([settings], replace(data, domain=run.data.domain), own=own)
    training.fit(fail=False)
    return replace(run, models=training.models).decider


def keep_rows(settings: Settings, data: Dataset, rng: np.random.RandomState) -> Dataset:
    """The data with a sample of the rows that were trained on, and of those that were held out."""
    domain = data.domain
    if settings.domain == "inferred":
        limits = build_constraints(settings, data)
        domain = limits.lower, limits.upper
    train, validation = keep_reference(data.train, rng), keep_reference(data.validation, rng)
    return replace(data, train=train, validation=validation, domain=domain)


def parameters_to_json(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a classifier as JSON can hold them; a stream of random numbers is not kept."""
    return {name: _to_json(name, value) for name, value in parameters.items()}


def _to_json(name: str, value: Any) -> Any:
    if name == "settings" and value is not None:  # of a file, what it says
        return settings_to_mapping(value)
    if isinstance(value, Schema):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, Mapping):  # class weights: labels need not be texts
        return [[plain(label), plain(weight)] for label, weight in value.items()]
    if isinstance(value, np.random.RandomState):
        return None
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [plain(entry) for entry in value]
    return plain(value)


def parameters_from_json(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that `parameters_to_json` wrote."""
    return {name: _from_json(name, value) for name, value in parameters.items()}


def _from_json(name: str, value: Any) -> Any:
    if name == "schema" and value is not None:
        return Schema(**value)
    if name in ("class_weight", "threshold", "monotone") and isinstance(value, list):
        pairs = all(isinstance(entry, list) for entry in value)
        return dict(value) if pairs else tuple(value)
    return tuple(value) if isinstance(value, list) else value


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
