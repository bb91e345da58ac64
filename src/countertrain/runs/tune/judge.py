"""Runs trained as one population and measured on validation rows; at rungs on the way, some are left behind."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from countertrain.runs.measure import Training, measure
from countertrain.runs.registry import build_protocol
from countertrain.runs.settings import Settings
from countertrain.tables import Dataset

__all__ = ["PREFIX", "Choose", "Judge", "Measured"]

PREFIX = ".trials-"
"""Of the folders in which checkpoints lie."""

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
    folder: Path | None = None
    """Where checkpoints lie between two rungs; None: where the system keeps what is temporary."""

    def __call__(
        self, runs: Sequence[Settings], rungs: Sequence[int] = (), choose: Choose | None = None
    ) -> list[Measured]:
        """Metrics of each run, averaged over its seeds, at its end and at every rung that it reached.

        After each of the `rungs`, a number of epochs, only the runs that are chosen go on, as a smaller population.
        """
        results: list[Measured] = [{} for _ in runs]
        left = list(range(len(runs)))
        with TemporaryDirectory(dir=self.folder, prefix=PREFIX) as folder:
            flocks = self._begin(runs, Path(folder) if rungs else None)
            for epoch in (*rungs, runs[0].epochs):
                last = epoch == runs[0].epochs
                tables = [
                    self._train_and_measure(flock, epoch, tau, last=last)
                    for flock, tau in zip(flocks, (0.95, 0.5), strict=False)  # just valid ones where cost is protected
                ]
                metrics = _merge(tables, [runs[i] for i in left])
                for i, found in zip(left, metrics, strict=True):
                    results[i][epoch] = found
                if not last and choose is not None:
                    kept = sorted(choose(epoch, metrics))
                    flocks = [flock.keep(kept) for flock in flocks]
                    left = [left[place] for place in kept]
        return results

    def _begin(self, runs: Sequence[Settings], folder: Path | None) -> list[Training]:
        """The runs, and the same under protection where cost is that of protected models."""
        flocks = [runs]
        if self.cost_immutable:
            flocks.append([run.change(immutable=self.cost_immutable) for run in runs])
        return [
            Training.begin(flock, self.data, checkpoint=folder / f"{i}.safetensors" if folder else None)
            for i, flock in enumerate(flocks)
        ]

    def _train_and_measure(self, flock: Training, epoch: int, tau: float, *, last: bool) -> pd.DataFrame:
        """One row of metrics per model, after so many epochs."""
        begun = flock.checkpoint is not None and flock.checkpoint.exists()
        # a few that are left may all fail: like any other that fails, they are judged by their last good weights
        flock.fit(until=epoch, resume=True, fail=not begun)
        first = flock.runs[0]
        protocol = build_protocol(
            first,
            rounds=self.rounds if last else min(_ROUNDS, self.rounds),
            individuals=self.individuals if last else min(_INDIVIDUALS, self.individuals),
            tau=tau,
        )
        return measure(flock.models, first, self.data, self.data.validation, protocol).table


def _merge(tables: Sequence[pd.DataFrame], runs: Sequence[Settings]) -> list[dict[str, float]]:
    """Metrics of each run, averaged over its models; the cost is that of the last table."""
    metrics = tables[0].assign(cost=tables[-1]["cost"])
    owner = [i for i, run in enumerate(runs) for _ in run.seeds]
    return [{str(k): float(v) for k, v in row.items()} for _, row in metrics.groupby(owner).mean().iterrows()]
