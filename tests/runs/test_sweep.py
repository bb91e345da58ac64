"""A sweep computes each run once, whatever is killed in between."""

import json
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Self

import fsspec
import numpy as np
import pandas as pd
import pytest
import torch

from countertrain.cli import main
from countertrain.files import InUseError, write_text
from countertrain.runs.registry import VARYING
from countertrain.runs.settings import Settings, SettingsError
from countertrain.runs.sweep import Evaluation, Processes, Store, Sweep, SweepError, sweep
from countertrain.runs.sweep.job import Answer, Job, Trouble, attempt

TEXT = """
data = "moons"
seeds = [0, 1]

[fixed]
epochs = 2
n_ce = 60
batch_size = 500

[grid]
tau = [0.5, 0.9]
hidden = [[4], [8]]

[evaluation]
rounds = 2
individuals = 20
"""
SPEC = Sweep.from_toml(TEXT)
NUMBERS = ["accuracy", "f1", "validity", "ip", "cost", "mature"]


@cache
def computed(runs: tuple[Settings, ...], rounds: int, individuals: int) -> tuple[Answer, tuple[float, ...]]:
    """The answer to a job, and the shares that it reported; the same job gives the same, so each is computed once."""
    shares: list[float] = []
    return attempt(Job(runs, rounds, individuals), shares.append), tuple(shares)


class Here:
    """Workers that compute in this process, one job at a time; `fate` may decide otherwise."""

    def __init__(self, fate: Callable[[Job], Trouble | None] = lambda job: None, n: int = 2) -> None:
        self.n, self.fate = n, fate
        self.jobs: list[Job] = []
        self._waiting: deque[Job] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, job: Job) -> None:
        self.jobs.append(job)
        self._waiting.append(job)

    def news(self) -> Iterator[tuple[Job, float | Answer]]:
        job = self._waiting.popleft()
        fate = self.fate(job)
        answer, shares = (fate, ()) if fate else computed(job.runs, job.rounds, job.individuals)
        yield from ((job, share) for share in shares)
        yield job, answer


def files(folder: Path) -> dict[str, int]:
    """The files of finished runs, and when each was written."""
    return {path.stem: path.stat().st_mtime_ns for path in (folder / "runs").glob("*.json")}


def stop(job: Job) -> Trouble:
    pytest.fail(f"computed again: {job}")


@pytest.fixture(scope="module")
def alone() -> pd.DataFrame:
    """All runs of SPEC, computed one by one."""
    rows = []
    for name, run in SPEC.runs().items():
        (result,) = computed((run,), 2, 20)[0]  # type: ignore[misc]
        rows.append({"run": name, **result.outcomes})
    return pd.DataFrame(rows)


def assert_same(table: pd.DataFrame, alone: pd.DataFrame) -> None:
    """The same runs with the same outcomes up to rounding, and not because all are alike."""
    assert list(table["run"]) == list(alone["run"])
    assert np.allclose(table[NUMBERS], alone[NUMBERS], rtol=1e-3, atol=2e-3)
    assert alone["ip"].round(2).nunique() == len(alone)


# what a sweep is


def test_a_sweep_has_all_combinations_of_data_values_and_seeds_under_lasting_names() -> None:
    runs = SPEC.runs()
    assert [(run.tau, run.hidden, run.seeds) for run in runs.values()] == [
        (tau, hidden, (seed,)) for tau in (0.5, 0.9) for hidden in ((4,), (8,)) for seed in (0, 1)
    ]
    assert all(run.lambda_reg == 0.25 for run in runs.values())  # the final settings of the data set
    assert list(Sweep.from_toml(SPEC.to_toml()).runs()) == list(runs)
    grown = SPEC.model_copy(update={"grid": {**SPEC.grid, "tau": [0.7, 0.5, 0.9]}, "data": ["ol", "moons"]}).runs()
    assert set(runs) < set(grown)
    assert len(grown) == 24
    longer = SPEC.model_copy(update={"evaluation": Evaluation(rounds=3)})
    assert not set(runs) & set(longer.runs())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[grid]", "[gird]", "unknown key 'gird' in a sweep; did you mean 'grid'?"),
        ("seeds = [0, 1]", "tau = 0.5", "unknown key 'tau' in a sweep; settings belong under [fixed] or [grid]"),
        (
            "seeds = [0, 1]",
            "zzz = 1",
            "unknown key 'zzz' in a sweep; there are 'data', 'seeds', 'fixed', 'grid', 'evaluation'",
        ),
        ("rounds", "round", "unknown key 'round' in [evaluation]; did you mean 'rounds'?"),
        ("rounds = 2", "rounds = 1", "setting 'evaluation.rounds' must be at least 2; got 1"),
        ("tau = [0.5, 0.9]", "tua = [0.5]", "unknown setting 'tua'; did you mean 'tau'?"),
        ("tau = [0.5, 0.9]", "tau = 0.5", "setting 'grid.tau' must be a valid list; got 0.5"),
        ("tau = [0.5, 0.9]", "tau = [0.5, 2]", "setting 'tau' must be less than 1; got 2"),
        ("tau = [0.5, 0.9]", "tau = [0.5, 0.5]", "two runs of the sweep are the same; list each data set, value and"),
        ("tau = [0.5, 0.9]", "epochs = [1, 2]", "'epochs' is both in [fixed] and in [grid]; give it once"),
        ("tau = [0.5, 0.9]", "seeds = [[1], [2]]", "'seeds' belongs at the top of the sweep, above [fixed] and [grid]"),
        ('data = "moons"', "data = 7", "setting 'data' must be a valid list; got 7"),
        ('data = "moons"', "data = moons", "the sweep is not valid TOML"),
    ],
)
def test_mistakes_in_the_file_are_answered_in_one_sentence(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(SettingsError) as error:
        Sweep.from_toml(TEXT.replace(old, new)).runs()
    assert str(error.value).startswith(message)


# what a worker does


def test_a_run_trains_all_its_epochs_whatever_the_report_returns() -> None:
    """A callback that returns True ends the training; Ray's calls return something."""
    run = next(iter(SPEC.runs().values()))
    heard: list[float] = []
    (result,) = attempt(Job((run,), 2, 20), lambda share: heard.append(share) or True)  # type: ignore[misc]
    assert heard == [0.5, 1.0]
    assert [record.epoch for record in result.records] == [1, 2]


def test_a_loss_that_is_not_finite_is_a_result_of_its_own_run_only() -> None:
    fine, bad = (
        run.model_copy(update={"lambda_clf": weight})
        for run, weight in zip(list(SPEC.runs().values())[:2], (1.0, 1e39), strict=True)
    )
    with pytest.warns(RuntimeWarning, match="model 1 stopped early"):
        answer = attempt(Job((fine, bad), 2, 20), lambda share: None)
    assert isinstance(answer, list)
    assert answer[0].outcomes["failure"] is None
    assert "not finite" in str(answer[1].outcomes["failure"])
    (alone,) = attempt(Job((bad,), 2, 20), lambda share: None)  # type: ignore[misc]
    assert "not finite" in str(alone.outcomes["failure"])


def test_trouble_is_an_answer_that_says_whether_another_try_may_do(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(tuple(SPEC.runs().values())[:1], 2, 20)

    def fail_with(act: Callable[[], object]) -> Answer:
        monkeypatch.setattr("countertrain.runs.measure.build_trainer", lambda *args, **options: act())
        return attempt(job, lambda share: None)

    def raise_(error: Exception) -> None:
        raise error

    assert fail_with(lambda: torch.empty(2**60, dtype=torch.uint8)) == Trouble("ran out of memory")
    assert fail_with(lambda: raise_(MemoryError())) == Trouble("ran out of memory")
    assert fail_with(lambda: raise_(ValueError("no."))) == Trouble("failed: no.", lost=False)
    assert fail_with(lambda: raise_(KeyError("x"))) == Trouble("failed: KeyError: 'x'", lost=False)


# what the driver does


def test_runs_are_grouped_by_what_cannot_be_vectorised_and_give_what_they_give_alone(
    tmp_path: Path, alone: pd.DataFrame
) -> None:
    workers, seen = Here(), []
    table = sweep(SPEC, workers, Store(tmp_path), progress=lambda done, total: seen.append((done, total)))
    assert_same(table, alone)
    assert [len(job.runs) for job in workers.jobs] == [4, 4]
    for job in workers.jobs:
        assert len({run.model_dump_json(exclude=set(VARYING)) for run in job.runs}) == 1
    assert seen[0] == (0, 8)
    assert seen[-1] == (8, 8)
    assert (2.0, 8) in seen  # half of the first four
    assert set(files(tmp_path)) == set(table["run"])
    stored = pd.read_csv(tmp_path / "results.csv")
    assert list(stored.columns) == list(table.columns)
    assert list(stored.columns[:4]) == ["data", "tau", "hidden", "seed"]
    assert np.allclose(stored[NUMBERS], table[NUMBERS], rtol=1e-5)


def test_finished_runs_are_never_repeated_and_the_rest_is_grouped_anew(tmp_path: Path, alone: pd.DataFrame) -> None:
    first = sweep(SPEC, Here(), Store(tmp_path))
    before = files(tmp_path)
    assert sweep(SPEC, Here(stop), Store(tmp_path)).equals(first)
    gone = [first["run"][i] for i in (0, 1, 5)]  # of both populations
    for name in gone:
        (tmp_path / "runs" / f"{name}.json").unlink()
    workers = Here()
    assert_same(sweep(SPEC, workers, Store(tmp_path)), alone)
    assert sorted(len(job.runs) for job in workers.jobs) == [1, 2]
    assert {name: when for name, when in files(tmp_path).items() if name not in gone} == {
        name: when for name, when in before.items() if name not in gone
    }
    grown = SPEC.model_copy(update={"grid": {**SPEC.grid, "tau": [0.5, 0.7, 0.9]}})
    workers = Here()
    assert len(sweep(grown, workers, Store(tmp_path))) == 12
    assert {run.tau for job in workers.jobs for run in job.runs} == {0.7}


def test_a_population_that_needs_too_much_memory_is_halved_until_it_fits(tmp_path: Path, alone: pd.DataFrame) -> None:
    said: list[str] = []
    workers = Here(lambda job: Trouble("ran out of memory") if len(job.runs) > 1 else None)
    assert_same(sweep(SPEC, workers, Store(tmp_path), say=said.append), alone)
    assert sorted(len(job.runs) for job in workers.jobs) == [1] * 8 + [2] * 4 + [4] * 2
    assert said[0] == "a population of 4 runs ran out of memory; computed again in two halves"


def test_one_run_that_never_fits_is_given_up_and_the_others_are_kept(tmp_path: Path) -> None:
    bad = list(SPEC.runs().values())[2]
    workers = Here(lambda job: Trouble("ran out of memory") if bad in job.runs else None)
    with pytest.raises(SweepError) as error:
        sweep(SPEC, workers, Store(tmp_path))
    assert str(error.value) == (
        "1 of 8 runs could not be computed: a population of 1 run (data=moons, tau=0.5, hidden=(8,), seed=0) ran out "
        f"of memory; finished runs are kept in {tmp_path}"
    )
    assert sum(job.runs == (bad,) for job in workers.jobs) == 4
    assert len(files(tmp_path)) == len(pd.read_csv(tmp_path / "results.csv")) == 7
    assert len(sweep(SPEC, Here(), Store(tmp_path))) == 8


def test_a_lost_machine_is_no_fault_of_the_population_until_it_happens_again_and_again(tmp_path: Path) -> None:
    workers = Here(lambda job: Trouble("lost its node", innocent=True) if len(job.runs) == 4 else None)
    assert len(sweep(SPEC, workers, Store(tmp_path))) == 8
    assert sorted(len(job.runs) for job in workers.jobs) == [2] * 4 + [4] * 8


def test_what_would_only_fail_again_is_not_tried_again(tmp_path: Path) -> None:
    spec = SPEC.model_copy(update={"fixed": {**SPEC.fixed, "n_ce": 10**6}})
    workers = Here()
    with pytest.raises(SweepError, match=r"8 of 8 runs .* failed: n_ce must be at most the number of training rows"):
        sweep(spec, workers, Store(tmp_path))
    assert len(workers.jobs) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": ["mons"]}, "unknown data set 'mons'; did you mean 'moons'?"),
        ({"fixed": {"immutable": ["x9"]}}, "immutable names 'x9', which is no column of moons"),
    ],
)
def test_data_that_are_not_there_are_found_out_before_anything_begins(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError) as error:
        sweep(SPEC.model_copy(update=change), Here(stop), Store(tmp_path))
    assert str(error.value).startswith(message)
    assert not list(tmp_path.iterdir())


# where results are kept


def test_results_may_be_kept_at_a_url() -> None:
    table = sweep(SPEC, Here(), Store("memory://bucket/sweep"))
    assert sweep(SPEC, Here(stop), Store("memory://bucket/sweep")).equals(table)
    memory = fsspec.filesystem("memory")
    assert {Path(path).stem for path in memory.ls("/bucket/sweep/runs", detail=False)} == set(table["run"])
    assert not memory.exists("/bucket/sweep/.lock")
    with Store("memory://bucket/sweep").locked(), pytest.raises(InUseError, match="memory://bucket/sweep is in use by"):
        sweep(SPEC, Here(stop), Store("memory://bucket/sweep"))


def test_a_second_driver_is_turned_away_and_a_dead_one_replaced(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    with Store(tmp_path).locked():
        holder = json.loads(lock.read_text())
        with pytest.raises(InUseError) as error:
            sweep(SPEC, Here(stop), Store(f"file://{tmp_path}"))
        assert str(error.value) == (
            f"{tmp_path} is in use by process {os.getpid()} on {socket.gethostname()} since {holder['since']}; "
            f"wait for it, choose another folder, or delete {lock} if it no longer runs"
        )
        assert lock.exists()
    assert not lock.exists()
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    lock.write_text(json.dumps({**holder, "pid": process.pid, "host": "elsewhere"}))
    with pytest.raises(InUseError, match="on elsewhere since"), Store(tmp_path).locked():
        pass
    lock.write_text(json.dumps({**holder, "pid": process.pid}))
    with Store(tmp_path).locked():
        assert json.loads(lock.read_text())["pid"] == os.getpid()


def test_a_full_disk_is_said_in_one_sentence_and_what_is_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, written = write_text, []

    def full(path: Path, content: str) -> None:
        written.append(path)
        if len(written) == 5:
            raise OSError(28, "No space left on device", str(path))
        real(path, content)

    monkeypatch.setattr("countertrain.runs.sweep.store.write_text", full)
    with pytest.raises(SweepError, match=r"cannot write to .* \(No space left on device\); finished runs are kept, go"):
        sweep(SPEC, Here(), Store(tmp_path))
    assert len(files(tmp_path)) == 3
    assert not (tmp_path / ".lock").exists()
    assert len(sweep(SPEC, Here(), Store(tmp_path))) == 8
    assert len(written) == 5 + 1 + 5 + 1  # sweep.toml, the five runs that were missing, results.csv


def test_places_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="results cannot be kept at nowhere://x: Protocol not known: nowhere"):
        Store("nowhere://x")
    (tmp_path / "file").write_text("")
    with pytest.raises(SweepError, match=r"cannot write to .*/file/out \(Not a directory\)"):
        sweep(SPEC, Here(stop), Store(tmp_path / "file" / "out"))
    name = next(iter(SPEC.runs()))
    Store(tmp_path).write(f"runs/{name}.json", "{half")
    with pytest.raises(SweepError, match=rf"{name}.json is not the result of a run \(.*\); delete it, and it is comp"):
        sweep(SPEC, Here(stop), Store(tmp_path))


# real processes


def test_two_processes_give_what_runs_give_alone_and_killed_ones_are_replaced(
    tmp_path: Path, alone: pd.DataFrame
) -> None:
    killed: list[int] = []
    said: list[str] = []

    def kill_once(done: float, total: float) -> None:
        if done > 0 and not killed:  # after the first epoch of one; the other has not come so far
            for process in multiprocessing.active_children():
                killed.append(process.pid or 0)
                process.kill()

    table = sweep(SPEC, Processes(2), Store(tmp_path), progress=kill_once, say=said.append)
    assert_same(table, alone)
    assert len(killed) == 2
    lost = "a population of 4 runs lost its worker process (SIGKILL, perhaps for want of memory)"
    assert said == [f"{lost}; computed again in two halves"] * 2
    assert not multiprocessing.active_children()


def test_a_sweep_whose_driver_is_killed_goes_on_without_loss_or_repetition(tmp_path: Path) -> None:
    three = {"grid": {**SPEC.grid, "hidden": [[3], [4], [5]]}, "fixed": {**SPEC.fixed, "epochs": 15}}
    spec = SPEC.model_copy(update=three)  # three populations for two workers: at the first result, one has not begun
    (tmp_path / "sweep.toml").write_text(spec.to_toml())
    out = tmp_path / "out"
    command = [sys.executable, "-m", "countertrain", "sweep", str(tmp_path / "sweep.toml"), "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not files(out) and process.poll() is None:
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    before = files(out)
    assert 0 < len(before) < 12
    assert json.loads((out / ".lock").read_text())["pid"] == process.pid
    workers = Here()
    table = sweep(spec, workers, Store(out))
    after = files(out)
    assert len(after) == len(set(table["run"])) == 12
    assert before.items() <= after.items()
    assert sum(len(job.runs) for job in workers.jobs) == 12 - len(before)
    assert table[NUMBERS].notna().all(axis=None)


def test_the_command_shows_the_most_plausible_runs_and_refuses_what_makes_no_sense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(SPEC.to_toml())
    Path("wrong.toml").write_text("dat = 1")
    Path("chosen.toml").write_text(Settings.resolve("circles", {"lambda_div": 0.9, "epochs": 50}).to_toml())
    for args, code, text in (
        (["small.toml", "--workers", "1", "--settings", "chosen.toml"], 0, "8 runs: runs/sweep-small/results.csv"),
        (["small.toml", "--settings", "none.toml"], 2, "there is no file none.toml"),
        (["small.toml", "--backend", "slurm"], 2, "--backend is local or ray; got 'slurm'"),
        (["small.toml", "--address", "x:1"], 2, "--address is of a Ray cluster; add --backend ray"),
        (["wrong.toml"], 2, "wrong.toml: unknown key 'dat' in a sweep; did you mean 'data'?"),
        (["none.toml"], 2, "there is no file none.toml"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(["sweep", *args])
        said = capsys.readouterr()
        assert stopped.value.code == code
        assert text in (said.err if code else said.out)
        assert code or "Most plausible of 4, means over 2 seeds" in said.out
    computed = Sweep.from_toml(Path("runs/sweep-small/sweep.toml").read_text())
    assert {run.lambda_div for run in computed.runs().values()} == {0.9}
    assert computed.fixed["epochs"] == SPEC.fixed["epochs"]
    assert (computed.data, computed.grid) == (SPEC.data, SPEC.grid)
