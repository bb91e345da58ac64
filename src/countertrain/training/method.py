"""A training method as a value: which rows are made beside a mini-batch, and which terms look at them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from countertrain.constraints import Constraints
from countertrain.models.kernels import join_rows, pick_label
from countertrain.models.population import Models, Weight, per_model
from countertrain.search.losses import energy, log_probabilities
from countertrain.training.ranks import ALONE, Ranks
from countertrain.training.sampler import Sampler
from countertrain.training.sums import KnownShares, has_what_it_needs

__all__ = [
    "Block",
    "Blocks",
    "Method",
    "Session",
    "Task",
    "Term",
    "TermState",
    "Terms",
    "add_up",
    "blocks_needed",
    "needs",
    "slopes",
]


@dataclass(frozen=True, eq=False)
class Blocks:
    """Named blocks of rows beside a mini-batch, one after another as one forward pass takes them."""

    x: Tensor  # (P, m, *shape), m = m_1 + m_2 + ...
    labels: Mapping[str, Tensor]
    """Classes (P, m_i) of each block, in the order of the rows."""
    counted: Mapping[str, Tensor] = field(default_factory=dict)
    """(P, m_i) bool, for a block of which not every row counts."""
    taught: Mapping[str, Tensor] = field(default_factory=dict)
    """Probabilities (P, m_i, K) that a teacher gives, for a block that has one."""

    @classmethod
    def of(cls, **blocks: tuple[Tensor, Tensor]) -> Self:
        """Blocks from rows (P, m_i, *shape) and classes (P, m_i) by name."""
        return cls(torch.cat([x for x, _ in blocks.values()], dim=1), {name: y for name, (_, y) in blocks.items()})


class _Pass:
    """The logits of one forward pass, with losses and energies of all rows once somebody asks."""

    def __init__(self, x: Tensor, more: Tensor | None, logits: Tensor, label: Tensor) -> None:
        self._x, self._more, self.logits, self.label = x, more, logits, label
        self._log_p: Tensor | None = None
        self._loss: Tensor | None = None
        self._energy: Tensor | None = None

    def x(self) -> Tensor:
        return self._x if self._more is None else torch.cat([self._x, self._more], dim=1)

    def log_p(self) -> Tensor:
        """(P, K, n)."""
        if self._log_p is None:
            self._log_p = log_probabilities(self.logits)
        return self._log_p

    def loss(self) -> Tensor:
        if self._loss is None:
            self._loss = -pick_label(self.log_p(), self.label)
        return self._loss

    def energy(self) -> Tensor:
        if self._energy is None:
            self._energy = energy(self.logits, self.label)
        return self._energy


class Block:
    """One block of rows as a term sees it: m rows per model, their labels, and what the models say of them."""

    def __init__(
        self, seen: _Pass, part: slice | None, counted: Tensor | None = None, taught: Tensor | None = None
    ) -> None:
        self.seen, self.part, self._counted = seen, part, counted  # part: None for all rows of the pass
        self.taught = taught
        """Probabilities (P, m, K) that a teacher gives them; None where there is none."""
        self._loss: Tensor | None = None
        self._energy: Tensor | None = None

    @property
    def x(self) -> Tensor:
        """The rows, (P, m, *shape)."""
        return self._take(self.seen.x())

    @property
    def label(self) -> Tensor:
        """Their classes, (P, m): true ones, or targets."""
        return self._take(self.seen.label)

    @property
    def logits(self) -> Tensor:
        """(P, m, K)."""
        return self._take(self.seen.logits)

    @property
    def log_p(self) -> Tensor:
        """Logarithm of the probability of each class, (P, m, K)."""
        return self._take(self.seen.log_p().transpose(1, 2))

    @property
    def loss(self) -> Tensor:
        """Cross-entropy of the labels, (P, m)."""
        if self._loss is None:
            self._loss = self._take(self.seen.loss())
        return self._loss

    @property
    def energy(self) -> Tensor:
        """Energy of the labels, (P, m)."""
        if self._energy is None:
            self._energy = self._take(self.seen.energy())
        return self._energy

    def mean(self, values: Tensor) -> Tensor:
        """Mean over the rows that count: (P, m) -> (P,); nothing to count gives 0."""
        if self._counted is None:
            return values.mean(-1)
        return torch.where(self._counted, values, 0.0).sum(-1) / self._counted.sum(-1).clamp(min=1)

    def _take(self, values: Tensor) -> Tensor:
        return values if self.part is None else values[:, self.part]


@dataclass(frozen=True, eq=False)
class TermState:
    """All that a term may see: the models, the real rows as the block "x", and the blocks that the method made."""

    model: Models
    blocks: Mapping[str, Block]
    logits: Tensor  # (P, b + m, K) of the real rows and of all blocks, in their order

    def __getitem__(self, name: str) -> Block:
        return self.blocks[name]


class Term(Protocol):
    """A term of the objective: one number per model. It says which blocks it needs with `@needs`; else only "x"."""

    def __call__(self, state: TermState, /) -> Tensor:
        """Loss of each model, (P,)."""
        ...


Terms = Mapping[str, tuple[Weight, Term]]
"""Named terms with their weights."""


@dataclass(frozen=True, eq=False)
class _Needing:
    """A term, the blocks that it needs, and what their rows weigh in it, if it knows that."""

    function: Term
    needs: tuple[str, ...]
    shares: KnownShares | None

    def __call__(self, state: TermState) -> Tensor:
        return self.function(state)


def needs(*blocks: str, shares: KnownShares | None = None) -> Callable[[Term], Term]:
    """Say which blocks a term needs: where one of them is missing, the term is left out.

    A term that is a sum over rows of losses, energies, their squares or log-probabilities may know the `shares` of the
    rows in it. It costs less than one that is differentiated.
    """
    return lambda term: _Needing(term, blocks, shares)


def blocks_needed(terms: Terms) -> set[str]:
    """The blocks that any of the terms needs."""
    return {name for _, term in terms.values() for name in getattr(term, "needs", ("x",))}


@dataclass(frozen=True, eq=False)
class Task:
    """What a method is bound to: the training rows, what people can change, and who draws and shares."""

    x: Tensor  # (n, *shape)
    y: Tensor  # (n,)
    n_classes: int
    constraints: Constraints
    sampler: Sampler
    n_epochs: int | None = None
    """None: nobody knows yet."""
    ranks: Ranks = ALONE
    compiled: bool = False


class Session:
    """A method at work on one task. This one makes no rows; a method with rows of its own derives from it."""

    @property
    def ahead(self) -> bool:
        """Whether all rows of an epoch may be asked for before its first step, because no step changes them.

        A method that makes `rows`, or does something `after_step`, must say so itself.
        """
        return all(getattr(type(self), name) is getattr(Session, name) for name in ("rows", "after_step"))

    def before_epoch(self, model: Models, epoch: int, n_batches: int) -> None:
        """Called before the first of so many mini-batches of epoch 0, 1, ..."""

    def rows(self, model: Models, x: Tensor, y: Tensor) -> Blocks | None:
        """The blocks beside a mini-batch of rows (P, b, *shape) and classes (P, b)."""
        return None

    def after_step(self, model: Models, x: Tensor, y: Tensor) -> None:
        """Called after the models have learnt from a mini-batch; whatever the method trains itself has its turn."""

    def metrics(self) -> dict[str, Tensor]:
        """What there is to tell of the last epoch, (P,) each."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must keep, every tensor with a first axis of P models."""
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go back to where `state` was taken."""


@runtime_checkable
class Method(Protocol):
    """Which rows are made beside a mini-batch, and which terms look at them."""

    @property
    def terms(self) -> Terms:
        """What is trained on: the weighted sum of named terms."""
        ...

    def bind(self, task: Task, /) -> Session:
        """The method at work on a task; it sees the training rows here, once."""
        ...

    def member(self, i: int, /) -> "Method":
        """The method of model i of a population alone."""
        ...


def add_up(
    terms: Terms, model: Models, x: Tensor, y: Tensor, blocks: Blocks | None = None
) -> tuple[Tensor, dict[str, Tensor]]:
    """Total loss of each model (P,) and each term by name, for rows (P, b, *shape) and labels (P, b)."""
    return _sum(terms, _look(model, x, y, blocks))


def slopes(
    terms: Terms, model: Models, x: Tensor, y: Tensor, blocks: Blocks | None = None
) -> tuple[dict[str, Tensor], Sequence[Tensor | None]]:
    """The total and each term by name, (P,) each, and the derivatives of the total by the trainable parameters."""
    total, values = add_up(terms, model, x, y, blocks)
    # of the sum: models do not see one another
    gradients = torch.autograd.grad(total.sum(), model.trainable(), allow_unused=True)
    return {"loss": total.detach(), **{name: value.detach() for name, value in values.items()}}, gradients


def _sum(terms: Terms, state: TermState) -> tuple[Tensor, dict[str, Tensor]]:
    size, like = len(state.model), state.logits
    total = like.new_zeros(size)
    values: dict[str, Tensor] = {}
    for name, (weight, term) in terms.items():
        if has_what_it_needs(term, state.blocks):
            values[name] = term(state)
            share = per_model(weight, size, like)
            total = total + (share if isinstance(share, float) else share.squeeze(-1)) * values[name]
    return total, values


def _look(model: Models, x: Tensor, y: Tensor, blocks: Blocks | None) -> TermState:
    """One pass over real rows and all blocks together."""
    if blocks is None or not blocks.x.shape[1]:
        return _cut(model, x, y, None, model(x))
    if model.batch_dependent:  # batch statistics are of real rows only
        logits = model(x)
        with model.evaluating():
            logits = torch.cat([_cast(logits, x), model(blocks.x)], dim=1)
    else:
        logits = model(join_rows(x, blocks.x, last=model.rows_last and x.ndim == 3))
    return _cut(model, x, y, blocks, logits)


def _cut(model: Models, x: Tensor, y: Tensor, blocks: Blocks | None, logits: Tensor) -> TermState:
    """What terms may see of real rows and all blocks, of whose logits these are."""
    logits = _cast(logits, x)
    if blocks is None:
        seen = _Pass(x, None, logits, y)
        return TermState(model, {"x": Block(seen, None)}, logits)
    seen = _Pass(x, blocks.x, logits, torch.cat([y, *blocks.labels.values()], dim=1))
    first = x.shape[1]
    parts = {"x": Block(seen, slice(0, first))}
    for name, label in blocks.labels.items():
        part = slice(first, first + label.shape[1])
        parts[name] = Block(seen, part, blocks.counted.get(name), blocks.taught.get(name))
        first += label.shape[1]
    return TermState(model, parts, logits)


def _cast(logits: Tensor, x: Tensor) -> Tensor:
    """Logits in the type of the rows, which autocast may have changed."""
    return logits if logits.dtype == x.dtype else logits.to(x.dtype)
