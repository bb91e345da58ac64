"""What a worker of a sweep does: runs trained as one population, and each evaluated on validation rows."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import nn

from countertrain.evaluation.metrics import known
from countertrain.evaluation.protocol import evaluate
from countertrain.runs.registry import build_constraints, build_models, build_protocol, build_trainer
from countertrain.runs.scores import predictive
from countertrain.runs.settings import Settings
from countertrain.search.vae import fit_vae
from countertrain.tables import Dataset, load
from countertrain.training.history import EpochRecord, History
from countertrain.training.trouble import NonFiniteLossError

__all__ = ["Answer", "Job", "Result", "Trouble", "attempt"]

_NO_MEMORY = re.compile("can't allocate memory|not enough memory|out of memory", re.IGNORECASE)


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
    """The results of a job, one a run; `report` hears which share of its epochs is done. Never raises."""
    try:
        return _compute(job, report)
    except Exception as error:
        if isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)):
            return Trouble("ran out of memory")
        said = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        return Trouble(f"failed: {said}", lost=False)


def _compute(job: Job, report: Callable[[float], object]) -> list[Result]:
    first = job.runs[0]
    data = load(first.data, label=first.target_column, data_seed=first.data_seed)
    latent = first.generator == "revise" and first.objective != "bl"
    vae = fit_vae(data.train.x, seed=first.data_seed) if latent else None
    models = [build_models(run, data)[0] for run in job.runs]

    def tell(record: EpochRecord) -> None:  # whatever `report` returns: a callback's True would end the training
        report(record.epoch / record.n_epochs)

    try:
        history = build_trainer(job.runs, data, vae).fit(
            models,
            data.train.x,
            data.train.y,
            validation=(data.validation.x, data.validation.y),
            callbacks=[tell],
        )
    except NonFiniteLossError as error:  # of all models; each keeps its last good weights, and its row says so
        history = error.history
    return [_result(job, i, model, data, history) for i, model in enumerate(models)]


def _result(job: Job, i: int, model: nn.Module, data: Dataset, history: History) -> Result:
    """The i-th run, evaluated by itself: what it gets does not depend on the others of its population."""
    run, rows = job.runs[i], data.validation
    means = evaluate(
        [model],
        rows.x,
        rows.y,
        n_classes=data.n_classes,
        constraints=build_constraints(run, data, test_time=True),
        protocol=build_protocol(run, rounds=job.rounds, individuals=job.individuals),
    ).mean()
    records = [replace(r, metrics={name: [values[i]] for name, values in r.metrics.items()}) for r in history.records]
    trained = records[-1].metrics if records else {}
    numbers = {
        **{name: values[0] for name, values in predictive([model], rows).items()},
        **{name: float(means[name]) for name in known() if name in means},
        "mature": trained.get("mature", [math.nan])[0],
    }
    outcomes = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
    return Result({**outcomes, "failure": history.failures.get(i)}, records)
