"""What tuning looks for: metrics to minimise, and bars that must be cleared."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from countertrain.evaluation.metrics import known

__all__ = ["Bound", "Goal", "tunable"]


def tunable() -> list[str]:
    """The metrics that every trial is measured by: all but those of models, which are too dear."""
    return [name for name, metric in known().items() if metric.of_models is None]


@dataclass(frozen=True)
class Bound:
    """A bar that a trial must clear, such as `accuracy >= bl - 0.01`; `bl` is the conventional model's value."""

    metric: str
    at_least: bool
    relative: bool
    offset: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """`METRIC >= NUMBER`, or `METRIC >= bl - NUMBER`."""
        found = re.fullmatch(r"\s*(\w+)\s*(>=|<=)\s*(bl)?\s*([+-]?\s*[\d.]+)?\s*", text)
        if found is None or found[1] not in tunable() or not (found[3] or found[4]):
            raise ValueError(
                f"a constraint reads like 'accuracy >= bl - 0.01' or 'validity >= 0.9', with one of "
                f"{', '.join(tunable())}; got {text!r}"
            )
        return cls(found[1], found[2] == ">=", bool(found[3]), float((found[4] or "0").replace(" ", "")))

    def slack(self, metrics: Mapping[str, float], baseline: Mapping[str, float]) -> float:
        """How far the bar is cleared; negative where it is not."""
        bar = self.offset + (baseline[self.metric] if self.relative else 0.0)
        return -_or_worst((bar - metrics[self.metric]) * (1 if self.at_least else -1))


@dataclass(frozen=True)
class Goal:
    """What to minimise, and what must hold."""

    minimise: tuple[str, ...] = ("ip", "cost")
    bounds: tuple[Bound, ...] = (Bound("accuracy", at_least=True, relative=True, offset=-0.01),)

    def __post_init__(self) -> None:
        lower = [name for name in tunable() if known()[name].better == "lower"]
        if not self.minimise or not set(self.minimise) <= set(lower):
            raise ValueError(f"minimise takes one or more of {', '.join(lower)}; got {', '.join(self.minimise)!r}")

    def loss(self, metrics: Mapping[str, float], baseline: Mapping[str, float]) -> float:
        """One number for choosing among good trials: the mean of the ratios to the conventional model."""
        return float(np.mean([metrics[m] / max(baseline[m], 1e-12) for m in self.minimise]))

    def ranking(self, trials: Sequence[Mapping[str, float]], baseline: Mapping[str, float]) -> list[int]:
        """Places of trials, best first: those that clear every bar by loss, then the others by how far they miss."""

        def key(place: int) -> tuple[float, float]:
            metrics = trials[place]
            missed = max((0.0, *(-bound.slack(metrics, baseline) for bound in self.bounds)))
            return missed, _or_worst(self.loss(metrics, baseline))

        return sorted(range(len(trials)), key=key)


def _or_worst(value: float) -> float:
    """No valid counterfactual leaves nothing to average: that is worse than any number."""
    return math.inf if math.isnan(value) else value
