"""Teachers that were tried: models of several kinds together, and the mean of what they say."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier

from countertrain.judge.colleagues import make_colleagues
from countertrain.runs.registry import teach_by_boosting

__all__ = ["Kinds"]

_HELD_OUT = 4  # one row of so many shows who is how good
_STRICT = 5.0  # how much less is heard of whoever is worse
_LEAST = 1e-4  # probability that whoever is wrong is taken to have given


class Kinds:
    """Boosting and logistic regression, and trees if they are to be a third."""

    def __init__(self, *, trees: bool = False, by_merit: bool = False) -> None:
        self.trees, self.by_merit = trees, by_merit

    def fit(self, X: NDArray[np.float64], y: NDArray[np.int64], /) -> Self:
        """Learn from rows X (n, D) of classes y (n,); by merit, whoever is worse at rows held out has less to say."""
        self.members: list[Any] = [teach_by_boosting(), make_colleagues()["logistic"]]
        if self.trees:
            self.members.append(ExtraTreesClassifier(100, min_samples_leaf=3, random_state=0))
        codes = np.unique(y, return_inverse=True)[1]
        self.weights = self._weigh(X, codes) if self.by_merit else np.ones(len(self.members))
        for member in self.members:
            member.fit(X, codes)
        return self

    def predict_proba(self, X: NDArray[np.float64], /) -> NDArray[np.float64]:
        """The probability of each class, (n, k), in ascending order."""
        return np.average([member.predict_proba(X) for member in self.members], axis=0, weights=self.weights)

    def _weigh(self, x: NDArray[np.float64], y: NDArray[np.int64]) -> NDArray[np.float64]:
        held, seen = np.split(np.random.default_rng(0).permutation(len(y)), [len(y) // _HELD_OUT])
        said = [member.fit(x[seen], y[seen]).predict_proba(x[held]) for member in self.members]
        losses = np.array([-np.log(p[np.arange(len(held)), y[held]].clip(_LEAST)).mean() for p in said])
        return np.asarray(np.exp(-_STRICT * (losses / losses.min() - 1)))
