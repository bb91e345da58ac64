"""A saved classifier comes back as it was; a damaged or foreign folder is refused in one sentence, and never run."""

import json
import pickle
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn

from countertrain.estimator import CounterfactualClassifier
from countertrain.files import CheckpointError
from countertrain.runs import store
from countertrain.search.generators import generic
from countertrain.tables.schema import Schema
from countertrain.training.methods import bl
from loans import loans, quick

X, Y = loans()
FILES = ["settings.json", "schema.toml", "encoder.json", "history.json", "weights.safetensors", "rows.safetensors"]
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
    written = json.loads((folder / "settings.json").read_text())
    assert written["classes"] == ["granted", "refused"]
    assert written["parameters"]["hidden"] == [8, 4]
    assert written["written_with"]["torch"] == torch.__version__
    assert len(load_file(folder / "weights.safetensors")) == 2 * 6


def test_training_rows_may_be_left_out(classifier: CounterfactualClassifier, tmp_path: Path) -> None:
    classifier.save(tmp_path / "model", rows=False)
    assert not (tmp_path / "model" / "rows.safetensors").exists()
    loaded = load(tmp_path / "model")
    assert loaded.reference_x_ is None
    assert loaded.reference_y_ is None
    assert np.array_equal(loaded.predict(X), classifier.predict(X))
    loaded.save(tmp_path / "again")
    assert load(tmp_path / "again").reference_x_ is None


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
    fitted.classes_ = np.unique(dates)
    with pytest.raises(TypeError, match=r"labels of the type .* cannot be saved; use texts or numbers"):
        fitted.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_only_another_classifier_is_overwritten_and_only_on_demand(
    classifier: CounterfactualClassifier, folder: Path
) -> None:
    with pytest.raises(FileExistsError, match="holds a saved classifier already; save with overwrite=True"):
        classifier.save(folder)
    quick(epochs=0).fit(X, Y).save(folder, overwrite=True)
    assert load(folder).epochs == 0
    assert [file.name for file in folder.parent.iterdir()] == ["model"]
    (folder.parent / "photos").mkdir()
    (folder.parent / "photos" / "cat.jpg").touch()
    for foreign, said in (
        (folder.parent / "photos", "holds cat.jpg, which is no part of a saved classifier; choose another folder"),
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

    for where, what, how in ((store, "_checksum", lambda file: 1 / 0), (Path, "rename", fail_once)):
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
    assert "there is no folder" in refused(folder / "nowhere")
    assert "there is no folder" in refused(folder / "settings.json")
    assert "holds no saved classifier" in refused(folder.parent)
    checksums = json.loads((folder / "checksums.json").read_text())
    (folder / "checksums.json").write_text(json.dumps({**checksums, "../../etc/passwd": "0"}))
    assert "it lists other files" in refused(folder)


def sign(folder: Path) -> None:
    """Make the checksums fit what the files now hold, as a forger would."""
    names = json.loads((folder / "checksums.json").read_text())
    (folder / "checksums.json").write_text(json.dumps({name: store._checksum(folder / name) for name in names}))


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


def rows(**changes: Tensor) -> Callable[[Path], None]:
    """A forgery of the training rows."""
    return lambda folder: save_file({**load_file(folder / "rows.safetensors"), **changes}, folder / "rows.safetensors")


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (change(("settings.json", "format"), "countertrain classifier, version 1"), "format: Input should be"),
        (change(("settings.json", "spare"), 1), "spare: Extra inputs are not permitted"),
        (change(("settings.json", "parameters", "spare"), 1), "unexpected keyword argument 'spare'"),
        (change(("settings.json", "settings", "hidden"), "many"), "to read"),
        (change(("settings.json", "settings", "hidden"), [8, 5]), "is for another network: 0.2.bias has shape"),
        (
            change(("settings.json", "settings", "seeds"), [0]),
            "is for another network: 1.0.bias has shape (8,) there",
        ),
        (change(("settings.json", "classes"), ["granted"]), "are no classes of the type"),
        (change(("settings.json", "classes"), ["granted", "granted"]), "are no classes of the type"),
        (change(("settings.json", "classes_dtype"), "<M8[s]"), "to read"),
        (change(("encoder.json", "scale"), [0, 0, 0, 0, 0]), "scale"),
        (change(("encoder.json", "schema"), {"columns": []}), "to read"),
        (change(("history.json", "records"), [3]), "to read"),
        (rows(x=torch.zeros(3, 2)), "does not hold rows of this classifier"),
        (rows(y=torch.full((240,), 2)), "does not hold rows of this classifier"),
        (
            lambda f: (f / "weights.safetensors").write_bytes(pickle.dumps(print)),
            "is truncated or not a safetensors file",
        ),
        (lambda f: (f / "settings.json").write_text("[" * 100_000), "to read"),
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
    assert load(tmp_path / "model", module=nn.Sequential(*twisted(7, 2)), objective=bl(), generator=generic()).fit(X, Y)
    assert "is for another network" in refused(tmp_path / "model", module=nn.Linear(7, 2))
    assert "module must map (n, 7) rows" in refused(tmp_path / "model", module=nn.Linear(3, 2))
    quick(epochs=0).fit(X, Y).save(tmp_path / "plain")
    with pytest.raises(ValueError, match="has no module of its own; load it without module="):
        load(tmp_path / "plain", module=twisted)


def test_a_batch_norm_module_keeps_its_statistics(tmp_path: Path) -> None:
    module = twisted(7, 2)
    quick(module=module, epochs=2).fit(X, Y).save(tmp_path / "model")
    loaded = load(tmp_path / "model", module=module)
    assert int(loaded.models_[0][1].num_batches_tracked) > 0
    assert int(module[1].num_batches_tracked) == 0
