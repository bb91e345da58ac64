"""Sweeps: a grid of settings as jobs of one population each, given to workers; every finished run is kept."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from countertrain.runs.grid import populations
from countertrain.runs.registry import check_columns, load_data
from countertrain.runs.settings import Settings
from countertrain.runs.sweep.job import Answer, Job, Result, Trouble
from countertrain.runs.sweep.spec import Sweep
from countertrain.runs.sweep.store import Store, SweepError
from countertrain.runs.sweep.workers import Workers
from countertrain.runs.track import Tracker, show_finished

__all__ = ["sweep"]

_TRIES = 3  # more, of a job whose worker is lost, before it is blamed


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
    """Compute the runs that are not in the store yet; what varies and the outcomes, one row per run.

    The driver writes each run as soon as its population is done, so workers need no disk in common, and whatever is
    killed (a worker, a machine, the driver) the next call goes on with the rest. A population that loses its worker, as
    one does that needs too much memory, is halved and tried again; `say` hears of it.
    """
    runs = spec.runs()
    with store.locked():
        kept = store.read_runs(runs)
        rest = {run: name for name, run in runs.items() if name not in kept}
        _check_data(rest)
        store.write("sweep.toml", spec.to_toml())
        progress(len(kept), len(runs))
        troubles: list[tuple[Job, Trouble]] = []
        if rest:

            def report(done: float) -> None:
                progress(len(kept) + done, len(runs))

            with workers:
                jobs = _make_jobs(spec, rest, min(largest, -(-len(rest) // workers.n)))
                for job, answer in _collect_answers(jobs, workers, report, say):
                    if isinstance(answer, Trouble):
                        troubles.append((job, answer))
                        continue
                    for run, result in zip(job.runs, answer, strict=True):
                        kept[rest[run]] = _keep(store, tracker, rest[run], run, result)
        table = _make_table(spec, {name: kept[name] for name in runs if name in kept})
        store.write("results.csv", table.to_csv(index=False, float_format="%.6g"))
    if troubles:
        job, trouble = troubles[0]
        raise SweepError(
            f"{len(runs) - len(kept)} of {len(runs)} runs could not be computed: a population of {_count_runs(job)} "
            f"({_describe(spec, job.runs[0])}) {trouble.why}; finished runs are kept in {store.url}"
        )
    return table


def _keep(store: Store, tracker: Tracker | None, name: str, run: Settings, result: Result) -> dict[str, Any]:
    """Write down what a run gave, and show it."""
    kept = {"settings": run.model_dump(mode="json"), "outcomes": result.outcomes}
    store.write_run(name, kept)
    numbers = {key: value for key, value in result.outcomes.items() if isinstance(value, float)}
    show_finished(tracker, store.folder or Path("runs"), name, run, numbers, result.records)
    return kept


def _make_jobs(spec: Sweep, runs: Iterable[Settings], largest: int) -> list[Job]:
    """The most expensive first, so that no worker is left with a long one at the end."""
    groups = populations(runs, largest=largest)
    jobs = [Job(tuple(group), spec.evaluation.rounds, spec.evaluation.individuals) for group in groups]
    return sorted(jobs, key=lambda job: -job.cost)


def _collect_answers(
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
                again = _plan_retry(job, news, say) if isinstance(news, Trouble) else []
                for other in again:
                    submit(other)
                if not again:
                    yield job, news
            report(sum(share * len(job.runs) for job, share in shares.items()))


def _plan_retry(job: Job, trouble: Trouble, say: Callable[[str], None]) -> list[Job]:
    """What to try instead of a job that was lost; nothing if that is no use."""
    alone = len(job.runs) == 1
    if trouble.lost and (trouble.innocent or alone) and job.tries < _TRIES:
        jobs = [replace(job, tries=job.tries + 1)]
    elif trouble.lost and not alone:
        jobs = job.halves()
    else:
        return []
    say(f"a population of {_count_runs(job)} {trouble.why}; computed again{'' if len(jobs) == 1 else ' in two halves'}")
    return jobs


def _check_data(runs: Iterable[Settings]) -> None:
    """Find out what is not there before anything begins; and download once, not in each worker."""
    seen = {}
    for run in runs:
        source = run.data, run.label, run.drop, run.schema_file
        if source not in seen:
            seen[source] = load_data(run)
        check_columns(run, seen[source])


def _make_table(spec: Sweep, kept: dict[str, dict[str, Any]]) -> pd.DataFrame:
    rows = []
    for name, run in kept.items():
        settings = run["settings"]
        varying = {key: settings[key] for key in ("data", *spec.grid)}
        rows.append({**varying, "seed": settings["seeds"][0], **run["outcomes"], "run": name})
    return pd.DataFrame(rows)


def _describe(spec: Sweep, run: Settings) -> str:
    values = {"data": run.data, **{name: getattr(run, name) for name in spec.grid}, "seed": run.seeds[0]}
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _count_runs(job: Job) -> str:
    return f"{len(job.runs)} run{'s' if len(job.runs) > 1 else ''}"
