"""What is typical of real people who have a decision, on which side of it people are better off, and values to try."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from countertrain.recourse.decider import Decider
from countertrain.recourse.reach import AnswerGrid, Reach
from countertrain.tables.schema import Categorical

__all__ = ["Landmarks"]

_TRIED = 8  # values of a number, each that of about as many real people
_CLEAR = 0.02  # how far an AUC must be from one half for a column to have a better side
_ERRORS = 2.0  # and by how many of its standard errors
_PARTS = 10  # of people by a number, over which the share of the wanted must not turn
_TURNING = 3.0  # standard errors that a turn must have, since many parts are compared


@dataclass(frozen=True, eq=False)
class Landmarks:
    """Per class its typical row, and per column the values that are tried one at a time."""

    grid: AnswerGrid
    typical: dict[int, Tensor]
    """Per class (D,) encoded: the median of each number, the most frequent level of each category."""
    frame: dict[int, pd.DataFrame]
    """The same in people's units, a row each."""
    direction: dict[int, Tensor]
    """Per class (D,): 1 or -1 where more or less of a number goes with the class, 0 where it turns or is not clear.

    Of a level, the share of the people at it who have the class.
    """
    column: Tensor  # (V,) the table column of each value that is tried
    value: Tensor  # (V, D) encoded, in the features of its column

    @classmethod
    def of(cls, decider: Decider) -> Self:
        """Those of a decider; without real rows nothing is typical, and numbers are tried at equal distances."""
        encoder, grid = decider.encoder, AnswerGrid.of(decider.encoder)
        x, y = decider.reference if decider.reference is not None else (torch.empty(0, len(encoder.features)), None)
        typical, frame, direction = {}, {}, {}
        for k in [] if y is None else y.unique().tolist():
            frame[k] = grid.decode(encoder, _find_middle(decider, x[y == k]).unsqueeze(0))
            typical[k] = torch.from_numpy(encoder.encode(frame[k]))[0]
            direction[k] = _find_directions(grid, x, y == k)
        return cls(grid, typical, frame, direction, *_list_values(grid, x))

    def prefers(self, origin: Tensor, target: Tensor) -> Tensor:
        """(n, C), the columns in which people at rows `origin` (n, D) are not as well off as is typical of their class.

        A number is where fewer of the real people have that class, or the rows do not tell which side is better; a
        level has a smaller share of them than the typical one.
        """
        worse = torch.zeros(len(origin), self.grid.n_columns, dtype=torch.bool)
        for k in set(target.unique().tolist()) & self.typical.keys():
            rows, side = (target == k).nonzero()[:, 0], self.direction[k]
            away = (self.typical[k] - origin[rows]).where(self.grid.number, 0.0)
            numbers = (away != 0) & ((side == 0) | (away.sign() == side)) & self.grid.number
            gain = self.grid.sum_by_column((self.typical[k] - origin[rows]).where(~self.grid.number, 0.0) * side)
            worse[rows] = (self.grid.sum_by_column(numbers.double()) > 0) | (gain > 0)
        return worse

    def find_within(self, reach: Reach) -> Tensor:
        """(n, V), which of the values that are tried lie within reach, and are not the person's own."""
        found = torch.zeros(len(reach), len(self.column), dtype=torch.bool)
        for i in range(self.grid.n_columns):
            mine, features = self.column == i, self.grid.column_of == i
            value, low, high, own = (
                part.unsqueeze(axis)
                for part, axis in (
                    (self.value[mine][:, features], 0),
                    (reach.low[:, features], 1),
                    (reach.high[:, features], 1),
                    (reach.origin[:, features], 1),
                )
            )
            found[:, mine] = ((value >= low) & (value <= high)).all(2) & (value != own).any(2)
        return found

    def replace(self, origin: Tensor, value: Tensor, column: Tensor) -> Tensor:
        """Rows `origin` (m, D) with one table column each (m,) put to what it is in `value` (m, D)."""
        return torch.where(self.grid.column_of == column.unsqueeze(1), value, origin)


def _find_middle(decider: Decider, x: Tensor) -> Tensor:
    """(D,), the middle of real rows: a number that one of them has, and a level that is neither missing nor unseen."""
    middle = x.double().median(0).values
    for column, part in zip(decider.encoder.schema.columns, decider.encoder.slices, strict=True):
        if isinstance(column, Categorical):
            counts = x[:, part].sum(0)
            counts[len(column.levels) :] = -1
            middle[part] = torch.eye(len(counts), dtype=torch.float64)[counts.argmax()]
    middle[list(decider.encoder.indicators)] = 0.0
    return middle


def _find_directions(grid: AnswerGrid, x: Tensor, wanted: Tensor) -> Tensor:
    """(D,), which way of each number goes with being `wanted` (m,); of each level the share of those at it."""
    n_wanted, n_others = int(wanted.sum()), int((~wanted).sum())
    at_level = x.double().sum(0)
    side = (x[wanted].double().sum(0) + 1) / (at_level + 2)  # nobody at a level: neither good nor bad
    boolean = ~grid.number & (grid.weight == 1)  # one feature for two levels
    share_not = (n_wanted - x[wanted].double().sum(0) + 1) / (len(x) - at_level + 2)
    side = torch.where(boolean, (side - share_not).sign(), side)
    if not min(n_wanted, n_others):
        return side.where(~grid.number, 0.0)
    blur = max(_CLEAR, _ERRORS * ((1 / n_wanted + 1 / n_others) / 12) ** 0.5)
    for j in grid.number.nonzero()[:, 0].tolist():
        ranks = np.asarray(pd.Series(x[:, j].numpy()).rank(), dtype=np.float64)
        yes = wanted.numpy()
        auc = (ranks[yes].mean() - (n_wanted + 1) / 2) / n_others
        way = float(np.sign(auc - 0.5))
        side[j] = way if abs(auc - 0.5) > blur and not _turns(ranks, yes, way) else 0.0
    return side


def _turns(ranks: NDArray[np.float64], wanted: NDArray[np.bool_], way: float) -> bool:
    """Whether the share of the wanted is clearly lower in some part of the people than in another on the worse side."""
    part = np.minimum((ranks - 0.5) * _PARTS / len(ranks), _PARTS - 1).astype(int)
    counts = np.bincount(part, minlength=_PARTS)
    counts, hits = counts[counts > 0], np.bincount(part, wanted, minlength=_PARTS)[counts > 0]
    shares = (hits + 1) / (counts + 2)  # never quite 0 or 1, which would leave no doubt
    noise = shares * (1 - shares) / counts
    against = way * (shares[:, None] - shares)  # (p, p): how much better the first part is than the second
    doubt = _CLEAR + _TURNING * np.sqrt(noise[:, None] + noise)
    return bool(np.triu(against > doubt, 1).any())


def _list_values(grid: AnswerGrid, x: Tensor) -> tuple[Tensor, Tensor]:
    """The values to try: of each number those that part real people evenly, and every level that may be advised."""
    shares = (torch.arange(_TRIED, dtype=torch.float64) + 0.5) / _TRIED
    columns: list[int] = []
    values: list[Tensor] = []
    for i in range(grid.n_columns):
        features = (grid.column_of == i).nonzero()[:, 0]
        if grid.number[features[0]]:
            j = int(features[0])
            low, high = grid.lower[j], grid.upper[j]
            at = x[:, j].double().quantile(shares) if len(x) else low + shares * (high - low)
            row = torch.zeros(_TRIED, len(grid.column_of), dtype=torch.float64)
            row[:, j] = at
            on_grid = grid.scales.encode(grid.to_units(row))[:, j].clamp(low, high).unique()
            tried = torch.zeros(len(on_grid), len(grid.column_of), dtype=torch.float64)
            tried[:, j] = on_grid
        elif len(features) == 1:
            tried = torch.zeros(2, len(grid.column_of), dtype=torch.float64)
            tried[1, features] = 1.0
        else:
            tried = torch.eye(len(grid.column_of), dtype=torch.float64)[features[grid.upper[features] > 0]]
        columns += [i] * len(tried)
        values.append(tried)
    return torch.tensor(columns), torch.cat(values)
