"""Whether the probability falls for somebody as a column gets better, by declaration or by what the rows show."""

from dataclasses import dataclass

import torch
from torch import Tensor

from countertrain.recourse.decider import Decider
from countertrain.recourse.landmarks import Landmarks
from countertrain.tables.schema import Numeric

__all__ = ["FALL", "Slope", "measure_slopes"]

FALL = 0.01
"""A fall of the probability that is more than rounding, one percentage point."""
_VALUES, _PEOPLE = 20, 300


@dataclass(frozen=True)
class Slope:
    """What happens to people's probabilities as one column goes the way that is better."""

    column: str
    rises: bool
    """Whether more of it is better."""
    declared: bool
    """By the owner; else by what the real rows show."""
    share: float
    """Of people for whom the probability falls somewhere on the way, by more than FALL."""
    worst: float
    """The largest such fall of anybody."""


def measure_slopes(decider: Decider, x: Tensor, target: int, *, seed: int = 0) -> tuple[Slope, ...]:
    """Each column of numbers that has a direction, on some of the encoded rows x (n, D), most violations first."""
    encoder = decider.encoder
    declared = {name: 1 if way == "increase" else -1 for name, way in decider.find_ways(target).items()}
    marks = Landmarks.of(decider)
    shown = marks.direction.get(target, torch.zeros(len(encoder.features)))
    stream = torch.Generator().manual_seed(seed)
    x = x[torch.randperm(len(x), generator=stream)[:_PEOPLE]].double()
    found = []
    for column, part in zip(encoder.schema.columns, encoder.slices, strict=True):
        way = declared.get(column.name, 0) or (int(shown[part.start]) if isinstance(column, Numeric) else 0)
        if not way or not isinstance(column, Numeric):
            continue
        real = x if decider.reference is None else decider.reference[0]
        values = real[:, part.start].double().quantile(torch.linspace(0.01, 0.99, _VALUES).double()).unique()
        if len(values) > 1:
            fall = _measure_falls(decider, x, part.start, values if way > 0 else values.flip(0), target)
            share, worst = float((fall > FALL).double().mean()), float(fall.max())
            found.append(Slope(column.name, way > 0, column.name in declared, share, worst))
    return tuple(sorted(found, key=lambda slope: (not slope.declared, -slope.share)))


def _measure_falls(decider: Decider, x: Tensor, feature: int, values: Tensor, target: int) -> Tensor:
    """(n,), how far the probability falls below its highest so far, at most, as a feature goes through the values."""
    rows = x.repeat_interleave(len(values), 0)
    rows[:, feature] = values.repeat(len(x))
    probability = decider.compute_probabilities(rows)[:, target].view(len(x), len(values))
    return (probability.cummax(1).values - probability).amax(1)
