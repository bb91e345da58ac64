"""Run directories: written whole, opened again, never repeated, never mixed up."""

import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from countertrain import mlp
from countertrain.evaluation.metrics import known
from countertrain.evaluation.protocol import evaluate
from countertrain.files import CheckpointError
from countertrain.runs.folder import read_run
from countertrain.runs.registry import build_constraints, build_models, build_protocol, build_trainer
from countertrain.runs.run import Run
from countertrain.runs.settings import Settings
from countertrain.runs.training import RunError, default_folder, train
from countertrain.training.history import EpochRecord

FILES = {
    "settings.toml", "schema.toml", "encoder.json", "about.json", "weights.safetensors", "history.json",
    "rows.safetensors", "test.csv", "checksums.json",
}  # fmt: skip


def small(data: str = "moons", **overrides: object) -> Settings:
    quick = {"epochs": 3, "batch_size": 500, "n_ce": 60, "hidden": [8], "n_steps": 5, "tau": 0.6, "learning_rate": 0.05}
    return Settings.resolve(data, quick | overrides)


def predictions(run: Run) -> list[torch.Tensor]:
    with torch.no_grad():
        return [model(run.data.test.x) for model in run.models]


def test_a_finished_run_leaves_its_files_and_nothing_else(tmp_path: Path) -> None:
    settings = small()
    train(settings, tmp_path / "deep" / "run")
    assert {path.name for path in (tmp_path / "deep" / "run").iterdir()} == FILES
    written = tmp_path / "deep" / "run"
    assert Settings.from_toml((written / "settings.toml").read_text()) == settings
    history = json.loads((written / "history.json").read_text())["records"]
    assert [line["epoch"] for line in history] == [1, 2, 3]
    assert {"yloss", "div", "advloss", "ridge", "mature", "train_accuracy", "validation_accuracy"} <= history[0].keys()
    assert json.loads((written / "about.json").read_text())["environment"]["versions"]["torch"] == torch.__version__


def test_a_run_is_what_its_trainer_makes_of_the_training_rows(tmp_path: Path) -> None:
    settings = small(seeds=[2, 9])
    run = train(settings, tmp_path)
    data = run.data
    models = build_models(settings, data)
    build_trainer(settings, data).fit(models, data.train.x, data.train.y)
    last = run.history.records[-1].metrics
    for i, (mine, wanted) in enumerate(zip(run.models, models, strict=True)):
        assert torch.equal(mine[0].weight, wanted[0].weight)
        for name, split in (("train", data.train), ("validation", data.validation)):
            hits = (mine(split.x).argmax(-1) == split.y).double().mean().item()
            assert last[f"{name}_accuracy"][i] == pytest.approx(hits, abs=1e-6)


@pytest.mark.parametrize("seeds", [[0], [0, 5]])
def test_an_opened_run_predicts_what_the_trained_one_does(tmp_path: Path, seeds: list[int]) -> None:
    run = train(small(seeds=seeds), tmp_path)
    opened = read_run(tmp_path)
    assert len(opened.models) == len(seeds)
    for mine, theirs in zip(predictions(run), predictions(opened), strict=True):
        assert torch.equal(mine, theirs)
    assert opened.history.records[-1].metrics == run.history.records[-1].metrics
    assert opened.settings == run.settings


def test_the_weights_of_one_seed_load_into_a_plain_module(tmp_path: Path) -> None:
    run = train(small(seeds=[3]), tmp_path)
    module = mlp(2, 2, hidden=(8,), seed=99)
    weights = load_file(tmp_path / "weights.safetensors")
    module.load_state_dict({name.removeprefix("0."): tensor for name, tensor in weights.items()})
    assert torch.equal(module(run.data.test.x), run.models[0](run.data.test.x))


def test_the_weights_of_several_seeds_stand_side_by_side(tmp_path: Path) -> None:
    run = train(small(seeds=[3, 4]), tmp_path)
    weights = load_file(tmp_path / "weights.safetensors")
    assert {name: tuple(tensor.shape) for name, tensor in weights.items()} == {
        "0.0.weight": (8, 2), "0.0.bias": (8,), "0.2.weight": (2, 8), "0.2.bias": (2,),
        "1.0.weight": (8, 2), "1.0.bias": (8,), "1.2.weight": (2, 8), "1.2.bias": (2,),
    }  # fmt: skip
    for i, model in enumerate(run.models):
        assert torch.equal(weights[f"{i}.0.weight"], model[0].weight)
    assert not torch.equal(weights["0.0.weight"], weights["1.0.weight"])


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    run = train(small(), tmp_path)
    seen: list[EpochRecord] = []
    again = train(small(), tmp_path, callbacks=[seen.append])
    assert seen == []
    assert torch.equal(predictions(run)[0], predictions(again)[0])


def test_a_run_with_other_settings_is_refused_by_the_first_that_differs(tmp_path: Path) -> None:
    train(small(), tmp_path)
    with pytest.raises(RunError) as error:
        train(small(tau=0.7), tmp_path)
    assert str(error.value) == (
        f"{tmp_path} holds a run with other settings (tau is 0.6 in its settings.toml, 0.7 here); choose another "
        "folder, or give overwrite=True"
    )
    assert read_run(tmp_path).settings.tau == 0.6


def test_overwriting_replaces_a_run(tmp_path: Path) -> None:
    old = train(small(), tmp_path)
    new = train(small(seeds=[8]), tmp_path, overwrite=True)
    assert not torch.equal(predictions(old)[0], predictions(new)[0])
    assert torch.equal(predictions(read_run(tmp_path))[0], predictions(new)[0])


def test_same_settings_have_the_same_default_folder_and_others_another() -> None:
    assert default_folder(small()) == default_folder(small())
    assert default_folder(small()).name.startswith("moons-ct-eccco-")
    assert default_folder(small()) != default_folder(small(tau=0.7))
    assert default_folder(small("a/people.csv")) != default_folder(small("b/people.csv"))


def test_an_unknown_immutable_feature_is_found_out_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="immutable names 'x3', which is no column of moons; there are 'x1', 'x2'"):
        train(small(immutable=["x3"]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_that_failed_before_its_first_epoch_does_not_stand_in_the_way_of_a_better_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="n_ce must be at most"):
        train(small(n_ce=100_000), tmp_path)
    train(small(), tmp_path)
    assert (tmp_path / "weights.safetensors").exists()


def test_a_folder_with_nothing_in_it_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as error:
        read_run(tmp_path)
    assert str(error.value) == (
        f"{tmp_path} holds no trained model: it has no checksums.json; "
        "give one that `save` or `countertrain train` wrote"
    )


@pytest.mark.parametrize("below", ["file", "file/run"])
def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(RunError) as error:
        train(small(), tmp_path / below)
    assert str(error.value).startswith(f"cannot write to the output folder {tmp_path / below} (")
    assert str(error.value).endswith("); choose another folder")


def test_records_are_of_test_rows_by_the_protocol_and_are_kept_beside_the_weights(tmp_path: Path) -> None:
    run = train(small(seeds=[0, 1], immutable=["x1"]), tmp_path)
    records = run.measure(rounds=2, individuals=10).records
    wanted = evaluate(
        run.models,
        run.data.test.x,
        run.data.test.y,
        n_classes=2,
        constraints=build_constraints(run.settings, run.data, test_time=True),
        protocol=build_protocol(run.settings, rounds=2, individuals=10),
    )
    assert len(records) == 2 * 5 * 2
    pd.testing.assert_frame_equal(records, wanted)
    kept = pd.read_csv(tmp_path / "records.csv")
    pd.testing.assert_frame_equal(kept, records, check_dtype=False, rtol=1e-5)


def test_scores_have_a_row_for_each_model_and_a_column_for_each_outcome(tmp_path: Path) -> None:
    run = train(small(seeds=[0, 1]), tmp_path)
    found = run.measure(rounds=2, individuals=10)
    assert set(found.table.columns) == set(known())
    hits = [(p.argmax(-1) == run.data.test.y).double().mean().item() for p in predictions(run)]
    assert found.table["accuracy"].tolist() == pytest.approx(hits)
    assert (found.table["fgsm"] < found.table["accuracy"]).all()
    assert found.table["ip"].tolist() == pytest.approx(found.records.groupby("model")["ip"].mean().tolist())
