"""Terms that are sums over rows: derivatives of all of them by one pass, mini-batches of an epoch laid out together.

What a row weighs in each term is known before the models have seen it. So the derivatives by the logits are sums of a
few vectors that are made for a whole epoch at once, and the values of all terms one product of those shares with what
the models said of the rows, made once somebody asks.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from countertrain.models.kernels import as_array, runs_in_numpy
from countertrain.models.population import Population, per_model

if TYPE_CHECKING:
    from countertrain.models.traces import ChainTrace
    from countertrain.training.method import Blocks, Terms

__all__ = [
    "BlockRows",
    "KnownShares",
    "MiniBatch",
    "Shares",
    "Sums",
    "TermValues",
    "average_terms",
    "has_what_it_needs",
]

_MOST_TRACES = 8  # numbers of rows for which the memory of a pass is kept; an epoch has four at most, as a rule

MiniBatch = tuple[Tensor, Tensor, "Blocks | None"]
"""Rows (P, b, D), their classes (P, b), and the blocks beside them."""


@dataclass(frozen=True, eq=False)
class BlockRows:
    """What is known of a block of rows before the models have seen it, of one mini-batch or of many side by side."""

    label: Tensor  # (P, m), or (B P, m) for B mini-batches
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
    """The total as "loss" and each term by name, (P,) each, of a mini-batch of a stretch: worked out when asked for."""

    def __init__(self, stretch: "_Stretch", place: int) -> None:
        self._stretch, self._place = stretch, place

    @property
    def table(self) -> Tensor:
        """The values, (P, T)."""
        return self._stretch.tell(self._place)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._stretch.names:
            raise KeyError(name)
        return self.table[:, self._stretch.names.index(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stretch.names)

    def __len__(self) -> int:
        return len(self._stretch.names)


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
        self._traces: dict[object, ChainTrace] = {}
        self._parameters: list[tuple[int, bool]] = []

    @classmethod
    def of(cls, terms: "Terms", model: object) -> "Sums | None":
        """The objective as sums over rows, if all of its terms are."""
        known = all(getattr(term, "shares", None) is not None for _, term in terms.values())
        return cls(terms, model) if known and isinstance(model, Population) else None

    @property
    def ahead(self) -> bool:
        """Whether many mini-batches may be laid out together: weights that are tensors may change between two."""
        return not any(isinstance(weight, Tensor) for weight, _ in self._terms.values())

    def slopes(self, batches: Sequence[MiniBatch]) -> Iterator[tuple[TermValues, Sequence[Tensor]]] | None:
        """For each mini-batch, total and terms, and the derivatives of the total by the trainable parameters.

        None where only autograd knows the derivatives of the models. Each is worked out when it is its turn, by the
        parameters as they are then, and the derivatives are overwritten by the next one's.
        """
        x, *_ = batches[0]
        return self._walk(batches) if self._model.traceable(x) and runs_in_numpy(x) else None

    def _walk(self, batches: Sequence[MiniBatch]) -> Iterator[tuple[TermValues, Sequence[Tensor]]]:
        """One stretch after another: mini-batches of the same sizes, of which an epoch has a few."""
        for _, alike in groupby(batches, key=_tell_sizes):
            with np.errstate(all="ignore"):  # what is not finite is found elsewhere
                stretch = _Stretch(self._terms, list(alike), self._look)
            for i in range(len(stretch)):
                yield TermValues(stretch, i), stretch.learn(i)
            stretch.close()

    def _look(self, x: Tensor) -> "ChainTrace":
        """A pass over rows (P, n, D), in memory of an earlier one if there is such a one for the parameters."""
        parameters = [(p.data_ptr(), p.requires_grad) for p in self._model.parameters.values()]
        if parameters != self._parameters:  # they lie elsewhere by now, or are trained no more, or again
            self._parameters = parameters
            self._traces.clear()
        key = (x.shape, x.dtype)
        trace = self._traces.get(key)
        if trace is None:
            while len(self._traces) >= _MOST_TRACES:
                del self._traces[next(iter(self._traces))]
            trace = self._model.trace(x, learning=True)
            assert trace is not None  # looked at before
            self._traces[key] = trace
        return trace


class _Stretch:
    """B mini-batches with blocks of the same sizes: what rows weigh, laid out for all of them.

    The layers are the trace's; the rest is numpy's, in the same memory, since torch adds more to each call than these
    take.
    """

    def __init__(self, terms: "Terms", batches: Sequence[MiniBatch], look: "Callable[[Tensor], ChainTrace]") -> None:
        blocks = [made for *_, made in batches if made is not None]
        rows, labels = torch.stack([x.detach() for x, *_ in batches]), torch.stack([y for _, y, _ in batches])
        each = {"x": BlockRows(labels.flatten(0, 1), rows)}
        if blocks and blocks[0].x.shape[1]:
            rows = torch.cat([rows, torch.stack([made.x.detach() for made in blocks])], dim=2)  # (B, P, n, D)
            each |= {name: _join_block(blocks, name, rows) for name in blocks[0].labels}
        self._trace = look(rows[0])
        self._rows = [*self._trace.take(rows.mT)]
        label = torch.cat([block.label for block in each.values()], dim=1)
        (size, n_classes, n), like = self._trace.rows_last.shape, as_array(rows)
        self._label = as_array(label.view(len(rows), size, 1, n))
        self._logits: Any = np.empty((len(rows), size, n_classes, n), like.dtype)
        self._told: Tensor | None = None
        self._parts, first = {}, 0
        for name, block in each.items():
            self._parts[name] = slice(first, first := first + block.label.shape[1])
        held = {name: both for name, both in terms.items() if has_what_it_needs(both[1], self._parts)}
        self.names = ("loss", *held)
        weights = [rows.new_zeros(size, 1) + per_model(weight, size, rows) for weight, _ in held.values()]
        self._weight = as_array(torch.cat(weights, dim=1))  # (P, T)
        known = [term.shares(each) for _, term in held.values()]  # type: ignore[attr-defined]  # `Sums.of` has looked
        self._set_shares(known)
        self._set_slopes()
        # memory, named after what is in there
        self._top, self._sum = (np.empty((size, 1, n), like.dtype) for _ in range(2))
        by_logits = torch.empty(size, n_classes, n, dtype=rows.dtype)
        self._p, self._by_logits = as_array(by_logits), self._trace.take(by_logits)
        self._more = np.empty_like(self._p)

    def __len__(self) -> int:
        return len(self._label)

    def learn(self, i: int) -> Sequence[Tensor]:
        """The derivatives of the total of mini-batch i by the trainable parameters."""
        p, total = self._p, self._sum
        with np.errstate(all="ignore"):
            self._logits[i] = self._trace.run(self._rows[i])
            logits = self._logits[i]
            np.maximum.reduce(logits, axis=1, keepdims=True, out=self._top)
            np.exp(np.subtract(logits, self._top, out=p), out=p)
            np.add.reduce(p, axis=1, keepdims=True, out=total)
            np.multiply(p, np.divide(self._spread[i], total, out=total), out=p)
            np.add(p, self._at_label[i], out=p)
            if self._twice is not None:
                np.add(p, np.multiply(self._twice[i], logits, out=self._more), out=p)
            return self._trace.learn(self._by_logits)

    def tell(self, i: int) -> Tensor:
        """Total and terms of mini-batch i, which has been learnt from, (P, T)."""
        return self._add_up(slice(i, i + 1))[0] if self._told is None else self._told[i]

    def close(self) -> None:
        """Work out all values, and let go of what they are made of: all have been learnt from."""
        self._told = self._add_up(slice(None))
        del self._rows, self._logits, self._shares, self._log_shares, self._at_label, self._spread, self._twice

    def _add_up(self, some: slice) -> Tensor:
        """Total and terms of some mini-batches, (B, P, T)."""
        logits, label = self._logits[some], self._label[some]
        with np.errstate(all="ignore"):
            log_p = logits - logits.max(2, keepdims=True)  # (B, P, K, n)
            log_p -= np.log(np.exp(log_p).sum(2, keepdims=True))
            seen = [np.take_along_axis(log_p, label, 2)]
            if self._shares.shape[3] > 1:
                own = np.take_along_axis(logits, label, 2)
                seen += [own, own * own]
            shares = np.broadcast_to(self._shares, (len(self), *self._shares.shape[1:]))[some]
            values = np.einsum("bptkn,bpkn->bpt", shares, np.concatenate(seen, axis=2))  # without threads
            for i, part, share in self._log_shares:
                value = (share[some] * log_p[..., part]).sum((2, 3))  # (B, P)
                values[:, :, 1 + i] += value
                values[:, :, 0] += self._weight[:, i] * value
        return torch.from_numpy(values)

    def _set_shares(self, known: Sequence[Mapping[str, Shares]]) -> None:
        """Lay out what rows weigh in each term, and in the total; a loss is minus log p, an energy minus the logit."""
        every = [s for by_block in known for s in by_block.values()]
        energies = any(isinstance(share, Tensor) or share for s in every for share in (s.energy, s.square))
        varying = any(isinstance(share, Tensor) for s in every for share in (s.loss, s.energy, s.square))
        (n_batches, size, _, n), depth = self._logits.shape, 3 if energies else 1
        across = n_batches if varying else 1
        self._shares = np.zeros((across, size, len(self.names), depth, n), self._logits.dtype)
        self._log_shares: list[tuple[int, slice, NDArray[Any]]] = []  # of the probabilities of all classes
        for i, by_block in enumerate(known):
            for name, s in by_block.items():
                part, m = self._parts[name], self._parts[name].stop - self._parts[name].start
                for k, share in enumerate((-s.loss, -s.energy, s.square)[:depth]):
                    of_rows = np.broadcast_to(np.asarray(share), (n_batches * size, m))
                    self._shares[:, :, 1 + i, k, part] = of_rows.reshape(n_batches, size, m)[:across]
                if s.log_p is not None:
                    self._log_shares.append((i, part, as_array(s.log_p.mT.unflatten(0, (-1, size)))))  # (B, P, K, m)
        np.einsum("pt,bptkn->bpkn", self._weight, self._shares[:, :, 1:], out=self._shares[:, :, 0])

    def _set_slopes(self) -> None:
        """What the derivatives by the logits are made of: of each p, of each label, and of each label's logit."""
        n_classes = self._logits.shape[2]
        is_label = self._label == np.arange(n_classes)[:, None]  # (B, P, K, n)
        by_log_p, *energies = (self._shares[:, :, 0, k : k + 1] for k in range(self._shares.shape[3]))  # (B, P, 1, n)
        self._spread = -by_log_p  # by the logsumexp of the logits
        self._at_label, self._twice = is_label * (by_log_p + (energies[0] if energies else 0)), None
        if energies and energies[1].any():
            self._twice = is_label * (2 * energies[1])
        if self._log_shares:
            by_all = np.zeros_like(self._at_label)
            for i, part, share in self._log_shares:
                by_all[..., part] += self._weight[:, i, None, None] * share
            self._at_label += by_all
            self._spread = self._spread - by_all.sum(2, keepdims=True)
        self._spread = np.broadcast_to(self._spread, self._label.shape)


def _tell_sizes(batch: MiniBatch) -> object:
    """What must be the same of mini-batches that are laid out together."""
    x, _, blocks = batch
    if blocks is None or not blocks.x.shape[1]:
        return x.shape
    sizes = [(name, label.shape[1]) for name, label in blocks.labels.items()]
    return (x.shape, *sizes, *blocks.counted, *blocks.taught)


def _join_block(blocks: Sequence["Blocks"], name: str, like: Tensor) -> BlockRows:
    """A block of many mini-batches: the rows of all models of the first one, of the second one, ..."""

    def join(values: Sequence[Mapping[str, Tensor]]) -> Tensor | None:
        return torch.cat([value[name] for value in values]) if name in values[0] else None

    label, counted, taught = (join([getattr(made, k) for made in blocks]) for k in ("labels", "counted", "taught"))
    assert label is not None
    return BlockRows(label, like, counted, taught)


def has_what_it_needs(term: object, blocks: Container[str]) -> bool:
    """Whether all blocks are there that a term looks at."""
    return all(block in blocks for block in getattr(term, "needs", ("x",)))
