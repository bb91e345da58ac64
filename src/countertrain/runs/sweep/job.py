"""What a worker of a sweep does: runs trained as one population, and each evaluated on validation rows."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from countertrain.runs.measure import Training, measure
from countertrain.runs.registry import build_protocol, load_data
from countertrain.runs.settings import Settings
from countertrain.training.history import EpochRecord, History
from countertrain.training.trouble import is_out_of_memory

__all__ = ["Answer", "Job", "Result", "Trouble", "attempt"]


@dataclass(frozen=True, eq=False)
class Job:
    """Runs of one seed each that train as one population, and how they are evaluated."""

    runs: tuple[Settings, ...]
    rounds: int
    individuals: int
    tries: int = 0
    """How often it was lost and tried again as it is."""

    @property
    def cost(self) -> int:
        """Roughly: passes over the rows, and steps of the search."""
        first = self.runs[0]
        return len(self.runs) * first.epochs * (1 if first.objective == "bl" else 1 + first.n_steps)

    def halves(self) -> list["Job"]:
        """The same runs as two populations."""
        middle = len(self.runs) // 2
        return [replace(self, runs=runs, tries=0) for runs in (self.runs[:middle], self.runs[middle:])]


@dataclass(frozen=True)
class Result:
    """What one run gave."""

    outcomes: dict[str, float | str | None]
    """None: not a number, or no `failure`."""
    records: list[EpochRecord]


@dataclass(frozen=True)
class Trouble:
    """Why a job gave nothing."""

    why: str
    """Goes on after "a population of 8 runs"."""
    lost: bool = True
    """Its worker was lost or had too little memory: another try may do. False: it would only end the same way."""
    innocent: bool = False
    """A whole machine was lost, and hardly because of this job."""


Answer = list[Result] | Trouble


def attempt(job: Job, report: Callable[[float], object]) -> Answer:
    """The results of a job, one per run; `report` hears which share of its epochs is done. Never raises."""
    try:
        return _compute(job, report)
    except Exception as error:
        if is_out_of_memory(error):
            return Trouble("ran out of memory")
        said = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        return Trouble(f"failed: {said}", lost=False)


def _compute(job: Job, report: Callable[[float], object]) -> list[Result]:
    training = Training.begin(job.runs, load_data(job.runs[0]))

    def tell(record: EpochRecord) -> None:  # whatever `report` returns: a callback's True would end the training
        report(record.epoch / record.n_epochs)

    history = training.fit(callbacks=[tell], fail=False)  # each run's row says by itself what became of it
    return [_measure_run(job, i, training, history) for i in range(len(job.runs))]


def _measure_run(job: Job, i: int, training: Training, history: History) -> Result:
    """The i-th run, measured by itself: what it gets does not depend on the others of its population."""
    run, data = job.runs[i], training.data
    protocol = build_protocol(run, rounds=job.rounds, individuals=job.individuals)
    outcomes = measure([training.models[i]], run, data, data.validation, protocol).table.iloc[0].to_dict()
    records = [replace(r, metrics={name: [values[i]] for name, values in r.metrics.items()}) for r in history.records]
    trained = records[-1].metrics if records else {}
    numbers = {**outcomes, "mature": trained.get("mature", [math.nan])[0]}
    finite = {str(name): float(value) if math.isfinite(value) else None for name, value in numbers.items()}
    return Result({**finite, "failure": history.failures.get(i)}, records)
