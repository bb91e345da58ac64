"""Where a person can go, and the grid of values that an answer may hold."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from countertrain.constraints import Constraints
from countertrain.recourse.attempt import is_everybody
from countertrain.recourse.guesses import Guesses
from countertrain.tables.encoder import Encoder
from countertrain.tables.rules.keeper import RuleKeeper
from countertrain.tables.scales import FeatureScales
from countertrain.tables.schema import Categorical, Numeric

__all__ = ["AnswerGrid", "Reach"]

_DIGITS = 4  # of its spread, in answers on a number without a step
_SINGLE, _DOUBLE = (8 * torch.finfo(dtype).eps for dtype in (torch.float32, torch.float64))


@dataclass(frozen=True, eq=False)
class Reach:
    """The lowest and highest value of each feature that each of n people can get to from where they are."""

    origin: Tensor  # (n, D) float64
    low: Tensor  # (n, D)
    high: Tensor  # (n, D)
    categories: tuple[slice, ...]
    own: Tensor | None = None  # (n, T), where rules speak of T columns: people's own values, NaN where none is known
    led: Tensor | None = None  # (D,) bool: features that follow from others, and are not searched by themselves
    marks: Tensor | None = None
    """(3, n, R) the same of numbers on a grid, once `AnswerGrid.mark` has noted it: own, lowest and highest."""
    guesses: Guesses | None = None
    """What is known of real rows as far as these people can follow them, if it is kept."""

    @classmethod
    def of(cls, constraints: Constraints, origin: Tensor) -> Self:
        """What the constraints leave open to people who start at rows `origin` (n, D)."""
        low, high = constraints.to(origin).box(origin)
        return cls(origin, low, high, constraints.categories)

    @classmethod
    def join(cls, parts: Sequence["Reach"]) -> Self:
        """The reach of several groups of people, one after another."""
        origin, low, high = (torch.cat([getattr(p, name) for p in parts]) for name in ("origin", "low", "high"))
        return cls(origin, low, high, parts[0].categories, led=parts[0].led)

    def __len__(self) -> int:
        return len(self.origin)

    def __getitem__(self, rows: Tensor | slice | list[int]) -> Self:
        """The reach of some of the people."""
        if is_everybody(rows, len(self)):
            return self
        own = None if self.own is None else self.own[rows]
        marks = None if self.marks is None else self.marks[:, rows]
        guesses = None if self.guesses is None else self.guesses[rows]
        low, high = self.low[rows], self.high[rows]
        return replace(self, origin=self.origin[rows], low=low, high=high, own=own, marks=marks, guesses=guesses)

    def put(self, rows: Tensor, other: "Reach") -> Self:
        """With another reach for some of the people."""
        low, high = self.low.index_copy(0, rows, other.low), self.high.index_copy(0, rows, other.high)
        return self._to(low, high)

    def pin(self, features: Tensor) -> Self:
        """With some features (n, D) of each person fixed."""
        low, high = (torch.where(features, self.origin, bound) for bound in (self.low, self.high))
        return self._to(low, high)

    def widen(self, features: Tensor, lower: Tensor, upper: Tensor) -> Self:
        """With the whole domain open to some features (n, D) of each person."""
        low = torch.where(features, torch.minimum(lower, self.origin), self.low)
        high = torch.where(features, torch.maximum(upper, self.origin), self.high)
        return self._to(low, high)

    def _to(self, low: Tensor, high: Tensor) -> Self:
        """With other limits; what was worked out for those before is forgotten."""
        return replace(self, low=low, high=high, marks=None, guesses=None)

    def constraints(self) -> Constraints:
        """The same as constraints of a search that may start anywhere within reach, but for what follows from it."""
        free = torch.ones(self.low.shape[1], dtype=torch.bool)
        mine = self if self.led is None else self.pin(self.led.expand_as(self.low))
        return Constraints(free, free, mine.low, mine.high, self.open_categories)

    @cached_property
    def open_categories(self) -> tuple[slice, ...]:
        """The categories in which anybody can go anywhere; in all others a box is as good as a group."""
        return tuple(part for part in self.categories if not torch.equal(self.low[:, part], self.high[:, part]))

    def project(self, x: Tensor) -> Tensor:
        """The row within reach that is nearest to x (n, D), or to each of k rows x (n, k, D) of a person."""
        limits = self.constraints()
        low, high = (bound.view(-1, *[1] * (x.ndim - 2), x.shape[-1]).to(x) for bound in (limits.lower, limits.upper))
        return limits.project_into(x, low, high)


@dataclass(frozen=True, eq=False)
class AnswerGrid:
    """The values that an answer may hold: of each number the multiples of its step, counted from 0.

    A number without a step is rounded to decimals of about 1/10,000 of its spread.
    """

    column_of: Tensor  # (D,) the table column of each feature
    number: Tensor  # (D,) bool: a number, not a level
    indicator: Tensor  # (I,) the places of features that say whether the number before them is missing
    scales: FeatureScales
    step: Tensor  # (D,) in the user's units; 1 for a level
    lower: Tensor  # (D,) the domain of the schema, encoded, without the levels that nobody is advised to go to
    upper: Tensor  # (D,)
    weight: Tensor  # (D,) of a difference in the cost: 1, or 1/2 where two features of a category change together
    digits: tuple[tuple[str, int], ...]
    """Columns without a step, and the decimals to which they are rounded."""
    keeper: RuleKeeper | None = None
    """What holds between columns; None: nothing does."""

    @classmethod
    def of(cls, encoder: Encoder) -> Self:
        """The grid of an encoder's columns."""
        columns = encoder.schema.columns
        column_of = np.asarray(encoder.column_of)
        digits = {
            i: _DIGITS - int(np.floor(np.log10(encoder.scales[i].spread)))
            for i, column in enumerate(columns)
            if isinstance(column, Numeric) and column.step is None
        }
        step = [10.0 ** -digits[i] if i in digits else getattr(c, "step", None) or 1.0 for i, c in enumerate(columns)]
        number = torch.zeros(len(column_of), dtype=torch.bool).index_fill_(
            0, torch.tensor(encoder.numbers).long(), True
        )
        level = torch.tensor([isinstance(c, Categorical) and len(c.labels) > 1 for c in columns])[column_of]
        domain = encoder.constraints()
        unadvised = {f"{c.name}={label}" for c in columns if isinstance(c, Categorical) for label in c.unadvised}
        return cls(
            column_of=torch.from_numpy(column_of),
            number=number,
            indicator=torch.tensor(encoder.indicators, dtype=torch.int64),
            scales=encoder.feature_scales,
            step=torch.tensor(step, dtype=torch.float64)[column_of].where(number, 1.0),
            lower=domain.lower,
            upper=domain.upper.where(torch.tensor([name not in unadvised for name in encoder.features]), 0.0),
            weight=torch.where(level, 0.5, 1.0).double(),
            digits=tuple((columns[i].name, n) for i, n in digits.items()),
            keeper=RuleKeeper.of(encoder, {columns[i].name: n for i, n in digits.items()}),
        )

    @cached_property
    def n_columns(self) -> int:
        """C, the number of table columns."""
        return int(self.column_of[-1]) + 1

    @cached_property
    def sides(self) -> tuple[Tensor, Tensor]:
        """The places of features that count as they are in the cost, and of those of which two change together."""
        return (self.weight == 1).nonzero()[:, 0], (self.weight < 1).nonzero()[:, 0]

    @cached_property
    def holds_number(self) -> Tensor:
        """(C,) bool: which table columns hold numbers."""
        return self.sum_by_column(self.number.double().unsqueeze(0))[0] > 0

    def costs(self, x: Tensor, origin: Tensor) -> Tensor:
        """Cost of each table column (n, C): the way on its scale for a number, 1 for another level.

        What follows from other columns by a rule is nobody's task, and costs nothing.
        """
        costs = self.sum_by_column((x - origin).abs() * self.weight)
        return costs if self.keeper is None else costs.masked_fill(self.keeper.find_following(x, origin), 0.0)

    def find_moved(self, x: Tensor, origin: Tensor) -> Tensor:
        """(n, C) bool, which table columns differ at all."""
        return self.sum_by_column((x != origin).double()) > 0

    def sum_by_column(self, values: Tensor) -> Tensor:
        """Values (n, D) of features summed over those of each table column, (n, C)."""
        return values.new_zeros(len(values), self.n_columns).index_add_(1, self.column_of, values)

    def snap(self, x: Tensor, reach: Reach, *, away: bool = False) -> Tensor:
        """The nearest row on the grid within reach that keeps the rules, or one farther away from the person's own.

        A number that did not move, or has no such value within reach, is the person's own bit for bit; levels stay.
        """
        places, scales, step, offset = self._numbers
        own, low, high = self._mark(reach) if reach.marks is None else reach.marks
        start, mine = reach.origin[:, places], x[:, places]  # (n, R)
        mine = torch.where(mine == start, mine, scales.leave_gaps(mine))
        multiple, units = scales.decode_with_units(mine)
        multiple /= step
        # x comes from a search in single precision; encoding in double precision loses something, too
        unsure = units.mul_(_SINGLE * (1 + mine.abs())).div_(step)
        lost = _DOUBLE * (1 + multiple.abs() + offset)
        low, high = (low - lost).ceil_(), (high + lost).floor_()
        moved = ((multiple - own).abs() > unsure) & (low <= high)
        if away:
            multiple = torch.where(multiple > own, (multiple - unsure).ceil_(), (multiple + unsure).floor_())
        multiple = multiple.round().clamp(low, high)
        moved &= (multiple - own).abs() > lost
        x = x.index_copy(1, places, torch.where(moved, scales.encode(multiple * step), start))
        return self.mend(self._tell_missing(x, reach), reach)

    def _tell_missing(self, x: Tensor, reach: Reach) -> Tensor:
        """Rows in which no number that moved is missing, and none is that its person has."""
        at = self.indicator
        if not len(at):
            return x
        moved = x[:, at - 1] != reach.origin[:, at - 1]
        known = x[:, at].masked_fill(moved, 0.0)
        return x.index_copy(1, at, torch.minimum(torch.maximum(known, reach.low[:, at]), reach.high[:, at]))

    def mend(self, x: Tensor, reach: Reach) -> Tensor:
        """Rows with all that must hold between columns; what cannot be put right within reach is as it was."""
        if self.keeper is None or not len(x):
            return x
        assert reach.own is not None, "the reach of people under rules knows their own values"
        return self.keeper.mend(x, reach.origin, reach.low, reach.high, reach.own)

    def mark(self, reach: Reach) -> Reach:
        """The reach with its place on the grid noted, for people whose rows are going to be snapped many times."""
        return replace(reach, marks=self._mark(reach))

    def _mark(self, reach: Reach) -> Tensor:
        """(3, n, R) the person's own, the lowest and the highest value of each number, as multiples of its step."""
        places, scales, step, _ = self._numbers
        return torch.stack([scales.decode(x[:, places]) / step for x in (reach.origin, reach.low, reach.high)])

    @cached_property
    def _numbers(self) -> tuple[Tensor, FeatureScales, Tensor, Tensor]:
        """(R,) the places of the numbers, their scales, their steps, and how many steps the middle is from 0."""
        places = self.number.nonzero()[:, 0]
        scales, step = self.scales.take(places), self.step[places]
        return places, scales, step, (scales.decode(torch.zeros_like(step)) / step).abs()

    def to_units(self, x: Tensor) -> Tensor:
        """Encoded values in the user's units, to the nearest step."""
        return (self.scales.decode(x) / self.step).round() * self.step + 0.0  # no negative zero

    def decode(self, encoder: Encoder, x: Tensor, origin: pd.DataFrame | None = None) -> pd.DataFrame:
        """Rows of the grid in the user's units, with the person's own value in every cell that did not change."""
        if origin is not None and (plain := encoder.plain.take(origin)) is not None:
            told = encoder.decode_moved(x.numpy(), plain, dict(self.digits))
            return encoder.plain.make_frame(told, origin.index)
        frame = encoder.decode(x.numpy(), origin)
        for name, digits in self.digits:
            numbers = frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
            kept = False if origin is None else numbers == origin[name].to_numpy(dtype=np.float64, na_value=np.nan)
            frame[name] = pd.Series(np.where(kept, numbers, np.round(numbers, digits))).astype(frame[name].dtype)
        return frame
