"""Sweeps: a grid of settings as jobs of one population each, given to workers; every finished run is kept."""

import difflib
import hashlib
import itertools
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Self

import pandas as pd
import tomli_w
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from countertrain.data import load
from countertrain.experiments.grid import populations
from countertrain.experiments.settings import Settings, SettingsError, _one_sentence
from countertrain.experiments.sweep_job import Answer, Job, Result, Trouble
from countertrain.experiments.sweep_store import Store, SweepError
from countertrain.experiments.sweep_workers import Workers
from countertrain.experiments.track import Tracker, tracking
from countertrain.history import EpochRecord

__all__ = ["Evaluation", "Sweep", "sweep"]

_TRIES = 3  # of a job whose worker is lost, before it is blamed


class Evaluation(BaseModel):
    """How each run is evaluated, on validation rows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rounds: Annotated[int, Field(ge=2)] = 5
    individuals: Annotated[int, Field(ge=2)] = 100


class Sweep(BaseModel):
    """Runs of all combinations of data sets, listed values and seeds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Annotated[
        list[str], BeforeValidator(lambda given: [given] if isinstance(given, str) else given), Field(min_length=1)
    ]
    seeds: list[int] = Field([0], min_length=1)
    fixed: dict[str, Any] = {}
    """Settings that all runs share."""
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}
    """Settings that vary, each with its values."""
    evaluation: Evaluation = Evaluation()

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """The sweep that a file describes."""
        try:
            given = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SettingsError(f"the sweep is not valid TOML: {error}") from error
        _check_keys(given, cls.model_fields, "a sweep")
        if isinstance(given.get("evaluation"), dict):
            _check_keys(given["evaluation"], Evaluation.model_fields, "[evaluation]")
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise SettingsError(_one_sentence(error)) from error

    def runs(self) -> dict[str, Settings]:
        """All runs, each under a name that the same settings and evaluation always have."""
        for name in (*self.fixed, *self.grid):
            if name in ("data", "seeds"):
                raise SettingsError(f"{name!r} belongs at the top of the sweep, above [fixed] and [grid]")
            if name in self.fixed and name in self.grid:
                raise SettingsError(f"{name!r} is both in [fixed] and in [grid]; give it once")
        runs = [
            Settings.resolve(data, {**self.fixed, **dict(zip(self.grid, values, strict=True)), "seeds": [seed]})
            for data in self.data
            for values in itertools.product(*self.grid.values())
            for seed in self.seeds
        ]
        named = {self._name(run): run for run in runs}
        if len(named) < len(runs):
            raise SettingsError("two runs of the sweep are the same; list each data set, value and seed once")
        return named

    def to_toml(self) -> str:
        """The sweep as `from_toml` reads it."""
        return tomli_w.dumps(self.model_dump())

    def _name(self, run: Settings) -> str:
        return hashlib.sha256((run.model_dump_json() + self.evaluation.model_dump_json()).encode()).hexdigest()[:16]


def sweep(
    spec: Sweep,
    workers: Workers,
    store: Store,
    *,
    largest: int = 64,
    tracker: Tracker | None = None,
    progress: Callable[[float, float], None] = lambda done, total: None,
    say: Callable[[str], None] = lambda text: None,
) -> pd.DataFrame:
    """Compute the runs that are not in the store yet; what varies and the outcomes, one row a run.

    The driver writes each run as soon as its population is done, so workers need no disk in common, and whatever is
    killed (a worker, a machine, the driver) the next call goes on with the rest. A population that loses its worker, as
    one does that needs too much memory, is halved and tried again; `say` hears of it.
    """
    runs = spec.runs()
    with store.locked():
        kept = store.read_runs(runs)
        rest = {run: name for name, run in runs.items() if name not in kept}
        _look_at_data(rest)
        store.write("sweep.toml", spec.to_toml())
        progress(len(kept), len(runs))
        troubles: list[tuple[Job, Trouble]] = []
        if rest:
            with workers:
                jobs = _jobs(spec, rest, min(largest, -(-len(rest) // workers.n)))
                for job, answer in _answers(jobs, workers, lambda done: progress(len(kept) + done, len(runs)), say):
                    if isinstance(answer, Trouble):
                        troubles.append((job, answer))
                        continue
                    for run, result in zip(job.runs, answer, strict=True):
                        name = rest[run]
                        kept[name] = {"settings": run.model_dump(mode="json"), "outcomes": result.outcomes}
                        store.write_run(name, kept[name])
                        _track(tracker, store.folder or Path("runs"), name, run, result)
        table = _table(spec, {name: kept[name] for name in runs if name in kept})
        store.write("results.csv", table.to_csv(index=False, float_format="%.6g"))
    if troubles:
        job, trouble = troubles[0]
        raise SweepError(
            f"{len(runs) - len(kept)} of {len(runs)} runs could not be computed: a population of {_runs(job)} "
            f"({_differing(spec, job.runs[0])}) {trouble.why}; finished runs are kept in {store.url}"
        )
    return table


def _jobs(spec: Sweep, runs: Iterable[Settings], largest: int) -> list[Job]:
    """The most expensive first, so that no worker is left with a long one at the end."""
    groups = populations(runs, largest=largest)
    jobs = [Job(tuple(group), spec.evaluation.rounds, spec.evaluation.individuals) for group in groups]
    return sorted(jobs, key=lambda job: -job.cost)


def _answers(
    jobs: Iterable[Job], workers: Workers, report: Callable[[float], None], say: Callable[[str], None]
) -> Iterator[tuple[Job, Answer]]:
    """Final answers: a job that was lost is tried again. `report` hears how many runs' worth of open jobs is done."""
    shares: dict[Job, float] = {}

    def submit(job: Job) -> None:
        shares[job] = 0.0
        workers.submit(job)

    for job in jobs:
        submit(job)
    while shares:
        for job, news in workers.news():
            if isinstance(news, float):
                shares[job] = news
            else:
                del shares[job]
                again = _again(job, news, say) if isinstance(news, Trouble) else []
                for other in again:
                    submit(other)
                if not again:
                    yield job, news
            report(sum(share * len(job.runs) for job, share in shares.items()))


def _again(job: Job, trouble: Trouble, say: Callable[[str], None]) -> list[Job]:
    """What to try instead of a job that was lost; nothing if that is no use."""
    alone = len(job.runs) == 1
    if trouble.lost and (trouble.innocent or alone) and job.tries < _TRIES:
        jobs = [replace(job, tries=job.tries + 1)]
    elif trouble.lost and not alone:
        jobs = job.halves()
    else:
        return []
    say(f"a population of {_runs(job)} {trouble.why}; computed again{'' if len(jobs) == 1 else ' in two halves'}")
    return jobs


def _look_at_data(runs: Iterable[Settings]) -> None:
    """Find out what is not there before anything begins; and download once, not in each worker."""
    seen = {}
    for run in runs:
        source = run.data, run.target_column
        if source not in seen:
            seen[source] = load(run.data, target=run.target_column, data_seed=run.data_seed)
        seen[source].columns(run.immutable)


def _track(tracker: Tracker | None, folder: Path, name: str, run: Settings, result: Result) -> None:
    """Show a finished run to the tracker: its epochs, and its outcomes as one more record."""
    outcomes = {k: [v] for k, v in result.outcomes.items() if isinstance(v, float)}
    with tracking(tracker, folder, {name: run}) as show:
        for record in (*result.records, EpochRecord(run.epochs, run.epochs, 0.0, outcomes)):
            show(record)


def _table(spec: Sweep, kept: dict[str, dict[str, Any]]) -> pd.DataFrame:
    rows = []
    for name, run in kept.items():
        settings = run["settings"]
        varying = {key: settings[key] for key in ("data", *spec.grid)}
        rows.append({**varying, "seed": settings["seeds"][0], **run["outcomes"], "run": name})
    return pd.DataFrame(rows)


def _differing(spec: Sweep, run: Settings) -> str:
    values = {"data": run.data, **{name: getattr(run, name) for name in spec.grid}, "seed": run.seeds[0]}
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _runs(job: Job) -> str:
    return f"{len(job.runs)} run{'s' if len(job.runs) > 1 else ''}"


def _check_keys(given: Iterable[str], known: Collection[str], where: str) -> None:
    for key in given:
        if key in known:
            continue
        near = difflib.get_close_matches(key, known, n=1)
        if near:
            hint = f"did you mean {near[0]!r}?"
        elif key in Settings.model_fields:
            hint = "settings belong under [fixed] or [grid]"
        else:
            hint = f"there are {', '.join(known)}"
        raise SettingsError(f"unknown key {key!r} in {where}; {hint}")
