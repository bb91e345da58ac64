"""The search behind recourse, on encoded rows: stronger and stronger means for those not helped yet."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from countertrain.models.deciding import Committee, as_searchable, logits_of
from countertrain.recourse.network import Network
from countertrain.recourse.reach import AnswerGrid, Reach
from countertrain.recourse.reference import Reference
from countertrain.recourse.single import Combination
from countertrain.search.generator import Generator
from countertrain.search.generators import eccco, generic
from countertrain.search.losses import predict
from countertrain.search.rules import Adam
from countertrain.search.space import FeatureSpace
from countertrain.search.state import Memory

__all__ = ["Attempt", "Ladder"]

_REAL_ROWS = (40, 200, 2000)  # tried per person; the next number for those not yet helped
_FINALISTS = 6  # of these, how many are looked at closely
_ATYPICAL = 16.0  # what it costs to be twice as far from real people as they are from each other
_TYPICAL = 1.0  # how far from real people a simpler row may be, if it comes to that, in what is typical of them
_SLACK = 1.03  # by which it may be less typical than it was: no trifle is kept for a hair's breadth
_AT_ONCE = 10_000  # real rows tried together, of all people
_HALVINGS, _HALVINGS_EACH = 6, 3  # of the way back to the person's own numbers, all together and one by one
_TRIFLE = 0.25  # cost of a change that is not worth telling, nor worth making smaller
_MOST_REFINED = 5  # numbers that are taken back one by one, at most

Least = tuple[Tensor, Tensor]
"""What a simpler row must keep, (n,) each: its probability, and how far from real people it may be."""


@dataclass(frozen=True)
class Stride:
    """A step rule: down the gradient, always equally far, so that steep and flat models take about as many steps."""

    length: float
    draws = False

    def init(self, z: Tensor, seed: Tensor) -> Memory:
        """Nothing to remember."""
        return ()

    def step(self, grad: Tensor, memory: Memory, k: int) -> tuple[Tensor, Memory]:
        """A step of that Euclidean length."""
        return functional.normalize(grad, dim=-1) * -self.length, memory


@dataclass(frozen=True, eq=False)
class Attempt:
    """Rows within reach and on the grid, and what the model says of exactly these rows."""

    x: Tensor  # (n, D) float64
    probability: Tensor  # (n,) of the target class
    valid: Tensor  # (n,) bool

    def __getitem__(self, rows: Tensor) -> Self:
        """The attempts for some of the people."""
        return type(self)(self.x[rows], self.probability[rows], self.valid[rows])

    def put(self, rows: Tensor, other: "Attempt") -> "Attempt":
        """With other attempts for these people."""
        pairs = ((self.x, other.x), (self.probability, other.probability), (self.valid, other.valid))
        return Attempt(*(mine.index_copy(0, rows, theirs) for mine, theirs in pairs))


@dataclass(frozen=True, eq=False)
class Ladder:
    """Plausible counterfactuals and the way to real rows of the target class; any counterfactual for those left over.

    With `typical`, no row is made simpler at the price of being less like real people than they are like each other.
    """

    model: nn.Module
    grid: AnswerGrid
    reference: Reference | None
    tau: float
    n_steps: int
    sparse: bool
    typical: bool = True

    @cached_property
    def _searchable(self) -> nn.Module | Committee:
        return as_searchable(self.model)

    def climb_cheaply(self, reach: Reach, target: Tensor) -> Attempt:
        """The cheapest attempt for each person, typical or not: from `climb`, or of single changes combined."""
        cheap = replace(self, typical=False)
        found, network = cheap.climb(reach, target), Network.of(self.model)
        if network is None or not self.sparse:
            return found
        return cheap.finish(Combination(cheap, network).improve(found, reach, target), reach, target)

    def climb(self, reach: Reach, target: Tensor) -> Attempt:
        """The best attempt for each person; the person's own row where nothing is better."""
        best = self.judge(reach.origin, target)
        rows = (~self.reaches_tau(best)).nonzero()[:, 0]
        for rung in (self._search_plausibly, self._follow_real_rows, self._search_forcefully):
            if not len(rows):
                break
            tried = rung(reach[rows], target[rows], best[rows])
            if self.sparse:
                tried = self._simplify(tried, reach[rows], target[rows])
            best = best.put(rows, self.choose_better(best[rows], tried, reach[rows], target[rows]))
            if rung == self._follow_real_rows:
                rows = rows[~self.reaches_tau(best[rows])]
        return self._refine(best, reach, target) if self.sparse else best

    def finish(self, found: Attempt, reach: Reach, target: Tensor) -> Attempt:
        """Attempts that came from elsewhere, made simpler as those of the ladder are."""
        return self._refine(self._simplify(found, reach, target), reach, target) if self.sparse else found

    def judge(self, x: Tensor, target: Tensor) -> Attempt:
        """What the model says of rows x (n, D)."""
        if not len(x):  # not every module can take no rows
            return Attempt(x, x.new_empty(0), target.bool())
        logits = logits_of(self.model, x.float())  # (n, K)
        probability = logits.double().softmax(-1).gather(1, target.unsqueeze(1)).squeeze(1)
        return Attempt(x, probability, predict(logits) == target)

    def reaches_tau(self, attempt: Attempt) -> Tensor:
        """Which attempts are valid with probability tau."""
        return attempt.valid & (attempt.probability >= self.tau)

    def _search_plausibly(self, reach: Reach, target: Tensor, start: Attempt) -> Attempt:
        """Search with ECCCo's pull towards what the model finds likely in the target class."""
        generator = eccco(
            lambda_cost=0.05,
            lambda_egy=1.0,
            space=FeatureSpace(keep=reach.categories),
            rule=Stride(0.5),
            n_steps=self.n_steps,
            tau=self.tau,
        )
        return self._walk(generator, reach, target, start)

    def _search_forcefully(self, reach: Reach, target: Tensor, start: Attempt) -> Attempt:
        """Search on from the best attempt, for more than tau, since rounding may have cost some."""
        generator = generic(
            lambda_cost=0.0,
            space=FeatureSpace(keep=reach.categories),
            rule=Adam(0.1),
            n_steps=self.n_steps,
            tau=(1 + self.tau) / 2,
        )
        return self._walk(generator, reach, target, start)

    def _walk(self, generator: Generator, reach: Reach, target: Tensor, start: Attempt) -> Attempt:
        found = generator(self._searchable, start.x.float(), target, constraints=reach.constraints())
        return self._settle(found.x.double(), reach, target)

    def _settle(self, x: Tensor, reach: Reach, target: Tensor) -> Attempt:
        """x rounded to the grid; away from the person's own row where the nearest values would not do."""
        nearest = self.judge(self.grid.snap(x, reach), target)
        rows = (~self.reaches_tau(nearest)).nonzero()[:, 0]
        if not len(rows):
            return nearest
        away = self.judge(self.grid.snap(x[rows], reach[rows], away=True), target[rows])
        return nearest.put(rows, _choose(self._merit(away) > self._merit(nearest[rows]), away, nearest[rows]))

    def _follow_real_rows(self, reach: Reach, target: Tensor, start: Attempt) -> Attempt:
        """Towards real rows that the model is sure are of the target class, as far as the person can go.

        A few that promise most are tried first, more of them for whom these do not help.
        """
        best = start
        if self.reference is None:
            return best
        for k in target.unique().tolist():
            rows = (target == k).nonzero()[:, 0]
            among = self.reference.of_class(k)
            sure = self.judge(self.reference.x[among], self.reference.y[among])
            among = among[self.reaches_tau(sure) if self.reaches_tau(sure).any() else sure.valid]
            for n_tried in _REAL_ROWS if len(among) else ():
                for part in rows.split(max(1, _AT_ONCE // n_tried)):
                    found = self._copy_real(reach[part], target[part], among, n_tried)
                    best = best.put(part, self.choose_better(best[part], found, reach[part], target[part]))
                rows = rows[~self.reaches_tau(best[rows])]
                if not len(rows) or n_tried >= len(among):
                    break
        return best

    def _copy_real(self, reach: Reach, target: Tensor, among: Tensor, n_tried: int) -> Attempt:
        """For each person the best of some real rows, moved to where the person can go."""
        assert self.reference is not None
        price, places = self._promise(reach, int(target[0]), among, n_tried)  # (n, k)
        who = torch.arange(len(reach)).repeat_interleave(places.shape[1])
        x = reach[who].project(self.reference.x[places.flatten()])
        seen = self.judge(x, target[who])
        short = ((self.tau - seen.probability).clamp(min=0) + ~seen.valid).view_as(places)
        order = price.argsort(dim=1, stable=True)
        order = order.gather(
            1, short.gather(1, order).argsort(dim=1, stable=True)
        )  # who reach tau first, then by price
        finalists = order[:, :_FINALISTS]  # (n, f)
        chosen = (torch.arange(len(reach)).unsqueeze(1) * places.shape[1] + finalists).flatten()
        theirs, wanted = reach[who[chosen]], target[who[chosen]]
        tried = self.judge(self.grid.snap(x[chosen], theirs), wanted)
        merit, price = (each.view_as(finalists) for each in (self._merit(tried), self._price(tried.x, theirs, wanted)))
        best = price.masked_fill(merit < merit.amax(1, keepdim=True), torch.inf).argmin(1)
        return tried[torch.arange(len(reach)) * finalists.shape[1] + best]

    def _promise(self, reach: Reach, k: int, among: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """Prices and places (m, n) of the real rows that would be cheapest to follow, as far as distances tell.

        What nobody can change stays different, and makes the row less typical; the rest is what it costs.
        """
        assert self.reference is not None
        movable = self.grid.sum_by_column((reach.low < reach.high).double()) > 0  # (m, C)
        apart, kept = self.reference.measure_distances(reach.origin, among, ~movable[:, self.grid.column_of])  # (m, r)
        price = (apart - kept) * self.grid.n_columns
        if self.typical:
            price = price + _ATYPICAL * (kept / self.reference.typical[k] - 1).clamp(min=0)
        found = price.topk(min(n, len(among)), largest=False)
        return found.values.double(), among[found.indices]

    def choose_better(self, one: Attempt, other: Attempt, reach: Reach, target: Tensor) -> Attempt:
        """Of two attempts for each person the one that is valid, or nearer to tau; of two that reach it the better one.

        That is the cheaper one, unless it is farther from real people.
        """
        gain = self._merit(other) - self._merit(one)
        saved = self._price(one.x, reach, target) - self._price(other.x, reach, target)
        return _choose((gain > 0) | ((gain == 0) & (saved > 0)), other, one)

    def _price(self, x: Tensor, reach: Reach, target: Tensor) -> Tensor:
        """(n,), cost, and what it takes off a row that it is farther from real people than they are from each other."""
        cost = self.grid.costs(x, reach.origin).sum(1)
        return cost + _ATYPICAL * (self._atypicality(x, target) - 1).clamp(min=0)

    def _atypicality(self, x: Tensor, target: Tensor) -> Tensor:
        if self.reference is None or not self.typical:
            return torch.ones(len(x), dtype=torch.float64)
        return self.reference.measure_atypicality(x, target)

    def _merit(self, attempt: Attempt) -> Tensor:
        return attempt.valid + attempt.probability.clamp(max=self.tau)

    def _simplify(self, found: Attempt, reach: Reach, target: Tensor) -> Attempt:
        """Changes undone, and numbers taken back together, as long as the row stays as good."""
        least = self._least(found, target)
        found = self.undo_changes(found, reach, target, least)
        return self._move_closer(found, reach, target, torch.ones_like(found.x, dtype=torch.bool), least, _HALVINGS)

    def _refine(self, found: Attempt, reach: Reach, target: Tensor) -> Attempt:
        """The largest changes of numbers taken back one by one; what is a trifle then is undone."""
        floor, ceiling = least = self._least(found, target)
        costs = self.grid.costs(found.x, reach.origin) * self.grid.holds_number  # (n, C)
        order, n_large = costs.argsort(dim=1, descending=True, stable=True), (costs > _TRIFLE).sum(1)
        for j in range(min(int(n_large.max()), _MOST_REFINED) if len(costs) else 0):
            rows = (n_large > j).nonzero()[:, 0]
            features = self.grid.column_of == order[rows, j].unsqueeze(1)
            mine = floor[rows], ceiling[rows]
            moved = self._move_closer(found[rows], reach[rows], target[rows], features, mine, _HALVINGS_EACH)
            found = found.put(rows, moved)
        return self.undo_changes(found, reach, target, least, most=_TRIFLE)

    def _move_closer(
        self, found: Attempt, reach: Reach, target: Tensor, features: Tensor, least: Least, halvings: int
    ) -> Attempt:
        """Numbers among some features (n, D) taken back towards the person's own by halving the way."""
        way = torch.where(self.grid.number & features, found.x - reach.origin, 0.0)  # (n, D)
        rest = found.x - way
        enough, too_little = torch.ones_like(found.probability), torch.zeros_like(found.probability)
        for _ in range(halvings):
            share = (enough + too_little) / 2  # (n,)
            trial = self.judge(self.grid.snap(rest + share.unsqueeze(1) * way, reach), target)
            as_good = self._is_as_good(trial, found, *least, target)
            found = _choose(as_good, trial, found)
            enough, too_little = torch.where(as_good, share, enough), torch.where(as_good, too_little, share)
        return found

    def undo_changes(
        self, found: Attempt, reach: Reach, target: Tensor, least: Least | None = None, *, most: float = torch.inf
    ) -> Attempt:
        """Columns put back one after another, smallest change first, as long as the row stays as good.

        Only those whose change costs at `most` so much.
        """
        costs = self.grid.costs(found.x, reach.origin)  # (n, C)
        small = (costs > 0) & (costs <= most)
        order, n_small = costs.masked_fill(~small, torch.inf).argsort(dim=1, stable=True), small.sum(1)
        floor, ceiling = least or self._least(found, target)
        for j in range(int(n_small.max()) if len(costs) else 0):
            rows = (n_small > j).nonzero()[:, 0]
            now = found[rows]
            trial = self.judge(self.put_back(now, reach[rows], order[rows, j]), target[rows])
            as_good = self._is_as_good(trial, now, floor[rows], ceiling[rows], target[rows])
            found = found.put(rows, _choose(as_good, trial, now))
        return found

    def _least(self, found: Attempt, target: Tensor) -> Least:
        """What simpler rows must keep: probability up to tau; as typical as real people are, or as found."""
        return found.probability.clamp(max=self.tau), (_SLACK * self._atypicality(found.x, target)).clamp(min=_TYPICAL)

    def _is_as_good(self, trial: Attempt, found: Attempt, floor: Tensor, ceiling: Tensor, target: Tensor) -> Tensor:
        as_good = (trial.probability >= floor) & (trial.valid | ~found.valid)
        rows = as_good.nonzero()[:, 0]
        as_good[rows] = self._atypicality(trial.x[rows], target[rows]) <= ceiling[rows]
        return as_good

    def put_back(self, attempt: Attempt, reach: Reach, column: Tensor) -> Tensor:
        """Rows with one table column (n,) put back to the person's own value."""
        return torch.where(self.grid.column_of == column.unsqueeze(1), reach.origin, attempt.x)


def _choose(where: Tensor, one: Attempt, other: Attempt) -> Attempt:
    return Attempt(
        torch.where(where.unsqueeze(1), one.x, other.x),
        torch.where(where, one.probability, other.probability),
        torch.where(where, one.valid, other.valid),
    )
