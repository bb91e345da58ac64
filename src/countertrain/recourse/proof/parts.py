"""Parts of what people can reach: boxes of numbers and open levels, the rows in them that can be told, and halves."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Self

import numpy as np
import torch
from torch import Tensor

from countertrain.recourse.reach import AnswerGrid, Reach

__all__ = ["Parts"]

_ROUNDING = 1e-9  # of a multiple of a step, and relative to it


@dataclass(frozen=True, eq=False)
class Parts:
    """m parts of what n people can reach. A row that can be told lies in one of its person's parts, or in none.

    A number can be told in multiples of its step within reach; and everybody may stay as they are.
    """

    grid: AnswerGrid
    reach: Reach
    """Of the n people."""
    owner: Tensor  # (m,) whose part it is
    low: Tensor  # (m, D)
    high: Tensor  # (m, D)

    @classmethod
    def whole(cls, grid: AnswerGrid, reach: Reach) -> Self:
        """One part per person, with everything in it."""
        low, high = torch.minimum(reach.low, reach.origin), torch.maximum(reach.high, reach.origin)
        return cls(grid, reach, torch.arange(len(reach)), low, high)._tighten()

    @property
    def groups(self) -> tuple[slice, ...]:
        """The categories of two and more levels; a truth value is a feature that is 0 or 1."""
        return tuple(group for group in self.reach.categories if group.stop - group.start > 1)

    def __len__(self) -> int:
        return len(self.owner)

    def __getitem__(self, rows: Tensor) -> Self:
        return replace(self, owner=self.owner[rows], low=self.low[rows], high=self.high[rows])

    @classmethod
    def join(cls, parts: Sequence["Parts"]) -> "Parts":
        """Parts of the same people together."""
        owner, low, high = (torch.cat([getattr(one, name) for one in parts]) for name in ("owner", "low", "high"))
        return replace(parts[0], owner=owner, low=low, high=high)

    def count(self) -> Tensor:
        """(m, C), how many values of each table column can be told; 0 where a part holds nothing."""
        first, last = self._multiples
        n = (last - first + 1).clamp(min=0) + self._holds_own  # (m, D)
        truth = ~self.grid.number
        n[:, truth] = ((self.high - self.low) > 0.5).double()[:, truth] + 1
        n[:, self.grid.indicator] -= 1  # a number that may be missing has one more state
        for group in self.groups:
            n[:, group] = 0.0
            n[:, group.start] = (self.high[:, group] >= 1).double().sum(1)
        return self.grid.sum_by_column(n)

    def enumerate(self, part: int) -> Tensor:
        """All rows (k, D) of a part that can be told."""
        groups = {group.start: group for group in self.groups}
        inside = {d for group in groups.values() for d in range(group.start + 1, group.stop)}
        first, last = self._multiples
        own, holds_own = self.reach.origin[self.owner[part]], self._holds_own[part]
        ends = list(zip(first[part].tolist(), last[part].tolist(), strict=True))
        blocks: list[Tensor] = []  # (values, features) of each column
        for d in range(self.low.shape[1]):
            if d in groups:
                open_levels = (self.high[part, groups[d]] >= 1).nonzero()[:, 0]
                width = groups[d].stop - d
                blocks.append(torch.eye(width, dtype=torch.float64)[open_levels])
            elif d in inside:
                continue
            elif self.grid.number[d]:
                lowest, highest = ends[d]
                n = max(0, int(highest - lowest) + 1)
                values = self._encode_multiples(lowest + torch.arange(n, dtype=torch.float64), d)
                blocks.append(torch.cat([values, own[d : d + 1][holds_own[d : d + 1]]]).unsqueeze(1))
            else:
                blocks.append(torch.stack([self.low[part, d], self.high[part, d]]).unique().unsqueeze(1))
        rows, at = reduce(_cross, blocks), self.grid.indicator
        return rows[((rows[:, at] < 1) | (rows[:, at - 1] == own[at - 1])).all(1)]  # what moved is not missing

    def list_values(self, part: int, number: int, most: int) -> Tensor | None:
        """The values (k,) of a number in a part that are told to people, those in gaps left out; None beyond `most`."""
        first, last = (int(each[part, number]) for each in self._multiples)
        if last - first >= most:
            return None
        values = self._encode_multiples(first + torch.arange(max(0, last - first + 1), dtype=torch.float64), number)
        rows = self.reach.origin[self.owner[part]].repeat(len(values), 1)
        rows[:, number] = values
        told = self.grid.snap(rows, self.reach[self.owner[part].expand(len(rows))])[:, number]
        own = self.reach.origin[self.owner[part], number].unsqueeze(0)
        return torch.from_numpy(np.unique(torch.cat([told, own]).numpy()))

    def halve(self, column: Tensor) -> "Parts":
        """Each part as two, divided in a table column (m,) of which it holds two values or more."""
        lower_high, upper_low = self.high.clone(), self.low.clone()
        upper_high = self.high.clone()
        cut = self._find_cuts()  # (m, D)
        mine = self.grid.column_of == column.unsqueeze(1)  # (m, D)
        truth = mine & ~self.grid.number
        at = self.grid.indicator
        unsettled = (truth & (self.high - self.low > 0.5))[:, at].any(1, keepdim=True)  # first, whether it is missing
        number = mine & self.grid.number & ~unsettled
        lower_high, upper_low = torch.where(number, cut, lower_high), torch.where(number, cut, upper_low)
        for group in self.groups:
            truth[:, group] = False
            rows = mine[:, group.start].nonzero()[:, 0]
            open_levels = self.high[rows, group] >= 1
            before = open_levels.double().cumsum(1) <= (open_levels.double().sum(1, keepdim=True) / 2).floor()
            lower_high[rows, group] = (open_levels & before).double()
            upper_high[rows, group] = (open_levels & ~before).double()
        lower_high, upper_low = torch.where(truth, self.low, lower_high), torch.where(truth, self.high, upper_low)
        both = [replace(self, high=lower_high), replace(self, low=upper_low, high=upper_high)]
        return Parts.join([one._tighten() for one in both])

    def _tighten(self) -> Self:
        """With the ends of numbers at the lowest and highest values that can be told."""
        first, last = self._multiples
        any_left, own, holds_own = first <= last, self.reach.origin[self.owner], self._holds_own
        low, high = (self.grid.scales.encode(end * self.grid.step) for end in (first, last))
        low, high = low.masked_fill(~any_left, torch.inf), high.masked_fill(~any_left, -torch.inf)
        low = torch.minimum(low, own.masked_fill(~holds_own, torch.inf))
        high = torch.maximum(high, own.masked_fill(~holds_own, -torch.inf))
        empty = ~(low <= high)  # count() says so
        number = self.grid.number & ~empty
        return replace(self, low=torch.where(number, low, self.low), high=torch.where(number, high, self.high))

    @cached_property
    def _multiples(self) -> tuple[Tensor, Tensor]:
        """The first and the last multiple (m, D) of each number's step within a part and within reach."""
        low = torch.maximum(self.low, self.reach.low[self.owner])
        high = torch.minimum(self.high, self.reach.high[self.owner])
        first, last = (self.grid.scales.decode(end) / self.grid.step for end in (low, high))
        return (first - _ROUNDING * (1 + first.abs())).ceil(), (last + _ROUNDING * (1 + last.abs())).floor()

    @cached_property
    def _holds_own(self) -> Tensor:
        """(m, D), whether the person's own value is in a part and none of its multiples."""
        (first, last), own = self._multiples, self.reach.origin[self.owner]
        multiple = self.grid.scales.decode(own) / self.grid.step
        near = (multiple - multiple.round()).abs() <= _ROUNDING * (1 + multiple.abs())
        listed = near & (first <= multiple.round()) & (multiple.round() <= last)
        return (self.low <= own) & (own <= self.high) & ~listed

    def _encode_multiples(self, multiples: Tensor, feature: int) -> Tensor:
        """Multiples (k,) of a feature's step as a model sees them."""
        units = torch.zeros(len(multiples), self.low.shape[1], dtype=torch.float64)
        units[:, feature] = multiples * self.grid.step[feature]
        return self.grid.scales.encode(units)[:, feature]

    def _find_cuts(self) -> Tensor:
        """(m, D), a value between two neighbouring ones that can be told, about in the middle of a number's range."""
        low, high, middle = (
            self.grid.scales.decode(end) / self.grid.step for end in (self.low, self.high, (self.low + self.high) / 2)
        )
        between = middle.floor() + 0.5
        between = torch.where((between > low) & (between < high), between, (low + high) / 2)
        cut = self.grid.scales.encode(between * self.grid.step)
        return torch.where((cut > self.low) & (cut < self.high), cut, (self.low + self.high) / 2)


def _cross(rows: Tensor, more: Tensor) -> Tensor:
    """Every row beside every other one."""
    return torch.cat([rows.repeat_interleave(len(more), 0), more.repeat(len(rows), 1)], 1)
