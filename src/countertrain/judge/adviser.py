"""Whoever decides about people and tells them what to change, as a judge sees it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from countertrain.recourse.answer import Recourse
from countertrain.recourse.decider import Decider
from countertrain.recourse.search import RecourseSearch

__all__ = ["Advise", "Adviser", "Searching", "ask_decider"]

Advise = Callable[[float], tuple[pd.DataFrame, pd.DataFrame]]
"""A probability tau -> the rows that people are told, and the rows that the same people had, in people's units.

Whoever is not helped is in neither.
"""


class Adviser(Protocol):
    """A model that decides, and a way to advise those whom it refuses."""

    @property
    def classes(self) -> tuple[Any, ...]:
        """K labels."""

    def compute_probabilities(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        """The probability of each class, (n, K)."""

    def default_tau(self, wanted: int) -> float:
        """How sure of class number `wanted` advice makes the model where nobody says otherwise."""

    def ask(self, rows: pd.DataFrame, wanted: int) -> Advise:
        """Advice for people at these rows who want that class, for any tau."""


@dataclass(frozen=True, eq=False)
class Searching:
    """A decider that searches its own recourse."""

    decider: Decider
    search: RecourseSearch

    @classmethod
    def of(cls, decider: Decider, *, seed: int = 0) -> Self:
        """With the search that `explain` has."""
        return cls(decider, RecourseSearch.of(decider, seed=seed))

    @property
    def classes(self) -> tuple[Any, ...]:
        """K labels."""
        return self.decider.classes

    def compute_probabilities(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        """The probability of each class, (n, K)."""
        return ask_decider(self.decider, rows)

    def default_tau(self, wanted: int) -> float:
        """The same as for `explain`."""
        return self.search.default_tau(torch.tensor([wanted]))

    def ask(self, rows: pd.DataFrame, wanted: int) -> Advise:
        """The first option of each person, where that is valid."""
        request = self.search.remember(self.search.request(rows, self.classes[wanted]))
        return lambda tau: _take_first(self.search([request], tau=tau)[0])


def ask_decider(decider: Decider, rows: pd.DataFrame) -> NDArray[np.float64]:
    """The probability of each class, (n, K), for rows in people's units."""
    return decider.compute_probabilities(torch.from_numpy(decider.encoder.encode(rows))).numpy()


def _take_first(recourse: Recourse) -> tuple[pd.DataFrame, pd.DataFrame]:
    table = recourse.table
    first = np.flatnonzero((table.number == 1) & table.valid)
    told = table.values.iloc[first].reset_index(drop=True)
    return told, recourse.factual.iloc[table.row[first]].reset_index(drop=True)
