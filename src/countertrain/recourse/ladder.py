"""The search behind recourse, on encoded rows: stronger and stronger means for those not helped yet."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from countertrain.models.deciding import Committee, as_searchable
from countertrain.models.frozen import Frozen
from countertrain.recourse.ahead import choose_depth, follow, list_shares
from countertrain.recourse.attempt import Attempt, Least, choose
from countertrain.recourse.network import Network
from countertrain.recourse.reach import AnswerGrid, Reach
from countertrain.recourse.reference import Reference
from countertrain.recourse.single import Combination
from countertrain.recourse.threshold import Threshold, decide
from countertrain.search.generator import Generator
from countertrain.search.generators import eccco, generic
from countertrain.search.rules import Adam
from countertrain.search.space import FeatureSpace
from countertrain.search.state import Memory

__all__ = ["Ladder"]

_REAL_ROWS = (200, 2000)  # tried per person; the next number for those not yet helped
_FINALISTS = 12  # of these, how many are looked at closely
_ATYPICAL = 32.0  # what it costs to be twice as far from real people as they are from each other
_TYPICAL = 1.0  # how far from real people a simpler row may be, if it comes to that, in what is typical of them
_SLACK = 1.03  # by which it may be less typical than it was: no trifle is kept for a hair's breadth
_UNSURE = 1e-4  # by which a probability in single precision may be wrong, many times over
_PEOPLE = 250  # who are compared with real rows together
_AT_ONCE = 10_000  # real rows tried together, of all people
_HALVINGS, _HALVINGS_EACH = 6, 3  # of the way back to the person's own numbers, all together and one by one
_PRICED = 64  # rows whose price is asked together, where there are fewer people
_TRIFLE = 0.25  # cost of a change that is not worth telling, nor worth making smaller
_MOST_REFINED = 5  # numbers that are taken back one by one, at most
_FEW = 64  # rows of which no guess is made: asking exactly costs no more

Made = TypeVar("Made")


class Once:
    """What is worked out once for a model and its real rows; all ladders of the same model may share it."""

    def __init__(self) -> None:
        self._made: dict[object, object] = {}

    def __call__(self, key: object, make: Callable[[], Made]) -> Made:
        """What was made for the key, or is made now."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]  # type: ignore[return-value]  # of this key


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
    threshold: Threshold | None = None
    once: Once = field(default_factory=Once, repr=False)

    @property
    def _decide(self) -> Frozen:
        return self.once("decide", lambda: Frozen(self.model))

    @property
    def _guess(self) -> Frozen:
        return self.once("guess", lambda: Frozen(self.model, torch.float32))

    @property
    def _searchable(self) -> nn.Module | Committee:
        return self.once("search", lambda: as_searchable(self.model))

    @property
    def network(self) -> Network | None:
        """The model as layers that can be looked into, if it is made of such."""
        return self.once("network", lambda: Network.of(self.model))

    def _judge_real(self, k: int) -> tuple[Tensor, Attempt]:
        """Places of the real rows of a class, and what the model says of them."""
        assert self.reference is not None
        reference, places = self.reference, self.reference.of_class(k)
        return self.once(("real", k), lambda: (places, self.judge(reference.x[places], reference.y[places])))

    def climb_cheaply(self, reach: Reach, target: Tensor) -> Attempt:
        """The cheapest attempt for each person, typical or not: from `climb`, or of single changes combined."""
        cheap = replace(self, typical=False)
        found, network = cheap.climb(reach, target), self.network
        if network is None or not self.sparse:
            return found
        return cheap.finish(Combination(cheap, network).improve(found, reach, target), reach, target)

    def climb(self, reach: Reach, target: Tensor) -> Attempt:
        """The best attempt for each person; the person's own row where nothing is better."""
        reach = self.grid.mark(reach)
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
        return self.judge(self._refine(best, reach, target).x, target) if self.sparse else best

    def finish(self, found: Attempt, reach: Reach, target: Tensor) -> Attempt:
        """Attempts that came from elsewhere, made simpler as those of the ladder are."""
        return self._refine(self._simplify(found, reach, target), reach, target) if self.sparse else found

    def judge(self, x: Tensor, target: Tensor) -> Attempt:
        """What the model says of rows x (n, D)."""
        if not len(x):  # not every module can take no rows
            return Attempt(x, x.new_empty(0, dtype=torch.float64), target.bool())
        logits = self._decide(x.float())  # (n, K)
        probability = logits.softmax(-1).gather(1, target.unsqueeze(1)).squeeze(1)
        return Attempt(x, probability, decide(logits, self.threshold) == target)

    def reaches_tau(self, attempt: Attempt) -> Tensor:
        """Which attempts are valid with probability tau."""
        return attempt.valid & (attempt.probability >= self.tau)

    def _search_plausibly(self, reach: Reach, target: Tensor, start: Attempt) -> Attempt:
        """Search with ECCCo's pull towards what the model finds likely in the target class."""
        generator = eccco(
            lambda_cost=0.05,
            lambda_egy=1.0,
            space=FeatureSpace(keep=reach.open_categories),
            rule=Stride(0.5),
            n_steps=self.n_steps,
            tau=self.tau,
        )
        return self._walk(generator, reach, target, start)

    def _search_forcefully(self, reach: Reach, target: Tensor, start: Attempt) -> Attempt:
        """Search on from the best attempt, for more than tau, since rounding may have cost some."""
        generator = generic(
            lambda_cost=0.0,
            space=FeatureSpace(keep=reach.open_categories),
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
        return nearest.put(rows, choose(self._merit(away) > self._merit(nearest[rows]), away, nearest[rows]))

    def _follow_real_rows(self, reach: Reach, target: Tensor, start: Attempt) -> Attempt:
        """Towards real rows that the model is sure are of the target class, as far as the person can go.

        A few that promise most are tried first, more of them for whom these do not help.
        """
        best = start
        if self.reference is None:
            return best
        for k in target.unique().tolist():
            rows = (target == k).nonzero()[:, 0]
            among, sure = self._judge_real(k)
            among = among[self.reaches_tau(sure) if self.reaches_tau(sure).any() else sure.valid]
            for n_tried in _REAL_ROWS if len(among) else ():
                for part in rows.split(_PEOPLE):
                    found = self._copy_real(reach[part], target[part], among, n_tried)
                    best = best.put(part, self.choose_better(best[part], found, reach[part], target[part]))
                rows = rows[~self.reaches_tau(best[rows])]
                if not len(rows) or n_tried >= len(among):
                    break
        return best

    def _copy_real(self, reach: Reach, target: Tensor, among: Tensor, n_tried: int) -> Attempt:
        """For each person the best of some real rows, moved to where the person can go."""
        assert self.reference is not None
        places = self._promise(reach, int(target[0]), among, n_tried)  # (n, k), cheapest first
        finalists = places.gather(1, self._find_finalists(reach, target, places))  # (n, f)
        who = torch.arange(len(reach)).repeat_interleave(finalists.shape[1])
        theirs, wanted = reach[who], target[who]
        tried = self.judge(self.grid.snap(self._follow(theirs, self.reference.x[finalists.flatten()]), theirs), wanted)
        return tried[self._find_best(tried, theirs, wanted, finalists.shape[1])]

    def _follow(self, reach: Reach, x: Tensor) -> Tensor:
        """Rows x (n, D), or (n, k, D) for k of each person, moved to where people can go: (n, D), or (n k, D)."""
        moved = reach.project(x)
        if self.grid.keeper is None:
            return moved.flatten(0, -2)
        whose = torch.arange(len(reach)).repeat_interleave(moved.shape[1:-1].numel())
        return self.grid.mend(moved.flatten(0, -2).double(), reach[whose])

    def _find_finalists(self, reach: Reach, target: Tensor, places: Tensor) -> Tensor:
        """(n, f), which of some real rows (n, k), cheapest first, to look at closely: who reach tau, or come nearest.

        The cheapest are asked for first; where enough of them reach tau, nobody asks for the others. A guess in single
        precision is enough, but for those who may be among the first, or not.
        """
        assert self.reference is not None
        real = self.reference.x.float()  # as the model sees them
        bounds = torch.full((2, *places.shape), torch.inf, dtype=torch.float64)  # of what is missing to tau
        least, most = bounds.unbind(0)
        rows, first, width = torch.arange(len(places)), 0, 2 * _FINALISTS
        while len(rows) and first < places.shape[1]:
            block = slice(first, first + min(width, max(1, _AT_ONCE // len(rows))))
            asked = places[rows, block]
            guess = self._guess_followed(reach[rows], target[rows], asked, real)
            least[rows, block], most[rows, block] = self._bound_shortage(*guess)
            rows = rows[(most[rows] == 0).sum(1) < _FINALISTS]
            first, width = block.stop, 2 * width
        last = most.kthvalue(min(_FINALISTS, most.shape[1]), dim=1, keepdim=True).values
        who, which = ((least <= last) & (most > 0)).nonzero().unbind(1)
        seen = self.judge(self._follow(reach[who], real[places[who, which]]), target[who])
        short = most.masked_fill(most > 0, torch.inf)
        short[who, which] = (self.tau - seen.probability).clamp(min=0) + ~seen.valid
        return short.argsort(dim=1, stable=True)[:, :_FINALISTS]

    def _guess_followed(self, reach: Reach, target: Tensor, places: Tensor, real: Tensor) -> Tensor:
        """(2, n, k), what `_guess_probability` says of real rows at places (n, k), as far as people can follow them."""

        def ask(rows: Tensor) -> Tensor:
            x = self._follow(reach[rows], real[places[rows]])
            guess = self._guess_probability(x, target[rows].repeat_interleave(places.shape[1]))
            return torch.stack(guess).view(2, len(rows), -1)

        everybody = torch.arange(len(places))
        return ask(everybody) if reach.guesses is None else reach.guesses.look(places, ask)

    def _bound_shortage(self, p: Tensor, lead: Tensor) -> tuple[Tensor, Tensor]:
        """At least and at most what is missing to tau, by guesses; 1 more where the decision is another one."""
        least, most = (self.tau - p - _UNSURE).clamp(min=0), (self.tau - p + _UNSURE).clamp(min=0)
        return least + (lead < -2 * _UNSURE), most + (lead <= 2 * _UNSURE)

    def _guess_probability(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """(n,) each, the probability of the target class in single precision and what it has beyond what it takes."""
        p, column = self._guess(x).softmax(-1).double(), target.unsqueeze(1)  # (n, K), (n, 1)
        mine = p.gather(1, column)
        if self.threshold is not None:
            needed = torch.tensor([self.threshold.needed(k) for k in range(p.shape[1])], dtype=p.dtype)
            return mine.squeeze(1), mine.squeeze(1) - needed[target]
        return mine.squeeze(1), (mine - p.scatter(1, column, 0.0).amax(1, keepdim=True)).squeeze(1)

    def _find_best(self, tried: Attempt, reach: Reach, target: Tensor, n: int) -> Tensor:
        """Which of n attempts for each person, one after another, is the best: of those with most merit the cheapest.

        How typical a row is takes long to tell, and only adds to its price: who costs more than another's price is not
        asked.
        """
        merit = self._merit(tried).view(-1, n)
        cost = self.grid.costs(tried.x, reach.origin).sum(1).view(-1, n)
        cost = cost.masked_fill(merit < merit.amax(1, keepdim=True), torch.inf)
        order = cost.argsort(dim=1, stable=True)
        best = torch.arange(len(cost)) * n + order[:, 0]
        price = self._price(tried.x[best], reach[best], target[best])
        for block in order[:, 1:].split(max(1, _PRICED // max(1, len(cost))), dim=1):
            who, which = (cost.gather(1, block) < price.unsqueeze(1)).nonzero().unbind(1)
            if not len(who):  # nobody who comes later costs less
                break
            other, theirs = who * n + block[who, which], torch.full(block.shape, torch.inf, dtype=price.dtype)
            theirs[who, which] = self._price(tried.x[other], reach[other], target[other])
            cheapest = theirs.argsort(dim=1, stable=True)[:, :1]  # of equal ones the first
            theirs, cheaper = theirs.gather(1, cheapest)[:, 0], theirs.amin(1) < price
            mine = torch.arange(len(cost)) * n + block.gather(1, cheapest)[:, 0]
            best, price = torch.where(cheaper, mine, best), torch.where(cheaper, theirs, price)
        return best

    def _promise(self, reach: Reach, k: int, among: Tensor, n: int) -> Tensor:
        """Places (m, n) of the real rows that would be cheapest to follow, as far as distances tell, in that order.

        What nobody can change stays different, and makes the row less typical; the rest is what it costs.
        """
        assert self.reference is not None
        movable = self.grid.sum_by_column((reach.low < reach.high).double()) > 0  # (m, C)
        apart, kept = self.reference.measure_distances(reach.origin, among, ~movable[:, self.grid.column_of])  # (m, r)
        price = (apart - kept) * self.grid.n_columns
        if self.typical:
            price = price + _ATYPICAL * (kept / self.reference.typical[k] - 1).clamp(min=0)
        return among[price.topk(min(n, len(among)), largest=False).indices]

    def choose_better(self, one: Attempt, other: Attempt, reach: Reach, target: Tensor) -> Attempt:
        """Of two attempts for each person the one that is valid, or nearer to tau; of two that reach it the better one.

        That is the cheaper one, unless it is farther from real people.
        """
        gain = self._merit(other) - self._merit(one)
        better = gain > 0
        rows = (gain == 0).nonzero()[:, 0]
        if not len(rows):
            return choose(better, other, one)
        price = self._price(one.x[rows], reach[rows], target[rows])
        cheap = (
            self.grid.costs(other.x[rows], reach.origin[rows]).sum(1) < price
        )  # else it is no better, typical or not
        rows, price = rows[cheap], price[cheap]
        better[rows] = self._price(other.x[rows], reach[rows], target[rows]) < price
        return choose(better, other, one)

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
        found = self._undo_changes(found, reach, target, least)
        return self._move_closer(found, reach, target, torch.ones_like(found.x, dtype=torch.bool), least, _HALVINGS)

    def _refine(self, found: Attempt, reach: Reach, target: Tensor) -> Attempt:
        """The largest changes of numbers taken back one by one; what is a trifle then is undone."""
        least = self._least(found, target)
        costs = self.grid.costs(found.x, reach.origin) * self.grid.holds_number  # (n, C)
        order, n_large = costs.argsort(dim=1, descending=True, stable=True), (costs > _TRIFLE).sum(1)
        for j in range(min(int(n_large.max()), _MOST_REFINED) if len(costs) else 0):
            rows = (n_large > j).nonzero()[:, 0]
            features = self.grid.column_of == order[rows, j].unsqueeze(1)
            moved = self._move_closer(found[rows], reach[rows], target[rows], features, least[rows], _HALVINGS_EACH)
            found = found.put(rows, moved)
        return self._undo_changes(found, reach, target, least, most=_TRIFLE)

    def _move_closer(
        self, found: Attempt, reach: Reach, target: Tensor, features: Tensor, least: Least, halvings: int
    ) -> Attempt:
        """Numbers among some features (n, D) taken back towards the person's own by halving the way."""
        way = torch.where(self.grid.number & features, found.x - reach.origin, 0.0)  # (n, D)
        rows = way.any(1).nonzero()[:, 0]  # the others have nowhere to go
        moved = self._halve(found[rows], reach[rows], target[rows], way[rows], least[rows], halvings)
        return found.put(rows, moved)

    def _halve(self, found: Attempt, reach: Reach, target: Tensor, way: Tensor, least: Least, halvings: int) -> Attempt:
        """As little of a way (n, D) as leaves the row as good."""
        rest = found.x - way
        enough, too_little = torch.ones_like(found.probability), torch.zeros_like(found.probability)
        while halvings and len(rest):
            depth = choose_depth(len(rest), halvings)
            share = list_shares(too_little, enough, depth)  # (n, T)
            who = torch.arange(len(rest)).repeat_interleave(share.shape[1])
            theirs = reach if depth == 1 else reach[who]
            x = self.grid.snap(rest[who] + share.view(-1, 1) * way[who], theirs)
            found, went = self._try_ahead(found, x, who, target, least, depth)
            halvings -= depth
            for good in went.unbind(1) if halvings else ():
                middle = (enough + too_little) / 2
                enough, too_little = torch.where(good, middle, enough), torch.where(good, too_little, middle)
        return found

    def _try_ahead(
        self, found: Attempt, x: Tensor, who: Tensor, target: Tensor, least: Least, depth: int
    ) -> tuple[Attempt, Tensor]:
        """What comes of trials x (n T, D) of people `who` (n T,), and which (n, depth) were as good."""
        rows = (x != found.x[who]).any(1).nonzero()[:, 0]  # what rounding leaves as it was is as good as it was
        theirs = who[rows]
        trial, mine = self._try(x[rows], target[theirs], least.floor[theirs]), found if depth == 1 else found[who]
        fine = torch.ones_like(mine.valid)
        fine[rows] = self._is_as_good(trial, mine[rows], least[theirs], target[theirs])
        return follow(found, mine.put(rows, trial), fine, depth)

    def undo_changes(self, found: Attempt, reach: Reach, target: Tensor) -> Attempt:
        """Attempts without the changes that they can do without."""
        return self.judge(self._undo_changes(found, reach, target, self._least(found, target)).x, target)

    def _undo_changes(
        self, found: Attempt, reach: Reach, target: Tensor, least: Least, *, most: float = torch.inf
    ) -> Attempt:
        """Columns put back one after another, smallest change first, as long as the row stays as good.

        Only those whose change costs at `most` so much.
        """
        costs = self.grid.costs(found.x, reach.origin)  # (n, C)
        small = (costs > 0) & (costs <= most)
        order, n_small = costs.masked_fill(~small, torch.inf).argsort(dim=1, stable=True), small.sum(1)
        first, last = 0, int(n_small.max()) if len(costs) else 0
        while first < last:
            rows = (n_small > first).nonzero()[:, 0]
            depth = choose_depth(len(rows), last - first)
            columns = order[rows, first : first + depth].masked_fill(
                n_small[rows].unsqueeze(1) <= torch.arange(first, first + depth), -1
            )
            x, who = self._put_back_ahead(found[rows], reach[rows], columns)
            moved, _ = self._try_ahead(found[rows], x, who, target[rows], least[rows], depth)
            found, first = found.put(rows, moved), first + depth
        return found

    def _put_back_ahead(self, found: Attempt, reach: Reach, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Rows (n T, D) with columns (n, depth) put back one after another, or left as they are, and whose they are."""
        n, states, trials = len(found.x), found.x.unsqueeze(1), []  # (n, 2^step, D)
        for column in columns.unbind(1):
            who = torch.arange(n).repeat_interleave(states.shape[1])
            now = Attempt(states.flatten(0, 1), found.probability[who], found.valid[who])
            back = self.put_back(now, reach, who, column[who]).view_as(states)
            trials.append(back)
            states = torch.stack([back, states], 2).flatten(1, 2)
        x = torch.cat(trials, 1)  # (n, T, D)
        return x.flatten(0, 1), torch.arange(n).repeat_interleave(x.shape[1])

    def _least(self, found: Attempt, target: Tensor) -> Least:
        """What simpler rows must keep: probability up to tau; as typical as real people are, or as found."""
        floor = found.probability.clamp(max=self.tau)
        if self.reference is None or not self.typical:
            return Least(floor, torch.full_like(floor, torch.inf), None)
        away, near = self.reference.find_neighbours(found.x, target)
        return Least(floor, (_SLACK * away).clamp(min=_TYPICAL), near)

    def _try(self, x: Tensor, target: Tensor, floor: Tensor) -> Attempt:
        """What the model says of simpler rows: a guess for those that miss their floor, or are surely beyond tau."""
        if len(x) <= _FEW:
            return self.judge(x, target)
        p, lead = self._guess_probability(x.float(), target)
        tried = Attempt(x, p, lead > 0)
        unsure = (p >= floor - _UNSURE) & ((p <= self.tau + _UNSURE) | (lead <= 2 * _UNSURE))
        rows = unsure.nonzero()[:, 0]
        return tried.put(rows, self.judge(x[rows], target[rows]))

    def _is_as_good(self, trial: Attempt, found: Attempt, least: Least, target: Tensor) -> Tensor:
        as_good = (trial.probability >= least.floor) & (trial.valid | ~found.valid)
        if self.reference is None or least.near is None:
            return as_good
        rows = as_good.nonzero()[:, 0]
        away = self.reference.bound_atypicality(trial.x[rows], target[rows], least.near[rows])
        rows = rows[away > least.ceiling[rows]]  # to those who were near it is still near enough
        as_good[rows] = self._atypicality(trial.x[rows], target[rows]) <= least.ceiling[rows]
        return as_good

    def put_back(self, attempt: Attempt, reach: Reach, rows: Tensor, column: Tensor) -> Tensor:
        """Attempts of some people (n,) with one table column (n,) each put back to their own, and what follows."""
        back = torch.where(self.grid.column_of == column.unsqueeze(1), reach.origin[rows], attempt.x)
        return back if self.grid.keeper is None else self.grid.mend(back, reach[rows])
