"""Whether the people of today are those of the training rows: stability indices of columns and of decisions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from countertrain.recourse.decider import Decider
from countertrain.recourse.explanation import Explanation
from countertrain.tables.columns import has_indicator
from countertrain.tables.encoder import Encoder
from countertrain.tables.schema import Categorical, Numeric

__all__ = ["Drift", "compute_psi"]

Floats = NDArray[np.float64]
_BINS = 10  # of a number: tenths of the training rows
_HALF_LIFE = 5_000  # people after whom somebody counts half
_ENOUGH = 200  # people: an index of fewer tells of chance
_LEAST = 0.5  # people that a bin is taken to hold, so that an empty one is not infinitely unlikely


@dataclass
class Drift:
    """Counts of people by column and bin, by decision, and of advice; several threads may count."""

    encoder: Encoder
    edges: Sequence[Floats]
    """Per column of numbers or truth values, where bins end."""
    expected: Sequence[Floats]
    """Per column, the shares of the training rows in its bins; last, those of the decisions on them."""
    counts: list[Floats]
    advice: list[int] = field(default_factory=lambda: [0, 0])
    """People who asked for another decision: without and with a valid way to it."""
    _lock: Lock = field(default_factory=Lock)

    @classmethod
    def of(cls, decider: Decider) -> Self:
        """Of a decider, by the training rows that were kept with it; without them nothing but advice is counted."""
        encoder = decider.encoder
        if decider.reference is None:
            return cls(encoder, [], [], [])
        x, shares = decider.reference[0].double().numpy(), np.arange(1, _BINS) / _BINS
        edges = [
            np.unique(np.quantile(x[:, part.start], shares)) if isinstance(column, Numeric) else np.array([0.5])
            for column, part in zip(encoder.schema.columns, encoder.slices, strict=True)
        ]
        decided = decider.decide(decider.reference[0]).numpy()
        drift = cls(encoder, edges, [], [])
        counted = [*drift._bin(x), np.bincount(decided, minlength=len(decider.classes)).astype(np.float64)]
        drift.expected = [one / len(x) for one in counted]
        drift.counts = [np.zeros_like(one) for one in counted]
        return drift

    def count_people(self, x: Tensor, decided: Tensor) -> None:
        """Count people with encoded rows x (n, D) and what was decided about them (n,)."""
        if not self.expected:
            return
        new = [*self._bin(x.numpy()), np.bincount(decided.numpy(), minlength=len(self.expected[-1]))]
        with self._lock:
            kept = 0.5 ** (len(x) / _HALF_LIFE)
            self.counts = [kept * old + one for old, one in zip(self.counts, new, strict=True)]

    def count_advice(self, explanations: Iterable[Explanation]) -> None:
        """Count people who want another decision than they have, by whether there was a valid way to it."""
        ways = [one.options[0].valid for one in explanations if one.decision != one.target and one.options]
        with self._lock:
            for valid in ways:
                self.advice[valid] += 1

    def forget(self) -> None:
        """Begin again."""
        with self._lock:
            self.counts, self.advice = [np.zeros_like(one) for one in self.counts], [0, 0]

    def to_dict(self) -> dict[str, Any]:
        """What was counted, as JSON takes it."""
        with self._lock:
            return {"counts": [np.round(one, 3).tolist() for one in self.counts], "advice": [*self.advice]}

    def measure(self, others: Iterable[Mapping[str, Any]]) -> list[tuple[str, float, dict[str, str]]]:
        """Metrics of what all processes have counted: name, value and labels."""
        pages = [self.to_dict(), *others]
        advice = np.sum([page["advice"] for page in pages], 0)
        found: list[tuple[str, float, dict[str, str]]] = [
            ("countertrain_advice_total", float(n), {"valid": valid})
            for n, valid in zip(advice, ("no", "yes"), strict=True)
        ]
        if not self.expected:
            return found
        counts = [np.sum(same, 0) for same in zip(*(page["counts"] for page in pages), strict=True)]
        n = float(counts[-1].sum())
        found.append(("countertrain_drift_rows", n, {}))
        if n >= _ENOUGH:
            indices = [compute_psi(one, share) for one, share in zip(counts, self.expected, strict=True)]
            for name, index in zip(self.encoder.schema.names, indices, strict=False):
                found.append(("countertrain_drift_psi", index, {"column": name}))
            found.append(("countertrain_decision_psi", indices[-1], {}))
        return found

    def _bin(self, x: Floats) -> list[Floats]:
        """How many rows x (n, D) lie in each bin of each column; the last one is for those without a value."""
        counted = []
        for column, part, edges in zip(self.encoder.schema.columns, self.encoder.slices, self.edges, strict=True):
            if isinstance(column, Categorical):
                there = x[:, part].sum(0)
            else:
                known = x[x[:, part.stop - 1] < 0.5, part.start] if has_indicator(column) else x[:, part.start]
                there = np.bincount(np.searchsorted(edges, known), minlength=len(edges) + 1)
            counted.append(np.append(there, len(x) - there.sum()).astype(np.float64))
        return counted


def compute_psi(counts: Floats, shares: Floats) -> float:
    """The population stability index of counts in bins against the shares that were expected there.

    Below 0.1 nothing has changed to speak of; above 0.25 much has.
    """
    used = (counts > 0) | (shares > 0)
    n = counts.sum()
    now = np.maximum(counts[used], _LEAST) / n
    then = np.maximum(shares[used], _LEAST / n)
    return float(((now - then) * np.log(now / then)).sum())
