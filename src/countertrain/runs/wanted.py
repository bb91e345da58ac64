"""Who wants what, and from which probability on it is decided: looked at before training, chosen after it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import nn

from countertrain.models.deciding import as_one, logits_of
from countertrain.recourse.evidence import Evidence
from countertrain.recourse.threshold import Threshold
from countertrain.runs.threshold_rules import LEAST, read_costs, read_rate
from countertrain.tables.dataset import Dataset
from countertrain.tables.labels import find_class
from countertrain.words import list_names, suggest

if TYPE_CHECKING:
    from countertrain.runs.settings import Settings

__all__ = ["check_wanted", "choose_by_cost", "choose_by_rate", "choose_threshold", "gather_evidence", "make_threshold"]

_FEWEST = 20  # validation rows, to choose a threshold by them
_CLEAR = 2.0  # standard errors by which another threshold must be cheaper than the one that honest probabilities need

Floats = NDArray[np.float64]


def check_wanted(settings: "Settings", data: Dataset) -> None:
    """Refuse a wanted decision that is none of the classes, columns that there are not, a threshold out of nothing."""
    if settings.target is not None:
        find_class(settings.target, data.classes)
    for name in () if isinstance(settings.against_evidence, bool) else settings.against_evidence:
        if name not in data.schema.names:
            hint = suggest(name, data.schema.names)
            raise ValueError(f"against_evidence names {name!r}, which is no column of the table; {hint}")
    if settings.threshold is None:
        return
    if len(data.classes) != 2:
        raise ValueError(
            f"threshold must be left out where there are more than two classes: {list_names(data.classes)}"
        )
    if isinstance(settings.threshold, str) and len(data.validation) < _FEWEST:
        raise ValueError(
            f"threshold must be a number here: {settings.threshold!r} is chosen by at least {_FEWEST} validation rows, "
            f"and there are {len(data.validation)}; give more rows, or train with early_stopping"
        )


def choose_threshold(settings: "Settings", data: Dataset, models: Sequence[nn.Module]) -> Threshold | None:
    """The threshold of models that decide together; by cost or rate, it is chosen on the validation rows."""
    if settings.threshold is None or isinstance(settings.threshold, float):
        return make_threshold(settings, data, settings.threshold)
    wanted = find_class(settings.target, data.classes)
    p = logits_of(as_one(models), data.validation.x).softmax(-1)[:, wanted].numpy()  # (n,)
    costs, rate = read_costs(settings.threshold), read_rate(settings.threshold)
    if costs is not None:
        at = choose_by_cost(p, (data.validation.y == wanted).numpy(), *costs)
    else:
        assert rate is not None  # the settings take no other text
        at = choose_by_rate(p, rate)
    return make_threshold(settings, data, float(np.clip(at, LEAST, 1 - LEAST)))


def gather_evidence(settings: "Settings", data: Dataset) -> Evidence | None:
    """What the training rows say of each column, unless advice may go against all of it."""
    if settings.against_evidence is True:
        return None
    return Evidence.of(data.encoder, data.train.x.numpy(), data.train.y.numpy(), data.n_classes)


def make_threshold(settings: "Settings", data: Dataset, at: float | None) -> Threshold | None:
    """The threshold of what people want by these settings; None where none is set."""
    return None if at is None else Threshold(find_class(settings.target, data.classes), at)


def choose_by_cost(p: Floats, real: NDArray[np.bool_], false_approval: float, false_refusal: float) -> float:
    """The threshold at which mistakes on rows with probabilities p (n,) cost least.

    Honest probabilities need a threshold that follows from the costs alone. It is taken, unless the rows show clearly
    that another one is cheaper: the best of many on few rows would be chance.
    """
    honest = false_approval / (false_approval + false_refusal)
    ends = np.unique(p)
    tried = np.concatenate([[0.0], (ends[1:] + ends[:-1]) / 2, [1.0]])  # one between any two rows
    order = np.argsort(p)
    wrong_above = np.concatenate([[0.0], np.cumsum(~real[order])])
    right_below = np.concatenate([[0.0], np.cumsum(real[order])])
    below = np.searchsorted(p[order], tried)  # (m,) rows that are refused
    costs = false_approval * (wrong_above[-1] - wrong_above[below]) + false_refusal * right_below[below]
    best = float(tried[costs.argmin()])
    saved = _price(p, real, honest, false_approval, false_refusal) - _price(
        p, real, best, false_approval, false_refusal
    )
    clear = saved.mean() > _CLEAR * saved.std() / len(p) ** 0.5
    return best if clear else honest


def choose_by_rate(p: Floats, rate: float) -> float:
    """The threshold that this share of the rows with probabilities p (n,) reaches, as nearly as can be."""
    ordered = np.sort(p)[::-1]
    n = min(max(round(rate * len(p)), 1), len(p) - 1)
    return float((ordered[n - 1] + ordered[n]) / 2)


def _price(p: Floats, real: NDArray[np.bool_], at: float, false_approval: float, false_refusal: float) -> Floats:
    """What the decision on each row costs, (n,)."""
    granted = p >= at
    return false_approval * (granted & ~real) + false_refusal * (~granted & real)
