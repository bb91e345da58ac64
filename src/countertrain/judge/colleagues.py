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
    """Deep boosted trees and logistic regression, not fitted yet: relatives of those who judge, but none of them.

    The trees are no relatives of the teacher's, which are shallow and see every column: what a network was taught to
    say where its advice ends, those would only repeat.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier  # late: most commands need no scikit-learn
    from sklearn.linear_model import LogisticRegression

    return {
        "boosting": HistGradientBoostingClassifier(
            max_iter=40, learning_rate=0.2, max_leaf_nodes=63, min_samples_leaf=10, max_features=0.5, random_state=0
        ),
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
    return _settle_taus(decider, RecourseSearch.of(decider), _fit_colleagues(decider, stream), asking)


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


def _settle_taus(
    decider: Decider, search: RecourseSearch, colleagues: list[Any], asking: dict[int, Tensor]
) -> dict[int, float]:
    """By class, the least of some probabilities at which advice to people at rows (n, D) holds, by halving.

    People who are to reach the same probability are advised together, whatever they want: few rows take a search
    nearly as long as many.
    """
    threshold, encoder = decider.threshold, decider.encoder
    taus = {
        k: [tau if threshold is None else round(threshold.shift(tau, k), 4) for tau in (*_TAUS, _SUREST)]
        for k in asking
    }
    requests = {k: search.request(encoder.decode(x.numpy()), decider.classes[k]) for k, x in asking.items()}
    bounds = {k: (0, len(_TAUS)) for k in asking}
    while middle := {k: (low + high) // 2 for k, (low, high) in bounds.items() if low < high}:
        for tau in {taus[k][i] for k, i in middle.items()}:
            wanting = [k for k, i in middle.items() if taus[k][i] == tau]
            told = search.advise([requests[k] for k in wanting], tau)
            parts = torch.arange(len(told.x)).split([len(asking[k]) for k in wanting])
            for k, part in zip(wanting, parts, strict=True):
                rows = told.x[part][told.valid[part]].numpy()
                accepted = [decide_by(model.predict_proba(rows), threshold) == k for model in colleagues if len(rows)]
                holds = bool(accepted) and np.logical_and.reduce(accepted).mean() >= _HOLDS
                bounds[k] = (bounds[k][0], middle[k]) if holds else (middle[k] + 1, bounds[k][1])
    return {k: taus[k][high] for k, (_, high) in bounds.items()}
