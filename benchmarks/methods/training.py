"""Training of the trials of a method: as one population where possible, all seeds of a trial always."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.methods.cells import Cell
from benchmarks.methods.contenders import CONTENDERS
from countertrain.models.architectures import Ensemble
from countertrain.models.deciding import Committee, as_one
from countertrain.models.population import Models, Population
from countertrain.runs.grid import populations
from countertrain.runs.measure import Training
from countertrain.runs.registry import OwnCode
from countertrain.runs.settings import Settings
from countertrain.search.generator import Generator
from countertrain.tables import Dataset
from countertrain.training import methods
from countertrain.training.counternet import WritingSession
from countertrain.training.method import Method, Session, Task, Terms

__all__ = ["Trained", "time_epoch", "train_trials"]

_TIMED = 3  # epochs by which training is timed


@dataclass(frozen=True)
class _Watched:
    """A method whose session can be looked at after training."""

    method: Method
    sessions: list[Session] = field(default_factory=list)

    @property
    def terms(self) -> Terms:
        return self.method.terms

    def bind(self, task: Task) -> Session:
        self.sessions.append(self.method.bind(task))
        return self.sessions[-1]

    def member(self, i: int) -> Method:
        return self.method.member(i)


@dataclass(frozen=True)
class _Written:
    """A search that starts where a network has written the counterfactual, and is done."""

    session: WritingSession
    draws = False

    def __call__(self, factual: Tensor, target: Tensor, seed: Tensor) -> Tensor:
        with torch.no_grad():
            return self.session.write(factual, target)


@dataclass(frozen=True, eq=False)
class Trained:
    """The models of one trial, what it took, and the search that it brings along, if any."""

    settings: Settings
    models: Sequence[nn.Module]
    cpu_seconds: float
    trial: Mapping[str, Any]
    """The settings in which it differs from other trials."""
    generator: Generator | None = None

    @property
    def flocks(self) -> list[Models]:
        """The models as they are run: all at once, or one ensemble after the other."""
        ensembles = [model for model in self.models if isinstance(model, Ensemble)]
        return [Committee([*each.models]) for each in ensembles] if ensembles else [Population(self.models)]


def train_trials(cell: Cell, data: Dataset, trials: Sequence[Mapping[str, Any]]) -> list[Trained]:
    """Trials that differ in nothing else than populations may are trained as one."""
    contender = CONTENDERS[cell.method]
    if contender.writes:
        return [_train_writer(cell, data, trial) for trial in trials]
    runs = [cell.settings(trial) for trial in trials]
    models: dict[str, tuple[list[nn.Module], float]] = {}
    for group in populations(runs) if contender.together else [[run] for run in runs]:
        started = time.process_time()
        training = Training.begin(group, data)
        training.fit(fail=False)
        share = (time.process_time() - started) / len(group)
        n = len(training.models) // len(group)
        for i, run in enumerate(group):
            models[run.to_toml()] = _unite(cell, training.models[i * n : (i + 1) * n]), share
    return [Trained(run, *models[run.to_toml()], trial) for run, trial in zip(runs, trials, strict=True)]


def _unite(cell: Cell, models: Sequence[nn.Module]) -> list[nn.Module]:
    """One model for each seed, of as many members as decide together."""
    n = CONTENDERS[cell.method].members
    return [as_one(models[i : i + n]) for i in range(0, len(models), n)]


def _train_writer(cell: Cell, data: Dataset, trial: Mapping[str, Any]) -> Trained:
    """A classifier beside a network that writes its counterfactuals, of which no setting speaks."""
    run, watched = cell.settings({}), _Watched(methods.counternet(**trial))
    started = time.process_time()
    training = Training.begin([run], data, own=OwnCode(objective=watched))
    training.fit(fail=False)
    (session,) = watched.sessions
    assert isinstance(session, WritingSession)
    search = Generator((), start=_Written(session), n_steps=0, tau=0.95)
    return Trained(run, _unite(cell, training.models), time.process_time() - started, trial, search)


def time_epoch(trained: Trained, data: Dataset) -> list[float]:
    """CPU seconds of one epoch for each model, where those of all seeds train as one population."""
    training = Training.begin([trained.settings.change(epochs=_TIMED, early_stopping=False)], data)
    started = time.process_time()
    training.fit(fail=False)
    n = len(trained.models)
    return [(time.process_time() - started) / _TIMED / n] * n
