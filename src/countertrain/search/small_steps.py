"""Steps of a search in numpy, on memory that is used again: what torch adds to each call is most of a small step."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from countertrain.constraints import Constraints
from countertrain.models.kernels import as_array, runs_in_numpy
from countertrain.models.population import Models, measure_width
from countertrain.models.traces import Lasting
from countertrain.search.checks import wrong_logits
from countertrain.search.pool import Pool
from countertrain.search.state import knows, mix

if TYPE_CHECKING:
    from countertrain.search.generator import Generator

__all__ = ["SmallSteps"]

Numbers = NDArray[Any]


_WORTH_IT = 2**16  # numbers, times the steps that are left to make with them, from which letting rows go pays


class SmallSteps:
    """All steps of a generator that is made of known parts, for models that are a chain of layers, on the CPU.

    It computes what `Generator` does by torch, up to rounding.
    """

    def __init__(self, generator: "Generator", rows: "_Rows", width: int) -> None:
        self._generator, self._rows = generator, rows
        self._width = width  # numbers of a row

    @classmethod
    def of(
        cls, generator: "Generator", models: Models, constraints: Constraints | None, pool: Pool
    ) -> "SmallSteps | None":
        """The steps of a pool, where all parts are known; None where torch must make them."""
        parts = (*([] if generator.loss is None else [generator.loss]), *(part for _, part in generator.penalties))
        known = (
            knows(generator.space, "direct", "encode", "decode", "pull_back", "settle")
            and generator.space.direct  # type: ignore[attr-defined]  # as was just asked
            and knows(generator.rule, "factor", "init", "step")
            and all(knows(part, "amounts", "__call__") for part in parts)
            and models.rows_last
            and runs_in_numpy(pool.x)
            and pool.x.ndim == 3
        )
        write_out: Callable[[Tensor], Lasting | None] | None = getattr(models, "trace", None)
        if not known or write_out is None or write_out(pool.x[:, :1]) is None:
            return None
        own = replace(
            pool,
            x=_own_rows(pool.x),
            nascent=_own_rows(pool.nascent),
            mature=pool.mature.clone(),
            n_steps=pool.n_steps.clone(),
        )
        width = max(pool.x.shape[2], measure_width(models)) * len(models)
        return cls(generator, _Rows(generator, write_out, constraints, own), width)

    def __call__(self) -> Pool:
        """The pool after all steps; rows that mature leave as soon as it pays."""
        everyone, where = self._rows.pool, None  # `where`: the places of the rows that are left, among all
        last = self._generator.n_steps
        for k in range(1, last + 1):
            self._rows.step(k)
            gone = self._rows.count_mature()
            n = self._rows.pool.target.shape[1]
            if gone == n:
                break
            if gone * self._width * (last - k) > _WORTH_IT:
                everyone = self._rows.pool.put_into(everyone, where)
                left = self._rows.pool.mature.byte().argsort(dim=1, stable=True)[:, : n - gone]
                where = left if where is None else where.gather(1, left)
                self._rows = self._rows.take(left)
        else:
            self._rows.look_again()
        return self._rows.pool.put_into(everyone, where)


def _own_rows(x: Tensor) -> Tensor:
    """A copy of rows (P, n, D) that lies in memory as (P, D, n)."""
    return torch.empty(*x.mT.shape, dtype=x.dtype).copy_(x.mT).mT


class _Rows:
    """The rows of a pool on their way; features and classes come first, (P, D, n) and (P, K, n)."""

    def __init__(
        self,
        generator: "Generator",
        write_out: Callable[[Tensor], Lasting | None],
        constraints: Constraints | None,
        pool: Pool,
    ) -> None:
        self.pool, self._generator, self._write_out, self._constraints = pool, generator, write_out, constraints
        trace = write_out(pool.x)
        assert trace is not None  # models that could be traced still can
        self._trace, self._seen = trace, True
        logits = trace.rows_last
        if logits.shape[::2] != pool.target.shape:
            raise wrong_logits(logits.transpose(1, 2), pool.target)
        size, n_classes, n = logits.shape
        self._x, self._nascent = (as_array(rows.mT) for rows in (pool.x, pool.nascent))
        self._factual = as_array(pool.factual.mT)
        self._box = None if pool.low is None or pool.high is None else (as_array(pool.low.mT), as_array(pool.high.mT))
        self._groups = constraints if constraints is not None and constraints.categories else None
        self._mature, self._n_steps = (as_array(each.unsqueeze(1)) for each in (pool.mature, pool.n_steps))
        self._limit, self._epsilon = (_lay_beside(each) for each in (pool.limit, pool.epsilon))
        self._factor: float = generator.rule.factor  # type: ignore[union-attr]  # `SmallSteps.of` has asked
        self._terms, *_ = generator.sort_terms([_lay_beside(weight) for weight in pool.weights])
        label = as_array(pool.label)  # (P, 1, n)
        self._places = (np.arange(size)[:, None, None] * n_classes + label) * n + np.arange(n)
        self._is_label = (label == np.arange(n_classes)[:, None]).astype(self._x.dtype)  # (P, K, n)
        # memory, named after what is in there
        self._by_logits = torch.empty_like(logits)
        self._p = as_array(self._by_logits)
        self._at_label = np.empty_like(self._p)
        self._top, self._sum, self._own, self._log_p, self._far = (
            np.empty((size, 1, n), self._x.dtype) for _ in range(5)
        )
        self._change, self._away = np.empty_like(self._x), np.empty_like(self._x)
        self._ways = torch.from_numpy(self._change), torch.from_numpy(self._away)
        self._flag, self._moving = (np.empty((size, 1, n), bool) for _ in range(2))
        self._inside = self._groups is None and self._is_inside()

    def take(self, rows: Tensor) -> "_Rows":
        """These rows of each model (P, m) alone."""
        return _Rows(self._generator, self._write_out, self._constraints, self.pool.take(rows))

    def count_mature(self) -> int:
        """How many rows of every model are mature: of the model that has fewest."""
        return int(np.add.reduce(self._mature, axis=-1, dtype=int).min())

    def step(self, k: int) -> None:
        """Step number k of all rows; those that are mature by now stay where they are."""
        some = mix(self._terms, k, self._generator.n_steps)
        self._look()
        self._p *= np.divide(some.loss, self._sum, out=self._sum)
        self._own *= 2 * some.square  # the loss is logsumexp plus energy, and the energy minus a logit
        self._own -= some.loss + some.energy
        self._p += np.multiply(self._is_label, self._own, out=self._at_label)
        grad = as_array(self._trace.by_rows(self._by_logits).mT)  # (P, D, n)
        self._keep_near()
        if not isinstance(some.distance, float) or some.distance:
            torch.sign(self._ways[0], out=self._ways[1])  # at a third of what numpy takes
            grad += np.multiply(self._away, some.distance, out=self._away)
        np.logical_not(self._mature, out=self._moving)
        self._n_steps += self._moving
        grad *= self._factor
        if self._inside and not self._moving.all():
            grad *= self._moving
        lost = np.isnan(grad)
        if lost.any():
            grad[lost] = 0.0
        self._go(grad)

    def _is_inside(self) -> bool:
        """Whether all rows are admissible now, so that those which do not move stay what they are."""
        return self._box is None or bool(((self._box[0] <= self._x) & (self._x <= self._box[1])).all())

    def look_again(self) -> None:
        """Look at the last iterates, which may have matured."""
        self._look()
        self._keep_near()

    def _look(self) -> None:
        """Powers of the classes and their sum, the logits of the targets, and which rows are mature."""
        if not self._seen:
            self._trace.look(self.pool.x)
        logits, self._seen = as_array(self._trace.rows_last), False
        np.maximum.reduce(logits, axis=1, keepdims=True, out=self._top)
        np.subtract(logits, self._top, out=self._p)
        np.exp(self._p, out=self._p)
        np.add.reduce(self._p, axis=1, keepdims=True, out=self._sum)
        logits.take(self._places, out=self._own, mode="clip")
        if self._generator.tau is not None:
            np.subtract(self._own, self._top, out=self._log_p)
            self._log_p -= np.log(self._sum, out=self._far)
            self._mature |= np.greater_equal(self._log_p, self._limit, out=self._flag)

    def _keep_near(self) -> None:
        """Nascent are the last rows within epsilon of their factuals."""
        np.subtract(self._x, self._factual, out=self._change)
        np.maximum.reduce(np.abs(self._change, out=self._away), axis=1, keepdims=True, out=self._far)
        self._copy_some(self._x, self._nascent, np.less_equal(self._far, self._epsilon, out=self._flag))

    def _go(self, step: Numbers) -> None:
        """Move by a step, and then to the admissible rows next to where it leads."""
        x = np.add(self._x, step, out=self._x if self._inside else step)
        if self._box is not None:
            np.minimum(np.maximum(x, self._box[0], out=x), self._box[1], out=x)
        if self._groups is not None:
            low, high = self.pool.low, self.pool.high
            assert low is not None
            assert high is not None
            x = as_array(self._groups.project_into(torch.from_numpy(x).mT, low, high).mT)
        if not self._inside:
            self._copy_some(x, self._x, self._moving)

    def _copy_some(self, source: Numbers, into: Numbers, which: Numbers) -> None:
        """Copy the rows (P, D, n) that are named (P, 1, n): bits by arithmetic, a tenth of numpy's `where`."""
        if which.all():
            into[...] = source
        elif which.any():
            bits = f"i{into.itemsize}"
            theirs, mine, other = source.view(bits), into.view(bits), self._away.view(bits)
            np.bitwise_and(np.bitwise_xor(theirs, mine, out=other), -which.astype(bits), out=other)
            np.bitwise_xor(mine, other, out=mine)


def _lay_beside(value: float | Tensor) -> Any:
    """A number for all rows, or one per row (P, n), to stand beside features or classes (P, D, n)."""
    if not isinstance(value, Tensor):
        return value
    return as_array(value.unsqueeze(-2)) if value.ndim else value.item()
