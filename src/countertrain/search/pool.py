"""The rows under search: looked at, taken out when most are done, and put back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor

from countertrain.models.kernels import keep_label
from countertrain.search.state import Memory, SearchState

__all__ = ["Pool", "join_pools"]

_NEARLY = 0.999  # of epsilon, so that rounding takes no row beyond it


@dataclass(frozen=True, eq=False)
class Pool:
    """The rows under search; every tensor has axes (P, n) or (P, n, ...), or n = 1 where rows share a value."""

    z: Tensor
    x: Tensor
    factual: Tensor
    target: Tensor
    low: Tensor | None
    high: Tensor | None
    nascent: Tensor
    mature: Tensor
    n_steps: Tensor
    memory: Memory
    limit: Tensor
    epsilon: float | Tensor
    weights: tuple[float | Tensor, ...]

    @property
    def label(self) -> Tensor:
        """The targets, to stand beside classes, (P, 1, n)."""
        return self.target.unsqueeze(1)

    def state(
        self, x: Tensor, by_class: Tensor, step: int, n_steps: int, by_rows: Callable[[Tensor], Tensor] | None = None
    ) -> SearchState:
        """What penalties may see of the rows at x, whose logits these are, (P, K, n)."""
        log_p, own_logit = by_class.log_softmax(1), keep_label(by_class, self.label)
        change = x - self.factual
        return SearchState(x, by_class, log_p, own_logit, change, self.factual, self.target, step, n_steps, by_rows)

    def set_out(self, x: Tensor) -> Tensor:
        """As far on the straight way from the factuals to x (P, n, *shape) as epsilon lets a nascent row go."""
        change = x - self.factual
        far = change.abs().flatten(2).amax(-1)  # (P, n)
        share = torch.where(far > self.epsilon, _NEARLY * self.epsilon / far, 1.0)
        return self.factual + change * share.view(*share.shape, *[1] * (x.ndim - 2))

    def is_near(self, change: Tensor) -> Tensor:
        """Which rows are within epsilon of their factuals in every feature, (P, n)."""
        change = change.abs()
        far = change.amax(-1) if change.ndim == 3 else change.flatten(2).amax(-1)
        return far <= self.epsilon

    def is_mature(self, log_p: Tensor) -> Tensor:
        """Which rows have come to tau, by the logarithms of the probabilities (P, K, n) of the classes."""
        return keep_label(log_p, self.label).squeeze(1) >= self.limit

    def take(self, rows: Tensor) -> Self:
        """The pool of these rows of each model, (P, m)."""
        return replace(self, **{f.name: _take(getattr(self, f.name), rows) for f in fields(self)})

    def put_into(self, everyone: Self, where: Tensor | None) -> Self:
        """All rows with the results of this pool's rows put in their places."""
        if where is None:
            return self
        return replace(
            everyone,
            x=_put(everyone.x, where, self.x),
            nascent=_put(everyone.nascent, where, self.nascent),
            mature=_put(everyone.mature, where, self.mature),
            n_steps=_put(everyone.n_steps, where, self.n_steps),
        )


def join_pools(pools: Sequence[Pool], field: str) -> Tensor:
    """A result of all parts together."""
    parts = [getattr(pool, field) for pool in pools]
    if len(parts) == 1:
        return parts[0]  # type: ignore[no-any-return]  # an attribute
    if parts[0].ndim == 3:  # rows last, as they lie in memory
        return torch.cat([part.transpose(1, 2) for part in parts], dim=2).transpose(1, 2)
    return torch.cat(parts, dim=1)


def _take(value: Any, rows: Tensor) -> Any:
    if isinstance(value, tuple):
        return tuple(_take(v, rows) for v in value)
    if not isinstance(value, Tensor) or value.ndim < 2 or value.shape[1] == 1:
        return value
    if value.ndim == 2:
        return value.expand(len(rows), -1).gather(1, rows)
    if value.ndim == 3:  # rows last, as they lie in memory
        taken = value.transpose(1, 2).gather(2, rows.unsqueeze(1).expand(-1, value.shape[2], -1))
        return taken.transpose(1, 2)
    return value.gather(1, _places(rows, value))


def _put(into: Tensor, where: Tensor, value: Tensor) -> Tensor:
    return into.scatter(1, _places(where, value), value)


def _places(rows: Tensor, value: Tensor) -> Tensor:
    """Places (P, m) as an index into values (P, n, ...) along n."""
    return rows.view(*rows.shape, *[1] * (value.ndim - 2)).expand(*rows.shape, *value.shape[2:])
