"""Why a decision is as it is: which columns, put to what is typical of accepted people, would have changed it most."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from countertrain.recourse.decider import Decider
from countertrain.recourse.landmarks import Landmarks
from countertrain.recourse.reach import Reach

__all__ = ["MOST", "Effects", "Grounds", "measure_effects"]

MOST = 4
"""Principal reasons of a decision, at most."""
_CLOSE = 1.25  # so many times smaller an effect is close: then the column that the first option changes goes first
_LEAST_SHARE, _LEAST = 0.1, 0.02  # of the largest effect, and in log-odds: less is no reason
_BUDGET = 2**22  # numbers in one tensor of encoded rows


@dataclass(frozen=True, eq=False)
class Grounds:
    """What reasons are found by: who decided, where people are and can go, and the class that each wants."""

    decider: Decider
    reach: Reach
    target: Tensor  # (n,) class numbers

    @classmethod
    def join(cls, parts: Sequence["Grounds"]) -> Self:
        """The grounds of several groups of people, one after another."""
        reach, target = Reach.join([part.reach for part in parts]), torch.cat([part.target for part in parts])
        return cls(parts[0].decider, reach, target)

    def take(self, rows: NDArray[np.int64]) -> Self:
        """The grounds of some of the people."""
        places = torch.from_numpy(np.array(rows, dtype=np.int64))
        return replace(self, reach=self.reach[places], target=self.target[places])


@dataclass(frozen=True, eq=False)
class Effects:
    """What single columns do to the decisions on n people with C columns."""

    refused: NDArray[np.bool_]  # (n,) who do not have what they want
    effect: NDArray[
        np.float64
    ]  # (n, C) what the typical value adds to the probability; of `together`, what it is worth
    suffices: NDArray[np.bool_]  # (n, C) whether that alone changes the decision
    order: NDArray[np.int64]  # (n, MOST) columns of the principal reasons, weightiest first; -1 for none
    together: NDArray[np.bool_]  # (n,) whose reasons count only together: those that the first option changes
    helps: NDArray[np.bool_]  # (n, C) columns whose change helps, or that the first option changes
    responsiveness: NDArray[np.float64]  # (n, C) share of single changes within reach that suffice; NaN: none in reach
    typical: pd.DataFrame  # (n, C) what is typical of the class that each wants


@torch.no_grad()
def measure_effects(
    grounds: Grounds, advice: pd.DataFrame, advised: NDArray[np.bool_], landmarks: Landmarks | None = None
) -> Effects:
    """The reasons for decisions, where the first option tells people to have the rows `advice`.

    `advised` (n, C) are the columns that it changes, none where it is not valid.
    """
    marks = Landmarks.of(grounds.decider) if landmarks is None else landmarks
    judge = _Judge(grounds, marks)
    everybody = torch.arange(len(grounds.target))
    own, has_it = judge.rate(grounds.reach.origin, everybody), judge.accept(grounds.reach.origin, everybody)
    effect, suffices, gain = _put_to_typical(judge, own)
    changed = torch.from_numpy(advised)
    refused = ~has_it
    told = torch.from_numpy(grounds.decider.encoder.encode(advice, quiet=True)) if len(advice) else grounds.reach.origin
    order = _choose(gain, effect, changed & _points_same_way(judge, told), refused)
    together = refused & (order[:, 0] < 0) & changed.any(1)
    effect[together] = worth = _weigh_advice(judge, told[together], changed[together], together.nonzero()[:, 0])
    order[together] = _choose(worth, worth, changed[together], together[together])
    responsive, helps = _try_values(judge, own, refused, (gain >= _LEAST) | changed)
    return Effects(
        refused=refused.numpy(),
        effect=effect.numpy(),
        suffices=(suffices & refused.unsqueeze(1)).numpy(),
        order=order.numpy(),
        together=together.numpy(),
        helps=helps.numpy(),
        responsiveness=responsive.numpy(),
        typical=_tabulate_typical(judge, advice),
    )


@dataclass(frozen=True, eq=False)
class _Judge:
    """Asks whoever decided about rows that people might have."""

    grounds: Grounds
    marks: Landmarks

    def rate(self, x: Tensor, person: Tensor) -> Tensor:
        """(m,), the probability of what the person wants, for rows x (m, D)."""
        wanted = self.grounds.target[person].unsqueeze(1)
        return self.grounds.decider.compute_probabilities(x).gather(1, wanted).squeeze(1) if len(x) else x.new_empty(0)

    def accept(self, x: Tensor, person: Tensor) -> Tensor:
        """(m,), whether the decision is what the person wants."""
        wanted = self.grounds.target[person]
        return self.grounds.decider.decide(x) == wanted if len(x) else wanted.bool()

    def change(
        self, values: Tensor, place: Tensor, column: Tensor, person: Tensor
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """People's own rows with one column (m,) each put to what it is in one row (m,) of `values`.

        They come in parts, with the column and the person of each.
        """
        size = max(1, _BUDGET // values.shape[1])
        for v, c, p in zip(place.split(size), column.split(size), person.split(size), strict=True):
            yield self.marks.replace(self.grounds.reach.origin[p], values[v], c), c, p


def _put_to_typical(judge: _Judge, own: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(n, C) each: added probability, whether that suffices, and added log-odds of columns put to what is typical.

    0 where the person is as typical already, or on the better side.
    """
    marks, target, origin = judge.marks, judge.grounds.target, judge.grounds.reach.origin
    worse = marks.prefers(origin, target)
    person, column = worse.nonzero().unbind(1)
    effect, gain = torch.zeros(worse.shape, dtype=torch.float64), torch.zeros(worse.shape, dtype=torch.float64)
    suffices = torch.zeros_like(worse)
    n_classes = len(judge.grounds.decider.classes)
    typical = torch.stack([marks.typical.get(k, torch.zeros(origin.shape[1])) for k in range(n_classes)])  # (K, D)
    for x, c, p in judge.change(typical, target[person], column, person):
        then = judge.rate(x, p)
        effect[p, c], suffices[p, c] = then - own[p], judge.accept(x, p)
        gain[p, c] = _log_odds(then) - _log_odds(own[p])
    return effect, suffices, gain


def _points_same_way(judge: _Judge, told: Tensor) -> Tensor:
    """(n, C), where rows `told` (n, D) go from people's own towards what is typical, or to another level."""
    origin, grid = judge.grounds.reach.origin, judge.marks.grid
    same = torch.zeros(len(told), grid.n_columns, dtype=torch.bool)
    for k, typical in judge.marks.typical.items():
        rows = (judge.grounds.target == k).nonzero()[:, 0]
        towards = (told[rows] - origin[rows]) * (typical - origin[rows])
        same[rows] = grid.sum_by_column((towards > 0).double()) > 0
    return same


def _choose(gain: Tensor, effect: Tensor, first: Tensor, asking: Tensor) -> Tensor:
    """(n, MOST), the columns with the largest effects; of two that are close, one among `first` (n, C) goes first."""
    least = (_LEAST_SHARE * gain.amax(1, keepdim=True)).clamp(min=_LEAST) if gain.shape[1] else gain
    enough = (gain >= least) & (effect > 0) & asking.unsqueeze(1)
    weight = (effect * torch.where(first, _CLOSE, 1.0)).masked_fill(~enough, -1.0)
    found = weight.sort(dim=1, descending=True, stable=True)
    order = found.indices.where(found.values > 0, -1)[:, :MOST]
    return torch.nn.functional.pad(order, (0, MOST - order.shape[1]), value=-1)


def _weigh_advice(judge: _Judge, told: Tensor, changed: Tensor, person: Tensor) -> Tensor:
    """(m, C), what each column of rows `told` (m, D) is worth there: the probability lost when it alone is put back."""
    worth = torch.zeros(changed.shape, dtype=torch.float64)
    row, column = changed.nonzero().unbind(1)
    with_all = judge.rate(told, person)
    back = judge.marks.replace(told[row], judge.grounds.reach.origin[person[row]], column)
    worth[row, column] = with_all[row] - judge.rate(back, person[row])
    return worth.clamp(min=0)


def _try_values(judge: _Judge, own: Tensor, refused: Tensor, helps: Tensor) -> tuple[Tensor, Tensor]:
    """(n, C) each: the share of single changes within reach that suffice, and which columns help, known or now."""
    marks, n_columns = judge.marks, judge.marks.grid.n_columns
    within = marks.find_within(judge.grounds.reach) & refused.unsqueeze(1)  # (n, V)
    person, place = within.nonzero().unbind(1)
    tried, enough = (torch.zeros(len(own), n_columns, dtype=torch.float64) for _ in range(2))
    for x, c, p in judge.change(marks.value, place, marks.column[place], person):
        tried.index_put_((p, c), torch.ones(len(p), dtype=torch.float64), accumulate=True)
        yes = judge.accept(x, p)
        enough.index_put_((p, c), yes.double(), accumulate=True)
        helps[p[yes], c[yes]] = True
        unsure = ~helps[p, c]
        x, c, p = x[unsure], c[unsure], p[unsure]
        better = _log_odds(judge.rate(x, p)) - _log_odds(own[p]) >= _LEAST
        helps[p[better], c[better]] = True
    return enough / tried.where(tried > 0, torch.nan), helps


def _tabulate_typical(judge: _Judge, like: pd.DataFrame) -> pd.DataFrame:
    """(n, C), the typical row of the class that each person wants, in people's units; missing where there is none."""
    frames, target = judge.marks.frame, judge.grounds.target
    nothing = pd.DataFrame([[None] * like.shape[1]], columns=like.columns, dtype=object)
    n_classes = len(judge.grounds.decider.classes)
    rows = [frames[k].astype(object) if k in frames else nothing for k in range(n_classes)]
    return pd.concat(rows, ignore_index=True).iloc[target.numpy()].reset_index(drop=True)


def _log_odds(probability: Tensor) -> Tensor:
    return probability.clamp(1e-12, 1 - 1e-12).logit()
