"""Trackers see the epochs of each model, and never stand in the way of training."""

import struct
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from countertrain.cli import main
from countertrain.runs.settings import Settings
from countertrain.runs.sweep import Processes, Store, Sweep, sweep
from countertrain.runs.track import Log, find_tracker, show_finished, tracking
from countertrain.training.history import EpochRecord

RUN = Settings.resolve("moons", {"epochs": 2})


class Memory:
    """A tracker that remembers; `fail_at` an epoch it breaks down."""

    def __init__(self, fail_at: int = 0) -> None:
        self.fail_at = fail_at
        self.logs: dict[str, list[tuple[int, Mapping[str, float]]]] = {}
        self.closed: list[str] = []

    @contextmanager
    def __call__(self, folder: Path, name: str, settings: Settings) -> Iterator[Log]:
        seen = self.logs.setdefault(name, [])

        def log(metrics: Mapping[str, float], epoch: int) -> None:
            if epoch == self.fail_at:
                raise ConnectionError("no answer")
            seen.append((epoch, metrics))

        yield log
        self.closed.append(name)


def record(epoch: int, *losses: float) -> EpochRecord:
    return EpochRecord(epoch, 2, 0.1, {"loss": losses})


def test_each_model_of_a_population_has_a_log_of_its_own(tmp_path: Path) -> None:
    tracker = Memory()
    with tracking(tracker, tmp_path, {"a": RUN, "b": RUN}) as show:
        assert tracker.logs == {}  # nothing is opened before the first epoch
        assert [show(record(1, 0.5, 0.7)), show(record(2, 0.4, 0.6))] == [None, None]  # True would end the training
    assert tracker.logs == {
        "a": [(1, {"loss": 0.5}), (2, {"loss": 0.4})],
        "b": [(1, {"loss": 0.7}), (2, {"loss": 0.6})],
    }
    assert sorted(tracker.closed) == ["a", "b"]


def test_models_that_are_trained_one_by_one_are_told_apart(tmp_path: Path) -> None:
    tracker = Memory()
    with tracking(tracker, tmp_path, {"a": RUN, "b": RUN}) as show:
        for epoch, loss in ((1, 0.5), (2, 0.4), (1, 0.7), (2, 0.6)):
            show(record(epoch, loss))
    assert tracker.logs == {
        "a": [(1, {"loss": 0.5}), (2, {"loss": 0.4})],
        "b": [(1, {"loss": 0.7}), (2, {"loss": 0.6})],
    }


def test_without_a_tracker_nothing_happens_and_a_broken_one_is_given_up_with_a_warning(tmp_path: Path) -> None:
    with tracking(find_tracker(None), tmp_path, {"a": RUN}) as show:
        show(record(1, 0.5))
    tracker = Memory(fail_at=2)
    with tracking(tracker, tmp_path, {"a": RUN}) as show:
        show(record(1, 0.5))
        with pytest.warns(RuntimeWarning, match="the tracker is given up: no answer"):
            show(record(2, 0.4))
        show(record(3, 0.3))
    assert tracker.logs == {"a": [(1, {"loss": 0.5})]}


def test_a_finished_run_is_shown_with_its_outcomes(tmp_path: Path) -> None:
    tracker = Memory()
    show_finished(tracker, tmp_path, "a", RUN, {"ip": 1.5}, [record(1, 0.5), record(2, 0.4)])
    assert tracker.logs == {"a": [(1, {"loss": 0.5}), (2, {"loss": 0.4}), (2, {"ip": 1.5})]}


def test_a_tracker_that_is_unknown_or_not_installed_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="--track takes tensorboard or mlflow; got 'wandb'"):
        find_tracker("wandb")
    for module in ("mlflow", "torch.utils.tensorboard", "tensorboardX"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match="no tracker to show the epochs to; install it with: pip install mlflow"):
        find_tracker("mlflow")
    with pytest.raises(ValueError, match=r"install it with: pip install 'countertrain\[track\]'"):
        find_tracker("tensorboard")


def scalars(folder: Path) -> dict[str, list[int]]:
    """The steps of every scalar in the event files of a folder."""
    from tensorboardX.proto.event_pb2 import Event

    found: dict[str, list[int]] = {}
    for path in sorted(folder.glob("events.*")):
        content = path.read_bytes()
        while content:  # length, its checksum, an event, its checksum
            (size,) = struct.unpack("<Q", content[:8])
            event = Event.FromString(content[12 : 12 + size])
            content = content[16 + size :]
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    found.setdefault(value.tag, []).append(event.step)
    return found


def test_training_shows_its_epochs_to_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed: pip install 'countertrain[track]'")
    sets = [word for setting in ("epochs=2", "n_ce=50", "batch_size=1000") for word in ("--set", setting)]
    with pytest.raises(SystemExit) as stopped:
        main(["train", "moons", "--seeds", "3,5", *sets, "--track", "tensorboard", "--out", str(tmp_path / "run")])
    assert stopped.value.code == 0
    assert {path.name for path in (tmp_path / "run" / "tensorboard").iterdir()} == {"seed-3", "seed-5"}
    for seed in (3, 5):
        steps = scalars(tmp_path / "run" / "tensorboard" / f"seed-{seed}")
        assert steps["loss"] == steps["mature"] == [1, 2]


def test_tuning_shows_its_trials_to_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed: pip install 'countertrain[track]'")
    pytest.importorskip("optuna", reason="optuna is not installed: pip install 'countertrain[tune]'")
    sets = [word for setting in ("epochs=2", "n_ce=50", "batch_size=1000") for word in ("--set", setting)]
    with pytest.raises(SystemExit) as stopped:
        main(
            ["tune", "moons", "--trials", "2", "--seeds", "1", *sets, "--track", "tensorboard", "--out", str(tmp_path)]
        )
    assert stopped.value.code == 0
    for trial in (0, 1):
        steps = scalars(tmp_path / "tensorboard" / f"trial-{trial}")
        assert steps["ip"] == steps["accuracy"] == [2]


class FakeClient:
    """As much of mlflow's client as is used."""

    runs: dict[str, dict[str, Any]] = {}  # noqa: RUF012  # of the server, as it were

    def get_experiment_by_name(self, name: str) -> SimpleNamespace | None:
        return SimpleNamespace(experiment_id="1") if self.runs else None

    def create_experiment(self, name: str) -> str:
        return "1"

    def search_runs(self, experiments: list[str], condition: str, max_results: int) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(info=SimpleNamespace(run_id=key))
            for key, run in self.runs.items()
            if condition == f"tags.countertrain = '{run['tags']['countertrain']}'"
        ]

    def create_run(self, experiment: str, run_name: str, tags: dict[str, str]) -> SimpleNamespace:
        key = f"r{len(self.runs)}"
        self.runs[key] = {"name": run_name, "tags": tags, "metrics": [], "status": "RUNNING"}
        return SimpleNamespace(info=SimpleNamespace(run_id=key))

    def log_batch(self, run: str, metrics: tuple[Any, ...] = (), params: tuple[Any, ...] = ()) -> None:
        self.runs[run]["metrics"] += metrics
        self.runs[run].setdefault("params", dict(params))

    def set_terminated(self, run: str, status: str = "FINISHED") -> None:
        self.runs[run]["status"] = status


def test_mlflow_has_one_run_a_model_which_goes_on_when_it_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = ModuleType("mlflow")
    mlflow.MlflowClient = FakeClient  # type: ignore[attr-defined]
    mlflow.entities = SimpleNamespace(  # type: ignore[attr-defined]
        Param=lambda key, value: (key, value), Metric=lambda key, value, now, step: (key, value, step)
    )
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setattr(FakeClient, "runs", {})
    with tracking(find_tracker("mlflow"), tmp_path / "run", {"seed-0": RUN, "seed-1": RUN}) as show:
        show(record(1, 0.5, 0.7))

    def interrupted() -> None:
        with tracking(find_tracker("mlflow"), tmp_path / "run", {"seed-0": RUN}) as show:
            show(record(2, 0.4))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    first, second = FakeClient.runs.values()
    assert (first["name"], second["name"]) == ("run/seed-0", "run/seed-1")
    assert first["metrics"] == [("loss", 0.5, 1), ("loss", 0.4, 2)]
    assert second["metrics"] == [("loss", 0.7, 1)]
    assert first["params"]["tau"] == "0.9"
    assert (first["status"], second["status"]) == ("FAILED", "FINISHED")


def test_a_sweep_shows_each_run_once_with_all_epochs_and_outcomes(tmp_path: Path) -> None:
    fixed = {"epochs": 2, "n_ce": 50, "batch_size": 1000}
    spec = Sweep.model_validate({"data": "moons", "seeds": [0, 1], "fixed": fixed, "evaluation": {"rounds": 2}})
    tracker = Memory()
    table = sweep(spec, Processes(1), Store(tmp_path), tracker=tracker)
    assert set(tracker.logs) == set(table["run"])
    for name, ip in zip(table["run"], table["ip"], strict=True):
        assert [epoch for epoch, _ in tracker.logs[name]] == [1, 2, 2]
        assert "div" in tracker.logs[name][0][1]
        assert tracker.logs[name][-1][1]["ip"] == ip
    again = Memory()
    sweep(spec, Processes(1), Store(tmp_path), tracker=again)
    assert again.logs == {}
