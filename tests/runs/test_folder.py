"""The one folder: a model comes back as it was; what is damaged or foreign is refused in one sentence, never run."""

import json
import pickle
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn

from countertrain.estimator import CounterfactualClassifier
from countertrain.files import CheckpointError, InUseError, locked
from countertrain.runs import folder as module
from countertrain.runs.folder import read_run, write_run
from countertrain.runs.settings import Settings
from countertrain.runs.training import train
from countertrain.search.generators import generic
from countertrain.tables.schema import Schema
from countertrain.training.methods import bl
from loans import loans, quick

X, Y = loans()
FILES = [
    "settings.toml", "schema.toml", "encoder.json", "about.json", "history.json", "weights.safetensors",
    "rows.safetensors",
]  # fmt: skip
load = CounterfactualClassifier.load


@pytest.fixture(scope="module")
def classifier() -> CounterfactualClassifier:
    """A classifier with parameters of every type."""
    schema = Schema.infer(X).with_columns(age={"lower": 18, "unit": "years"})
    weight = {"granted": np.float64(2.0), "refused": 1}
    return quick(
        schema=schema, immutable=["age"], increase=pd.Index(["income"]), class_weight=weight, hidden=(8, 4), n_models=2
    ).fit(X, Y)


@pytest.fixture
def folder(classifier: CounterfactualClassifier, tmp_path: Path) -> Path:
    """It, saved."""
    classifier.save(tmp_path / "model")
    return tmp_path / "model"


def twisted(n_features: int, n_classes: int) -> nn.Module:
    """A module of the user's own."""
    return nn.Sequential(nn.Linear(n_features, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, n_classes))


def test_a_saved_classifier_comes_back_as_it_was(classifier: CounterfactualClassifier, folder: Path) -> None:
    loaded = load(folder)
    assert np.array_equal(loaded.predict_proba(X), classifier.predict_proba(X))
    assert np.array_equal(loaded.predict(X), classifier.predict(X))
    assert loaded.feature_names_in_.tolist() == classifier.feature_names_in_.tolist()
    assert (loaded.n_features_in_, loaded.classes_.dtype) == (5, classifier.classes_.dtype)
    assert loaded.history_ == classifier.history_
    assert torch.equal(loaded.reference_x_, classifier.reference_x_)
    assert torch.equal(loaded.reference_y_, classifier.reference_y_)
    assert loaded.encoder_.decode(loaded.encoder_.encode(X)).equals(
        classifier.encoder_.decode(classifier.encoder_.encode(X))
    )
    given = {**classifier.get_params(), "immutable": ("age",), "increase": ("income",)}
    assert loaded.get_params() == given
    again = clone(loaded).fit(X, Y)
    assert np.array_equal(again.predict_proba(X), classifier.predict_proba(X))


def test_the_folder_is_for_people_to_read_and_holds_no_pickle(
    classifier: CounterfactualClassifier, folder: Path
) -> None:
    assert {file.name for file in folder.iterdir()} == {*FILES, "checksums.json"}
    assert Schema(**tomllib.loads((folder / "schema.toml").read_text())) == classifier.encoder_.schema
    assert Settings.from_toml((folder / "settings.toml").read_text()) == classifier.settings_
    written = json.loads((folder / "about.json").read_text())
    assert written["classes"] == ["granted", "refused"]
    assert written["estimator"]["parameters"]["hidden"] == [8, 4]
    assert written["environment"]["versions"]["torch"] == torch.__version__
    assert len(load_file(folder / "weights.safetensors")) == 2 * 6


def test_training_rows_may_be_left_out(classifier: CounterfactualClassifier, tmp_path: Path) -> None:
    classifier.save(tmp_path / "model", rows=False)
    assert len(load_file(tmp_path / "model" / "rows.safetensors")["reference.x"]) == 0
    loaded = load(tmp_path / "model")
    assert loaded.reference_x_ is None
    assert loaded.reference_y_ is None
    assert np.array_equal(loaded.predict(X), classifier.predict(X))
    loaded.save(tmp_path / "again")
    assert load(tmp_path / "again").reference_x_ is None
    tested = replace(classifier.run_.data, test=classifier.run_.data.train, test_frame=X.assign(label=Y))
    write_run(replace(classifier.run_, data=tested), tmp_path / "kept")  # as the command trains it
    assert (tmp_path / "kept" / "test.csv").exists()
    load(tmp_path / "kept").save(tmp_path / "bare", rows=False)
    assert not (tmp_path / "bare" / "test.csv").exists()
    assert not any(
        len(x) for name, x in load_file(tmp_path / "bare" / "rows.safetensors").items() if name[-2:] in (".x", ".y")
    )


@pytest.mark.parametrize(
    "labels",
    [
        np.where(Y == "granted", 7, 3).astype(np.int8),
        Y == "granted",
        Y.astype(object).to_numpy(),
        np.where(Y == "granted", 1.0, 2.0),
    ],
    ids=["int8", "bool", "object", "float"],
)
def test_labels_keep_their_type(labels: Any, tmp_path: Path) -> None:
    fitted = quick(epochs=1, random_state=np.random.RandomState(0)).fit(X, labels)
    fitted.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.classes_.dtype == fitted.classes_.dtype
    assert loaded.predict(X).tolist() == fitted.predict(X).tolist()
    assert loaded.random_state is None


def test_a_classifier_of_arrays_comes_back_without_names(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 3
    fitted = quick(epochs=1, objective="bl").fit(x, y)
    fitted.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert not hasattr(loaded, "feature_names_in_")
    assert np.array_equal(loaded.predict_proba(x), fitted.predict_proba(x))


def test_what_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        quick().save(tmp_path / "model")
    dates = pd.to_datetime(np.where(Y == "granted", "2020-01-01", "2021-01-01"))
    fitted = quick(epochs=1).fit(X, Y)
    data = replace(fitted.run_.data, classes=tuple(np.unique(dates)))
    fitted.run_ = replace(fitted.run_, data=data)
    with pytest.raises(TypeError, match=r"labels of the type .* cannot be saved; use texts or numbers"):
        fitted.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_only_another_classifier_is_overwritten_and_only_on_demand(
    classifier: CounterfactualClassifier, folder: Path
) -> None:
    with pytest.raises(
        FileExistsError, match="holds a trained model already; choose another folder, or give overwrite=True"
    ):
        classifier.save(folder)
    quick(epochs=0).fit(X, Y).save(folder, overwrite=True)
    assert load(folder).epochs == 0
    assert [file.name for file in folder.parent.iterdir()] == ["model"]
    (folder.parent / "photos").mkdir()
    (folder.parent / "photos" / "cat.jpg").touch()
    for foreign, said in (
        (folder.parent / "photos", "holds cat.jpg, which is no part of a trained model; choose another folder"),
        (folder.parent / "photos" / "cat.jpg", "is a file; choose another folder"),
    ):
        with pytest.raises(FileExistsError, match=said):
            classifier.save(foreign, overwrite=True)
    (folder.parent / "empty").mkdir()
    classifier.save(folder.parent / "empty")
    classifier.save(folder.parent / "new" / "deep")
    assert load(folder.parent / "new" / "deep").epochs == load(folder.parent / "empty").epochs == 8


def test_a_save_that_fails_leaves_all_as_it_was(
    classifier: CounterfactualClassifier, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    rename, failed = Path.rename, []

    def fail_once(self: Path, to: Path) -> Path:
        if to == folder and not failed:
            failed.append(self)
            raise OSError("no space left on device")
        return rename(self, to)

    for where, what, how in ((module, "_checksum", lambda file: 1 / 0), (Path, "rename", fail_once)):
        with monkeypatch.context() as patch:
            patch.setattr(where, what, how)
            with pytest.raises((OSError, ZeroDivisionError)):
                classifier.save(folder, overwrite=True)
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
        assert [file.name for file in folder.parent.iterdir()] == ["model"]
    assert failed


def refused(folder: Path, **own: Any) -> str:
    """The one sentence with which a folder is refused."""
    with pytest.raises(CheckpointError) as caught:
        load(folder, **own)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", [*FILES, "checksums.json"])
def test_a_file_that_is_truncated_changed_or_missing_is_named(folder: Path, name: str) -> None:
    file = folder / name
    content = file.read_bytes()
    middle = len(content) // 2
    for damaged in (content[:middle], content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :], b""):
        file.write_bytes(damaged)
        assert name in refused(folder)
    file.unlink()
    assert name in refused(folder)
    file.write_bytes(content)
    load(folder)


def test_a_foreign_folder_is_refused(folder: Path) -> None:
    assert refused(folder / "nowhere").endswith("nowhere; give the folder of a trained model")
    assert refused(folder.parent / f"{folder.name}s").endswith(f"s; did you mean {folder}?")
    assert "there is no folder" in refused(folder / "about.json")
    assert "holds no trained model: it has no checksums.json" in refused(folder.parent)
    checksums = json.loads((folder / "checksums.json").read_text())
    (folder / "checksums.json").write_text(json.dumps({**checksums, "../../etc/passwd": "0"}))
    assert "it lists other files" in refused(folder)


def sign(folder: Path) -> None:
    """Make the checksums fit what the files now hold, as a forger would."""
    names = json.loads((folder / "checksums.json").read_text())
    (folder / "checksums.json").write_text(json.dumps({name: module._checksum(folder / name) for name in names}))


def change(path: tuple[str, ...], value: Any) -> Callable[[Path], None]:
    """A forgery of one entry of a JSON file."""

    def forge(folder: Path) -> None:
        content = json.loads((folder / path[0]).read_text())
        inner = content
        for key in path[1:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        (folder / path[0]).write_text(json.dumps(content))

    return forge


def edit(setting: str, value: Any) -> Callable[[Path], None]:
    """A forgery of the settings."""

    def forge(folder: Path) -> None:
        settings = tomllib.loads((folder / "settings.toml").read_text())
        assert settings[setting] != value
        (folder / "settings.toml").write_text(tomli_w.dumps(settings | {setting: value}))

    return forge


def tensors(name: str, **changes: Tensor) -> Callable[[Path], None]:
    """A forgery of rows or weights; saved by another program, and so without metadata."""

    def forge(folder: Path) -> None:
        file = folder / f"{name}.safetensors"
        save_file({**load_file(file), **changes}, file)

    return forge


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (change(("about.json", "format"), "countertrain folder, version 2"), "format: Input should be"),
        (change(("about.json", "spare"), 1), "spare: Extra inputs are not permitted"),
        (change(("about.json", "estimator", "parameters", "spare"), 1), "unexpected keyword argument 'spare'"),
        (change(("about.json", "estimator", "parameters", "schema"), {"columns": []}), "to read"),
        (change(("about.json", "estimator", "n_features_in"), "five"), "estimator.n_features_in: Input should be"),
        (edit("hidden", ["many"]), "to read"),
        (edit("data", 7), "to read"),
        (edit("hidden", [8, 5]), "is for another network: 0.3.bias has shape"),
        (edit("model", "linear"), "is for another network: 0.0.bias has no values there and shape (2,)"),
        (edit("seeds", [0]), "is for another network: 1.1.bias has shape (8,) of torch.float32 there and no values"),
        (edit("seeds", [0, 1, 2]), "is for another network: 2.1.bias has no values there and shape (8,)"),
        (change(("about.json", "classes"), ["granted"]), "are no classes of the type"),
        (change(("about.json", "classes"), ["granted", "granted"]), "are no classes of the type"),
        (change(("about.json", "classes"), ["granted", "refused", "other"]), "is for another network"),
        (change(("about.json", "estimator", "classes_dtype"), "<M8[s]"), "to read"),
        (change(("about.json", "estimator", "classes_dtype"), "<U3"), "are no classes of the type <U3"),
        (change(("encoder.json", "scales"), [{"centre": 0, "scale": 0}] * 5), "a scale finite and positive; got 0, 0"),
        (change(("encoder.json", "schema"), {"columns": []}), "to read"),
        (change(("history.json", "records"), [3]), "to read"),
        (tensors("rows", **{"reference.x": torch.zeros(3, 2)}), "does not hold rows of this model"),
        (tensors("rows", **{"reference.y": torch.full((240,), 2)}), "does not hold rows of this model"),
        (tensors("rows", **{"test.x": torch.zeros(3, 2)}), "does not hold rows of this model"),
        (tensors("rows", **{"domain.lower": torch.zeros(3)}), "does not hold rows of this model"),
        (tensors("rows", **{"domain.lower": torch.full((7,), torch.nan)}), "does not hold rows of this model"),
        (tensors("rows", **{"reference.x": torch.full((240, 7), torch.inf)}), "does not hold rows of this model"),
        (tensors("weights", **{"0.1.bias": torch.full((8,), torch.nan)}), "are not finite numbers, in 0.1.bias"),
        (tensors("weights", **{"1.1.bias": torch.full((8,), torch.inf)}), "are not finite numbers, in 1.1.bias"),
        (
            tensors("weights", **{"0.1.bias": torch.zeros(8, dtype=torch.float64)}),
            "0.1.bias has shape (8,) of torch.float64 there and shape (8,) of torch.float32 here",
        ),
        (tensors("weights", spare=torch.zeros(1)), "is for another network: spare has shape (1,)"),
        (
            lambda f: (f / "weights.safetensors").write_bytes(pickle.dumps(print)),
            "is truncated or not a safetensors file",
        ),
        (lambda f: (f / "about.json").write_text("[" * 100_000), "to read"),
        (lambda f: (f / "settings.toml").write_text("data = "), "to read"),
        (lambda f: (f / "encoder.json").write_bytes(b"\xff\xfe"), "to read"),
    ],
)
def test_a_forged_folder_is_refused_even_if_its_checksums_fit(
    folder: Path, forge: Callable[[Path], None], said: str
) -> None:
    forge(folder)
    sign(folder)
    assert said in refused(folder)


@given(name=st.sampled_from(FILES), place=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255))
@settings(max_examples=100)
def test_whatever_byte_is_forged_a_folder_loads_or_is_refused(small: Path, name: str, place: float, byte: int) -> None:
    file = small / name
    content = file.read_bytes()
    at = int(place * len(content))
    try:
        file.write_bytes(content[:at] + bytes([byte]) + content[at + 1 :])
        sign(small)
        load(small)
    except CheckpointError as error:
        assert "\n" not in str(error)  # noqa: PT017  # most forgeries load, and that is fine
    finally:
        file.write_bytes(content)
        sign(small)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small saved classifier."""
    folder = tmp_path_factory.mktemp("small") / "model"
    quick(epochs=1, hidden=(2,)).fit(X[:20], Y[:20]).save(folder)
    return folder


def test_code_of_ones_own_is_given_again(tmp_path: Path) -> None:
    fitted = quick(module=twisted, objective=bl(), generator=generic(), n_models=1, epochs=2).fit(X, Y)
    fitted.save(tmp_path / "model")
    assert "has a module of its own, twisted, which no file can hold; give it again: load(path, module=...)" in refused(
        tmp_path / "model"
    )
    loaded = load(tmp_path / "model", module=twisted)
    assert np.array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    assert loaded.module is twisted
    with pytest.raises(ValueError, match=r"setting 'objective' must be .*; got 'own code'"):
        loaded.fit(X, Y)
    assert load(tmp_path / "model", module=nn.Sequential(*twisted(8, 2)), objective=bl(), generator=generic()).fit(X, Y)
    assert "is for another network" in refused(tmp_path / "model", module=nn.Linear(8, 2))
    assert "module must map (n, 8) rows" in refused(tmp_path / "model", module=nn.Linear(3, 2))
    quick(epochs=0).fit(X, Y).save(tmp_path / "plain")
    with pytest.raises(ValueError, match="has no module of its own; load it without module="):
        load(tmp_path / "plain", module=twisted)


@pytest.mark.parametrize("n_models", [1, 2])
def test_ranks_and_pieces_are_written_with_the_model(tmp_path: Path, n_models: int) -> None:
    settings = {"encoder": "ranks", "model": "piecewise", "n_pieces": 5}
    fitted = quick(settings=settings, n_models=n_models, epochs=2).fit(X, Y)
    numbers = [i for i, name in enumerate(fitted.encoder_.features) if name in ("age", "income", "debt")]
    assert [model[0].numbers.tolist() for model in fitted.models_] == [numbers] * n_models
    assert fitted.models_[0][1].in_features == 8 + 3 * 5
    fitted.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.encoder_.scales == fitted.encoder_.scales
    assert np.array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    assert np.array_equal(loaded.fit(X, Y).predict_proba(X), fitted.predict_proba(X))


def test_a_batch_norm_module_keeps_its_statistics(tmp_path: Path) -> None:
    module = twisted(8, 2)
    quick(module=module, epochs=2).fit(X, Y).save(tmp_path / "model")
    loaded = load(tmp_path / "model", module=module)
    assert int(loaded.models_[0][1].num_batches_tracked) > 0
    assert int(module[1].num_batches_tracked) == 0


def test_weights_that_another_program_saved_again_can_be_read(folder: Path) -> None:
    before = load(folder).predict_proba(X)
    tensors("weights")(folder)
    assert "is not as checksums.json says, but truncated or changed; copy the folder again" in refused(folder)
    sign(folder)
    assert np.array_equal(load(folder).predict_proba(X), before)


def test_the_id_is_that_of_what_decides(classifier: CounterfactualClassifier, tmp_path: Path) -> None:
    ids = [write_run(classifier.run_, tmp_path / name).id for name in ("one", "two")]
    assert ids[0] == ids[1] == read_run(tmp_path / "one").id
    again = load(tmp_path / "one")
    assert write_run(again.run_, tmp_path / "three").id == ids[0]
    assert write_run(again.run_, tmp_path / "four", rows=False).id != ids[0]
    assert classifier.run_.id is None
    quick_ones = {"epochs": 1, "n_ce": 20, "hidden": [4], "objective": "bl"}
    trained = [
        train(Settings.resolve("moons", quick_ones | more), tmp_path / str(i)).id
        for i, more in enumerate(({}, {}, {"seeds": [1]}, {"learning_rate": 0.02}, {"epochs": 2}))
    ]
    assert trained[0] == trained[1]
    assert len(set(trained)) == 4


@pytest.mark.parametrize(
    "files",
    [
        ["settings.toml", "weights.safetensors", "history.jsonl", "environment.json"],
        ["project.json", "test.csv", "ct/settings.json", "bl/settings.json"],
        ["settings.json", "checksums.json", "encoder.json", "weights.safetensors"],
    ],
    ids=["train", "fit", "save"],
)
def test_folders_of_the_version_before_are_refused_in_one_sentence(tmp_path: Path, files: list[str]) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    said = f"{tmp_path} was written by countertrain 0.1, which this version cannot read; train again into a new folder"
    assert refused(tmp_path) == said
    with pytest.raises(FileExistsError) as caught:
        train(Settings.resolve("moons"), tmp_path, overwrite=True)
    assert str(caught.value) == said
    assert {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()} == set(files)


def test_a_damaged_folder_may_be_overwritten(classifier: CounterfactualClassifier, folder: Path) -> None:
    for name in ("weights.safetensors", "checksums.json"):
        (folder / name).unlink()
        classifier.save(folder, overwrite=True)
        load(folder)


def test_a_folder_that_is_being_written_is_refused_to_others(
    classifier: CounterfactualClassifier, folder: Path
) -> None:
    with locked(folder), pytest.raises(InUseError, match="is in use by process"):
        classifier.save(folder, overwrite=True)
    assert np.array_equal(load(folder).predict_proba(X), classifier.predict_proba(X))


def test_test_rows_come_back_in_the_units_of_people(tmp_path: Path) -> None:
    frame = X.assign(decision=Y)
    assert frame["debt"].isna().any()
    frame.to_csv(tmp_path / "loans.csv", sep=";", index=False)
    given = {"epochs": 1, "objective": "bl", "label": "decision"}
    run = train(Settings.resolve(str(tmp_path / "loans.csv"), given), tmp_path / "run")
    rows, labels = run.test_rows()
    kept, kept_labels = read_run(tmp_path / "run").test_rows()
    assert len(rows) == 48
    pd.testing.assert_frame_equal(kept, rows, check_dtype=False)
    assert kept_labels.tolist() == labels.tolist()
    assert torch.equal(run.data.encoder.tensor(kept), run.data.test.x)
