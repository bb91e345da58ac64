"""A run that was stopped goes on as if it had never been; what must not be mixed is refused."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from countertrain.files import CheckpointError
from countertrain.runs import measure, registry, training
from countertrain.runs.folder import UNFINISHED, is_finished, read_run
from countertrain.runs.settings import Settings
from countertrain.runs.training import RunError, train
from countertrain.search.vae import VAE, fit_vae
from countertrain.training.history import EpochRecord


def small(data: str = "moons", **overrides: object) -> Settings:
    quick = {"epochs": 4, "batch_size": 500, "n_ce": 60, "hidden": [8], "n_steps": 5, "tau": 0.6, "learning_rate": 0.05}
    return Settings.resolve(data, quick | overrides)


def stop_after(n: int) -> Callable[[EpochRecord], None]:
    def callback(record: EpochRecord) -> None:
        if record.epoch == n:
            raise RuntimeError("killed")

    return callback


def killed(settings: Settings, folder: Path, after: int = 2) -> None:
    with pytest.raises(RuntimeError, match="killed"):
        train(settings, folder, callbacks=[stop_after(after)])
    assert not is_finished(folder)


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The rows to which autoencoders were fitted; each only for two epochs."""
    seen: list[Tensor] = []

    def quick(x: Tensor, *, seed: int) -> VAE:
        seen.append(x)
        return fit_vae(x, seed=seed, epochs=2)

    monkeypatch.setattr(registry, "fit_vae", quick)
    return seen


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"seeds": [0, 7]},
        {"seeds": [1, 2], "shuffle": True, "generate": "batch"},
        {"objective": "bl"},
        {"objective": "taught", "seeds": [0, 7]},
    ],
    ids=["one", "population", "shuffled", "baseline", "taught"],
)
def test_a_killed_and_resumed_run_ends_with_the_very_weights_of_an_unbroken_one(
    tmp_path: Path, overrides: dict[str, object]
) -> None:
    settings = small(**overrides)
    unbroken = train(settings, tmp_path / "unbroken")
    killed(settings, tmp_path / "killed")
    torch.manual_seed(12345)
    seen: list[int] = []
    resumed = train(settings, tmp_path / "killed", resume=True, callbacks=[lambda record: seen.append(record.epoch)])
    assert seen == [3, 4]  # it went on, and did not start anew
    mine, theirs = (load_file(tmp_path / name / "weights.safetensors") for name in ("killed", "unbroken"))
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    for one, other in zip(resumed.history.records, unbroken.history.records, strict=True):
        assert (one.epoch, one.metrics) == (other.epoch, other.metrics)
    assert not (tmp_path / "killed" / UNFINISHED).exists()


def test_the_models_of_a_resumed_run_are_those_that_are_written(tmp_path: Path) -> None:
    killed(small(), tmp_path)
    resumed = train(small(), tmp_path, resume=True)
    x = resumed.data.test.x
    assert torch.equal(resumed.models[0](x), read_run(tmp_path).models[0](x))


def test_an_unfinished_run_is_refused_unless_resumed_or_overwritten(tmp_path: Path) -> None:
    killed(small(), tmp_path)
    with pytest.raises(RunError) as error:
        train(small(), tmp_path)
    assert str(error.value) == (
        f"{tmp_path} holds an unfinished run of these settings; give resume=True to go on with it, or "
        "overwrite=True to start anew"
    )
    seen: list[int] = []
    train(small(), tmp_path, overwrite=True, callbacks=[lambda record: seen.append(record.epoch)])
    assert seen == [1, 2, 3, 4]


def test_an_unfinished_run_of_models_that_train_one_by_one_is_refused_too(tmp_path: Path) -> None:
    settings = small(seeds=[0, 1], on_nonfinite="skip")
    with pytest.warns(UserWarning, match="one by one"):
        killed(settings, tmp_path)
    with pytest.raises(RunError, match="holds an unfinished run of these settings"):
        train(settings, tmp_path)


def test_models_that_train_one_by_one_can_be_resumed(tmp_path: Path) -> None:
    settings = small(seeds=[0, 1], on_nonfinite="skip")
    with pytest.warns(UserWarning, match="one by one"):
        train(settings, tmp_path / "unbroken")
    with pytest.warns(UserWarning, match="one by one"):
        killed(settings, tmp_path / "killed")
    with pytest.warns(UserWarning, match="one by one"):
        train(settings, tmp_path / "killed", resume=True)
    mine, theirs = (load_file(tmp_path / name / "weights.safetensors") for name in ("killed", "unbroken"))
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert not (tmp_path / "killed" / UNFINISHED).exists()


def test_a_run_goes_on_with_compiled_or_plain_code_as_it_began_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    real = measure.build_trainer

    def plain(*args: object, compiled: bool, **options: object) -> object:  # compiling takes a minute
        asked.append(compiled)
        return real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(measure, "build_trainer", plain)
    settings = small()
    killed(settings, tmp_path / "plain")
    train(settings, tmp_path / "plain", resume=True)
    for compiled in (None, False):
        with pytest.raises(RuntimeError, match="killed"):
            train(settings, tmp_path / str(compiled), callbacks=[stop_after(2)], compiled=True)
        train(settings, tmp_path / str(compiled), resume=True, compiled=compiled)
    assert asked == [False, False, True, True, True, False]
    noted = [read_run(tmp_path / name).environment["compiled"] for name in ("plain", "None")]
    assert noted == [False, True]


def test_an_unfinished_run_cannot_be_opened(tmp_path: Path) -> None:
    killed(small(), tmp_path)
    with pytest.raises(CheckpointError) as error:
        read_run(tmp_path)
    assert str(error.value) == (
        f"{tmp_path} holds an unfinished run; finish it with: countertrain train ... --resume --out {tmp_path}"
    )


def test_an_unfinished_run_is_not_resumed_with_other_settings(tmp_path: Path) -> None:
    killed(small(), tmp_path)
    with pytest.raises(RunError, match="holds a run with other settings"):
        train(small(lambda_div=0.1), tmp_path, resume=True)


def test_overwriting_never_goes_on_from_a_checkpoint_of_other_settings(tmp_path: Path) -> None:
    killed(small(lambda_div=0.9), tmp_path / "mixed")
    wanted = train(small(), tmp_path / "clean")
    try:
        found = train(small(), tmp_path / "mixed", resume=True, overwrite=True)
    except ValueError:
        return  # to refuse both together is as good
    assert torch.equal(found.models[0](found.data.test.x), wanted.models[0](wanted.data.test.x))


def test_resuming_what_was_never_started_starts_it(tmp_path: Path) -> None:
    seen: list[int] = []
    train(small(), tmp_path / "new", resume=True, callbacks=[lambda record: seen.append(record.epoch)])
    assert seen == [1, 2, 3, 4]


def test_a_truncated_checkpoint_is_refused(tmp_path: Path) -> None:
    killed(small(), tmp_path)
    path = tmp_path / UNFINISHED / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError) as error:
        train(small(), tmp_path, resume=True)
    assert str(error.value).startswith(f"{path} is truncated or not a safetensors file (")


def test_revise_fits_its_autoencoder_to_the_training_rows(tmp_path: Path, fits: list[Tensor]) -> None:
    run = train(small(generator="revise"), tmp_path)
    assert len(fits) == 1
    assert torch.equal(fits[0], run.data.train.x)


def test_a_resumed_run_of_revise_is_the_unbroken_one(tmp_path: Path, fits: list[Tensor]) -> None:
    settings = small(generator="revise")
    train(settings, tmp_path / "unbroken")
    killed(settings, tmp_path / "killed")
    train(settings, tmp_path / "killed", resume=True)
    mine, theirs = (load_file(tmp_path / name / "weights.safetensors") for name in ("killed", "unbroken"))
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_conventional_training_needs_no_autoencoder(tmp_path: Path, fits: list[Tensor]) -> None:
    train(small(generator="revise", objective="bl"), tmp_path)
    assert fits == []


def test_overwriting_fits_a_new_autoencoder_to_the_new_rows(tmp_path: Path, fits: list[Tensor]) -> None:
    train(small(generator="revise"), tmp_path)
    run = train(small("circles", generator="revise"), tmp_path, overwrite=True)
    assert len(fits) == 2
    assert torch.equal(fits[1], run.data.train.x)


def test_overwriting_leaves_no_records_of_the_old_run(tmp_path: Path) -> None:
    train(small(), tmp_path).measure(rounds=2, individuals=5)
    train(small(seeds=[5], epochs=1), tmp_path, overwrite=True)
    assert not (tmp_path / "records.csv").exists()
    assert len(read_run(tmp_path).history.records) == 1


def test_an_overwriting_that_is_stopped_leaves_the_old_model_whole_and_can_be_resumed(tmp_path: Path) -> None:
    old = train(small("circles"), tmp_path)
    old.measure(rounds=2, individuals=5)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(RuntimeError, match="killed"):
        train(small(), tmp_path, overwrite=True, callbacks=[stop_after(2)])
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()} == before
    loaded = read_run(tmp_path)
    assert loaded.settings.data == "circles"
    assert torch.equal(loaded.data.test.x, old.data.test.x)  # judged by its own rows
    assert torch.equal(loaded.models[0](old.data.test.x), old.models[0](old.data.test.x))
    with pytest.raises(RunError, match="holds an unfinished run of these settings"):
        train(small(), tmp_path)
    with pytest.raises(
        RunError, match=r"holds a run with other settings \(data is 'moons' in its settings.toml, 'circles' here\)"
    ):
        train(small("circles"), tmp_path, resume=True)
    resumed, wanted = train(small(), tmp_path, resume=True), train(small(), tmp_path.parent / "unbroken")
    assert read_run(tmp_path).id == read_run(wanted.folder).id == resumed.id
    assert not (tmp_path / "records.csv").exists()


def test_an_overwriting_that_never_began_does_not_open_the_old_model_to_others(tmp_path: Path) -> None:
    train(small(), tmp_path)
    with pytest.raises(ValueError, match="n_ce must be at most"):
        train(small(n_ce=100_000), tmp_path, overwrite=True)
    with pytest.raises(
        RunError, match=r"holds a run with other settings \(tau is 0.6 in its settings.toml, 0.7 here\)"
    ):
        train(small(tau=0.7), tmp_path)
    assert train(small(), tmp_path).settings == small()  # it is only opened


def test_a_twin_that_is_stopped_is_resumed_without_training_the_first_model_again(tmp_path: Path) -> None:
    settings = small(seeds=[0, 3])
    unbroken = train(settings, tmp_path / "unbroken", twin=True)

    def kill(said: str) -> None:
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        train(settings, tmp_path / "killed", twin=True, say=kill)  # what it says is: now the twin
    with pytest.raises(RunError, match="holds an unfinished run of these settings"):
        train(settings, tmp_path / "killed", twin=True)
    seen: list[int] = []
    callbacks = [lambda record: seen.append(record.epoch)]
    resumed = train(settings, tmp_path / "killed", twin=True, resume=True, callbacks=callbacks)
    assert seen == []
    assert resumed.twin is not None
    assert unbroken.twin is not None
    for place in (".", "twin"):
        mine, theirs = (load_file(tmp_path / n / place / "weights.safetensors") for n in ("killed", "unbroken"))
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert resumed.id == unbroken.id
    assert resumed.history["yloss"] == unbroken.history["yloss"]
    assert not (tmp_path / "killed" / UNFINISHED).exists()


def test_a_twin_that_is_stopped_in_an_epoch_goes_on_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(small(), tmp_path / "unbroken", twin=True)
    fit, seen, broken = measure.Training.fit, [], []

    def watched(self: measure.Training, **options: Any) -> object:
        objective = self.runs[0].objective
        kill = [] if broken or objective == "ct" else [stop_after(2)]
        broken.extend(kill)
        noting = [lambda record: seen.append((objective, record.epoch))]
        return fit(self, **{**options, "callbacks": noting + kill})

    monkeypatch.setattr(measure.Training, "fit", watched)
    with pytest.raises(RuntimeError, match="killed"):
        train(small(), tmp_path / "killed", twin=True)
    assert seen == [*(("ct", epoch) for epoch in (1, 2, 3, 4)), ("bl", 1), ("bl", 2)]
    train(small(), tmp_path / "killed", twin=True, resume=True)
    assert seen[6:] == [("bl", 3), ("bl", 4)]
    mine, theirs = (load_file(tmp_path / name / "twin" / "weights.safetensors") for name in ("killed", "unbroken"))
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "others",
    [
        ["bert.safetensors", "notes.txt"],
        ["test.csv"],
        ["settings.toml"],
        ["checksums.json", "test.csv", "settings.toml"],
        ["unfinished/novel.txt"],
        ["unfinished"],
    ],
)
def test_a_folder_of_others_is_never_written_to(tmp_path: Path, others: list[str], overwrite: bool) -> None:
    for name in others:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("not ours")
    with pytest.raises(FileExistsError, match="which is no part of a trained model; choose another folder"):
        train(small(), tmp_path, overwrite=overwrite)
    assert {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()} == set(others)
    assert all((tmp_path / name).read_text() == "not ours" for name in others)


def table(path: Path, *, flipped: bool = False) -> Settings:
    """Settings of a small table in a file, of which one cell may be another."""
    lines = ["age,income,label"] + [
        f"{20 + i % 40},{i * 7 % 90},{'yes' if i * 7 % 90 > 40 else 'no'}" for i in range(100)
    ]
    path.write_text("\n".join([*lines[:-1], "59,1,yes" if flipped else lines[-1]]) + "\n")
    return Settings.resolve(str(path), {"epochs": 3, "hidden": [4], "n_ce": 10, "n_steps": 2})


def test_a_run_of_rows_that_have_changed_since_is_neither_opened_nor_resumed(tmp_path: Path) -> None:
    settings = table(tmp_path / "t.csv")
    done, begun = tmp_path / "done", tmp_path / "begun"
    train(settings, done)
    killed(settings, begun)
    assert train(table(tmp_path / "t.csv"), done).folder == done  # the very same rows, written again
    table(tmp_path / "t.csv", flipped=True)
    for folder, resume in ((done, False), (done, True), (begun, True), (begun, False)):
        with pytest.raises(RunError) as error:
            train(settings, folder, resume=resume)
        assert str(error.value) == (
            f"{folder} holds a run of other rows (t.csv has changed since it began); "
            "choose another folder, or give overwrite=True"
        )
    for folder in (done, begun):
        assert (
            train(settings, folder, overwrite=True).environment["data"] == train(settings, folder).environment["data"]
        )


def test_a_finished_run_whose_file_is_gone_is_opened_and_said_to_be(tmp_path: Path) -> None:
    settings, said = table(tmp_path / "t.csv"), list[str]()
    trained = train(settings, tmp_path / "done")
    killed(settings, tmp_path / "begun")
    (tmp_path / "t.csv").unlink()
    assert train(settings, tmp_path / "done", say=said.append).id == trained.id
    assert said == [
        f"there is no file {tmp_path / 't.csv'} any more, so that nothing is compared with it; "
        "the finished run is opened"
    ]
    with pytest.raises(RunError, match="holds a run with other settings"):
        train(settings.change(tau=0.6), tmp_path / "done")
    for folder, how in (("done", {"overwrite": True}), ("begun", {"resume": True}), ("new", {})):
        with pytest.raises(ValueError, match=r"there is no file .*t\.csv; check the path"):
            train(settings, tmp_path / folder, **how)
    assert read_run(tmp_path / "done").id == trained.id


def test_a_run_whose_writer_was_killed_while_it_took_its_place_is_found(tmp_path: Path) -> None:
    trained = train(small(epochs=1), tmp_path / "run")
    for use in (lambda: read_run(tmp_path / "run"), lambda: train(small(epochs=1), tmp_path / "run")):
        for name in ("a", "b"):
            shutil.copytree(tmp_path / "run", tmp_path / f".run.{name * 32}")
        (tmp_path / f".run.{'b' * 32}" / ".lock").touch()
        shutil.rmtree(tmp_path / "run")
        assert use().id == trained.id
        assert [folder.name for folder in tmp_path.iterdir()] == ["run"]


def test_a_part_whose_writer_was_killed_while_it_took_its_place_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*args: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(training, "put_in_place", kill)
        with pytest.raises(RuntimeError, match="killed"):
            train(small(epochs=1), tmp_path / "run", twin=True)
    work = tmp_path / "run" / UNFINISHED / "twin"
    (work / "done").rename(work / f".done.{'a' * 32}")  # whole, but without its last rename
    moved_away = work / f".done.{'b' * 32}"
    moved_away.mkdir()
    (moved_away / ".lock").touch()
    heard: list[EpochRecord] = []
    resumed = train(small(epochs=1), tmp_path / "run", twin=True, resume=True, twin_callbacks=[heard.append])
    assert heard == []
    assert resumed.twin is not None
    assert read_run(tmp_path / "run").id == resumed.id


def test_the_training_of_the_twin_is_heard_apart(tmp_path: Path) -> None:
    seen: dict[str, list[EpochRecord]] = {"first": [], "twin": []}
    heard = {"callbacks": [seen["first"].append], "twin_callbacks": [seen["twin"].append]}
    train(small(), tmp_path, twin=True, **heard)  # type: ignore[arg-type]
    assert [len(records) for records in seen.values()] == [4, 4]
    assert "div" in seen["first"][0].metrics
    assert "div" not in seen["twin"][0].metrics
