"""A table of loan applications with every kind of column, and decisions that depend on them."""

import numpy as np
import pandas as pd
from torch import Tensor, nn

from countertrain.estimator import CounterfactualClassifier

QUICK = {"epochs": 8, "learning_rate": 0.02, "n_steps": 10, "random_state": 0}


def loans(n: int = 240, seed: int = 0) -> tuple[pd.DataFrame, "pd.Series[str]"]:
    """Applications and whether they were "granted" or "refused"; some of each, and some values are missing."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, n),
            "income": rng.normal(30_000, 9_000, n).round(2),
            "job": rng.choice(["clerk", "none", "smith"], n),
            "member": rng.random(n) < 0.5,
            "debt": np.where(rng.random(n) < 0.1, np.nan, rng.exponential(5_000, n)),
        }
    )
    merit = (frame["income"] - 30_000) / 9_000 + (frame["job"] != "none") - frame["debt"].fillna(5_000) / 5_000
    granted = merit + 0.5 * rng.normal(size=n) > 0
    return frame, pd.Series(np.where(granted, "granted", "refused"), index=frame.index, name="decision")


def quick(**parameters: object) -> CounterfactualClassifier:
    """A classifier that is trained in a moment."""
    return CounterfactualClassifier(**{**QUICK, **parameters})


class Net(nn.Module):
    """A network of the user's own, with dropout and batch statistics."""

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(n_features, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, n_classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)
