"""THE search loop (Alg. 1, lines 3-6): batched over rows and models, with an active set."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from countertrain.constraints import Constraints
from countertrain.models.kernels import compiled, settled
from countertrain.models.population import Model, Population, Weight, as_population, member, per_model, rows_last
from countertrain.search.losses import add_to_label, cross_entropy, energy, log_probabilities, of_label
from countertrain.search.pool import Pool, choose, joined
from countertrain.search.rules import SGD
from countertrain.search.space import FeatureSpace
from countertrain.search.state import Counterfactuals, Memory, Penalty, SearchState, StateSpace, StepRule

__all__ = ["Generator"]

_BUDGET = 2**20  # numbers in one tensor of rows: 4 MB of float32, still in cache; more rows go one part after another
_BUDGET_COMPILED = 2**23  # compiled code stores less on its way and costs more to call
_BLOCK = 3  # steps between two looks at how many rows still move, after as many single ones: many rows mature at once
_WORTH_IT = 0.85  # shrink the active set once it would be at most this share of its size


@dataclass(frozen=True)
class Generator:
    """A counterfactual generator: penalties with weights, a state space, a step rule, T and tau.

    Calling it descends on cross-entropy + sum of weighted penalties for each row by itself, Eq. (general).
    """

    penalties: Sequence[tuple[Weight, Penalty]]
    space: StateSpace = field(default_factory=FeatureSpace)
    rule: StepRule = field(default_factory=SGD)
    n_steps: int = 30
    """T, the most steps that a row may make."""
    tau: Weight = 0.75
    """tau, the probability of the target class at which a counterfactual is mature."""
    compiled: bool = False
    """Run the steps as compiled code: some seconds at first, then several times faster for small models."""

    def __post_init__(self) -> None:
        if self.n_steps < 0:
            raise ValueError(f"n_steps must be at least 0; got {self.n_steps}")
        tau = torch.as_tensor(self.tau)
        if not ((tau > 0) & (tau < 1)).all():
            raise ValueError(f"tau must lie strictly between 0 and 1; got {self.tau}")

    def __call__(
        self,
        model: Model | Sequence[nn.Module] | Population,
        factual: Tensor,
        target: Tensor,
        *,
        constraints: Constraints | None = None,
        epsilon: Weight = 0.3,
    ) -> Counterfactuals:
        """Search a counterfactual for each factual (n, D), or (P, n, D) for a population of P models.

        The model runs in evaluation mode and is left as it was; no gradient of its parameters is touched.
        Nascent counterfactuals are the last iterates with every feature within `epsilon` of the factual.
        """
        population = as_population(model)
        stacked = factual.ndim == 3
        _check_rows(factual, target, len(population), constraints)
        if not stacked:
            factual, target = factual.unsqueeze(0), target.unsqueeze(0)
        size, n, d = factual.shape
        rows = max(1, (_BUDGET_COMPILED if self.compiled else _BUDGET) // (size * max(d, 32)))
        with population.evaluating(), torch.no_grad():
            if n:
                _check_classes(population, factual, target)
            found = [
                self._walk(
                    population, self._start(population, factual, target, constraints, epsilon, part), constraints
                )
                for part in (slice(first, first + rows) for first in range(0, max(n, 1), rows))
            ]
        result = Counterfactuals(factual, target, *(joined(found, f) for f in ("x", "nascent", "mature", "n_steps")))
        if stacked:
            return result
        return Counterfactuals(**{f.name: getattr(result, f.name).squeeze(0) for f in fields(result)})

    def member(self, i: int) -> "Generator":
        """The generator of model i of a population alone."""
        penalties = tuple((member(weight, i), penalty) for weight, penalty in self.penalties)
        return replace(self, penalties=penalties, tau=member(self.tau, i))

    def _start(
        self,
        population: Any,
        factual: Tensor,
        target: Tensor,
        constraints: Constraints | None,
        epsilon: Weight,
        part: slice,
    ) -> Pool:
        """The pool of some of the rows, before the first step."""
        size = len(factual)
        factual, target = factual[:, part], target[:, part]
        if population.rows_last:
            factual = rows_last(factual)

        def share(weight: Weight) -> float | Tensor:
            value = per_model(weight, size, factual)
            return value[:, part] if isinstance(value, Tensor) and value.ndim == 2 and value.shape[1] > 1 else value

        own = torch.clone if self.compiled else _itself  # compiled code would tell apart who shares a tensor with whom
        z = own(self.space.encode(factual))
        low, high = (None, None) if constraints is None else constraints.rows(part).to(factual).box(factual)
        if population.rows_last and low is not None and high is not None:
            low, high = rows_last(low), rows_last(high)
        return Pool(
            z=z,
            x=own(factual),
            factual=factual,
            target=target,
            low=low,
            high=high,
            nascent=own(factual),
            mature=torch.zeros_like(target, dtype=torch.bool),
            n_steps=torch.zeros_like(target),
            memory=self.rule.init(z),
            # p >= tau, said of the loss: p = exp(-yloss)
            limit=-torch.as_tensor(share(self.tau), dtype=factual.dtype, device=factual.device).log(),
            epsilon=share(epsilon),
            weights=tuple(share(weight) for weight, _ in self.penalties),
        )

    def _walk(self, population: Any, pool: Pool, constraints: Constraints | None) -> Pool:
        if not pool.target.numel():
            return pool
        advance = compiled(Generator._advance) if self.compiled else Generator._advance
        if not isinstance(self.space, FeatureSpace):  # else the walk starts at the factual itself
            pool = replace(pool, x=self._placed(pool, pool.z, constraints))
        everyone, where = pool, None  # `where`: the places of the pool's rows among all, once it has shrunk
        for first, n in _blocks(self.n_steps):
            k: Any = torch.tensor(float(first)) if self.compiled else first
            pool = advance(self, population, pool, constraints, k, n)
            moving = int((~pool.mature).sum(-1).max())
            if moving == 0:
                return pool.put_into(everyone, where)
            if moving <= _WORTH_IT * pool.target.shape[1]:
                everyone = pool.put_into(everyone, where)
                rows = pool.mature.byte().argsort(dim=1, stable=True)[:, :moving]
                where = rows if where is None else where.gather(1, rows)
                pool = pool.take(rows)
        yloss = cross_entropy(population(pool.x), pool.target)
        pool = pool.seen(yloss, (pool.x - pool.factual).abs())  # the last iterate may have matured
        return pool.put_into(everyone, where)

    def _advance(self, population: Any, pool: Pool, constraints: Constraints | None, first: int, n: int) -> Pool:
        """Steps first, first + 1, ..., n of them; whatever needs a look from outside comes between two calls."""
        for k in range(n):
            with torch.enable_grad():
                x = pool.x.detach().requires_grad_()
                logits = population(x)  # (P, n, K)
            if logits.shape[:2] != pool.target.shape or logits.ndim != 3:
                raise _shapes(logits, pool.target)
            state = pool.state(settled(logits.detach()), first + k, self.n_steps)
            log_p = log_probabilities(state.logits)  # (P, K, n)
            by_logits, by_x = self._slopes(pool.weights, state, log_p)
            (grad,) = torch.autograd.grad(logits, x, settled(by_logits).transpose(1, 2))
            for weight, slopes in by_x:
                grad = _added(grad, weight, slopes)
            pool = pool.seen(of_label(log_p, pool.target).neg(), state.change.abs())
            z, memory = self._moved(pool, grad, first + k)
            x = choose(pool.mature, pool.x, self._placed(pool, z, constraints))  # mature rows stay where they are
            pool = replace(pool, z=z, x=settled(x), memory=memory, n_steps=pool.n_steps + ~pool.mature)
        return pool

    def _slopes(
        self, weights: Sequence[float | Tensor], state: SearchState, log_p: Tensor
    ) -> tuple[Tensor, list[tuple[float | Tensor, Tensor]]]:
        """Derivatives of the search objective at each row: by its logits, (P, K, n), and beside them by x, (P, n, D).

        The latter come with their weights. Only the model itself is left to autograd, and what penalties do not know of
        their derivatives.
        """
        by_energy: float | Tensor = 1.0  # cross-entropy is the logsumexp of the logits plus the energy
        by_logits, by_x = log_p.exp(), []
        for weight, (_, penalty) in zip(weights, self.penalties, strict=True):
            if isinstance(weight, float) and not weight:
                continue
            if hasattr(penalty, "slopes"):
                slopes = penalty.slopes(state)
                if slopes.by_energy is not None:
                    by_energy = weight * slopes.by_energy + by_energy
                more = slopes.by_x
            else:
                more, logits = _differentiated(penalty, state)
                by_logits = by_logits if logits is None else _added(by_logits.mT, weight, logits).mT
            by_x += [] if more is None else [(weight, more)]
        drop = by_energy if isinstance(by_energy, Tensor) else torch.full_like(state.energy, by_energy)
        return add_to_label(by_logits, state.target, drop.neg()), by_x

    def _placed(self, pool: Pool, z: Tensor, constraints: Constraints | None) -> Tensor:
        """The admissible row of each state z."""
        x = z if isinstance(self.space, FeatureSpace) else self.space.decode(z)
        if constraints is None:
            return x
        assert pool.low is not None
        assert pool.high is not None
        return constraints.project_into(x, pool.low, pool.high)

    def _moved(self, pool: Pool, grad: Tensor, k: int) -> tuple[Tensor, Memory]:
        """The states one step on; those of mature rows no longer matter."""
        if not isinstance(self.space, FeatureSpace):  # pull the gradient back through the decoder
            if pool.low is not None and pool.high is not None:
                grad = grad.masked_fill(pool.low >= pool.high, 0.0)  # pinned features do not pull
            with torch.enable_grad():
                z = pool.z.detach().requires_grad_()
                (grad,) = torch.autograd.grad(self.space.decode(z), z, grad)
        delta, memory = self.rule.step(grad, pool.memory, k)
        return _without_nan(delta).add_(self.space.settle(pool.z, pool.x)), memory


def _itself(x: Tensor) -> Tensor:
    return x


def _blocks(n_steps: int) -> Iterator[tuple[int, int]]:
    """First step and number of steps between two looks: one at a time at first and for the rest, else whole blocks."""
    step = 1
    while step <= n_steps:
        n = _BLOCK if _BLOCK < step <= n_steps - _BLOCK + 1 else 1
        yield step, n
        step += n


def _differentiated(penalty: Penalty, state: SearchState) -> tuple[Tensor | None, Tensor | None]:
    """Derivatives of a penalty by x, (P, n, D), and by the logits, (P, n, K); None where it does not depend on them."""
    with torch.enable_grad():
        x, logits = state.x.detach().requires_grad_(), state.logits.detach().requires_grad_()
        e = energy(logits, state.target)
        loss = penalty(replace(state, x=x, logits=logits, energy=e, change=x - state.factual))
        if not loss.requires_grad:
            return None, None
        by_x, by_logits = torch.autograd.grad(loss, (x, logits), torch.ones_like(loss), allow_unused=True)
    return by_x, by_logits


def _added(total: Tensor, weight: float | Tensor, slopes: Tensor) -> Tensor:
    """total + weight * slopes, both (P, n, ...), the weight one for all rows or one a row."""
    if isinstance(weight, float):
        return torch.add(total, slopes, alpha=weight)
    return torch.addcmul(total, weight.unsqueeze(-1), slopes)


def _without_nan(delta: Tensor) -> Tensor:
    """The steps, in place where that is faster, with 0 for what is not a number."""
    if torch.compiler.is_compiling():
        return torch.where(delta == delta, delta, 0.0)
    return delta.nan_to_num_(nan=0.0, posinf=torch.inf, neginf=-torch.inf)


def _check_rows(factual: Tensor, target: Tensor, size: int, constraints: Constraints | None) -> None:
    if factual.ndim not in (2, 3) or (factual.ndim == 2 and size > 1):
        wanted = "(n, D)" if size == 1 else f"({size}, n, D)"
        raise ValueError(f"factual must have shape {wanted}; got {tuple(factual.shape)}")
    if factual.ndim == 3 and len(factual) != size:
        raise ValueError(f"factual must have one block of rows a model, {size}; got {len(factual)}")
    if target.shape != factual.shape[:-1]:
        raise ValueError(
            f"target must have shape {tuple(factual.shape[:-1])}, one class per factual; got {tuple(target.shape)}"
        )
    if target.dtype != torch.int64:
        raise TypeError(f"target must hold class numbers as int64; got {target.dtype}")
    if not factual.is_floating_point():
        raise TypeError(f"factual must hold floats; got {factual.dtype}")
    if not torch.isfinite(factual).all():
        raise ValueError(f"factual must be finite; {int((~torch.isfinite(factual)).sum())} entries are NaN or infinite")
    if constraints is not None and constraints.n_features != factual.shape[-1]:
        raise ValueError(f"constraints are for {constraints.n_features} features, but factual has {factual.shape[-1]}")
    if constraints is not None and constraints.n_rows not in (None, factual.shape[-2]):
        raise ValueError(f"constraints are for {constraints.n_rows} rows, but factual has {factual.shape[-2]}")


def _shapes(logits: Tensor, target: Tensor) -> ValueError:
    return ValueError(
        f"the model must map (n, D) rows to (n, K) logits; for {target.shape[1]} row{'s'[: target.shape[1] - 1]} it "
        f"returned {tuple(logits.shape[1:])}"
    )


def _check_classes(population: Any, factual: Tensor, target: Tensor) -> None:
    """Targets are classes of the model, as one row shows."""
    logits = population(factual[:, :1])
    if logits.shape[:2] != (len(target), 1) or logits.ndim != 3:
        raise _shapes(logits, target[:, :1])
    if target.min() < 0 or target.max() >= logits.shape[-1]:
        raise ValueError(
            f"target must lie in 0..{logits.shape[-1] - 1}, the classes of the model; "
            f"got {int(target.min())}..{int(target.max())}"
        )
