"""Outcomes that are numbers: what would bring the price above 300,000, or the risk below 5 percent."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from countertrain.estimator import CounterfactualClassifier
from countertrain.models.merging import Merged
from countertrain.recourse.decider import Decider
from countertrain.recourse.evidence import Evidence
from countertrain.words import plain

if TYPE_CHECKING:
    from countertrain.recourse.answer import Recourse

__all__ = ["Bins", "CounterfactualRegressor"]

Floats = NDArray[np.float64]
_QUANTILES = 21  # by which the outcomes of a bin are remembered


@dataclass(frozen=True, eq=False)
class Bins:
    """A line cut into K pieces, and how the training outcomes lie in each."""

    edges: Floats  # (K - 1,), ascending: an outcome at an edge lies in the bin above it
    means: Floats  # (K,)
    quantiles: Floats  # (K, 21), from the lowest to the highest outcome of a bin

    @classmethod
    def of(cls, y: Floats, n_bins: int, edges: Sequence[float] = ()) -> Self:
        """Bins with about equally many outcomes y (n,) each, and edges where somebody wants them."""
        inner = np.quantile(y, np.arange(1, n_bins) / n_bins, method="higher")
        wished = np.unique(np.concatenate([inner, np.asarray(edges, dtype=np.float64)]))
        kept = [edge for low, edge in pairwise([-np.inf, *wished]) if ((y >= low) & (y < edge)).any()]
        kept = [edge for edge in kept if (y >= edge).any()]  # no bin is empty
        code = np.searchsorted(kept, y, side="right")
        parts = [y[code == k] for k in range(len(kept) + 1)]
        quantiles = [np.quantile(part, np.linspace(0, 1, _QUANTILES)) for part in parts]
        return cls(np.array(kept), np.array([part.mean() for part in parts]), np.array(quantiles))

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Self:
        """Bins as `to_json` gave them."""
        return cls(*(np.array(kept[field.name], dtype=np.float64) for field in fields(cls)))

    def to_json(self) -> dict[str, Any]:
        """Plain lists of numbers."""
        return {field.name: getattr(self, field.name).tolist() for field in fields(self)}

    def find(self, y: Floats) -> NDArray[np.int64]:
        """The bin of each outcome, (n,)."""
        return np.searchsorted(self.edges, y, side="right").astype(np.int64)

    def share(self, above: float | None, below: float | None) -> Floats:
        """The share of the training outcomes of each bin, (K,), from `above` on and under `below`."""
        lower = np.zeros(len(self.means)) if above is None else self._share_under(above)
        return np.asarray((1.0 if below is None else self._share_under(below)) - lower)

    def _share_under(self, value: float) -> Floats:
        """The share of each bin, (K,), that lies below a value: all or nothing, but for the bin in which it lies."""
        at, share = int(np.searchsorted(self.edges, value, side="right")), np.zeros(len(self.means))
        share[:at] = 1.0
        own = self.quantiles[at]
        share[at] = (
            np.searchsorted(own, value, side="left") / _QUANTILES if own[0] < value <= own[-1] else value > own[-1]
        )
        return share


class CounterfactualRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A regressor whose outcomes are ordered bins inside, so that people can ask what would bring theirs elsewhere.

    - `n_bins`: bins with about equally many training rows each; `edges` puts further edges where people will ask.
    - `classifier`: a CounterfactualClassifier that learns the bins, with all that it can be told: schema, immutable
      columns, objective, settings. Left out, one as it comes.

    `predict` gives the mean outcome; `explain` takes an interval as target.
    """

    def __init__(
        self,
        classifier: CounterfactualClassifier | None = None,
        *,
        n_bins: int = 10,
        edges: Sequence[float] = (),
        random_state: Any = None,
    ) -> None:
        self.classifier = classifier
        self.n_bins = n_bins
        self.edges = edges
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows X and their outcomes y (n,)."""
        own = {"skip_check_array": True} if isinstance(X, pd.DataFrame) else {"dtype": np.float64, "y_numeric": True}
        X, y = validate_data(self, X, y, **own)
        outcomes = _check_outcomes(y)
        if self.n_bins < 2:
            raise ValueError(f"n_bins must be at least 2; got {self.n_bins}")
        self.bins_ = Bins.of(outcomes, min(self.n_bins, len(np.unique(outcomes))), self.edges)
        given = CounterfactualClassifier() if self.classifier is None else clone(self.classifier)
        if self.random_state is not None:
            given.set_params(random_state=self.random_state)
        if any(one is not None for one in (given.target, given.threshold, given.monotone)):
            raise ValueError(
                "a regressor has an interval as target, given to explain; leave target, threshold and monotone of its "
                "classifier out"
            )
        several = len(self.bins_.edges) > 0  # else there is one outcome, and nothing to learn
        self.classifier_ = given.fit(X, self.bins_.find(outcomes)) if several else None
        return self

    def predict(self, X: Any) -> Floats:
        """The mean outcome of each row, (n,): that of the bins, by their probabilities."""
        return np.asarray(self._weigh(X) @ self.bins_.means)

    def predict_interval(self, X: Any, *, above: float | None = None, below: float | None = None) -> Floats:
        """The probability of an outcome from `above` on and under `below`, (n,)."""
        return np.asarray(self._weigh(X) @ self._inside(above, below))

    def explain(
        self, rows: Any, *, above: float | None = None, below: float | None = None, **options: Any
    ) -> "Recourse":
        """What each row could change for an outcome from `above` on, under `below`, or between both.

        It is reached where it is likelier than not, or has the probability `tau`. The other `options` are those of the
        classifier's `explain`.
        """
        from countertrain.recourse.search import explain

        decider = self.decide_interval(above=above, below=below)
        return explain(decider, rows, decider.target, **options)

    def decide_interval(self, *, above: float | None = None, below: float | None = None) -> Decider:
        """Whoever decides whether an outcome lies in an interval, for whatever explains, judges or serves decisions."""
        check_is_fitted(self)
        inside = self._inside(above, below)
        if not 0 < inside.sum() < len(inside):
            low, high = self.bins_.quantiles[0, 0], self.bins_.quantiles[-1, -1]
            raise ValueError(
                f"an interval must hold some of the training outcomes, {low:,.10g} to {high:,.10g}, and not all of "
                f"them; got {_name_interval(above, below)}"
            )
        assert self.classifier_ is not None  # one outcome alone has no such interval
        whole = self.classifier_.decider
        name = _name_interval(above, below)
        reference, held_out = (
            None if rows is None else (rows[0], torch.from_numpy(inside >= 0.5).long()[rows[1]])
            for rows in (whole.reference, whole.held_out)
        )
        evidence = None
        if whole.evidence is not None and reference is not None:
            evidence = Evidence.of(whole.encoder, reference[0].numpy(), reference[1].numpy(), 2)
        return replace(
            whole,
            classes=(f"not {name}", name),
            models=tuple(Merged(model, inside.tolist()) for model in whole.models),
            reference=reference,
            held_out=held_out,
            evidence=evidence,
            taus={},  # learnt for bins, if at all
            target=name,
        )

    def save(self, path: str | os.PathLike[str], *, rows: bool = True, overwrite: bool = False) -> None:
        """Write the fitted regressor into a new folder, whole or not at all, as a classifier of its bins."""
        check_is_fitted(self)
        if self.classifier_ is None:
            raise ValueError("a regressor of one outcome only has learnt nothing to save; fit it to different ones")
        run = self.classifier_.run_
        parameters = {"n_bins": plain(self.n_bins), "edges": [plain(edge) for edge in self.edges]}
        kept = {**self.bins_.to_json(), "parameters": parameters}
        remembered = replace(run, estimator={**(run.estimator or {}), "bins": kept})
        self.classifier_._adopt(remembered).save(path, rows=rows, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The regressor in a folder that `save` wrote; nothing in the folder is ever run."""
        classifier = CounterfactualClassifier.load(path)
        kept = (classifier.run_.estimator or {}).get("bins")
        if kept is None:
            raise ValueError(f"{Path(path)} holds a classifier and no regressor; load it with countertrain.load")
        regressor = cls(clone(classifier), **kept["parameters"])
        regressor.bins_ = Bins.from_json(kept)
        regressor.classifier_, regressor.n_features_in_ = classifier, classifier.n_features_in_
        if hasattr(classifier, "feature_names_in_"):
            regressor.feature_names_in_ = classifier.feature_names_in_
        return regressor

    def _inside(self, above: float | None, below: float | None) -> Floats:
        """The share of each bin, (K,), that lies in the interval."""
        if above is None and below is None:
            raise ValueError("an interval needs an end: give above=, below= or both")
        if above is not None and below is not None and not above < below:
            raise ValueError(
                f"an interval goes from above= to below=, which must be larger; got {above:g} and {below:g}"
            )
        return self.bins_.share(above, below)

    def _weigh(self, X: Any) -> Floats:
        """The probability of each bin, (n, K)."""
        check_is_fitted(self)
        if not isinstance(X, pd.DataFrame):
            X = validate_data(self, X, reset=False, dtype=None if hasattr(self, "feature_names_in_") else np.float64)
        return np.ones((len(X), 1)) if self.classifier_ is None else self.classifier_.predict_proba(X)


def _name_interval(above: float | None, below: float | None) -> str:
    """`at least 300,000`, `below 5`, `3 to below 5`."""
    low, high = (None if each is None else f"{each:,.10g}" for each in (above, below))
    if low is None:
        return f"below {high}"
    return f"at least {low}" if high is None else f"{low} to below {high}"


def _check_outcomes(y: Any) -> Floats:
    """Outcomes as numbers, none of them missing."""
    outcomes = column_or_1d(y, warn=True)
    try:
        numbers = np.asarray(outcomes, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"y must hold numbers; got {outcomes[0]!r}; for labels take CounterfactualClassifier"
        ) from error
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        raise ValueError(
            f"Input y contains NaN or infinity: row {wrong[0]} has the outcome {numbers[wrong[0]]}; drop such rows"
        )
    return numbers
