"""Runs trained as one population, and models measured: the only fit-and-measure there is."""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Self

import pandas as pd
import torch
from torch import nn

from countertrain.evaluation.metrics import known
from countertrain.evaluation.protocol import EvaluationProtocol, evaluate
from countertrain.models.population import Population
from countertrain.runs.calibration import calibrate
from countertrain.runs.callbacks import EarlyStopping
from countertrain.runs.modules import private_stream
from countertrain.runs.monotone import build_monotone
from countertrain.runs.registry import NOTHING_OWN, OwnCode, build_constraints, build_models, build_trainer
from countertrain.runs.settings import Settings
from countertrain.runs.weighting import class_weights
from countertrain.tables import Dataset
from countertrain.tables.dataset import Split
from countertrain.training.history import History
from countertrain.training.ranks import ALONE, Ranks
from countertrain.training.state import keep_models
from countertrain.training.trainer import Callback
from countertrain.training.trouble import NonFiniteLossError

__all__ = ["Scores", "Training", "measure", "predictive"]


@dataclass(frozen=True, eq=False)
class Training:
    """Runs that train as one population on a data set, may stop at some epoch, and go on from there."""

    runs: tuple[Settings, ...]
    data: Dataset
    models: tuple[nn.Module, ...]
    """Those of all runs, one per seed."""
    own: OwnCode = NOTHING_OWN
    checkpoint: Path | None = None
    """What it goes on from; None if it never stops on the way."""
    note: str = ""
    """Of which settings and rows the checkpoint is: one of others is refused."""

    @classmethod
    def begin(
        cls, runs: Sequence[Settings], data: Dataset, *, own: OwnCode = NOTHING_OWN, checkpoint: Path | None = None
    ) -> Self:
        """New models for runs that differ in nothing but VARYING settings."""
        models = tuple(model for run in runs for model in build_models(run, data, own))
        monotone = build_monotone(runs[0], data, models[0])
        if monotone is not None:
            for model in models:
                monotone.begin(dict(model.named_parameters()))
        told = [] if checkpoint is None else [data.fingerprint, *(run.model_dump_json() for run in runs)]
        note = hashlib.sha256("\n".join(told).encode()).hexdigest()
        return cls(tuple(runs), data, models, own, checkpoint, note)

    def fit(
        self,
        *,
        until: int | None = None,
        resume: bool = False,
        callbacks: Sequence[Callback] = (),
        compiled: bool = False,
        ranks: Ranks = ALONE,
        fail: bool = True,
    ) -> History:
        """Train the models on the training rows, `until` some epoch or to the end.

        Where no loss is finite any more, that is an error, or, with `fail=False`, said by the history alone: each model
        then has its last good weights.
        """
        first, train, validation = self.runs[0], self.data.train, self.data.validation
        weight = class_weights(first, self.data)
        trainer = build_trainer(self.runs, self.data, own=self.own, weight=weight, compiled=compiled)
        monotone = build_monotone(first, self.data, self.models[0])
        if monotone is not None:
            trainer = replace(trainer, project=monotone.project)
        stopping = EarlyStopping(self.models, validation, weight, first.patience) if first.early_stopping else None
        watching: list[Callback] = [*callbacks, *([] if stopping is None else [stopping])]
        if until is not None:
            watching.append(lambda record: record.epoch >= until)
        # a module of the user's own may draw from torch's global stream; ours never do
        with nullcontext() if self.own.module is None else private_stream(first.seeds[0]):
            try:
                history = trainer.fit(
                    self.models,
                    train.x,
                    train.y,
                    validation=(validation.x, validation.y) if len(validation) else None,
                    callbacks=watching,
                    checkpoint=self.checkpoint,
                    resume=resume,
                    ranks=ranks,
                    note=self.note,
                )
            except NonFiniteLossError as error:
                if fail:
                    raise
                history = error.history
        if stopping is not None:
            stopping.restore()
            ranks.follow_first(tensor for model in self.models for tensor in model.state_dict().values())
        if first.calibrate and until is None:
            for models in self._models_by_run():
                calibrate(models, self.data.validation)
        return history

    def _models_by_run(self) -> list[Sequence[nn.Module]]:
        ends = list(accumulate((len(run.seeds) for run in self.runs), initial=0))
        return [self.models[a:b] for a, b in pairwise(ends)]

    def keep(self, kept: Sequence[int]) -> Self:
        """Only the runs at these places, which go on as a smaller population."""
        owner = [i for i, run in enumerate(self.runs) for _ in run.seeds]
        places = [place for place, run in enumerate(owner) if run in kept]
        assert self.checkpoint is not None
        keep_models(self.checkpoint, places)
        return replace(self, runs=tuple(self.runs[i] for i in kept), models=tuple(self.models[i] for i in places))


@dataclass(frozen=True, eq=False)
class Scores:
    """Outcomes of some models."""

    table: pd.DataFrame
    """A row for each model, a column for each metric."""
    records: pd.DataFrame
    """A row for each model, energy weight and round."""
    tau: float
    """The probability up to which counterfactuals were searched."""


def measure(
    models: Sequence[nn.Module],
    settings: Settings,
    data: Dataset,
    rows: Split,
    protocol: EvaluationProtocol,
    *,
    of_models: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Scores:
    """Metrics of models of one run on some rows of its data, such as `data.test`.

    Those that look at the models themselves, such as accuracy under attack, are computed with `of_models` only.
    """
    population = Population(models)
    records = evaluate(
        population,
        rows.x,
        rows.y,
        n_classes=data.n_classes,
        constraints=build_constraints(settings, data, test_time=True),
        protocol=protocol,
        progress=progress,
    )
    table = records.groupby("model").mean(numeric_only=True).reset_index(drop=True)
    table = table.assign(**predictive(models, rows))
    for name, metric in known().items():
        if of_models and metric.of_models is not None:
            table[name] = metric.of_models(population, rows.x, rows.y).tolist()
    return Scores(table[[name for name in known() if name in table]], records, protocol.tau)


def predictive(models: Sequence[nn.Module], rows: Split) -> dict[str, list[float]]:
    """Every metric of predictions, one number per model."""
    population = Population(models)
    labels = rows.y.expand(len(population), -1)
    with torch.no_grad(), population.evaluating():
        logits = population(rows.x.expand(len(population), *rows.x.shape))
    return {
        name: metric.of_predictions(logits, labels).tolist()
        for name, metric in known().items()
        if metric.of_predictions is not None
    }
