"""Runs trained as one population and measured on validation rows; at rungs on the way, some are left behind."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import pandas as pd
from torch import nn

from countertrain.evaluation.protocol import evaluate
from countertrain.runs.registry import build_constraints, build_models, build_protocol, build_trainer
from countertrain.runs.scores import predictive
from countertrain.runs.settings import Settings
from countertrain.runs.tune.goal import tunable
from countertrain.tables import Dataset
from countertrain.training.state import keep_models
from countertrain.training.trouble import NonFiniteLossError

__all__ = ["Choose", "Judge", "Measured"]

Measured = dict[int, dict[str, float]]
"""Metrics of a run, by the number of epochs after which they were measured."""
Choose = Callable[[int, Sequence[dict[str, float]]], Sequence[int]]
"""Takes a rung and the metrics of the runs that reached it; returns the places of those that go on."""

_ROUNDS, _INDIVIDUALS = 2, 50  # at a rung: enough to tell the better half from the worse


@dataclass(frozen=True)
class Judge:
    """Trains runs as one population and measures them on validation rows."""

    data: Dataset
    cost_immutable: Sequence[str]
    rounds: int
    individuals: int

    def __call__(
        self, runs: Sequence[Settings], rungs: Sequence[int] = (), choose: Choose | None = None
    ) -> list[Measured]:
        """Metrics of each run, averaged over its seeds, at its end and at every rung that it reached.

        After each of the `rungs`, a number of epochs, only the runs that are chosen go on, as a smaller population.
        """
        results: list[Measured] = [{} for _ in runs]
        left = list(range(len(runs)))
        with TemporaryDirectory() as folder:
            flocks = self._flocks(runs, Path(folder) if rungs else None)
            for epoch in (*rungs, runs[0].epochs):
                last = epoch == runs[0].epochs
                tables = [flock.after(epoch).measure(*self._effort(last)) for flock in flocks]
                metrics = _merged(tables, [runs[i] for i in left])
                for i, found in zip(left, metrics, strict=True):
                    results[i][epoch] = found
                if not last and choose is not None:
                    kept = sorted(choose(epoch, metrics))
                    flocks = [flock.keeping(kept) for flock in flocks]
                    left = [left[place] for place in kept]
        return results

    def _effort(self, last: bool) -> tuple[int, int]:
        if last:
            return self.rounds, self.individuals
        return min(_ROUNDS, self.rounds), min(_INDIVIDUALS, self.individuals)

    def _flocks(self, runs: Sequence[Settings], folder: Path | None) -> list["_Flock"]:
        """The runs, and the same under protection where cost is that of protected models."""
        kinds = [(runs, 0.95)]
        if self.cost_immutable:
            kinds.append(([run.model_copy(update={"immutable": tuple(self.cost_immutable)}) for run in runs], 0.5))
        return [
            _Flock(
                tuple(kind),
                tuple(model for run in kind for model in build_models(run, self.data)),
                self.data,
                tau,
                folder / f"{i}.safetensors" if folder else None,
            )
            for i, (kind, tau) in enumerate(kinds)
        ]


def _merged(tables: Sequence[pd.DataFrame], runs: Sequence[Settings]) -> list[dict[str, float]]:
    """Metrics of each run, averaged over its models; the cost is that of the last table."""
    metrics = tables[0].assign(cost=tables[-1]["cost"])
    owner = [i for i, run in enumerate(runs) for _ in run.seeds]
    return [{str(k): float(v) for k, v in row.items()} for _, row in metrics.groupby(owner).mean().iterrows()]


@dataclass(frozen=True, eq=False)
class _Flock:
    """Runs that train as one population, stop at some epoch, and go on from there."""

    runs: tuple[Settings, ...]
    models: tuple[nn.Module, ...]
    data: Dataset
    tau: float
    checkpoint: Path | None
    """What it goes on from; None if it never stops on the way."""

    def after(self, epoch: int) -> Self:
        """The same models, trained so far."""
        train = self.data.train
        begun = self.checkpoint is not None and self.checkpoint.exists()
        # a few that are left may all fail: like any other that fails, they are judged by their last good weights
        with suppress(NonFiniteLossError) if begun else nullcontext():
            build_trainer(self.runs, self.data).fit(
                self.models,
                train.x,
                train.y,
                callbacks=[lambda record: record.epoch >= epoch],
                checkpoint=self.checkpoint,
                resume=True,
            )
        return self

    def keeping(self, kept: Sequence[int]) -> Self:
        """Only the runs at these places."""
        owner = [i for i, run in enumerate(self.runs) for _ in run.seeds]
        places = [place for place, run in enumerate(owner) if run in kept]
        assert self.checkpoint is not None
        keep_models(self.checkpoint, places)
        return replace(self, runs=tuple(self.runs[i] for i in kept), models=tuple(self.models[i] for i in places))

    def measure(self, rounds: int, individuals: int) -> pd.DataFrame:
        """One row of metrics a model."""
        rows, first = self.data.validation, self.runs[0]
        records = evaluate(
            self.models,
            rows.x,
            rows.y,
            n_classes=self.data.n_classes,
            constraints=build_constraints(first, self.data, test_time=True),
            protocol=build_protocol(first, rounds=rounds, individuals=individuals, tau=self.tau),
        )
        names = [name for name in tunable() if name in records]
        outcomes = records.groupby("model")[names].mean().reset_index(drop=True)
        return outcomes.assign(**predictive(self.models, rows))
