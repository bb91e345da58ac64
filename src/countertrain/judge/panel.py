"""Independent models of the same training rows, and how typical rows are among real people."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["N_TREES", "Crowd", "fit_boosting", "fit_panel"]

Floats = NDArray[np.float64]
N_TREES = 200
_LOF_NEIGHBOURS, _NEAREST = 20, 5


def fit_boosting(x: Floats, y: NDArray[np.int64], *, seed: int = 0) -> Any:
    """Boosting on rows x (n, D) of classes y (n,)."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=seed).fit(x, y)


def fit_panel(x: Floats, y: NDArray[np.int64], *, seed: int = 0) -> dict[str, Any]:
    """Boosting, a forest and logistic regression on rows x (n, D), with numbers as normal scores, of classes y (n,).

    LightGBM sits beside them where it is installed.
    """
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    panel: dict[str, Any] = {
        "forest": RandomForestClassifier(N_TREES, min_samples_leaf=5, random_state=seed),
        "logistic": LogisticRegression(max_iter=2000),
    }
    if find_spec("lightgbm") is not None:
        from lightgbm import LGBMClassifier  # type: ignore[import-not-found,unused-ignore]

        panel["lightgbm"] = LGBMClassifier(random_state=seed, verbose=-1)
    boosting = {"boosting": fit_boosting(x, y, seed=seed)}
    return boosting | {name: model.fit(x, y) for name, model in panel.items()}


@dataclass(frozen=True, eq=False)
class Crowd:
    """Real people of one class, half of whom say what is typical of the other half."""

    outliers: Any
    """Local outlier factor of one half."""
    scores: Floats  # (m,) of the other half, ascending
    nearest: Any
    """Nearest neighbours in one half."""
    spacing: float
    """How far the other half is from its nearest neighbours in the first, on average."""

    @classmethod
    def of(cls, x: Floats) -> Self | None:
        """Of rows x (n, D); None where there are too few to tell."""
        from sklearn.neighbors import LocalOutlierFactor, NearestNeighbors

        half = len(x) // 2
        if half <= _LOF_NEIGHBOURS:
            return None
        outliers = LocalOutlierFactor(_LOF_NEIGHBOURS, novelty=True).fit(x[:half])
        nearest = NearestNeighbors(n_neighbors=_NEAREST, metric="l1").fit(x[:half])
        scores = np.sort(outliers.score_samples(x[half:]))
        return cls(outliers, scores, nearest, float(nearest.kneighbors(x[half:])[0].mean()))

    def measure(self, x: Floats) -> Mapping[str, float]:
        """How typical rows x (n, D) are: mean percentile among real people (50 as they are), and relative distance."""
        place = np.searchsorted(self.scores, self.outliers.score_samples(x)) / len(self.scores)
        return {
            "typical": float(100 * place.mean()),
            "distance": float(self.nearest.kneighbors(x)[0].mean() / max(self.spacing, 1e-12)),
        }
