"""THE search loop (Alg. 1, lines 3-6): batched over rows and models, with an active set."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from countertrain.constraints import Constraints
from countertrain.models.kernels import add_at_label, choose, compiled, keep_label, materialise, rows_last, zero_nan
from countertrain.models.population import Model, Models, Weight, as_population, measure_width, member, per_model
from countertrain.models.traces import Tracer
from countertrain.search.checks import check_search, check_targets, wrong_logits
from countertrain.search.losses import log_probabilities
from countertrain.search.penalties import CrossEntropy
from countertrain.search.pool import Pool, join_pools
from countertrain.search.proposals import Proposals, Proposer
from countertrain.search.rules import SGD
from countertrain.search.small_steps import SmallSteps
from countertrain.search.space import FeatureSpace
from countertrain.search.starts import Factual
from countertrain.search.state import (
    Amount,
    Counterfactuals,
    Penalty,
    SearchState,
    Slopes,
    Start,
    StateSpace,
    StepRule,
    Weighed,
    knows,
    mix,
)
from countertrain.search.streams import seeds_of_rows

__all__ = ["Generator"]

_BUDGET = 2**20  # numbers in one tensor of rows: 4 MB of float32, still in cache; more rows go one part after another
_BUDGET_COMPILED = 2**23  # compiled code stores less on its way and costs more to call
_BLOCK = 3  # steps between two looks at how many rows still move, after as many single ones: many rows mature at once
_WORTH_IT = 0.85  # shrink the active set once it would be at most this share of its size

Part = TypeVar("Part")


@dataclass(frozen=True)
class Generator:
    """A counterfactual generator: a loss, penalties with weights, a state space, a step rule, a start, T and tau.

    Calling it descends on loss + sum of weighted penalties for each row by itself, Eq. (general). Attacks and samplers
    are other compositions of the same parts.
    """

    penalties: Sequence[tuple[Weight, Penalty]]
    loss: Penalty | None = field(default_factory=CrossEntropy)
    space: StateSpace = field(default_factory=FeatureSpace)
    rule: StepRule | Proposer = field(default_factory=SGD)
    start: Start = field(default_factory=Factual)
    n_steps: int = 30
    """T, the most steps that a row may make."""
    tau: Weight | None = 0.75
    """tau, the probability of the target class at which a counterfactual is mature; None: every row makes T steps."""
    radius: float | None = None
    """How far any feature may go from its factual; None: as far as the constraints allow."""
    compiled: bool = False
    """Run the steps as compiled code: some seconds at first, then several times faster for small models."""

    def __post_init__(self) -> None:
        if self.n_steps < 0:
            raise ValueError(f"n_steps must be at least 0; got {self.n_steps}")
        if self.tau is not None:
            tau = torch.as_tensor(self.tau)
            if not ((tau > 0) & (tau < 1)).all():
                raise ValueError(f"tau must lie strictly between 0 and 1; got {self.tau}")

    def __call__(
        self,
        model: Model | Models | Sequence[nn.Module],
        factual: Tensor,
        target: Tensor,
        *,
        constraints: Constraints | None = None,
        epsilon: Weight = 0.3,
        seed: int | Tensor = 0,
    ) -> Counterfactuals:
        """Search a counterfactual for each factual (n, *shape) of target classes (n,); with P models, (P, n, *shape).

        The model runs in evaluation mode and is left as it was; no gradient of its parameters is touched.
        Nascent counterfactuals are the last iterates with every feature within `epsilon` of the factual. Where random
        numbers are drawn, each row has a stream of its own, from `seed` and its numbers, or from a seed (P, n) per row.
        """
        population = as_population(model)
        if hasattr(self.start, "learn"):
            ready = self.prepare(population, constraints)
            return ready(population, factual, target, constraints=constraints, epsilon=epsilon, seed=seed)
        check_search(factual, target, len(population), constraints)
        stacked = target.ndim == 2
        if not stacked:
            factual, target = factual.unsqueeze(0), target.unsqueeze(0)
        if constraints is not None:
            constraints = constraints.for_shape(factual.shape[2:])
        budget = _BUDGET_COMPILED if self.compiled else _BUDGET
        width = max(factual.shape[2:].numel(), 32, measure_width(population))
        rows = max(1, budget // (len(factual) * width))
        with population.evaluating(), torch.no_grad(), np.errstate(all="ignore"):
            if target.numel():
                check_targets(population, factual, target)
            pools = [
                self._walk(
                    population, self._enter(population, factual, target, constraints, epsilon, seed, part), constraints
                )
                for part in (slice(first, first + rows) for first in range(0, max(target.shape[1], 1), rows))
            ]
        found = Counterfactuals(factual, target, *(join_pools(pools, f) for f in ("x", "nascent", "mature", "n_steps")))
        if stacked:
            return found
        return Counterfactuals(**{f.name: getattr(found, f.name).squeeze(0) for f in fields(found)})

    def bind(self, x: Tensor, y: Tensor) -> Self:
        """The generator with every part that needs data shown the training rows x (n, *shape) and their classes y."""
        return replace(
            self,
            loss=_bind(self.loss, x, y),
            penalties=tuple((weight, _bind(penalty, x, y)) for weight, penalty in self.penalties),
            space=_bind(self.space, x, y),
            rule=_bind(self.rule, x, y),
            start=_bind(self.start, x, y),
        )

    def prepare(self, model: Model | Models | Sequence[nn.Module], constraints: Constraints | None = None) -> Self:
        """The generator ready for these models; a start that learns from them has learnt, once for many searches."""
        if not hasattr(self.start, "learn"):
            return self
        return replace(self, start=self.start.learn(self, as_population(model), constraints))

    def member(self, i: int) -> Self:
        """The generator of model i of a population alone."""
        penalties = tuple((member(weight, i), penalty) for weight, penalty in self.penalties)
        return replace(self, penalties=penalties, tau=None if self.tau is None else member(self.tau, i))

    def _enter(
        self,
        population: Models,
        factual: Tensor,
        target: Tensor,
        constraints: Constraints | None,
        epsilon: Weight,
        seed: int | Tensor,
        part: slice,
    ) -> Pool:
        """The pool of some of the rows, before the first step."""
        size = len(factual)
        lay_out = rows_last if population.rows_last and factual.ndim == 3 else _keep
        own = torch.clone if self.compiled else _keep  # compiled code would tell apart who shares a tensor with whom
        factual, target = lay_out(factual[:, part]), target[:, part]

        def share(weight: Weight) -> float | Tensor:
            value = per_model(weight, size, factual)
            return value[:, part] if isinstance(value, Tensor) and value.ndim == 2 and value.shape[1] > 1 else value

        low, high = self._box(factual, None if constraints is None else constraints.rows(part).to(factual))
        seeds = self._seeds(factual, seed[..., part] if isinstance(seed, Tensor) else seed)
        z = self.space.encode(self.start(factual, target, seeds))
        x = self.space.decode(z)
        if x is not factual:  # a factual outside the domain stays there until it moves
            x = _project(lay_out(x), low, high, constraints)
        # p >= tau, said of the logarithm of p, which is never above 0
        limit = torch.tensor(1.0) if self.tau is None else torch.as_tensor(share(self.tau)).log()
        pool = Pool(
            z=own(z),
            x=own(x),
            factual=factual,
            target=target,
            low=None if low is None else lay_out(low),
            high=None if high is None else lay_out(high),
            nascent=own(factual),
            mature=torch.zeros_like(target, dtype=torch.bool),
            n_steps=torch.zeros_like(target),
            memory=self.rule.init(z, seeds),
            limit=limit.to(factual),
            epsilon=share(epsilon),
            weights=tuple(share(weight) for weight, _ in self.penalties),
        )
        if self.n_steps or x is factual:
            return pool
        return replace(pool, nascent=_project(pool.set_out(x), low, high, constraints))  # a start that is the end, too

    def _box(self, factual: Tensor, constraints: Constraints | None) -> tuple[Tensor | None, Tensor | None]:
        """Lowest and highest value that each feature may take, if there are any."""
        low, high = (None, None) if constraints is None else constraints.box(factual)
        if self.radius is None:
            return low, high
        ball = factual - self.radius, factual + self.radius
        return (
            ball[0] if low is None else torch.maximum(low, ball[0]),
            ball[1] if high is None else torch.minimum(high, ball[1]),
        )

    def _seeds(self, factual: Tensor, seed: int | Tensor) -> Tensor:
        """A seed for each row, (P, n), where anything draws; else one that nobody looks at."""
        if not (self.start.draws or self.rule.draws):
            return factual.new_zeros((1, 1), dtype=torch.int64)
        if isinstance(seed, Tensor):
            return seed.expand(factual.shape[:2])
        return seeds_of_rows(factual, seed)

    def _walk(self, population: Models, pool: Pool, constraints: Constraints | None) -> Pool:
        """All steps of a pool; rows that mature stay where they are, and leave it once they are many."""
        if not pool.target.numel():
            return pool
        small = None if self.compiled else SmallSteps.of(self, population, constraints, pool)
        if small is not None:
            return small()
        advance = self._choose_steps(population, constraints)
        everyone, where = pool, None  # `where`: the places of the pool's rows among all, once it has shrunk
        for first, n in _blocks(self.n_steps):
            pool = advance(pool, first, n)
            if self.tau is None:
                continue
            moving = pool.target.shape[1] - int(pool.mature.sum(-1).min())
            if moving == 0:
                return pool.put_into(everyone, where)
            if moving <= _WORTH_IT * pool.target.shape[1]:
                everyone = pool.put_into(everyone, where)
                rows = pool.mature.byte().argsort(dim=1, stable=True)[:, :moving]
                where = rows if where is None else where.gather(1, rows)
                pool = pool.take(rows)
        # the last iterate may have matured
        near, mature = pool.is_near(pool.x - pool.factual), pool.mature
        if self.tau is not None:
            mature = mature | self._look(population, pool)
        pool = replace(pool, mature=mature, nascent=choose(near, pool.x, pool.nascent))
        return pool.put_into(everyone, where)

    def _look(self, population: Models, pool: Pool) -> Tensor:
        """Which rows are mature where they are, (P, n)."""
        if not self._guards:
            return pool.is_mature(log_probabilities(population(pool.x)))
        seen = Tracer(population)(pool.x)
        return self._is_done(pool, pool.state(pool.x, seen.rows_last, self.n_steps, self.n_steps, seen.by_rows))

    def _is_done(self, pool: Pool, state: SearchState) -> Tensor:
        """Which rows have come to tau, and to whatever else is asked of them, (P, n)."""
        done = pool.is_mature(state.log_p)
        for guard in self._guards:
            done = done & guard.allows(state)
        return done

    def _choose_steps(self, population: Models, constraints: Constraints | None) -> Callable[[Pool, int, int], Pool]:
        """How steps first, first + 1, ..., n of them, are made: proposed by the rule, compiled, or as torch does it."""
        if not hasattr(self.rule, "step"):
            return Proposals(self, population, constraints)
        see, _ = Tracer(population), self._short_cuts
        if self.compiled and not self._guards:  # these ask the model for several slopes, which compiled code cannot
            fast = compiled(Generator._advance)
            return lambda pool, first, n: fast(self, see, pool, constraints, torch.tensor(float(first)), n)
        return lambda pool, first, n: self._advance(see, pool, constraints, first, n)

    def _advance(self, see: Tracer, pool: Pool, constraints: Constraints | None, first: int, n: int) -> Pool:
        """Steps first, first + 1, ..., n of them; whatever needs a look from outside comes between two calls."""
        z, x, nascent, mature, n_steps, memory = (
            pool.z,
            pool.x,
            pool.nascent,
            pool.mature,
            pool.n_steps + n,
            pool.memory,
        )
        for k in range(first, first + n) if isinstance(first, int) else [first + i for i in range(n)]:
            seen = see(x)
            if seen.rows_last.shape[::2] != pool.target.shape:
                raise wrong_logits(seen.rows_last.transpose(1, 2), pool.target)
            state = pool.state(x, materialise(seen.rows_last), k, self.n_steps, seen.by_rows)
            if self.tau is not None:  # before the slopes: who asks for more than tau may ask the pass for others
                mature = mature | self._is_done(pool, state)
            by_logits, by_x = self._slopes(pool.weights, state)
            grad = seen.by_rows(materialise(by_logits))
            for weight, slopes in by_x:
                grad = _add(grad, weight, slopes)
            nascent = choose(pool.is_near(state.change), x, nascent)
            grad = self.space.pull_back(z, grad, pool.low, pool.high)
            delta, memory = self.rule.step(grad, memory, k)  # type: ignore[union-attr]  # no proposer comes here
            z = zero_nan(delta).add_(self.space.settle(z, x))
            moved = _project(self.space.decode(z), pool.low, pool.high, constraints)
            x = materialise(choose(mature, x, moved))  # mature rows stay where they are; their z no longer matters
            n_steps = n_steps if self.tau is None else torch.add(n_steps, mature, alpha=-1)
        return replace(pool, z=z, x=x, nascent=nascent, mature=mature, n_steps=n_steps, memory=memory)

    def _slopes(
        self, weights: Sequence[float | Tensor], state: SearchState
    ) -> tuple[Tensor, list[tuple[float | Tensor, Tensor]]]:
        """Derivatives of the search objective at each row: by its logits, (P, K, n), and beside them by x.

        The latter come with their weights. Only the model itself is left to autograd, and what penalties do not know of
        their derivatives.
        """
        known, sloped, others = self.sort_terms(weights)
        some = mix(known, state.step, self.n_steps)
        by_logits = _times(some.loss, state.log_p.exp())
        by_x: list[tuple[float | Tensor, Tensor]] = []
        if not isinstance(some.distance, float) or some.distance:
            by_x.append((some.distance, state.change.sign()))
        found: list[tuple[Amount, Slopes]] = [
            (weight, term.slopes(state))  # type: ignore[attr-defined]  # as was asked before
            for weight, term in sloped
        ]
        found += [(weight, _differentiate(term, state)) for weight, term in others]
        for weight, slopes in found:
            if slopes.by_logits is not None:
                by_logits = by_logits + _times(weight, slopes.by_logits)
            if slopes.by_x is not None:
                by_x.append((weight, slopes.by_x))
        # the loss is logsumexp plus energy, and the energy minus a logit
        at_label = (state.own_logit * _beside(2 * some.square)).sub_(_beside(some.loss + some.energy))
        return add_at_label(by_logits, state.target.unsqueeze(1), at_label), by_x

    def sort_terms(self, weights: Sequence[Amount]) -> tuple[list[Weighed], list[Weighed], list[Weighed]]:
        """All terms of the search objective with their weights, by what they know: amounts, slopes, or neither."""
        terms: list[Weighed] = [] if self.loss is None else [(1.0, self.loss)]
        terms += [(weight, penalty) for weight, (_, penalty) in zip(weights, self.penalties, strict=True)]
        mattering = [
            (term, cut)
            for term, cut in zip(terms, self._short_cuts, strict=True)
            if not isinstance(term[0], float) or term[0]
        ]
        known, sloped, others = ([term for term, its in mattering if its == cut] for cut in ("amounts", "slopes", ""))
        return known, sloped, others

    @cached_property
    def _short_cuts(self) -> tuple[str, ...]:
        """What each term knows; asked once, because compilers cannot look at classes."""
        parts = [*([] if self.loss is None else [self.loss]), *(penalty for _, penalty in self.penalties)]
        cuts = ("amounts", "slopes")
        return tuple(next((cut for cut in cuts if knows(part, cut, "__call__")), "") for part in parts)

    @cached_property
    def _guards(self) -> tuple[Any, ...]:
        """The penalties that ask for more than tau."""
        return tuple(penalty for _, penalty in self.penalties if hasattr(penalty, "allows"))


def _bind(part: Part, x: Tensor, y: Tensor) -> Part:
    """A part that has seen the training rows, if it wants to."""
    return part.bind(x, y) if hasattr(part, "bind") else part


def _keep(x: Tensor) -> Tensor:
    return x


def _project(x: Tensor, low: Tensor | None, high: Tensor | None, constraints: Constraints | None) -> Tensor:
    """The admissible row next to x, within a box if there is one."""
    if constraints is not None and low is not None and high is not None:
        return constraints.project_into(x, low, high)
    return x if low is None else x.clamp(low, high)


def _blocks(n_steps: int) -> Iterator[tuple[int, int]]:
    """First step and number of steps between two looks: one at a time at first and for the rest, else whole blocks."""
    step = 1
    while step <= n_steps:
        n = _BLOCK if _BLOCK < step <= n_steps - _BLOCK + 1 else 1
        yield step, n
        step += n


def _differentiate(penalty: Penalty, state: SearchState) -> Slopes:
    """Derivatives of a penalty by x and by the logits, by autograd; None where it does not depend on them."""
    with torch.enable_grad():
        x, logits = state.x.detach().requires_grad_(), state.by_class.detach().requires_grad_()
        seen = replace(
            state,
            x=x,
            by_class=logits,
            log_p=logits.log_softmax(1),
            own_logit=keep_label(logits, state.target.unsqueeze(1)),
            change=x - state.factual,
        )
        loss = penalty(seen)
        if not loss.requires_grad:
            return Slopes()
        by_x, by_logits = torch.autograd.grad(loss, (x, logits), torch.ones_like(loss), allow_unused=True)
    return Slopes(by_x=by_x, by_logits=by_logits)


def _times(weight: float | Tensor, by_logits: Tensor) -> Tensor:
    """(P, K, n) slopes times a weight for all rows, or (P, n) one per row."""
    if isinstance(weight, float):
        return by_logits if weight == 1.0 else by_logits * weight
    return by_logits * _beside(weight)


def _beside(value: float | Tensor) -> float | Tensor:
    """A number for all rows, or one per row (P, n), to stand beside classes (P, K, n)."""
    return value.unsqueeze(-2) if isinstance(value, Tensor) and value.ndim else value


def _add(total: Tensor, weight: float | Tensor, slopes: Tensor) -> Tensor:
    """total + weight * slopes, both (P, n, *shape), written to total; the weight one for all rows or one per row."""
    if isinstance(weight, float):
        return total.add_(slopes, alpha=weight)
    return total.addcmul_(weight.view(*weight.shape, *[1] * (total.ndim - weight.ndim)), slopes)
