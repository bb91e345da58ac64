"""How a number of a table becomes a number that a model sees, and back: standardised, or as its place among people."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from torch import Tensor

__all__ = ["UNSCALED", "FeatureScales", "Ranks", "Scale", "Standard", "scale_from_dict"]

Floats = NDArray[np.float64]
_KNOTS = 64  # of a column with more different values than that
_TAILS = np.array([0.002, 0.005, 0.01, 0.99, 0.995, 0.998])  # more of them where few people are far from one another
_END = 1e-3  # the place of the lowest value; that of the highest is as near to 1
_SPIKE = 1 / 128  # of the rows: a value that as many share is a knot, too
_COMMON, _WIDE = 0.05, 0.3  # of the rows, and in scores: beside a value that as many share, a piece so wide is a gap
_LEAST = 1e-100  # numbers that differ by less are one: no slope is then beyond all numbers


@dataclass(frozen=True)
class Standard:
    """Numbers less their mean, in standard deviations."""

    centre: float
    scale: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.centre) and np.isfinite(self.scale) and self.scale > 0):
            raise ValueError(
                f"a centre must be finite, a scale finite and positive; got {self.centre:g}, {self.scale:g}"
            )

    @classmethod
    def fit(cls, numbers: Floats) -> Self:
        """By mean and sample standard deviation; a column that never changes has scale 1."""
        centre = float(numbers.mean())
        spread = float(numbers.std(ddof=1)) if len(numbers) > 1 else 0.0
        return cls(centre, spread if spread > max(_LEAST, 1e-12 * abs(centre)) else 1.0)

    def encode(self, numbers: Floats) -> Floats:
        """What a model sees."""
        return (numbers - self.centre) / self.scale

    def decode(self, scores: Floats) -> Floats:
        """The numbers in people's units."""
        return scores * self.scale + self.centre

    @property
    def spread(self) -> float:
        """How much a typical number differs from the middle, in people's units."""
        return self.scale

    def to_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {"centre": self.centre, "scale": self.scale}


UNSCALED = Standard(0.0, 1.0)
"""Numbers as they are."""


@dataclass(frozen=True)
class Ranks:
    """Numbers as normal scores: 0 is the middle of the training rows, 1 what 84 % of them are below.

    Piecewise linear between knots, and linear beyond the first and the last: strictly increasing, so that there is one
    way back. Values that many rows share stand in the middle of the places that these rows take; the lowest and the
    highest value stand at the ends. Outliers weigh no more than anybody else.
    """

    values: tuple[float, ...]
    scores: tuple[float, ...]
    gaps: tuple[int, ...] = ()
    """Pieces, by the knot at which they begin, between a value that many have and others: hardly anybody is inside."""

    def __post_init__(self) -> None:
        sizes = {len(self.values), len(self.scores)}
        knots = np.array([self.values, self.scores], dtype=np.float64) if len(sizes) == 1 else np.empty((2, 0))
        if knots.shape[1] < 2 or not np.isfinite(knots).all() or (np.diff(knots) <= 0).any():
            raise ValueError(
                "the knots of a rank scale must be finite and increase, two at least and as many scores as values"
            )

    @classmethod
    def fit(cls, numbers: Floats) -> "Scale":
        """By the training rows; a column that never changes has no ranks."""
        distinct, counts = np.unique(numbers, return_counts=True)
        if len(distinct) < 2:
            return Standard.fit(numbers)
        place = (counts.cumsum() - counts / 2) / counts.sum()  # the middle of the places of each value, in 0..1
        place[[0, -1]] = _END, 1 - _END  # nobody has less, nobody more, however many have as much
        share = counts / len(numbers)
        if len(distinct) > _KNOTS:
            wanted = np.concatenate([np.linspace(0, 1, _KNOTS), _TAILS])
            near = np.searchsorted(place, wanted).clip(0, len(distinct) - 1)
            kept = np.unique(np.concatenate([[0, len(distinct) - 1], near, np.flatnonzero(share > _SPIKE)]))
            distinct, place, share = distinct[kept], place[kept], share[kept]
        inner = (place > _END) & (place < 1 - _END)  # in a large table, values beside the ends may not be
        inner[[0, -1]] = True
        distinct, scores, share = distinct[inner], ndtri(place[inner]), share[inner]
        told_apart = np.maximum(1e-9 * np.abs(distinct[1:]), _LEAST)
        apart = np.concatenate([[True], (np.diff(scores) > 1e-9) & (np.diff(distinct) > told_apart)])
        distinct, scores, common = distinct[apart], scores[apart], share[apart] > _COMMON
        if len(scores) < 2:
            return Standard.fit(numbers)
        gaps = np.flatnonzero((common[1:] | common[:-1]) & (np.diff(scores) > _WIDE))
        return cls(tuple(distinct.tolist()), tuple(scores.tolist()), tuple(gaps.tolist()))

    def encode(self, numbers: Floats) -> Floats:
        """What a model sees."""
        return _interpolate(numbers, *self._knots, self._slopes[0])

    def decode(self, scores: Floats) -> Floats:
        """The numbers in people's units."""
        return _interpolate(scores, *self._knots[::-1], self._slopes[1])

    @cached_property
    def _knots(self) -> tuple[Floats, Floats]:
        return np.array(self.values), np.array(self.scores)

    @cached_property
    def _slopes(self) -> tuple[Floats, Floats]:
        """Scores per unit of the values on each piece, and the other way round."""
        values, scores = map(np.diff, self._knots)
        return scores / values, values / scores

    @property
    def spread(self) -> float:
        """How much a typical number differs from the middle, in people's units: half of what two thirds lie within."""
        low, high = self.decode(np.array([-1.0, 1.0]))
        return float(high - low) / 2

    def to_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {"values": list(self.values), "scores": list(self.scores), "gaps": list(self.gaps)}

    def share_below(self, numbers: Floats) -> Floats:
        """The shares of people, in 0..1, who have less than such numbers."""
        return np.asarray(ndtr(self.encode(numbers)))

    def find_values(self, shares: Floats) -> Floats:
        """The numbers that such shares of people, in 0..1, have less than."""
        return self.decode(ndtri(shares))


Scale = Standard | Ranks


def scale_from_dict(saved: dict[str, Any]) -> Scale:
    """The scale that `to_dict` described."""
    if "values" in saved:
        values, scores = (tuple(map(float, saved[name])) for name in ("values", "scores"))
        return Ranks(values, scores, tuple(map(int, saved["gaps"])))
    return Standard(float(saved["centre"]), float(saved["scale"]))


def _interpolate(x: Floats, at: Floats, to: Floats, slope: Floats) -> Floats:
    """Piecewise linear through the knots, on along the first and last piece."""
    place = (np.searchsorted(at, x) - 1).clip(0, len(at) - 2)
    there = to[place] + (x - at[place]) * slope[place]
    rounded = np.minimum(there, to[place + 1])  # no number passes the next knot by rounding
    return np.asarray(np.where(x <= at[-1], rounded, there))


@dataclass(frozen=True, eq=False)
class FeatureScales:
    """The scales of D features at once, for tensors of rows; all in float64."""

    centre: Tensor  # (D,)
    scale: Tensor  # (D,)
    ranked: Tensor  # (R,) places of the features with ranks
    values: Tensor  # (R, k) their knots; those with fewer than k of them are continued along their last piece
    scores: Tensor  # (R, k)
    gaps: Tensor  # (R, k - 1) bool: pieces in which hardly anybody is

    @classmethod
    def of(cls, scales: Sequence[Scale]) -> Self:
        """Of one scale per feature."""
        ranks = {i: scale for i, scale in enumerate(scales) if isinstance(scale, Ranks)}
        most = max((len(scale.values) for scale in ranks.values()), default=2)
        knots = [np.array([_continue(scale.values, most), _continue(scale.scores, most)]) for scale in ranks.values()]
        gaps = [[i in scale.gaps for i in range(most - 1)] for scale in ranks.values()]
        both = torch.from_numpy(np.array(knots).reshape(len(ranks), 2, most))
        standard = [scale if isinstance(scale, Standard) else UNSCALED for scale in scales]
        return cls(
            centre=torch.tensor([scale.centre for scale in standard], dtype=torch.float64),
            scale=torch.tensor([scale.scale for scale in standard], dtype=torch.float64),
            ranked=torch.tensor(list(ranks), dtype=torch.int64),
            values=both[:, 0].contiguous(),
            scores=both[:, 1].contiguous(),
            gaps=torch.tensor(gaps, dtype=torch.bool).view(-1, most - 1),
        )

    @cached_property
    def _all_ranked(self) -> bool:
        return 0 < len(self.ranked) == len(self.centre)

    @cached_property
    def _with_gaps(self) -> Tensor:
        """Which of the features with ranks have gaps."""
        return self.gaps.any(1).nonzero()[:, 0]

    @cached_property
    def _slopes(self) -> Tensor:
        """(R, k - 1), how many of people's units one unit of the model is on each piece."""
        return self.values.diff() / self.scores.diff()

    @cached_property
    def _slopes_back(self) -> Tensor:
        """(R, k - 1), the same the other way round."""
        return self.scores.diff() / self.values.diff()

    def take(self, features: Tensor) -> Self:
        """The scales of some of the features, by their places (d,)."""
        place = torch.full((len(self.centre),), -1)
        place[self.ranked] = torch.arange(len(self.ranked))
        mine = place[features]  # (d,)
        kept = mine[mine >= 0]
        return type(self)(
            centre=self.centre[features],
            scale=self.scale[features],
            ranked=(mine >= 0).nonzero()[:, 0],
            values=self.values[kept],
            scores=self.scores[kept],
            gaps=self.gaps[kept],
        )

    def encode(self, units: Tensor) -> Tensor:
        """Rows (..., D) in people's units as a model sees them."""
        if self._all_ranked:
            return self._interpolate(units, self.values, self.scores, self._slopes_back)[0]
        x = (units - self.centre) / self.scale
        x[..., self.ranked] = self._interpolate(units, self.values, self.scores, self._slopes_back)[0]
        return x

    def decode(self, x: Tensor) -> Tensor:
        """Rows (..., D) as a model sees them in people's units."""
        return self.decode_with_units(x)[0]

    def decode_with_units(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Rows (..., D) in people's units, and how many of these one unit of the model is there, as one look."""
        if self._all_ranked:
            return self._interpolate(x, self.scores, self.values, self._slopes)
        units, per_unit = x * self.scale + self.centre, self.scale.expand_as(x).clone()
        found = self._interpolate(x, self.scores, self.values, self._slopes)
        units[..., self.ranked], per_unit[..., self.ranked] = found
        return units, per_unit

    def leave_gaps(self, x: Tensor) -> Tensor:
        """Rows x (n, D) with every number that lies where hardly anybody is put to the nearer end of its gap."""
        with_gaps = self._with_gaps
        if not len(with_gaps):
            return x
        scores, gaps, features = self.scores[with_gaps], self.gaps[with_gaps], self.ranked[with_gaps]
        mine = x[:, features].T.contiguous()  # (R, n)
        place = _find_pieces(scores, mine)
        low, high = scores.gather(1, place), scores.gather(1, place + 1)
        inside = gaps.gather(1, place) & (mine > low) & (mine < high)
        x = x.clone()
        x[:, features] = torch.where(inside, torch.where(mine - low < high - mine, low, high), mine).T
        return x

    def measure_units(self, x: Tensor) -> Tensor:
        """How many of people's units one unit of the model is at rows x (..., D): (..., D)."""
        return self.decode_with_units(x)[1]

    def _interpolate(self, x: Tensor, at: Tensor, to: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
        """Of the features with ranks, (..., R): what rows are on the other side, and the slope of their pieces."""
        mine = x if self._all_ranked else x[..., self.ranked]
        if not len(self.ranked):  # as of a table without numbers
            return mine, mine
        rows = mine.reshape(-1, mine.shape[-1]).T.contiguous()  # (R, n)
        place = _find_pieces(at, rows)
        slope = slopes.gather(1, place)
        there = to.gather(1, place) + (rows - at.gather(1, place)) * slope
        rounded = torch.minimum(there, to.gather(1, place + 1))  # no number passes the next knot by rounding
        there = torch.where(rows <= at[:, -1:], rounded, there)
        return there.T.reshape(mine.shape), slope.T.reshape(mine.shape)


def _find_pieces(at: Tensor, rows: Tensor) -> Tensor:
    """On which piece between knots (R, k) each number of rows (R, n) lies."""
    return torch.searchsorted(at, rows).sub_(1).clamp_(0, at.shape[1] - 2)


def _continue(knots: Sequence[float], n: int) -> Floats:
    """n knots: those that there are, and more of them at the distance of the last two."""
    more = knots[-1] + (knots[-1] - knots[-2]) * np.arange(1, n - len(knots) + 1)
    return np.concatenate([knots, more])
