"""Algorithm 1: counterfactual training of one model, or of a population of models at once."""

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from countertrain.constraints import Constraints
from countertrain.models.kernels import compile_seconds, compiled, settled
from countertrain.models.population import NotStackableError, Population, Weight, lay_out_like, member, rows_last
from countertrain.search.generator import Generator
from countertrain.search.generators import eccco
from countertrain.search.losses import cross_entropy, predict
from countertrain.search.state import Counterfactuals
from countertrain.training.checks import check_classes, check_data
from countertrain.training.history import EpochRecord, History
from countertrain.training.objective import Objective, ct
from countertrain.training.pairs import Group, Immature, Pairs, Sampler, pair_up
from countertrain.training.ranks import ALONE, Ranks, Shared
from countertrain.training.state import TrainingState

__all__ = ["Callback", "CounterfactualTrainer", "NonFiniteLossError", "default_n_ce", "fused_adam"]

Callback = Callable[[EpochRecord], bool | None]
"""Called after each epoch, when the modules hold the weights of that epoch; one that returns True ends the training."""
OptimizerFactory = Callable[[Iterable[Tensor]], torch.optim.Optimizer]

_ELEMENTWISE_OPTIMIZERS = (
    "SGD",
    "Adam",
    "AdamW",
    "NAdam",
    "RAdam",
    "Adamax",
    "RMSprop",
    "Adagrad",
    "Adadelta",
)
_PART = 2**14  # rows, of all models, scored together: their hidden units stay in cache, and a large file out of memory


def adam(parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """Adam with the paper's learning rate."""
    return fused_adam(parameters, lr=1e-3)


def fused_adam(parameters: Iterable[Tensor], *, lr: float) -> torch.optim.Optimizer:
    """Adam as one kernel, where every parameter fills its piece of memory; a view with gaps is none of its business."""
    parameters = list(parameters)
    return torch.optim.Adam(parameters, lr=lr, fused=all(_dense(p) for p in parameters))


def _dense(x: Tensor) -> bool:
    """Whether the numbers of x lie side by side in memory, in whatever order."""
    return torch.empty_like(x).stride() == x.stride()


class NonFiniteLossError(ArithmeticError):
    """The loss became NaN or infinite; the model keeps the weights of the last good epoch."""

    def __init__(self, message: str, history: History) -> None:
        super().__init__(message)
        self.history = history


@dataclass(frozen=True)
class CounterfactualTrainer:
    """Counterfactual training with fixed settings; `fit` trains a module, or a list of them as a population.

    The weights of the objective, the penalties of the generator, tau and epsilon may each be one number or one a model.
    """

    objective: Objective = field(default_factory=ct)
    generator: Generator = field(default_factory=eccco)
    constraints: Constraints | None = None
    """What people can change; None infers the domain from the training rows and lets every feature move."""
    epochs: int = 100
    batch_size: int = 30
    n_ce: int | None = None
    """n_CE, counterfactuals searched an epoch; None: 1000, or all rows if there are fewer."""
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
    optimizer: OptimizerFactory = adam
    """Builds the optimiser from the parameters; any of torch's will do."""
    shuffle: bool = False
    """New mini-batches each epoch; the authors' program keeps the order of the rows."""
    on_nonfinite: Literal["stop", "skip"] = "stop"
    """A non-finite loss ends the run with the last good weights; "skip" leaves out that update (as run)."""
    compiled: bool = False
    """Run search and objective as compiled code: a minute at first, for long runs of small models."""
    seed: int | Sequence[int] = 0
    """Of the random streams: one for all models, or one a model."""

    def __post_init__(self) -> None:
        for name, least in (("epochs", 0), ("batch_size", 1), ("n_neighbours", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}; got {getattr(self, name)}")
        if self.n_ce is not None and self.n_ce < 1:
            raise ValueError(f"n_ce must be at least 1; got {self.n_ce}")
        if not 0 <= self.burn_in <= 1:
            raise ValueError(f"burn_in is a share of the epochs, between 0 and 1; got {self.burn_in}")
        for name, allowed in (
            ("immature", ("neighbour", "drop")),
            ("generate", ("sweep", "batch")),
            ("on_nonfinite", ("stop", "skip")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {getattr(self, name)!r}")

    def fit(
        self,
        model: nn.Module | Sequence[nn.Module],
        x: Tensor,
        y: Tensor,
        *,
        validation: tuple[Tensor, Tensor] | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: Path | str | None = None,
        resume: bool = False,
        ranks: Ranks = ALONE,
    ) -> History:
        """Train on rows x (n, D) with classes y (n,), starting from the weights that the model has.

        With `checkpoint`, the state is written there after each epoch; `resume` goes on from it, and ends with
        the very weights of a run that was never stopped. Where several `ranks` call this with the same arguments, they
        train together; only the first of them calls back and writes. x may be mapped from a file that is larger than
        memory: it is read by the rows that are needed, or in parts.
        """
        modules = [model] if isinstance(model, nn.Module) else list(model)
        seeds = [self.seed] * len(modules) if isinstance(self.seed, int) else list(self.seed)
        if not modules or len(seeds) != len(modules):
            raise ValueError(f"fit needs one seed a model; got {len(modules)} models and {len(seeds)} seeds")
        check_data(modules, x, y, validation)
        checkpoint = Path(checkpoint) if checkpoint is not None else None
        try:
            population = self._population(modules, x)
        except NotStackableError as reason:
            return self._one_by_one(str(reason), modules, seeds, x, y, validation, callbacks, checkpoint, resume, ranks)
        n_classes = check_classes(population, x, y, validation)
        constraints = (self.constraints or Constraints.infer(x)).to(x)
        n_ce = self._n_ce(len(x))
        ranks.follow_first(population.parameters.values())
        sampler = Sampler(y, n_classes, seeds)
        state = TrainingState(population, self.optimizer(population.trainable()), sampler, str(seeds), ranks)
        if resume and checkpoint is not None and checkpoint.exists():
            state.load(checkpoint)
        ranks.wait()  # nobody changes the checkpoint before all have read it
        with population.training():
            while state.epoch < self.epochs:
                record, bad = self._epoch(state, x, y, constraints, n_ce, validation)
                state.finish(record, bad)
                if len(state.history.failures) == len(modules):
                    population.write_back()
                    raise NonFiniteLossError(next(iter(state.history.failures.values())), state.history)
                if checkpoint is not None and ranks.first:
                    state.save(checkpoint)
                population.write_back()
                enough = [callback(record) for callback in callbacks if ranks.first]
                if ranks.any(any(enough)):
                    break
        population.write_back()
        _warn(state.history)
        return state.history

    def _epoch(
        self,
        state: TrainingState,
        x: Tensor,
        y: Tensor,
        constraints: Constraints,
        n_ce: int,
        validation: tuple[Tensor, Tensor] | None,
    ) -> tuple[EpochRecord, dict[int, str]]:
        """One pass over the data (Alg. 1, lines 2-11): search, share out, descend."""
        started, compiled_before = time.perf_counter(), compile_seconds() if self.compiled else 0.0
        population, size, trainable = state.population, len(state.population), state.population.trainable()
        batches = self._batches(state.sampler, len(x))
        searching = self.objective.needs_counterfactuals and state.epoch >= round(self.burn_in * self.epochs)
        searches: list[dict[str, Tensor]] = []
        losses: list[dict[str, Tensor]] = []
        groups: Sequence[Group | None] = [None] * len(batches)
        slopes = compiled(Objective.slopes) if self.compiled else Objective.slopes
        if searching and self.generate == "sweep":
            groups = self._search(state, x, y, constraints, n_ce, searches).split(len(batches))
        for i, rows in enumerate(batches):
            group = groups[i]
            n = n_ce // len(batches) + (i < n_ce % len(batches))
            if searching and self.generate == "batch" and n:
                (group,) = self._search(state, x, y, constraints, n, searches).split(1)
            batch = (_taken(x, rows, size), _taken(y, rows, size))
            values, gradients = slopes(self.objective, state.model, *batch, group)
            losses.append(values)
            if self.on_nonfinite == "skip" and not torch.isfinite(values["loss"]).all():
                continue
            for parameter, gradient in zip(trainable, gradients, strict=True):
                parameter.grad = None if gradient is None else lay_out_like(parameter, gradient)
            state.ranks.add_gradients(trainable)
            state.optimizer.step()
        names = dict.fromkeys(name for loss in losses for name in loss)
        nothing = torch.zeros_like(losses[0]["loss"])
        curves = {name: torch.stack([loss.get(name, nothing) for loss in losses]) for name in names}  # (batches, P)
        metrics = {name: curve.mean(0) for name, curve in curves.items()}
        if searches:
            metrics |= {name: torch.stack([s[name] for s in searches]).mean(0) for name in searches[0]}
        metrics |= self._scores(state.model, x, y, "train")
        if validation is not None:
            metrics |= self._scores(state.model, *validation, "validation")
        epoch = state.epoch + 1
        bad = {} if self.on_nonfinite == "skip" else _non_finite(curves, population, metrics["train_loss"], epoch)
        compiling = compile_seconds() - compiled_before if self.compiled else 0.0
        seconds = time.perf_counter() - started - compiling
        record = EpochRecord(epoch, self.epochs, seconds, {k: v.tolist() for k, v in metrics.items()}, compiling)
        return record, {i: why for i, why in bad.items() if i not in state.history.failures}

    def _search(
        self,
        state: TrainingState,
        x: Tensor,
        y: Tensor,
        constraints: Constraints,
        n: int,
        log: list[dict[str, Tensor]],
    ) -> Pairs:
        """Counterfactuals of n random rows for the models as they are now, paired with real rows."""
        rows = state.sampler.factuals(n)  # (P, n)
        factual = x[rows]  # (P, n, D)
        with state.population.evaluating(), torch.no_grad():
            predicted = (compiled(_predicted) if self.compiled else _predicted)(state.model, factual)
        target = state.sampler.targets(predicted)
        mine = state.ranks.share(n)
        generator = replace(self.generator, compiled=True) if self.compiled else self.generator
        share = generator(
            state.population, factual[:, mine], target[:, mine], constraints=constraints, epsilon=self.epsilon
        )
        everyone = (state.ranks.gather(part, n) for part in (share.x, share.nascent, share.mature, share.n_steps))
        found = Counterfactuals(factual, target, *everyone)
        log.append({"mature": found.mature.float().mean(-1), "n_steps": found.n_steps.float().mean(-1)})
        x_plus = state.sampler.nearest(x, target, found.x, self.n_neighbours)
        return pair_up(found, y[rows], x_plus, constraints, self.immature)

    @torch.no_grad()
    def _scores(self, model: Population | Shared, x: Tensor, y: Tensor, name: str) -> dict[str, Tensor]:
        judge = compiled(_judged) if self.compiled else _judged
        losses, correct = [], []
        part = max(1, _PART // len(model))
        with model.evaluating():
            for rows, labels in zip(x.split(part), y.split(part), strict=True):
                loss, right = judge(model, rows, labels)
                losses.append(loss)
                correct.append(right)
        return {
            f"{name}_loss": torch.cat(losses, dim=1).mean(-1),
            f"{name}_accuracy": torch.cat(correct, dim=1).float().mean(-1),
        }

    def _batches(self, sampler: Sampler, n_rows: int) -> Sequence[Tensor | slice]:
        """Rows of each mini-batch: consecutive ones, the same for all models, or (P, b) of a new order a model."""
        if self.shuffle:
            return list(sampler.factuals(n_rows).split(self.batch_size, dim=1))
        return [slice(first, first + self.batch_size) for first in range(0, n_rows, self.batch_size)]

    def _n_ce(self, n_rows: int) -> int:
        if self.n_ce is None:
            return default_n_ce(n_rows)
        if self.n_ce > n_rows:
            raise ValueError(
                f"n_ce must be at most the number of training rows, {n_rows}; got {self.n_ce}; "
                "lower it, or leave it out"
            )
        return self.n_ce

    def _population(self, modules: Sequence[nn.Module], x: Tensor) -> Population:
        population = Population(modules)
        if len(modules) > 1:
            if self.on_nonfinite == "skip":
                raise NotStackableError("skipping an update is the affair of one model")
            kind = type(self.optimizer([torch.zeros(1, requires_grad=True)])).__name__
            if kind not in _ELEMENTWISE_OPTIMIZERS:
                raise NotStackableError(f"the optimiser {kind} may look at all parameters of a model together")
            population.verify(x[:2])
        return population

    def _one_by_one(
        self,
        reason: str,
        modules: Sequence[nn.Module],
        seeds: Sequence[int],
        x: Tensor,
        y: Tensor,
        validation: tuple[Tensor, Tensor] | None,
        callbacks: Sequence[Callback],
        checkpoint: Path | None,
        resume: bool,
        ranks: Ranks,
    ) -> History:
        """Train each model by itself, because they cannot be stacked."""
        warnings.warn(f"training {len(modules)} models one by one: {reason}", UserWarning, stacklevel=3)
        histories = []
        for i, (module, seed) in enumerate(zip(modules, seeds, strict=True)):
            alone = replace(
                self,
                objective=self.objective.member(i),
                generator=self.generator.member(i),
                epsilon=member(self.epsilon, i),
                seed=seed,
            )
            path = checkpoint and checkpoint.with_name(f"{checkpoint.stem}-{i}{checkpoint.suffix}")
            try:
                history = alone.fit(
                    module,
                    x,
                    y,
                    validation=validation,
                    callbacks=callbacks,
                    checkpoint=path,
                    resume=resume,
                    ranks=ranks,
                )
            except NonFiniteLossError as error:
                history = error.history
            histories.append(history)
        merged = History.merged(histories, reason)
        if len(merged.failures) == len(modules):
            raise NonFiniteLossError(merged.failures[0], merged)
        _warn(merged)
        return merged


def default_n_ce(n_rows: int) -> int:
    """Counterfactuals searched an epoch, unless the settings say so."""
    return min(1000, n_rows)


def _taken(values: Tensor, rows: Tensor | slice, size: int) -> Tensor:
    """These rows of the data for each of so many models, (P, b, ...)."""
    if isinstance(rows, Tensor):
        return values[rows]
    return values[rows].unsqueeze(0).expand(size, *[-1] * values.ndim)


def _warn(history: History) -> None:
    for i, why in history.failures.items():
        warnings.warn(f"model {i} stopped early: {why}", RuntimeWarning, stacklevel=3)


def _non_finite(curves: dict[str, Tensor], population: Population, train_loss: Tensor, epoch: int) -> dict[int, str]:
    """Where each model's loss first was NaN or infinite, or that its weights are so now."""
    way_out = (
        f"the model keeps its weights of epoch {epoch - 1}; lower the learning rate or lambda_div, or raise lambda_reg"
    )
    size = len(population)
    whole = [torch.isfinite(p).reshape(size, -1).all(1) for p in population.parameters.values()]
    whole.append(torch.isfinite(train_loss))
    broken = f"the weights or their loss are not finite after the last update of epoch {epoch}; {way_out}"
    bad = dict.fromkeys((~torch.stack(whole).all(0)).nonzero().flatten().tolist(), broken)
    for i in (~torch.isfinite(curves["loss"])).any(0).nonzero().flatten().tolist():
        batch = int((~torch.isfinite(curves["loss"][:, i])).nonzero()[0])
        terms = [name for name, curve in curves.items() if name != "loss" and not torch.isfinite(curve[batch, i])]
        said = f"epoch {epoch}, batch {batch + 1}, term {', '.join(terms) or 'loss'}"
        bad[i] = f"the loss is not finite at {said}; {way_out}"
    return bad


def _predicted(model: Population | Shared, x: Tensor) -> Tensor:
    """Class of each row under each model: (n, D) or (P, n, D) -> (P, n)."""
    return predict(_logits(model, x))


def _judged(model: Population | Shared, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of rows (n, D) of classes (n,) under each model, and whether it is right: (P, n) both."""
    logits = _logits(model, x)
    return cross_entropy(logits, y.expand(len(model), -1)), predict(logits) == y


def _logits(model: Population | Shared, x: Tensor) -> Tensor:
    if torch.compiler.is_compiling():  # it reads a feature of several rows at once
        x = settled(rows_last(x))
    return settled(model(x.expand(len(model), -1, -1)))
