"""Terms that are sums over rows: values and derivatives of all of them by one pass, in memory that is used again.

What a row weighs in each term is known before the models have seen it. So the values of all terms are one product of
those shares with what the models say of the rows, and the derivatives by the logits are sums of a few vectors.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from countertrain.models.kernels import as_array, runs_in_numpy
from countertrain.models.population import Population, per_model

if TYPE_CHECKING:
    from countertrain.training.method import Blocks, Terms

__all__ = ["BlockRows", "KnownShares", "Shares", "Sums", "TermValues", "average_terms", "has_what_it_needs"]

_MOST_LAYOUTS = 8  # sizes of mini-batches and blocks whose memory is kept; an epoch has four at most, as a rule


@dataclass(frozen=True, eq=False)
class BlockRows:
    """What is known of a block of rows before the models have seen it."""

    label: Tensor  # (P, m)
    """Their classes: true ones, or targets."""
    like: Tensor
    """Of the type of all numbers."""
    counted: Tensor | None = None  # (P, m) bool; None where every row counts
    taught: Tensor | None = None  # (P, m, K)
    """Probabilities that a teacher gives them; None where there is none."""

    @property
    def share(self) -> float | Tensor:
        """How much each row weighs in a mean over those that count: the same for all, or (P, m)."""
        if self.counted is None:
            return 1 / self.label.shape[1]
        return self.counted.to(self.like.dtype) / self.counted.sum(-1, keepdim=True).clamp(min=1)


@dataclass(frozen=True, eq=False)
class Shares:
    """What each row of a block weighs in a term: a number for all, by how many they are, or one per row (P, m)."""

    loss: float | Tensor = 0.0
    energy: float | Tensor = 0.0
    square: float | Tensor = 0.0
    """Of the energy squared."""
    log_p: Tensor | None = None  # (P, m, K) of the logarithm of the probability of each class


KnownShares = Callable[[Mapping[str, BlockRows]], Mapping[str, Shares]]
"""The shares of a term in each block that it looks at."""


class TermValues(Mapping[str, Tensor]):
    """The total as "loss" and each term by name, (P,) each."""

    def __init__(self, names: tuple[str, ...], table: Tensor) -> None:
        self.names, self.table = names, table  # (P, T)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.names:
            raise KeyError(name)
        return self.table[:, self.names.index(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def average_terms(curves: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Each term (P,) on average over the mini-batches that had it: some may have had no counterfactuals."""
    tables: dict[tuple[str, ...], list[Tensor]] = {}
    for values in curves:
        table = values.table if isinstance(values, TermValues) else torch.stack([*values.values()], dim=1)
        tables.setdefault(tuple(values), []).append(table)
    stacked = {names: torch.stack(table) for names, table in tables.items()}  # (batches, P, T) each
    every = dict.fromkeys(name for names in stacked for name in names)
    return {
        name: torch.cat([table[:, :, names.index(name)] for names, table in stacked.items() if name in names]).mean(0)
        for name in every
    }


class Sums:
    """An objective whose terms all know their shares, for models that are a chain of layers."""

    def __init__(self, terms: "Terms", model: Population) -> None:
        self._terms, self._model = terms, model
        self._layouts: dict[object, _Layout] = {}
        self._parameters: list[tuple[int, bool]] = []

    @classmethod
    def of(cls, terms: "Terms", model: object) -> "Sums | None":
        """The objective as sums over rows, if all of its terms are."""
        known = all(getattr(term, "shares", None) is not None for _, term in terms.values())
        return cls(terms, model) if known and isinstance(model, Population) else None

    def slopes(self, x: Tensor, y: Tensor, blocks: "Blocks | None") -> tuple[TermValues, Sequence[Tensor]] | None:
        """Total and terms, and the derivatives of the total by the trainable parameters, for rows (P, b, D).

        None where only autograd knows the derivatives of the models. The derivatives are overwritten by the next call.
        """
        self._forget_others()
        if blocks is not None and not blocks.x.shape[1]:
            blocks = None
        if x.requires_grad:
            x = x.detach()  # nothing here requires a gradient: saying so for each update would cost as much as Adam
        key: tuple[object, ...] = (x.shape, x.dtype)
        if blocks is not None:
            sizes = [(name, label.shape[1]) for name, label in blocks.labels.items()]
            key = (*key, *sizes, *blocks.counted, *blocks.taught)
        layout = self._layouts.get(key)
        with np.errstate(all="ignore"):  # what is not finite is found elsewhere
            if layout is None or torch.is_autocast_enabled(x.device.type):
                if not self._model.traceable(x) or not runs_in_numpy(x):
                    return None
                while len(self._layouts) >= _MOST_LAYOUTS:
                    del self._layouts[next(iter(self._layouts))]
                layout = self._layouts[key] = _Layout(self._terms, self._model, x, y, blocks)
            return layout.measure(x, y, blocks)

    def _forget_others(self) -> None:
        """Forget what was laid out for parameters that lie elsewhere by now, or that are trained no more, or again."""
        parameters = [(p.data_ptr(), p.requires_grad) for p in self._model.parameters.values()]
        if parameters != self._parameters:
            self._parameters = parameters
            self._layouts.clear()


class _Layout:
    """A mini-batch and blocks of given sizes: what rows weigh, and memory for all that is made of them.

    The layers are torch's; the rest is numpy's, in the same memory, since torch adds more to each call than these take.
    """

    def __init__(self, terms: "Terms", model: Population, x: Tensor, y: Tensor, blocks: "Blocks | None") -> None:
        self._first = x.shape[1]
        self._x = x.clone() if blocks is None else torch.cat([x, blocks.x], dim=1)  # whose memory is used again
        trace = model.trace(self._x)
        assert trace is not None  # looked at before
        (size, n_classes, n), self._trace = trace.rows_last.shape, trace
        self._learnt = [name for name, p in model.parameters.items() if p.requires_grad]
        self._parts = {"x": slice(0, self._first)}
        for name, label in {} if blocks is None else blocks.labels.items():
            first = next(reversed(self._parts.values())).stop
            self._parts[name] = slice(first, first + label.shape[1])
        held = {name: both for name, both in terms.items() if has_what_it_needs(both[1], self._parts)}
        self._names, self._terms = ("loss", *held), [term for _, term in held.values()]
        self._weights = [weight for weight, _ in held.values()]
        known = self._ask(y, blocks)
        every = [shares for by_block in known for shares in by_block.values()]
        self._changing = any(isinstance(weight, Tensor) for weight in self._weights) or any(
            isinstance(share, Tensor) for s in every for share in (s.loss, s.energy, s.square, s.log_p)
        )  # then shares are asked for with each mini-batch
        energies = any(isinstance(share, Tensor) or share for s in every for share in (s.energy, s.square))
        rows = as_array(self._x)
        self._places = rows[:, : self._first], rows[:, self._first :]
        self._label = np.empty((size, 1, n), np.int64)
        self._label_places = {name: self._label[:, 0, part] for name, part in self._parts.items()}
        self._classes = np.arange(n_classes)[:, None]  # (K, 1)
        self._offset = np.arange(size)[:, None, None] * n_classes * n + np.arange(n)  # (P, 1, n)
        self._at, self._is_label = np.empty_like(self._label), np.empty((size, n_classes, n), bool)
        self._seen = np.empty((size, 3 if energies else 1, n), rows.dtype)  # log p, logit, logit squared of the labels
        self._log_p_seen, *self._energies_seen = (self._seen[:, k : k + 1] for k in range(self._seen.shape[1]))
        self._shares = np.zeros((size, len(self._names), *self._seen.shape[1:]), rows.dtype)
        self._top, self._sum = (np.empty((size, 1, n), rows.dtype) for _ in range(2))
        self._by_logits = torch.empty_like(trace.rows_last)
        self._p = as_array(self._by_logits)
        self._log_p, self._more = np.empty_like(self._p), np.empty_like(self._p)
        self._by_log_p = np.zeros_like(self._p) if any(s.log_p is not None for s in every) else None
        self._set_shares(known)

    def measure(self, x: Tensor, y: Tensor, blocks: "Blocks | None") -> tuple[TermValues, Sequence[Tensor]]:
        """Total and terms, and the derivatives by the trainable parameters."""
        self._places[0][...] = as_array(x)
        self._label_places["x"][...] = as_array(y)
        if blocks is not None:
            self._places[1][...] = as_array(blocks.x)
            for name, label in blocks.labels.items():
                self._label_places[name][...] = as_array(label)
        self._look(as_array(self._trace.look(self._x).rows_last))
        known = self._ask(y, blocks) if self._changing else []
        if known:
            self._set_shares(known)
        values = np.einsum("ptkn,pkn->pt", self._shares, self._seen)  # (P, 1 + T), without threads
        if self._by_log_p is not None:
            self._add_log_p(known, values, self._by_log_p)
        self._slope()
        slopes = self._trace.by_parameters(self._by_logits)
        return TermValues(self._names, torch.from_numpy(values)), [slopes[name] for name in self._learnt]

    def _look(self, logits: NDArray[Any]) -> None:
        """The probabilities of all classes and their logarithms; what there is of the labels."""
        np.maximum.reduce(logits, axis=1, keepdims=True, out=self._top)
        np.subtract(logits, self._top, out=self._log_p)
        np.exp(self._log_p, out=self._p)
        np.add.reduce(self._p, axis=1, keepdims=True, out=self._sum)
        self._p /= self._sum
        self._log_p -= np.log(self._sum, out=self._sum)
        np.multiply(self._label, logits.shape[2], out=self._at)
        self._at += self._offset
        self._log_p.take(self._at, out=self._log_p_seen, mode="clip")
        if self._energies_seen:
            logit, square = self._energies_seen
            logits.take(self._at, out=logit, mode="clip")
            np.multiply(logit, logit, out=square)

    def _ask(self, y: Tensor, blocks: "Blocks | None") -> list[Mapping[str, Shares]]:
        """The shares of each term."""
        rows = {"x": BlockRows(y, self._x)}
        if blocks is not None:
            for name, label in blocks.labels.items():
                rows[name] = BlockRows(label, self._x, blocks.counted.get(name), blocks.taught.get(name))
        return [term.shares(rows) for term in self._terms]  # type: ignore[attr-defined]  # `Sums.of` has looked

    def _set_shares(self, known: Sequence[Mapping[str, Shares]]) -> None:
        """Lay out what rows weigh in each term, and in the total; a loss is minus log p, an energy minus the logit."""
        size = len(self._shares)
        for i, by_block in enumerate(known, 1):
            for name, s in by_block.items():
                for k, share in enumerate((-s.loss, -s.energy, s.square)[: self._seen.shape[1]]):
                    self._shares[:, i, k, self._parts[name]] = share
        weights = [self._x.new_zeros(size, 1) + per_model(weight, size, self._x) for weight in self._weights]
        self._weight = as_array(torch.stack(weights, dim=2))  # (P, 1, T)
        np.einsum("pt,ptkn->pkn", self._weight[:, 0], self._shares[:, 1:], out=self._shares[:, 0])
        by_log_p = self._shares[:, 0, :1]  # (P, 1, n)
        self._spread = -by_log_p  # by the logsumexp of the logits
        self._at_label = by_log_p
        if self._energies_seen:
            self._at_label, self._twice = by_log_p + self._shares[:, 0, 1:2], 2 * self._shares[:, 0, 2:]

    def _add_log_p(self, known: Sequence[Mapping[str, Shares]], values: NDArray[Any], by_log_p: NDArray[Any]) -> None:
        """What terms have of the probabilities of all classes."""
        by_log_p[...] = 0.0
        for i, by_block in enumerate(known):
            for name, s in by_block.items():
                if s.log_p is not None:
                    share, part = as_array(s.log_p.transpose(1, 2)), self._parts[name]  # (P, K, m)
                    value = (share * self._log_p[:, :, part]).sum((1, 2))
                    values[:, 1 + i] += value
                    values[:, 0] += self._weight[:, 0, i] * value
                    by_log_p[:, :, part] += self._weight[:, :, i : i + 1] * share
        self._spread -= by_log_p.sum(1, keepdims=True)

    def _slope(self) -> None:
        """The derivative of the total by the logits, (P, K, n)."""
        self._p *= self._spread
        at_label = self._at_label
        if self._energies_seen:
            at_label = at_label + self._twice * self._energies_seen[0]
        np.equal(self._label, self._classes, out=self._is_label)
        self._p += np.multiply(self._is_label, at_label, out=self._more)
        if self._by_log_p is not None:
            self._p += self._by_log_p


def has_what_it_needs(term: object, blocks: Container[str]) -> bool:
    """Whether all blocks are there that a term looks at."""
    return all(block in blocks for block in getattr(term, "needs", ("x",)))
