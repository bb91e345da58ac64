"""A run that was stopped goes on as if it had never been; what must not be mixed is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from countertrain.files import CheckpointError
from countertrain.runs import measure, registry
from countertrain.runs.folder import read_run
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
    assert not (folder / "weights.safetensors").exists()


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
    [{}, {"seeds": [0, 7]}, {"seeds": [1, 2], "shuffle": True, "generate": "batch"}, {"objective": "bl"}],
    ids=["one", "population", "shuffled", "baseline"],
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
    assert not list((tmp_path / "killed").glob("*checkpoint*"))


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
        f"{tmp_path} holds an unfinished run of these settings; add --resume to go on with it, or --overwrite "
        "to start anew"
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
    assert not list((tmp_path / "killed").glob("*checkpoint*"))


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
    noted = [json.loads((tmp_path / name / "environment.json").read_text())["compiled"] for name in ("plain", "None")]
    assert noted == [False, True]


def test_an_unfinished_run_cannot_be_opened(tmp_path: Path) -> None:
    killed(small(), tmp_path)
    with pytest.raises(RunError) as error:
        read_run(tmp_path)
    assert str(error.value) == (f"{tmp_path} holds an unfinished run; finish it with: countertrain train ... --resume")


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
    path = tmp_path / "checkpoint.safetensors"
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


def test_overwriting_leaves_no_records_or_history_of_the_old_run(tmp_path: Path) -> None:
    train(small(), tmp_path).measure(rounds=2, individuals=5)
    with pytest.raises(RuntimeError, match="killed"):
        train(small(seeds=[5]), tmp_path, overwrite=True, callbacks=[stop_after(1)])
    assert not (tmp_path / "records.csv").exists()
    assert not (tmp_path / "history.jsonl").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_files_of_others_in_the_folder_are_left_alone(tmp_path: Path, overwrite: bool) -> None:
    others = [tmp_path / name for name in ("bert.safetensors", "notes.txt", "table.csv")]
    for path in others:
        path.write_text("not ours")
    train(small(), tmp_path, overwrite=overwrite)
    assert [path.read_text() for path in others if path.exists()] == ["not ours"] * 3
