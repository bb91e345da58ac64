"""Kills: at random moments again and again, or at each change of a file, and resumed to what would have been anyway."""

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.faults.engine import Act, Ended, count_moments, kill, work_apart
from tests.faults.jobs import Job, list_files, write_table

__all__ = ["Tally", "disturb_at_moments", "kill_at_random"]


@dataclass
class Tally:
    """How often a job was disturbed, and whatever was not as it should be afterwards."""

    job: str
    disturbed: int = 0
    finished: int = 0
    in_writes: int = 0
    """Kills that left a temporary file or folder, for the next process to tidy up."""
    seconds: float = 0.0
    """Of the undisturbed job."""
    moments: int = 0
    """Changes of files in the undisturbed job."""
    wrong: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, object]:
        """For a record."""
        return asdict(self)


@dataclass(frozen=True)
class _Bench:
    """A job, where it works, and what came of it when nobody disturbed it."""

    job: Job
    place: Path
    whole: Ended
    result: str
    files: list[str]

    def run(self, folder: Path, **disturbance: object) -> Ended:
        return work_apart(lambda: self.job.run(folder, self.place), folder, **disturbance)  # type: ignore[arg-type]

    def judge(self, folder: Path, tally: Tally, when: str) -> None:
        """Compare what a job ended with to what it ends with when nobody disturbs it."""
        tally.finished += 1
        if (result := self.job.summarise(folder)) != self.result:
            tally.wrong.append(f"{when}: another result, {result} instead of {self.result}")
        if odd := sorted(set(list_files(folder)) ^ set(self.files)):
            tally.wrong.append(f"{when}: left behind or missing: {', '.join(odd)}")


def _prepare(job: Job, place: Path) -> _Bench:
    place = place.resolve()
    write_table(place)
    folder = place / "whole"
    whole = count_moments(lambda: job.run(folder, place), folder)
    return _Bench(job, place, whole, job.summarise(folder), list_files(folder))


def kill_at_random(job: Job, kills: int, seed: int = 0) -> Tally:
    """Kill a job, and kill it again when it goes on, until it ends in spite of all; then from the start.

    After the last kill it may end.
    """
    rng = random.Random(seed)
    with TemporaryDirectory() as name:
        bench = _prepare(job, Path(name))
        tally = Tally(job.title, seconds=round(bench.whole.seconds, 2), moments=bench.whole.moments)
        while tally.disturbed < kills:
            folder = bench.place / f"killed{tally.finished}"
            while (ended := bench.run(folder, after=_draw_moment(rng, bench, tally.disturbed < kills))).killed:
                tally.disturbed += 1
                tally.in_writes += any(Path(file).name.startswith(".") for file in _list(folder) if ".lock" not in file)
            if ended.code != 0:
                tally.wrong.append(f"kill {tally.disturbed}: exit {ended.code}: {ended.said[-2000:]}")
                tally.finished += 1
            else:
                bench.judge(folder, tally, f"kill {tally.disturbed}")
    return tally


def _draw_moment(rng: random.Random, bench: _Bench, more: bool) -> float | None:
    return rng.uniform(0, bench.whole.seconds) if more else None


def disturb_at_moments(job: Job, act: Act = kill, every: int = 1, first: int = 1) -> Tally:
    """Disturb a job at each `every`-th change of a file, and let it go on undisturbed."""
    with TemporaryDirectory() as name:
        bench = _prepare(job, Path(name))
        tally = Tally(job.title, seconds=round(bench.whole.seconds, 2), moments=bench.whole.moments)
        for at in range(first, bench.whole.moments + 1, every):
            folder, when = bench.place / f"disturbed{at}", f"moment {at} of {bench.whole.moments}"
            ended = bench.run(folder, at=at, act=act)
            tally.disturbed += 1
            tally.in_writes += any(Path(file).name.startswith(".") for file in _list(folder) if ".lock" not in file)
            if act is not kill and (trouble := find_trouble(ended)):
                tally.wrong.append(f"{when}: {trouble}")
            again = bench.run(folder)
            if again.code != 0:
                tally.wrong.append(f"{when}: cannot go on, exit {again.code}: {again.said[-2000:]}")
            else:
                bench.judge(folder, tally, when)
    return tally


def find_trouble(ended: Ended) -> str | None:
    """What is wrong with the end of a command that met trouble: it should be one sentence and exit code 2.

    That something could not be tidied up is no reason to fail.
    """
    if ended.code == 0 or (ended.code == 2 and _count_sentences(ended.said) == 1 and "Traceback" not in ended.said):
        return None
    return f"exit {ended.code}: {ended.said[-2000:]}"


def _count_sentences(said: str) -> int:
    return sum(line.startswith("countertrain: ") and "warning: " not in line for line in said.splitlines())


def _list(folder: Path) -> Iterator[str]:
    yield from list_files(folder) if folder.exists() else ()
