"""Algorithm 1: counterfactual training of one model, or of a population of models at once."""

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Dataset

from countertrain.constraints import Constraints
from countertrain.models.kernels import compile_seconds, compiled, lay_rows_last, materialise
from countertrain.models.population import Models, NotStackableError, Population
from countertrain.models.steps import fused_adam, set_gradients, take_step
from countertrain.search.losses import cross_entropy, predict
from countertrain.training.averages import Averages
from countertrain.training.batches import Batches, Rows
from countertrain.training.checks import check_classes, check_dtype, check_rows, gather_rows
from countertrain.training.history import BatchRecord, EpochRecord, History
from countertrain.training.loss import CounterfactualLoss, make_task
from countertrain.training.method import Method
from countertrain.training.methods import ct
from countertrain.training.ranks import ALONE, Ranks, share_out
from countertrain.training.state import Remembering, TrainingState
from countertrain.training.sums import average_terms
from countertrain.training.trouble import NonFiniteLossError, find_non_finite, warn_of_failures

__all__ = ["BatchCallback", "Callback", "CounterfactualTrainer"]

Callback = Callable[[EpochRecord], bool | None]
"""Called after each epoch, when the modules hold the weights of that epoch; one that returns True ends the training."""
BatchCallback = Callable[[BatchRecord], None]
"""Called after each mini-batch."""
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
_SCORED, _BLOCKS = 4096, 16  # training rows of which loss and accuracy are told after each epoch, and their blocks


def adam(parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """Adam with the paper's learning rate."""
    return fused_adam(parameters, lr=1e-3)


@dataclass(frozen=True, eq=False)
class _Fit:
    """What one call of `fit` was given, looked at and put into order."""

    modules: Sequence[nn.Module]
    seeds: Sequence[int]
    batches: Batches
    validation: Rows | None
    callbacks: Sequence[Callback]
    on_batch: Sequence[BatchCallback]
    checkpoint: Path | None
    resume: bool
    ranks: Ranks
    note: str
    first_model: int = 0

    @property
    def passing(self) -> list[Callback]:
        """The callbacks of which a checkpoint holds nothing."""
        return [callback for callback in self.callbacks if not isinstance(callback, Remembering)]

    def member(self, i: int) -> "_Fit":
        """The same for model i alone, with a checkpoint of its own."""
        path = self.checkpoint and self.checkpoint.with_name(f"{self.checkpoint.stem}-{i}{self.checkpoint.suffix}")
        return replace(self, modules=self.modules[i : i + 1], seeds=[self.seeds[i]], checkpoint=path, first_model=i)


@dataclass(frozen=True)
class CounterfactualTrainer:
    """Counterfactual training with fixed settings; `fit` trains a module, or a list of them as a population."""

    objective: Method = field(default_factory=ct)
    """The training method: `methods.ct(...)` with all that it searches, or any other."""
    constraints: Constraints | None = None
    """What people can change; None infers the domain from the training rows and lets every feature move."""
    epochs: int = 100
    batch_size: int = 30
    optimizer: OptimizerFactory | torch.optim.Optimizer = adam
    """Builds the optimiser from the parameters, any of torch's; or an optimiser of one model's own parameters."""
    scheduler: Callable[[torch.optim.Optimizer], LRScheduler] | None = None
    """Builds a schedule of the learning rate from the optimiser; it goes on after each epoch."""
    shuffle: bool = False
    """New mini-batches each epoch; the authors' program keeps the order of the rows."""
    on_nonfinite: Literal["stop", "skip"] = "stop"
    """A non-finite loss ends the run with the last good weights; "skip" leaves out that update (as run)."""
    compiled: bool = False
    """Run search and objective as compiled code: a minute at first, for long runs of small models."""
    device: str | torch.device | None = None
    """Where to train; None: where the rows are."""
    project: Callable[[Mapping[str, Tensor]], None] | None = None
    """Called after each update with all parameters by name, with an axis of models before the others if there are
    several: what keeps them where they must be, such as `Monotone.project`."""
    averaging: float = 0.0
    """What is scored and kept is the mean of the weights over updates, each counting so many times as much as the one
    after it, for example 0.995; with 0, it is the last weights."""
    seed: int | Sequence[int] = 0
    """Of the random streams: one for all models, or one per model."""

    def __post_init__(self) -> None:
        for name, least in (("epochs", 0), ("batch_size", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}; got {getattr(self, name)}")
        if not 0 <= self.averaging < 1:
            raise ValueError(f"averaging must be at least 0 and below 1; got {self.averaging}")
        if self.on_nonfinite not in ("stop", "skip"):
            raise ValueError(f"on_nonfinite must be one of stop, skip; got {self.on_nonfinite!r}")

    def fit(
        self,
        model: nn.Module | Sequence[nn.Module],
        x: Any,
        y: Any = None,
        *,
        validation: Any = None,
        callbacks: Sequence[Callback] = (),
        on_batch: Sequence[BatchCallback] = (),
        checkpoint: Path | str | None = None,
        resume: bool = False,
        ranks: Ranks = ALONE,
        note: str = "",
    ) -> History:
        """Train on rows x (n, *shape) with classes y (n,), starting from the weights that the model has.

        Rows and classes may be tensors, arrays or lists; or x alone is a Dataset, or a DataLoader, whose mini-batches
        are then taken as they come. With `checkpoint`, the state is written there after each epoch; `resume` goes on
        from it, unless it has another `note`, and ends with the very weights of a run that was never stopped. Where
        several `ranks` call this with the same arguments, they train together; only the first of them calls back and
        writes. x may be mapped from a file that is larger than memory: it is read by the rows that are needed, or in
        parts.
        """
        modules = [model] if isinstance(model, nn.Module) else list(model)
        seeds = [self.seed] * len(modules) if isinstance(self.seed, int) else list(self.seed)
        if not modules or len(seeds) != len(modules):
            raise ValueError(f"fit needs one seed per model; got {len(modules)} models and {len(seeds)} seeds")
        given = _Fit(
            modules,
            seeds,
            self._batches(modules, x, y),
            self._validation(modules, validation),
            callbacks,
            on_batch,
            Path(checkpoint) if checkpoint is not None else None,
            resume,
            ranks,
            note,
        )
        _check(given)
        return self._train(given)

    def _train(self, given: _Fit) -> History:
        """All epochs, and what comes between them."""
        try:
            state = self._begin(given)
        except NotStackableError as reason:
            return self._train_one_by_one(given, str(reason))
        with state.population.training():
            while state.epoch < self.epochs and not state.over:
                record, bad = self._run_epoch(state, given)
                state.finish(record, bad)
                if len(state.history.failures) == len(given.modules):
                    state.population.write_back()
                    raise NonFiniteLossError(next(iter(state.history.failures.values())), state.history)
                state.population.write_back()
                if given.ranks.first:
                    state.watch(record)
                    if given.checkpoint is not None:
                        state.save(given.checkpoint)
                enough = [callback(record) for callback in given.passing if given.ranks.first]
                if given.ranks.any(state.over or any(enough)):
                    break
        state.population.write_back()
        warn_of_failures(state.history)
        return state.history

    def _begin(self, given: _Fit) -> TrainingState:
        """Models, optimiser and method before the first epoch, or after the last one of a checkpoint."""
        population, batches = self._stack(given.modules, given.batches.x), given.batches
        if given.validation is not None:
            check_classes(population, batches.x, batches.y, given.validation)
        given.ranks.follow_first(population.parameters.values())
        task = make_task(
            population,
            batches.x,
            batches.y,
            constraints=self.constraints,
            seed=given.seeds,
            n_epochs=self.epochs,
            ranks=given.ranks,
            compiled=self.compiled,
        )
        loss = CounterfactualLoss(share_out(population, given.ranks), task, objective=self.objective)
        optimizer = self._optimizer(population)
        scheduler = None if self.scheduler is None else self.scheduler(optimizer)
        state = TrainingState(
            population,
            optimizer,
            loss,
            given.seeds,
            scheduler,
            remembering=[callback for callback in given.callbacks if isinstance(callback, Remembering)],
            averages=Averages(population.parameters, self.averaging) if self.averaging else None,
            first_model=given.first_model,
            note=given.note,
        )
        if given.resume and given.checkpoint is not None and given.checkpoint.exists():
            state.load(given.checkpoint)
        given.ranks.wait()  # nobody changes the checkpoint before all have read it
        return state

    # --8<-- [start:algorithm]
    def _descend(self, state: TrainingState, given: _Fit) -> list[Mapping[str, Tensor]]:
        """Algorithm 1, one epoch: for each mini-batch the loss and every term that it had, (P,) by name."""
        loss, parameters, n_batches = state.loss, state.population.trainable(), len(given.batches)
        mini_batches = given.batches.epoch(loss.sampler)
        loss.begin_epoch(n_batches)  # lines 2-6: factuals, targets, counterfactuals, neighbours
        curves: list[Mapping[str, Tensor]] = []
        # lines 7-9: yloss + div + advloss + ridge of each mini-batch, by the weights as they are then
        for (x, y), values, gradients in loss.slopes(mini_batches, ahead=not given.on_batch):
            curves.append(values)
            if self.on_nonfinite == "skip" and not torch.isfinite(values["loss"]).all():
                continue
            set_gradients(parameters, gradients)
            given.ranks.add_gradients(parameters)
            take_step(state.optimizer)  # line 10
            if self.project is not None:
                self.project(state.population.parameters)
            if state.averages is not None:
                state.averages.add()
            loss.session.after_step(loss.model, x, y)
            for callback in given.on_batch if given.ranks.first else ():
                callback(BatchRecord(state.epoch + 1, len(curves), n_batches, values, given.first_model))
        if state.scheduler is not None:
            state.scheduler.step()
        return curves

    # --8<-- [end:algorithm]

    def _run_epoch(self, state: TrainingState, given: _Fit) -> tuple[EpochRecord, dict[int, str]]:
        """One epoch: descend, score, and look for what went wrong, model by model."""
        started, compiled_before = time.perf_counter(), compile_seconds() if self.compiled else 0.0
        with self._averaging(state):
            curves = self._descend(state, given)
        metrics = average_terms(curves) | state.loss.session.metrics()
        metrics |= self._score(state.loss.model, *_take_some(given.batches.x, given.batches.y), "train")
        if given.validation is not None:
            metrics |= self._score(state.loss.model, *given.validation, "validation")
        epoch, bad = state.epoch + 1, {}
        if self.on_nonfinite == "stop":
            bad = find_non_finite(curves, state.population, metrics, epoch)
        compiling = compile_seconds() - compiled_before if self.compiled else 0.0
        seconds = time.perf_counter() - started - compiling
        told = {name: values.tolist() for name, values in metrics.items()}
        record = EpochRecord(epoch, self.epochs, seconds, told, compiling, given.first_model)
        return record, {i: why for i, why in bad.items() if i not in state.history.failures}

    @contextmanager
    def _averaging(self, state: TrainingState) -> Iterator[None]:
        """Inside, the weights are the last ones, which are trained; outside, their means."""
        if state.averages is None:
            yield
            return
        state.averages.exchange()
        yield
        state.averages.exchange()
        if self.project is not None:
            self.project(state.population.parameters)  # rounding knows nothing of orders

    @torch.no_grad()
    def _score(self, model: Models, x: Tensor, y: Tensor, name: str) -> dict[str, Tensor]:
        """Loss and accuracy of each model on rows x (n, *shape), (P,) each."""
        judge = compiled(_judge) if self.compiled else _judge
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

    def _batches(self, modules: Sequence[nn.Module], x: Any, y: Any) -> Batches:
        """Rows in any form, and how they come in mini-batches; models and rows are brought to the device."""
        whole = isinstance(x, DataLoader | Dataset)
        if whole and y is not None:
            raise TypeError(f"a {type(x).__name__} holds its classes itself; leave out y")
        for module in modules if self.device is not None else ():
            module.to(self.device)
        rows, labels = gather_rows(x if whole else (x, y), like=_parameters(modules))
        if self.device is not None:
            rows, labels = rows.to(self.device), labels.to(self.device)
        loader = x if isinstance(x, DataLoader) else None
        return Batches(rows, labels, self.batch_size, self.shuffle, loader)

    def _validation(self, modules: Sequence[nn.Module], validation: Any) -> Rows | None:
        if validation is None:
            return None
        x, y = gather_rows(validation, like=_parameters(modules))
        return (x, y) if self.device is None else (x.to(self.device), y.to(self.device))

    def _optimizer(self, population: Population) -> torch.optim.Optimizer:
        if not isinstance(self.optimizer, torch.optim.Optimizer):
            return self.optimizer(population.trainable())
        known = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        if not known <= {id(p) for p in population.trainable()}:
            raise ValueError(
                "the optimiser moves parameters that are not the model's; build it from model.parameters(), or give a "
                "function that builds one from parameters"
            )
        return self.optimizer

    def _stack(self, modules: Sequence[nn.Module], x: Tensor) -> Population:
        population = Population(modules)
        if len(modules) > 1:
            if self.on_nonfinite == "skip":
                raise NotStackableError("skipping an update is the affair of one model")
            if isinstance(self.optimizer, torch.optim.Optimizer):
                raise ValueError("several models need a function that builds an optimiser; got an optimiser of one")
            kind = type(self.optimizer([torch.zeros(1, requires_grad=True)])).__name__
            if kind not in _ELEMENTWISE_OPTIMIZERS:
                raise NotStackableError(f"the optimiser {kind} may look at all parameters of a model together")
            population.verify(x[:2])
        return population

    def _train_one_by_one(self, given: _Fit, reason: str) -> History:
        """Train each model by itself, because they cannot be stacked."""
        n = len(given.modules)
        warnings.warn(f"training {n} models one by one: {reason}", UserWarning, stacklevel=4)
        histories = []
        for i in range(n):
            try:
                histories.append(replace(self, objective=self.objective.member(i))._train(given.member(i)))
            except NonFiniteLossError as error:
                histories.append(error.history)
        merged = History.merged(histories, reason)
        if len(merged.failures) == n:
            raise NonFiniteLossError(merged.failures[0], merged)
        warn_of_failures(merged)
        return merged


def _check(given: _Fit) -> None:
    """Refuse rows and labels that no model could be trained on."""
    check_rows(given.batches.x, given.batches.y)
    if not len(given.batches):
        raise ValueError("the DataLoader gives no mini-batch; lower its batch_size, or leave out drop_last")
    if given.validation is not None:
        check_rows(*given.validation, name="validation ", shape=given.batches.x.shape[1:])
    check_dtype(_parameters(given.modules), given.batches.x)


def _take_some(x: Tensor, y: Tensor) -> Rows:
    """Rows and classes of which training is scored: all, or blocks that are evenly spread, as a file is best read."""
    if len(y) <= _SCORED:
        return x, y
    block = _SCORED // _BLOCKS
    parts = [slice(first, first + block) for first in range(0, len(y) - block + 1, (len(y) - block) // (_BLOCKS - 1))]
    return torch.cat([x[part] for part in parts]), torch.cat([y[part] for part in parts])


def _parameters(modules: Sequence[nn.Module]) -> list[Tensor]:
    return [parameter for module in modules for parameter in module.parameters()]


def _judge(model: Models, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of rows (n, *shape) of classes (n,) under each model, and whether it is right: (P, n) both."""
    logits = materialise(model(lay_rows_last(x).expand(len(model), *x.shape)))
    return cross_entropy(logits, y.expand(len(model), -1)), predict(logits) == y
