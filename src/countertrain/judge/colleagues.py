"""Models of other kinds that are asked while a classifier is made: what they accept says how sure advice must be."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from countertrain.judge.judge import decide_by
from countertrain.recourse.decider import Decider
from countertrain.recourse.search import RecourseSearch

__all__ = ["choose_taus", "make_colleagues"]

_TAUS = (0.7, 0.8, 0.9)
_SUREST = 0.95  # where none of these is enough
_HOLDS = 0.9  # share of the advice that all colleagues are to accept
_FEWEST, _PEOPLE = 30, 60  # held out and refused, who are advised for it
_WIDEST = 300  # features; advice to wider rows takes too long, and too much memory, to be tried in passing
_MOST_ROWS, _MOST_NUMBERS = 10_000, 2**20  # that a colleague is fitted to


def make_colleagues() -> dict[str, Any]:
    """Shallow boosted trees and logistic regression, not fitted yet: relatives of those who judge, but none of them."""
    from sklearn.ensemble import HistGradientBoostingClassifier  # late: most commands need no scikit-learn
    from sklearn.linear_model import LogisticRegression

    return {
        "boosting": HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=15, random_state=0),
        "logistic": LogisticRegression(C=0.3, max_iter=1000),
    }


def choose_taus(decider: Decider) -> dict[int, float]:
    """By the number of a class that people may want: the least probability with which most advice towards it holds.

    Advice to people who were held out is shown to colleagues, who are fitted to the training rows. A class of which too
    few are refused, or too many classes of which nobody says which one is wanted, are left out; so are wide tables.
    """
    if decider.reference is None or decider.held_out is None or len(decider.encoder.features) > _WIDEST:
        return {}
    stream = torch.Generator().manual_seed(0)
    x = decider.held_out[0]
    x = x[torch.randperm(len(x), generator=stream)]
    decided = decider.decide(x)
    asking = {k: x[decided != k][:_PEOPLE] for k in _list_wanted(decider)}
    asking = {k: rows for k, rows in asking.items() if len(rows) >= _FEWEST}
    if not asking:
        return {}
    colleagues, search = _fit_colleagues(decider, stream), RecourseSearch.of(decider)
    return {k: _choose_tau(decider, search, colleagues, k, rows) for k, rows in asking.items()}


def _list_wanted(decider: Decider) -> list[int]:
    """The class that people were said to want; where nobody said, either of two."""
    if decider.target is not None:
        return [decider.classes.index(decider.target)]
    return [0, 1] if len(decider.classes) == 2 else []


def _fit_colleagues(decider: Decider, stream: torch.Generator) -> list[Any]:
    assert decider.reference is not None
    x, y = decider.reference
    few = torch.randperm(len(y), generator=stream)[: min(_MOST_ROWS, _MOST_NUMBERS // x.shape[1])]
    return [model.fit(x[few].double().numpy(), y[few].numpy()) for model in make_colleagues().values()]


def _choose_tau(decider: Decider, search: RecourseSearch, colleagues: list[Any], k: int, x: Tensor) -> float:
    """The least of some probabilities of class k at which advice to people at rows x (n, D) holds, by halving."""
    request, threshold = search.request(decider.encoder.decode(x.numpy()), decider.classes[k]), decider.threshold
    taus = [tau if threshold is None else round(threshold.shift(tau, k), 4) for tau in (*_TAUS, _SUREST)]
    low, high = 0, len(_TAUS)
    while low < high:
        middle = (low + high) // 2
        told = search.advise(request, taus[middle])
        rows = told.x[told.valid].numpy()
        accepted = [decide_by(model.predict_proba(rows), threshold) == k for model in colleagues if len(rows)]
        if accepted and np.logical_and.reduce(accepted).mean() >= _HOLDS:
            high = middle
        else:
            low = middle + 1
    return taus[high]
