"""Pairs of people who differ in one column: out of order where a model turns back, and nowhere else."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from benchmarks.monotone import count_pairs


class Bent:
    """Decides by one column alone: more is better up to a bend, from where on it is worse."""

    classes_, target = np.array(["no", "yes"]), "yes"

    def __init__(self, bend: float) -> None:
        self.bend = bend

    def predict_proba(self, people: pd.DataFrame) -> NDArray[np.float64]:
        """(n, 2)"""
        yes = 1 - (people["income"].to_numpy() - self.bend).clip(min=0) / 2 - (self.bend - people["income"]).clip(0) / 2
        return np.column_stack([1 - yes, yes])


@pytest.mark.parametrize(("bend", "way", "share"), [(1.0, "+", 0.0), (1.0, "-", 1.0), (0.0, "-", 0.0), (0.5, "+", 0.5)])
def test_the_share_of_pairs_that_are_out_of_order(bend: float, way: str, share: float) -> None:
    people = pd.DataFrame({"income": np.linspace(0, 1, 5_000), "debt": 1.0})
    model: Any = Bent(bend)
    assert count_pairs(model, people, "income", way, n=10_000, seed=0) == pytest.approx(share, abs=0.02)
