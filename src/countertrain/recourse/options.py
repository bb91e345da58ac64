"""Several ways to another decision that differ in kind: what to recommend, what is less to do, what is surer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from countertrain.recourse.attempt import Attempt
from countertrain.recourse.ladder import Ladder
from countertrain.recourse.proof import Prover
from countertrain.recourse.reach import Reach

__all__ = ["ANOTHER", "CHEAPEST", "FEWEST", "RECOMMENDED", "SUREST", "Options", "find_options"]

RECOMMENDED = "recommended"
"""Cheap, but only as far as the row is still one that real people have."""
FEWEST = "fewest changes"
"""The recommended row with every column put back that the model does not need, typical or not."""
SUREST = "surest"
"""Half of what is missing to certainty is gained."""
CHEAPEST = "cheapest"
"""The least cost, typical or not."""
ANOTHER = "another way"
"""Without the columns that mattered most before."""
_ORDER = (FEWEST, ANOTHER, SUREST, CHEAPEST)
_MUCH_CHEAPER, _MUCH_SURER = 0.9, 0.02  # than the options before, to be worth telling
_TOO_DEAR = 3.0  # times what is recommended: not worth telling


@dataclass(frozen=True, eq=False)
class Options:
    """Options of one kind: whose they are (m,), and the attempts."""

    kind: str
    rows: Tensor
    attempt: Attempt


def find_options(
    ladder: Ladder, reach: Reach, target: Tensor, most: Tensor, prover: Prover | None = None
) -> tuple[list[Options], Tensor]:
    """Up to `most` (n,) options per person, of which no two are the same; the first is the one to recommend.

    Who has the decision already, or cannot get it, gets that one only. With a prover also for whom (n,) none exists.
    """
    found = ladder.judge(reach.origin, target)
    rows = (~found.valid).nonzero()[:, 0]
    first = found.put(rows, ladder.climb(reach[rows], target[rows]))
    first, none = _settle(ladder, prover, first, reach, target)
    options = [Options(RECOMMENDED, torch.arange(len(found.x)), first)]
    asking = (first.valid & ~found.valid & (most > 1)).nonzero()[:, 0]
    if not len(asking):
        return options, none
    further = _Further(ladder, reach[asking], target[asking], most[asking] - 1, first[asking])
    return options + [replace(more, rows=asking[more.rows]) for more in further.search()], none


def _settle(
    ladder: Ladder, prover: Prover | None, first: Attempt, reach: Reach, target: Tensor
) -> tuple[Attempt, Tensor]:
    """Whether none exists (n,) for people without a valid option; one for whom the proof has come upon one."""
    none = torch.zeros(len(first.x), dtype=torch.bool)
    rows = (~first.valid).nonzero()[:, 0]
    if prover is None or not len(rows):
        return first, none
    proof = prover(reach[rows], target[rows])
    none[rows] = proof.none
    new = proof.witness.valid.nonzero()[:, 0]
    return first.put(rows[new], ladder.finish(proof.witness[new], reach[rows[new]], target[rows[new]])), none


class _Further:
    """People who want more than one option, and what each has been shown."""

    def __init__(self, ladder: Ladder, reach: Reach, target: Tensor, wanted: Tensor, first: Attempt) -> None:
        self.ladder, self.reach, self.target, self.first = ladder, reach, target, first
        self.wanted = wanted  # (n,) how many more
        self.shown = [first.x]  # (n, D) each; the person's own row where there was none
        self.fewest, self.cost = self._count(first.x, reach)
        self.surest = first.probability
        self.ways = reach  # what is left open by the ways before
        self.last = first  # the last way, by which the next one is another
        self.open = torch.ones_like(first.valid)  # who may have yet another way
        self.named = {kind: torch.zeros_like(first.valid) for kind in _ORDER}  # who was shown one of that kind

    def search(self) -> Iterator[Options]:
        """Kind after kind, for those who want more and for whom it is something new; then yet other ways."""
        for kind in _ORDER:
            yield self._find(kind)
        while ((self.wanted > 0) & self.open).any():
            yield self._find(ANOTHER)

    def _find(self, kind: str) -> Options:
        make: dict[str, Callable[[Tensor], Attempt]] = {
            FEWEST: self._simplify,
            ANOTHER: self._go_another_way,
            SUREST: lambda rows: self._climb(replace(self.ladder, tau=(1 + self.ladder.tau) / 2), rows),
            CHEAPEST: lambda rows: self.ladder.climb_cheaply(self.reach[rows], self.target[rows]),
        }
        asking = (self.wanted > 0) & self.open if kind == ANOTHER else self.wanted > 0
        rows = asking.nonzero()[:, 0]
        tried = make[kind](rows)
        new = tried.valid & self._is_new(kind, tried, rows)
        self._note(kind, rows[new], tried[new])
        return Options(kind, rows[new], tried[new])

    def _simplify(self, rows: Tensor) -> Attempt:
        less = replace(self.ladder, typical=False)
        return less.undo_changes(self.first[rows], self.reach[rows], self.target[rows])

    def _climb(self, ladder: Ladder, rows: Tensor) -> Attempt:
        return ladder.climb(self.reach[rows], self.target[rows])

    def _go_another_way(self, rows: Tensor) -> Attempt:
        """Without the column that mattered most in the way before, in addition to those left out there."""
        ways, target = self.ways[rows], self.target[rows]
        weightiest = self._weigh_columns(self.last[rows], ways, target).argmax(1)
        ways = ways.pin(self.ladder.grid.column_of == weightiest.unsqueeze(1))
        tried = self.ladder.climb(ways, target)
        self.ways = self.ways.put(rows, ways)
        self.last, self.open = self.last.put(rows, tried), self.open.index_copy(0, rows, tried.valid)
        return tried

    def _weigh_columns(self, found: Attempt, reach: Reach, target: Tensor) -> Tensor:
        """How much probability each table column (n, C) is worth: what is lost when it alone is put back."""
        changed = self.ladder.grid.costs(found.x, reach.origin) > 0  # (n, C)
        lost = torch.full(changed.shape, -torch.inf, dtype=torch.float64)
        for column in changed.any(0).nonzero()[:, 0].tolist():
            rows = changed[:, column].nonzero()[:, 0]
            back = self.ladder.put_back(found[rows], reach, rows, torch.full_like(rows, column))
            lost[rows, column] = found.probability[rows] - self.ladder.judge(back, target[rows]).probability
        return lost

    def _is_new(self, kind: str, tried: Attempt, rows: Tensor) -> Tensor:
        """(m,), whether a row was not shown before, and is what its kind says in comparison with those that were."""
        new = torch.stack([(tried.x != x[rows]).any(1) for x in self.shown]).all(0)
        n_changed, cost = self._count(tried.x, self.reach[rows])
        fewer, surer = n_changed < self.fewest[rows], tried.probability > self.surest[rows]
        cheaper = cost < self.cost[rows]
        better = {
            FEWEST: fewer,
            SUREST: tried.probability >= self.surest[rows] + _MUCH_SURER,
            CHEAPEST: cost < _MUCH_CHEAPER * self.cost[rows],
        }
        affordable = cost <= _TOO_DEAR * self._count(self.first.x[rows], self.reach[rows])[1]
        if kind == ANOTHER:  # a way that leaves out still more would not be cheaper
            self.open = self.open.index_copy(0, rows, self.open[rows] & affordable)
        for named, beats in ((FEWEST, fewer), (SUREST, surer), (CHEAPEST, cheaper)):
            new &= ~(self.named[named][rows] & beats)  # what was said of an option before stays true
        return new & affordable & better.get(kind, torch.ones_like(new))

    def _note(self, kind: str, rows: Tensor, shown: Attempt) -> None:
        n_changed, cost = self._count(shown.x, self.reach[rows])
        self.named[kind][rows] = True
        self.wanted[rows] -= 1
        self.shown.append(self.reach.origin.index_copy(0, rows, shown.x))
        self.fewest = self.fewest.index_copy(0, rows, torch.minimum(self.fewest[rows], n_changed))
        self.cost = self.cost.index_copy(0, rows, torch.minimum(self.cost[rows], cost))
        self.surest = self.surest.index_copy(0, rows, torch.maximum(self.surest[rows], shown.probability))

    def _count(self, x: Tensor, reach: Reach) -> tuple[Tensor, Tensor]:
        """(n,) each: how many columns a row changes, and what that costs."""
        costs = self.ladder.grid.costs(x, reach.origin)
        return (costs > 0).sum(1), costs.sum(1)
