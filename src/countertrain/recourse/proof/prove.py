"""Whether anything within reach leads to a decision at all: branch and bound, people together, to the last row."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from countertrain.recourse.attempt import Attempt
from countertrain.recourse.explanation import FOUND, NONE, OPEN
from countertrain.recourse.ladder import Ladder
from countertrain.recourse.network import Network
from countertrain.recourse.proof.bounds import Bounds
from countertrain.recourse.proof.exact import ask_exactly
from countertrain.recourse.proof.parts import Parts
from countertrain.recourse.reach import Reach

__all__ = ["Proof", "Prover", "name_existence"]

_PARTS = 600  # of one person's reach that are looked at before the question is left open
_PARTS_A_SECOND = 1000  # about as many are looked at
_MOST_ASKED = 200  # people, for whom more is done than to look at their reach as a whole
_LEAF = 128  # rows of a part that are decided on one by one
_EVERY_ROW = 100_000  # the same for a model of which nothing is known but its decisions
_AT_ONCE = 128  # parts bounded together
_ROWS_AT_ONCE = 16_384  # of small parts decided on together
_SURE = 1e-7  # by which a score must miss 0: more than rounding in double precision makes of it


@dataclass(frozen=True, eq=False)
class Proof:
    """What is known of n people: whether the decision is impossible for them, or a row that has it."""

    none: Tensor  # (n,) bool
    witness: Attempt
    """The person's own row where none was found."""


@dataclass(frozen=True, eq=False)
class Prover:
    """Answers whether some row within reach has a decision, for the first 200 of those who ask; others, if it is easy.

    With `seconds`, about as long is spent on each person who is left, and as long again by a mixed-integer program.
    """

    ladder: Ladder
    seconds: float = 0.0

    def __call__(self, reach: Reach, target: Tensor) -> Proof:
        """For people who want the classes `target` (n,)."""
        none, witness = torch.zeros(len(reach), dtype=torch.bool), self.ladder.judge(reach.origin, target)
        budget = torch.ones(len(reach), dtype=torch.int64)
        budget[:_MOST_ASKED] = _PARTS + int(_PARTS_A_SECOND * self.seconds)
        for k in target.unique().tolist():
            rows = (target == k).nonzero()[:, 0]
            mine = self._prove(reach[rows], k, budget[rows])
            none[rows], witness = mine.none, witness.put(rows, mine.witness)
        return Proof(none, witness)

    @cached_property
    def _network(self) -> Network | None:
        """What can be bounded; of several models whose mean is compared with a threshold, nothing."""
        network = self.ladder.network
        return None if network is not None and self.ladder.threshold is not None and network.n_models > 1 else network

    def _find_margin(self, target: int) -> float:
        """The log-odds that the class needs to be decided for."""
        threshold = self.ladder.threshold
        return 0.0 if threshold is None else math.log(threshold.needed(target) / (1 - threshold.needed(target)))

    def _prove(self, reach: Reach, target: int, budget: Tensor) -> Proof:
        """For people who all want the same class."""
        margin = self._find_margin(target)
        search = _Search(self.ladder, reach, target, self._network, budget, margin)
        search.run()
        left = (~search.closed & (budget > 1)).nonzero()[:, 0]
        grid = replace(self.ladder.grid, keeper=None)
        if self._network is not None and self.seconds > 0:
            for i in left.tolist():
                exact = ask_exactly(self._network, grid, reach[[i]], target, seconds=self.seconds, margin=margin)
                search.none[i] = exact.impossible
                if exact.x is not None:
                    search.try_rows(torch.tensor([i]), exact.x.unsqueeze(0))
        return Proof(search.none, search.witness)


class _Search:
    """Branch and bound for n people: what is left to look at, and what has come of it."""

    def __init__(
        self, ladder: Ladder, reach: Reach, target: int, network: Network | None, budget: Tensor, margin: float
    ) -> None:
        self.ladder, self.reach, self.target, self.network = ladder, reach, target, network
        self.margin = margin  # what a score must have
        self.budget = budget  # (n,) parts
        self.witness = ladder.judge(reach.origin, torch.full((len(reach),), target))
        self.none = torch.zeros(len(reach), dtype=torch.bool)
        self.spent = torch.zeros(len(reach), dtype=torch.int64)

    @property
    def closed(self) -> Tensor:
        """(n,), whose question is answered."""
        return self.none | self.witness.valid

    def run(self) -> None:
        """Look at part after part of each person's reach until the person has an option, no part or no budget."""
        # rules only forbid: where nothing without them leads to the decision, nothing with them does
        parts = Parts.whole(replace(self.ladder.grid, keeper=None), self.reach)
        given_up = torch.zeros(len(self.reach), dtype=torch.bool)
        bounds = None if self.network is None else Bounds(self.network, parts.groups)
        while len(parts):
            parts, unanswered = self._try_small(parts[~self.witness.valid[parts.owner]], bounds)
            given_up[unanswered] = True
            if bounds is None or not len(parts):
                break
            self.spent += torch.bincount(parts.owner, minlength=len(self.spent))
            parts = Parts.join([self._divide(parts[some], bounds) for some in torch.arange(len(parts)).split(_AT_ONCE)])
            over = self.spent >= self.budget
            left = torch.zeros_like(over).index_fill(0, parts.owner, True)
            given_up |= over & left
            parts = parts[~(over | self.witness.valid)[parts.owner]]
        self.none = ~self.witness.valid & ~given_up

    def _try_small(self, parts: Parts, bounds: Bounds | None) -> tuple[Parts, Tensor]:
        """Parts without those whose rows are few, which are decided on; and the people for whom that is no answer.

        That is so where only rows have the decision that are not told to anybody, and where nothing can be bounded.
        """
        size = parts.count().prod(1)
        small = size <= (_LEAF if bounds is not None else _EVERY_ROW)
        unanswered = [] if bounds is not None else parts.owner[~small].tolist()
        few = (small & (size > 0)).nonzero()[:, 0]
        for some in _split_by_rows(few, size[few]):
            asked = some[~self.witness.valid[parts.owner[some]]]
            if not len(asked):
                continue
            rows = [parts.enumerate(i) for i in asked.tolist()]
            x, owner = torch.cat(rows), parts.owner[asked].repeat_interleave(torch.tensor([*map(len, rows)]))
            valid = self.ladder.judge(x, torch.full((len(x),), self.target)).valid
            self.try_rows(owner[valid], x[valid])
            decided = owner[valid].unique()
            unanswered += decided[~self.witness.valid[decided]].tolist()
        return parts[~small], torch.tensor(unanswered, dtype=torch.int64)

    def _divide(self, parts: Parts, bounds: Bounds) -> Parts:
        """The halves of those parts in which the decision is not ruled out."""
        ceiling = bounds.find_ceiling(parts.low, parts.high, self.target)
        left = ceiling.score >= self.margin - _SURE
        self.try_rows(parts.owner[left], ceiling.best[left])
        left &= ~self.witness.valid[parts.owner]
        parts, weight = parts[left], self.ladder.grid.sum_by_column(ceiling.weight)[left]  # (m, C)
        return parts.halve(weight.masked_fill(parts.count() < 2, -1.0).argmax(1))

    def try_rows(self, owner: Tensor, x: Tensor) -> None:
        """Decide on rows x (k, D) for people `owner` (k,), brought onto the grid within their reach."""
        if not len(x):
            return
        reach = self.reach[owner]
        tried = self.ladder.judge(self.ladder.grid.snap(x, reach), torch.full((len(x),), self.target))
        cost = self.ladder.grid.costs(tried.x, reach.origin).sum(1).masked_fill(~tried.valid, torch.inf)
        for i in owner[tried.valid].unique().tolist():
            best = cost.masked_fill(owner != i, torch.inf).argmin().unsqueeze(0)
            self.witness = self.witness.put(torch.tensor([i]), tried[best])


def _split_by_rows(parts: Tensor, size: Tensor) -> tuple[Tensor, ...]:
    """Parts (m,) of so many rows each, in their order, in lots that are decided on together."""
    lots = (size.cumsum(0) / _ROWS_AT_ONCE).floor().unique_consecutive(return_counts=True)[1]
    return parts.split(lots.tolist()) if len(parts) else ()


def name_existence(valid: Tensor, none: Tensor) -> NDArray[np.object_]:
    """(n,) of `explanation.Existence`, for people who have a valid option, and those for whom `none` exists."""
    return np.where(valid.numpy(), FOUND, np.where(none.numpy(), NONE, OPEN)).astype(object)
