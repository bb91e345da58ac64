"""Several ways to another decision that differ in kind: what to recommend, what is less to do, what is surer."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from countertrain.recourse.attempt import Attempt
from countertrain.recourse.ladder import Ladder
from countertrain.recourse.proof import Prover
from countertrain.recourse.reach import Reach

__all__ = ["ANOTHER", "CHEAPEST", "FEWEST", "RECOMMENDED", "SUREST", "Options", "find_options"]

RECOMMENDED = "recommended"
"""Cheap, but only as far as the row is still one that real people have; nothing shown is better in everything."""
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
_ROUNDING = 1e-6  # by which two costs, probabilities or distances may differ and be the same


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

    Where looking further comes upon one that is as good in cost, certainty and likeness to real people, and better in
    some, it takes the place of the first.
    Who has the decision already, or cannot get it, gets that one only. With a prover also for whom (n,) none exists.
    """
    found = ladder.judge(reach.origin, target)
    rows = (~found.valid).nonzero()[:, 0]
    first = found.put(rows, ladder.climb(reach[rows], target[rows]))
    first, none = _settle(ladder, prover, first, reach, target)
    asking, more = (first.valid & ~found.valid & (most > 1)).nonzero()[:, 0], []
    if len(asking):
        further = _Further(ladder, reach[asking], target[asking], most[asking] - 1, first[asking])
        more = [replace(one, rows=asking[one.rows]) for one in further.search()]
        first = first.put(asking, further.first)
    return [Options(RECOMMENDED, torch.arange(len(found.x)), first), *more], none


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

    def search(self) -> list[Options]:
        """Kind after kind, for those who want more and for whom it is something new; then yet other ways."""
        found = [self._find(kind) for kind in _ORDER]
        while ((self.wanted > 0) & self.open).any():
            found.append(self._find(ANOTHER))
        return [self._keep_affordable(one) for one in found]  # by what is recommended in the end

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
        beats = tried.valid & self._beats_first(tried, rows)
        new = tried.valid & self._is_new(kind, tried, rows) & ~beats
        self._prefer(rows[beats], tried[beats])
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

    def _beats_first(self, tried: Attempt, rows: Tensor) -> Tensor:
        """(m,), whether a row is as good as the first in everything and better in something, and none shown is less so.

        Surer than what was asked for counts for nothing.
        """
        reach, target, tau = self.reach[rows], self.target[rows], self.ladder.tau
        now, first = self._measure(tried, reach, target), self._measure(self.first[rows], reach, target)
        worse = now - first  # (3, m)
        n_changed, cost = self._count(tried.x, reach)
        beats = (worse <= _ROUNDING).all(0) & (worse < -_ROUNDING).any(0) & (tried.probability >= tau)
        return beats & ~self._belies(n_changed, cost, tried.probability, rows)

    def _measure(self, attempt: Attempt, reach: Reach, target: Tensor) -> Tensor:
        """(3, n) what less of is better: cost, what is missing to tau, and how far real people are."""
        missing, reference = (self.ladder.tau - attempt.probability).clamp(min=0), self.ladder.reference
        away = torch.zeros_like(missing)
        if reference is not None:
            away = reference.measure_plausibility(attempt.x, target, 1).distance.nan_to_num(0.0)
        return torch.stack([self._count(attempt.x, reach)[1], missing, away])

    def _prefer(self, rows: Tensor, better: Attempt) -> None:
        """Recommend something else to some."""
        was_last = (self.last.x[rows] == self.first.x[rows]).all(1)
        self.first = self.first.put(rows, better)
        self.last = self.last.put(rows[was_last], better[was_last.nonzero()[:, 0]])
        self.shown[0] = self.first.x
        self._compare_with(rows, better)

    def _keep_affordable(self, found: Options) -> Options:
        """The options that are not many times dearer than what is recommended."""
        cost, usual = (self._count(x, self.reach[found.rows])[1] for x in (found.attempt.x, self.first.x[found.rows]))
        kept = (cost <= _TOO_DEAR * usual).nonzero()[:, 0]
        return Options(found.kind, found.rows[kept], found.attempt[kept])

    def _belies(self, n_changed: Tensor, cost: Tensor, probability: Tensor, rows: Tensor) -> Tensor:
        """(m,), whether what was said of an option before would no longer be true."""
        beaten = {
            FEWEST: n_changed < self.fewest[rows],
            SUREST: probability > self.surest[rows],
            CHEAPEST: cost < self.cost[rows],
        }
        return torch.stack([self.named[kind][rows] & beats for kind, beats in beaten.items()]).any(0)

    def _is_new(self, kind: str, tried: Attempt, rows: Tensor) -> Tensor:
        """(m,), whether a row was not shown before, and is what its kind says in comparison with those that were."""
        new = torch.stack([(tried.x != x[rows]).any(1) for x in self.shown]).all(0)
        n_changed, cost = self._count(tried.x, self.reach[rows])
        better = {
            FEWEST: n_changed < self.fewest[rows],
            SUREST: tried.probability >= self.surest[rows] + _MUCH_SURER,
            CHEAPEST: cost < _MUCH_CHEAPER * self.cost[rows],
        }
        affordable = cost <= _TOO_DEAR * self._count(self.first.x[rows], self.reach[rows])[1]
        if kind == ANOTHER:  # a way that leaves out still more would not be cheaper
            self.open = self.open.index_copy(0, rows, self.open[rows] & affordable)
        new &= ~self._belies(n_changed, cost, tried.probability, rows)
        return new & affordable & better.get(kind, torch.ones_like(new))

    def _note(self, kind: str, rows: Tensor, shown: Attempt) -> None:
        self.named[kind][rows] = True
        self.wanted[rows] -= 1
        self.shown.append(self.reach.origin.index_copy(0, rows, shown.x))
        self._compare_with(rows, shown)

    def _compare_with(self, rows: Tensor, shown: Attempt) -> None:
        """Remember the least and the most of what is shown."""
        n_changed, cost = self._count(shown.x, self.reach[rows])
        self.fewest = self.fewest.index_copy(0, rows, torch.minimum(self.fewest[rows], n_changed))
        self.cost = self.cost.index_copy(0, rows, torch.minimum(self.cost[rows], cost))
        self.surest = self.surest.index_copy(0, rows, torch.maximum(self.surest[rows], shown.probability))

    def _count(self, x: Tensor, reach: Reach) -> tuple[Tensor, Tensor]:
        """(n,) each: how many columns a row changes, and what that costs."""
        costs = self.ladder.grid.costs(x, reach.origin)
        return (costs > 0).sum(1), costs.sum(1)
