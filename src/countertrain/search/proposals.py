"""Steps of rules that propose rows of their own, and ask the model what it makes of them: no gradient is needed."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from countertrain.constraints import Constraints
from countertrain.models.kernels import choose
from countertrain.models.population import Models
from countertrain.search.losses import log_probabilities
from countertrain.search.pool import Pool
from countertrain.search.space import FeatureSpace
from countertrain.search.state import Memory

if TYPE_CHECKING:
    from countertrain.search.generator import Generator

__all__ = ["Ground", "Proposals", "Proposer"]


@dataclass(frozen=True, eq=False)
class Ground:
    """What a rule that proposes rows may see of those under search, and whom it may ask."""

    factual: Tensor  # (P, n, *shape)
    x: Tensor  # (P, n, *shape) where the rows are
    target: Tensor  # (P, n)
    limit: Tensor  # (P, n) logarithm of tau
    low: Tensor | None  # (P, n, *shape)
    high: Tensor | None
    n_steps: int
    """T, the most steps a row may make."""
    models: Models
    constraints: Constraints | None

    def project(self, rows: Tensor) -> Tensor:
        """The admissible rows next to these: one for each under search (P, n, *shape), or m, (P, n, m, *shape)."""
        if self.low is None or self.high is None:
            return rows
        several = rows.ndim > self.factual.ndim
        low, high = (end.unsqueeze(2) if several else end for end in (self.low, self.high))
        return rows.clamp(low, high) if self.constraints is None else self.constraints.project_into(rows, low, high)

    def ask(self, rows: Tensor) -> Tensor:
        """Logarithm of the probability of each class for any rows (P, m, *shape), (P, K, m)."""
        return log_probabilities(self.models(rows))

    def is_mature(self, rows: Tensor) -> Tensor:
        """Which proposals have the target at tau: one for each row (P, n, *shape), or m of them (P, n, m, *shape)."""
        m = rows.shape[2] if rows.ndim > self.factual.ndim else 1
        flat = rows.flatten(1, 2) if rows.ndim > self.factual.ndim else rows
        label = self.target.repeat_interleave(m, dim=1).unsqueeze(1)  # (P, 1, n m)
        log_p = self.ask(flat).gather(1, label).squeeze(1)
        mature: Tensor = log_p.unflatten(1, (-1, m)) >= self.limit.unsqueeze(-1)
        return mature if rows.ndim > self.factual.ndim else mature.squeeze(-1)

    def split(self, size: int) -> "Iterator[tuple[slice, Ground]]":
        """The same for so many rows at a time, with their places."""
        for first in range(0, self.target.shape[1], size):
            part = slice(first, first + size)
            low, high = (None if end is None else end[:, part] for end in (self.low, self.high))
            mine = {name: getattr(self, name)[:, part] for name in ("factual", "x", "target", "limit")}
            yield part, replace(self, **mine, low=low, high=high)


class Proposer(Protocol):
    """A rule that proposes rows instead of following a gradient: it has `propose` in the place of `step`."""

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers, by the seed of each row."""
        ...

    def init(self, z: Tensor, seed: Tensor, /) -> Memory:
        """The memory before the first step, for rows z (P, n, *shape) with seeds (P, n)."""
        ...

    def propose(self, ground: Ground, memory: Memory, k: int, /) -> tuple[Tensor, Memory]:
        """Step number k = 1, 2, ...: admissible rows (P, n, *shape) to go to, and the memory after it."""
        ...


class Proposals:
    """Steps of a generator whose rule proposes rows."""

    def __init__(self, generator: "Generator", models: Models, constraints: Constraints | None) -> None:
        idle = {
            "loss": generator.loss is not None,
            "penalties": bool(generator.penalties),
            "space": not isinstance(generator.space, FeatureSpace),
        }
        name = type(generator.rule).__name__
        if any(idle.values()):
            parts = ", ".join(part for part, given in idle.items() if given)
            raise ValueError(
                f"the rule {name} proposes rows itself and has no use for {parts}; leave it out (loss=None)"
            )
        if generator.tau is None:
            raise ValueError(f"the rule {name} proposes rows of which the model is sure; give the generator a tau")
        self._rule: Proposer = generator.rule  # type: ignore[assignment]  # whoever makes these has asked
        self._n_steps, self._models, self._constraints = generator.n_steps, models, constraints

    def __call__(self, pool: Pool, first: int, n: int) -> Pool:
        """Steps first, first + 1, ..., n of them; rows that are mature by then stay where they are."""
        for k in range(first, first + n):
            pool = self._step(pool, k)
        return pool

    def _step(self, pool: Pool, k: int) -> Pool:
        mature = pool.mature | pool.is_mature(log_probabilities(self._models(pool.x)))
        limit = torch.as_tensor(pool.limit).expand(pool.target.shape)
        ground = Ground(
            pool.factual,
            pool.x,
            pool.target,
            limit,
            pool.low,
            pool.high,
            self._n_steps,
            self._models,
            self._constraints,
        )
        proposed, memory = self._rule.propose(ground, pool.memory, k)
        x = choose(mature, pool.x, proposed)
        leaps = pool.is_near(pool.x - pool.factual) & ~pool.is_near(x - pool.factual)
        on_the_way = choose(leaps, ground.project(pool.set_out(x)), pool.nascent)
        nascent = choose(pool.is_near(x - pool.factual), x, on_the_way)
        return replace(pool, x=x, nascent=nascent, mature=mature, memory=memory, n_steps=pool.n_steps + ~mature)
