"""Counterfactual training: the paper's terms, and the rows that they contrast (Alg. 1, lines 2-6)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import torch
from torch import Tensor

from countertrain.constraints import Constraints
from countertrain.models.kernels import choose, compiled, lay_rows_last, materialise
from countertrain.models.population import Models, Weight, member
from countertrain.search.generator import Generator
from countertrain.search.generators import eccco
from countertrain.search.losses import predict
from countertrain.search.state import Counterfactuals
from countertrain.search.writing import Writer
from countertrain.training.method import Blocks, Session, Task, Terms, TermState, blocks_needed, needs
from countertrain.training.ranks import unshared
from countertrain.training.sums import BlockRows, Shares
from countertrain.training.teaching import Lesson, Teacher
from countertrain.words import suggest

__all__ = [
    "BLOCKS",
    "CounterfactualMethod",
    "Immature",
    "Pairs",
    "advloss",
    "cross_with_teacher",
    "default_n_ce",
    "div",
    "pair_up",
    "ridge",
    "share_with_teacher",
    "teach",
    "yloss",
]

Immature = Literal["neighbour", "drop"]
BLOCKS = ("x", "x_ae", "x_ce", "x_plus")
"""Real rows, nascent counterfactuals, mature ones, and their neighbours."""


@needs("x", shares=lambda rows: {"x": Shares(loss=rows["x"].share)})
def yloss(state: TermState) -> Tensor:
    """Classification loss on the real rows."""
    return state["x"].loss.mean(-1)


def _share_divergence(rows: Mapping[str, BlockRows]) -> dict[str, Shares]:
    share = rows["x_ce"].share
    return {"x_plus": Shares(energy=share), "x_ce": Shares(energy=-share)}


@needs("x_ce", "x_plus", shares=_share_divergence)
def div(state: TermState) -> Tensor:
    """Contrastive divergence, Eq. (div): energy of the neighbours less that of the counterfactuals."""
    return state["x_ce"].mean(state["x_plus"].energy - state["x_ce"].energy)


@needs("x_ce", "x_plus", shares=lambda rows: dict.fromkeys(("x_plus", "x_ce"), Shares(square=rows["x_ce"].share)))
def ridge(state: TermState) -> Tensor:
    """Size of both energies, Eq. (ridge): keeps the divergence from running away."""
    return state["x_ce"].mean(state["x_plus"].energy.square() + state["x_ce"].energy.square())


@needs("x_ae", shares=lambda rows: {"x_ae": Shares(loss=rows["x_ae"].share)})
def advloss(state: TermState) -> Tensor:
    """Adversarial loss, Eq. (adv): nascent counterfactuals keep the true label of their factual."""
    return state["x_ae"].loss.mean(-1)


def cross_with_teacher(state: TermState, weight: Tensor | None = None) -> Tensor:
    """Cross-entropy with what the teacher says, (P,); as it would be had the classes weighed otherwise (K,)."""
    return -(_lesson(state["x_ce"].taught, weight) * state["x_ce"].log_p).sum(-1).mean(-1)


def share_with_teacher(rows: Mapping[str, BlockRows], weight: Tensor | None = None) -> dict[str, Shares]:
    """What rows weigh in `cross_with_teacher`."""
    taught = _lesson(rows["x_ce"].taught, weight)  # (P, m, K)
    return {"x_ce": Shares(log_p=taught / -taught.shape[1])}


def _lesson(taught: Tensor | None, weight: Tensor | None) -> Tensor:
    if taught is None:
        raise ValueError("the term 'teach' needs a teacher; give the method one: teacher=...")
    if weight is None:
        return taught
    taught = taught * weight
    return taught / taught.sum(-1, keepdim=True)


@needs("x_ce", shares=share_with_teacher)
def teach(state: TermState) -> Tensor:
    """Cross-entropy between a teacher's probabilities and the model's, where the model's own advice ends.

    It looks at every counterfactual, mature or not; where immature ones are replaced by their neighbours, at these.
    """
    return cross_with_teacher(state)


@dataclass(frozen=True)
class CounterfactualMethod:
    """Named terms over counterfactuals that are searched while the model trains.

    The weights of the terms, the penalties of the generator, tau and epsilon may each be one number or one per model.
    """

    terms: Terms
    generator: Generator = field(default_factory=eccco)
    n_ce: int | None = None
    """n_CE, counterfactuals searched per epoch; None: 1000, or all rows if there are fewer."""
    burn_in: float = 0.0
    """Share of the epochs trained conventionally before the first search."""
    epsilon: Weight = 0.3
    """epsilon, how far a nascent counterfactual may be from its factual in any feature."""
    immature: Immature = "neighbour"
    """Counterfactuals that did not reach tau: replaced by their neighbour (as run), or dropped."""
    n_neighbours: int = 1
    """x_plus is the one nearest to its counterfactual of so many random rows of the target class; as run, of one."""
    generate: Literal["sweep", "batch"] = "sweep"
    """One search before each epoch, shared out over its mini-batches; or one before each mini-batch."""
    teacher: Teacher | None = None
    """Fitted to the training rows, out of fold, it says what it makes of each counterfactual: for the term `teach`."""
    teacher_sees: Literal["all", "mutable"] = "all"
    """Whether the teacher looks at features that nobody can change."""

    def __post_init__(self) -> None:
        for name in ("n_ce", "n_neighbours"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}")
        if not 0 <= self.burn_in <= 1:
            raise ValueError(f"burn_in is a share of the epochs, between 0 and 1; got {self.burn_in}")
        choices = {
            "immature": ("neighbour", "drop"),
            "generate": ("sweep", "batch"),
            "teacher_sees": ("all", "mutable"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {getattr(self, name)!r}")

    @property
    def needs_counterfactuals(self) -> bool:
        """Whether any term looks at counterfactuals: without one, no search is made."""
        return bool(blocks_needed(self.terms) - {"x"})

    def bind(self, task: Task) -> Session:
        """The method on training rows; REVISE's autoencoder and the like are fitted here."""
        for name, (_, term) in self.terms.items():
            for block in blocks_needed({name: (1.0, term)}) - {*BLOCKS}:
                raise ValueError(f"the term {name!r} needs the block {block!r}; {suggest(block, BLOCKS)}")
        if not self.needs_counterfactuals:
            return Session()
        if self.burn_in and task.n_epochs is None:
            raise ValueError("burn_in is a share of the epochs, so somebody must say how many there are: epochs=...")
        n_rows = len(task.x)
        if self.n_ce is not None and self.n_ce > n_rows:
            raise ValueError(
                f"n_ce must be at most the number of training rows, {n_rows}; got {self.n_ce}; "
                "lower it, or leave it out"
            )
        generator = self.generator.bind(task.x, task.y)
        return _CounterfactualSession(replace(self, generator=replace(generator, compiled=task.compiled)), task)

    def member(self, i: int) -> Self:
        """The method of model i alone."""
        return replace(
            self,
            terms={name: (member(weight, i), term) for name, (weight, term) in self.terms.items()},
            generator=self.generator.member(i),
            epsilon=member(self.epsilon, i),
        )


class _CounterfactualSession(Session):
    """Searches, pairs up and shares out."""

    def __init__(self, method: CounterfactualMethod, task: Task) -> None:
        self._writer = _begin_writing(method.generator, task)
        if self._writer is not None:
            method = replace(method, generator=replace(method.generator, start=self._writer))
        self._method, self._task = method, task
        self._needed = blocks_needed(method.terms)
        self._n_ce = default_n_ce(len(task.x)) if method.n_ce is None else method.n_ce
        self._first = round(method.burn_in * (task.n_epochs or 0))  # the first epoch with a search
        self._shares: Iterator[Blocks | int] = iter(())
        self._lesson = None if method.teacher is None else _begin_lesson(method, task)
        self._log: list[dict[str, Tensor]] = []

    @property
    def ahead(self) -> bool:
        """Where one search serves the whole epoch."""
        return self._method.generate == "sweep"

    def before_epoch(self, model: Models, epoch: int, n_batches: int) -> None:
        """Search once for the whole epoch; or say how many to search for each mini-batch."""
        self._log = []
        if epoch < self._first:
            self._shares = iter(())
        elif self._method.generate == "sweep":
            self._shares = iter(self._search(model, self._n_ce).split(n_batches, self._needed))
        else:
            self._shares = iter([self._n_ce // n_batches + (i < self._n_ce % n_batches) for i in range(n_batches)])

    def rows(self, model: Models, x: Tensor, y: Tensor) -> Blocks | None:
        """The share of this mini-batch in the counterfactuals of the epoch."""
        share = next(self._shares, None)
        if isinstance(share, int):
            return self._search(model, share).split(1, self._needed)[0] if share else None
        return share

    def metrics(self) -> dict[str, Tensor]:
        """Share of mature counterfactuals, and the steps that a search took."""
        names = self._log[0] if self._log else ()
        return {name: torch.stack([found[name] for found in self._log]).mean(0) for name in names}

    def state(self) -> dict[str, Tensor]:
        """Of a search that learns beside the model, what it has learnt; any other keeps nothing."""
        return {} if self._writer is None else self._writer.state()

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go back to where `state` was taken."""
        if self._writer is not None:
            self._writer.load(state)

    # --8<-- [start:search]
    def _search(self, model: Models, n: int) -> "Pairs":
        """Counterfactuals of n random rows for the models as they are now, paired with real rows."""
        task, method = self._task, self._method
        rows = task.sampler.factuals(n)  # (P, n)
        factual = task.x[rows]  # (P, n, *shape)
        with model.evaluating(), torch.no_grad():
            predicted = (compiled(_predict) if task.compiled else _predict)(model, factual)
        target = task.sampler.targets(predicted)
        mine = task.ranks.share(n)
        if self._writer is not None:  # every rank learns the same
            self._writer.practise(method.generator, unshared(model), factual, target, task.constraints)
        share = method.generator(
            unshared(model),
            factual[:, mine],
            target[:, mine],
            constraints=task.constraints,
            epsilon=method.epsilon,
            seed=self._row_seeds(rows)[:, mine],
        )
        everyone = (task.ranks.gather(part, n) for part in (share.x, share.nascent, share.mature, share.n_steps))
        found = keep_rules(Counterfactuals(factual, target, *everyone), model, task.constraints)
        self._log.append({"mature": found.mature.float().mean(-1), "n_steps": found.n_steps.float().mean(-1)})
        x_plus = task.sampler.nearest(task.x, target, found.x, method.n_neighbours)
        pairs = pair_up(found, task.y[rows], x_plus, task.constraints, method.immature)
        return pairs if self._lesson is None else replace(pairs, taught=self._lesson(pairs.x_ce, rows))

    # --8<-- [end:search]

    def _row_seeds(self, rows: Tensor) -> Tensor:
        """New ones for each search, where any part of it draws; else the places of the rows, which nobody looks at."""
        generator = self._method.generator
        if not (generator.rule.draws or generator.start.draws):
            return rows
        return self._task.sampler.draw(lambda stream: torch.randint(2**62, rows.shape[1:], generator=stream))


@dataclass(frozen=True, eq=False)
class Pairs:
    """Counterfactuals beside real rows of their target class, n per model."""

    x_ce: Tensor  # (P, n, *shape)
    x_plus: Tensor  # (P, n, *shape)
    x_ae: Tensor  # (P, n, *shape)
    target: Tensor  # (P, n)
    y_ae: Tensor  # (P, n)
    counted: Tensor | None  # (P, n) bool, or None where every pair counts
    taught: Tensor | None = None  # (P, n, K) what a teacher makes of x_ce, if there is one

    def split(self, n_groups: int, needed: set[str] | None = None) -> list[Blocks]:
        """Consecutive groups of sizes that differ by at most one, the larger ones first; only of the blocks needed."""
        labels = {"x_ae": self.y_ae, "x_ce": self.target, "x_plus": self.target}
        labels = {name: label for name, label in labels.items() if needed is None or name in needed}
        n = self.target.shape[1]
        sizes = [n // n_groups + (i < n % n_groups) for i in range(n_groups)]
        group = torch.arange(n_groups).repeat_interleave(torch.tensor(sizes))  # (n,)
        order = torch.cat([len(labels) * group + i for i in range(len(labels))]).argsort(stable=True)
        rows = torch.cat([getattr(self, name) for name in labels], dim=1).index_select(1, order.to(self.target.device))
        packed = rows.split([len(labels) * m for m in sizes], dim=1)
        shares: dict[str, Sequence[Tensor]] = {name: label.split(sizes, dim=1) for name, label in labels.items()}
        counted, taught = (None if each is None else each.split(sizes, dim=1) for each in (self.counted, self.taught))
        return [
            Blocks(
                packed[i],
                {name: share[i] for name, share in shares.items()},
                {} if counted is None else {"x_ce": counted[i], "x_plus": counted[i]},
                {} if taught is None else {"x_ce": taught[i]},
            )
            for i in range(n_groups)
        ]


def _begin_writing(generator: Generator, task: Task) -> Writer | None:
    """The networks that learn to write counterfactuals beside the models, where the search is by such."""
    begin = getattr(generator.start, "begin", None)
    if begin is None:
        return None
    seeds = task.sampler.draw(lambda stream: torch.randint(2**31, (1,), generator=stream)).flatten().tolist()
    return begin(task.x, task.n_classes, seeds)  # type: ignore[no-any-return]  # a start that learns, see its protocol


def _begin_lesson(method: CounterfactualMethod, task: Task) -> Lesson:
    """The teacher of a method, fitted to the rows of a task."""
    assert method.teacher is not None
    fixed = ~(task.constraints.may_increase | task.constraints.may_decrease)  # (D,)
    hidden = fixed if method.teacher_sees == "mutable" else None
    return Lesson.of(method.teacher, task.x, task.y, task.n_classes, hidden)


def keep_rules(found: Counterfactuals, model: Models, constraints: Constraints) -> Counterfactuals:
    """Counterfactuals in which the rules between features hold; mature are those that still have their target class."""
    if constraints.repair is None:
        return found
    x = constraints.mend(found.x, found.factual)
    moved = (x != found.x).flatten(2).any(-1)  # (P, n)
    with model.evaluating(), torch.no_grad():
        mature = found.mature & (~moved | (_predict(model, x) == found.target))
    return replace(found, x=x, mature=mature)


def pair_up(
    found: Counterfactuals,
    y: Tensor,
    x_plus: Tensor,
    constraints: Constraints | None,
    immature: Immature,
) -> Pairs:
    """Contrast each counterfactual with its neighbour in the target class.

    Immature ones are replaced by the neighbour (they add nothing to the divergence, but count) or dropped.
    Features that may not move towards the neighbour are protected: there the neighbour takes the counterfactual's
    value, so that the divergence cannot ask for what a person cannot do.
    """
    x_ce, counted = found.x, None
    if immature == "neighbour":
        x_ce = choose(found.mature, x_ce, x_plus)
    else:
        counted = found.mature
    if constraints is not None:
        x_plus = constraints.reachable(x_plus, x_ce)
    return Pairs(x_ce, x_plus, found.nascent, found.target, y, counted)


def default_n_ce(n_rows: int) -> int:
    """Counterfactuals searched per epoch, unless somebody says how many."""
    return min(1000, n_rows)


def _predict(model: Models, x: Tensor) -> Tensor:
    """Class of each row under its model: (P, n, *shape) -> (P, n)."""
    return predict(materialise(model(lay_rows_last(x))))
