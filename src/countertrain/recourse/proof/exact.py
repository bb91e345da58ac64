"""The exact answer for one person by mixed-integer programming (HiGHS): whether a row exists, and the cheapest one."""

from dataclasses import dataclass, field
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from countertrain.recourse.network import Network
from countertrain.recourse.proof.bounds import Bounds
from countertrain.recourse.proof.parts import Parts
from countertrain.recourse.reach import AnswerGrid, Reach

__all__ = ["Answer", "ask_exactly"]

_SLACK = 1e-5  # by which a margin may miss what it must be before a program without solution counts as a proof
_FEW = 100  # values of a number that are told apart
_SOLVED, _INFEASIBLE = 0, 2  # what scipy calls it

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Answer:
    """What a program said of one person."""

    impossible: bool
    """Proven: there is no row."""
    x: Tensor | None
    """(D,), a row, not yet on the grid; None where none was found."""
    least_cost: float
    """No row costs less; 0 where nobody asked, infinity where there is none."""
    solved: bool
    """Whether that is settled, and not only as far as time allowed."""


def ask_exactly(
    network: Network,
    grid: AnswerGrid,
    reach: Reach,
    target: int,
    *,
    seconds: float,
    margin: float = 0.0,
    cheapest: bool = False,
) -> Answer:
    """Ask for a row within one person's reach that beats every other class by `margin` log-odds, in so many seconds.

    Several models are a linear program only where they add up; of others nothing is known afterwards.
    """
    if not network.adds_up:
        return Answer(impossible=False, x=None, least_cost=0.0, solved=False)
    whole = Parts.whole(grid, reach)
    program = _Program()
    features = _add_features(program, whole, reach, grid, cheapest=cheapest)
    units = _add_codes(program, network, whole, features)
    limits = Bounds(network, whole.groups).limit_units(whole.low, whole.high)
    for (weight, bias), (lower, upper) in zip(network.layers, limits, strict=False):
        units = _add_relus(program, units, weight.numpy(), bias.numpy(), lower[0].numpy(), upper[0].numpy())
    weight, bias = network.layers[-1]
    for row in network.compare_with(target).sum(0):  # (P K,)
        program.require(units, (row @ weight).numpy(), margin - _SLACK - float(row @ bias), np.inf)
    found = program.solve(seconds)
    if found.status == _INFEASIBLE:
        return Answer(impossible=True, x=None, least_cost=np.inf, solved=True)
    x = None if found.x is None else torch.from_numpy(found.x[features])
    bound = found.mip_dual_bound if cheapest and found.mip_dual_bound is not None else 0.0
    return Answer(impossible=False, x=x, least_cost=float(bound) + program.constant, solved=found.status == _SOLVED)


@dataclass
class _Program:
    """A mixed-integer program that grows."""

    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    constant: float = 0.0
    entries: list[tuple[NDArray[np.int64], Floats]] = field(default_factory=list)
    ends: list[tuple[float, float]] = field(default_factory=list)

    def add(self, low: float, high: float, *, whole: bool = False, cost: float = 0.0) -> int:
        """A variable between two ends; its place."""
        self.low.append(low)
        self.high.append(high)
        self.whole.append(int(whole))
        self.cost.append(cost)
        return len(self.low) - 1

    def require(self, places: NDArray[np.int64], weights: Floats, low: float, high: float) -> None:
        """A weighted sum of variables between two ends."""
        self.entries.append((places, np.asarray(weights, dtype=np.float64)))
        self.ends.append((low, high))

    def solve(self, seconds: float) -> "_Solution":
        """Minimise the cost."""
        from scipy.optimize import Bounds as Ends  # a tenth of the time in which a service starts, and few ask
        from scipy.optimize import LinearConstraint, milp
        from scipy.sparse import coo_array

        lengths = [len(places) for places, _ in self.entries]
        rows = np.repeat(np.arange(len(lengths)), lengths)
        columns = np.concatenate([places for places, _ in self.entries])
        values = np.concatenate([weights for _, weights in self.entries])
        matrix = coo_array((values, (rows, columns)), shape=(len(lengths), len(self.low))).tocsr()
        low, high = np.array(self.ends).T
        found = milp(
            np.array(self.cost),
            integrality=np.array(self.whole),
            bounds=Ends(np.array(self.low), np.array(self.high)),
            constraints=LinearConstraint(matrix, low, high),
            options={"time_limit": seconds},
        )
        return _Solution.of(found)


@dataclass(frozen=True, eq=False)
class _Solution:
    status: int
    x: Floats | None
    mip_dual_bound: float | None

    @classmethod
    def of(cls, found: object) -> Self:
        status, x, bound = (getattr(found, name, None) for name in ("status", "x", "mip_dual_bound"))
        return cls(-1 if status is None else int(status), x, bound)


def _add_features(
    program: _Program, whole: Parts, reach: Reach, grid: AnswerGrid, *, cheapest: bool
) -> NDArray[np.int64]:
    """A variable per feature, one-hot within categories, with what a change costs.

    For the cheapest row, a number with few values is one of those that can be told.
    """
    low, high, own = (each[0].tolist() for each in (whole.low, whole.high, reach.origin))
    price = grid.weight.tolist() if cheapest else [0.0] * len(low)
    places = []
    for d in range(len(low)):
        if grid.number[d]:
            places.append(program.add(low[d], high[d]))
            if cheapest and low[d] < high[d]:
                way = program.add(0.0, max(high[d] - own[d], own[d] - low[d]), cost=price[d])
                for sign in (1.0, -1.0):
                    program.require(np.array([way, places[d]]), np.array([1.0, sign]), sign * own[d], np.inf)
                _add_values(program, places[d], whole.list_values(0, d, _FEW))
        else:  # a level that is left costs what one that is taken does
            sign = 1.0 if own[d] < 0.5 else -1.0
            program.constant += price[d] * own[d]
            places.append(program.add(low[d], high[d], whole=True, cost=sign * price[d]))
    features = np.array(places)
    for d in grid.indicator.tolist():  # a number that is missing did not move
        for end in (low, high):
            way = end[d - 1] - own[d - 1]
            sign = 1.0 if end is high else -1.0
            program.require(features[[d - 1, d]], np.array([sign, sign * way]), -np.inf, sign * end[d - 1])
    for group in whole.groups:
        program.require(features[group], np.ones(group.stop - group.start), 1.0, 1.0)
    return features


def _add_values(program: _Program, place: int, values: Tensor | None) -> None:
    """A number is one of its values; anything between its ends where they are too many (None)."""
    if values is None:
        return
    taken = np.array([program.add(0.0, 1.0, whole=True) for _ in values])
    program.require(taken, np.ones(len(taken)), 1.0, 1.0)
    program.require(np.append(taken, place), np.append(values.numpy(), -1.0), 0.0, 0.0)


def _add_codes(program: _Program, network: Network, whole: Parts, features: NDArray[np.int64]) -> NDArray[np.int64]:
    """The features and beside them a variable per code; one after another they rise from 0 to 1, as a number does."""
    codes = network.codes
    places = list(features)
    start, end = (-codes.shift / codes.slope).tolist(), ((1 - codes.shift) / codes.slope).tolist()
    for number in codes.numbers.tolist():
        low, high = float(whole.low[0, number]), float(whole.high[0, number])
        below = program.add(0.0, max(0.0, start[0] - low))
        above = program.add(0.0, max(0.0, high - end[-1]))
        mine, turned = [], []  # codes, and whether each has begun to rise
        for first, last in zip(start, end, strict=True):
            mine.append(program.add(float(low >= last), float(high > first)))
            turned.append(program.add(float(low >= first), float(high > first), whole=True))
        turned.append(program.add(float(low >= end[-1]), float(high > end[-1]), whole=True))
        for code, begun, ended in zip(mine, turned[:-1], turned[1:], strict=True):
            program.require(np.array([begun, code]), np.array([1.0, -1.0]), 0.0, np.inf)  # it rises once begun
            program.require(np.array([code, ended]), np.array([1.0, -1.0]), 0.0, np.inf)  # the next begins at its top
        program.require(np.array([below, turned[0]]), np.array([1.0, most := program.high[below]]), -np.inf, most)
        program.require(np.array([above, turned[-1]]), np.array([1.0, -program.high[above]]), -np.inf, 0.0)
        widths = [b - a for a, b in zip(start, end, strict=True)]
        sides = np.array([features[number], below, above, *mine])
        program.require(sides, np.array([1.0, 1.0, -1.0, *(-width for width in widths)]), start[0], start[0])
        places += mine
    return np.array(places)


def _add_relus(
    program: _Program, units: NDArray[np.int64], weight: Floats, bias: Floats, lower: Floats, upper: Floats
) -> NDArray[np.int64]:
    """A variable per unit of a layer after its ReLU; where that may bend, another one says which side it is on."""
    places = []
    for row, constant, least, most in zip(weight, bias, lower, upper, strict=True):
        after = program.add(max(0.0, least), max(0.0, most))
        places.append(after)
        if most <= 0:
            continue
        both = np.append(units, after)
        if least >= 0:
            program.require(both, np.append(-row, 1.0), constant, constant)
            continue
        active = program.add(0.0, 1.0, whole=True)
        program.require(both, np.append(-row, 1.0), constant, np.inf)
        program.require(np.array([after, active]), np.array([1.0, -most]), -np.inf, 0.0)
        program.require(np.append(both, active), np.append(-row, [1.0, -least]), -np.inf, constant - least)
    return np.array(places)
