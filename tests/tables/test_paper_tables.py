"""The paper's real data sets: exact where the files are at hand, refused where they are damaged."""

import gzip
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from countertrain.tables import load, load_frame
from countertrain.tables.sources.downloads import DataFileError, cache_folder
from countertrain.tables.sources.paper import TABLES

BESIDE = Path(__file__).parents[3] / "shared" / "data"
FOLDER = Path(os.environ.get("COUNTERTRAIN_DATA", BESIDE))

needs_files = pytest.mark.skipif(
    not (FOLDER / "adult.csv.gz").is_file(), reason=f"the data files are not in {FOLDER}; set COUNTERTRAIN_DATA"
)


@pytest.fixture
def _files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERTRAIN_DATA", str(FOLDER))


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A data folder of our own, an empty cache, and no network."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("COUNTERTRAIN_DATA", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", refuse)
    monkeypatch.setattr("sklearn.datasets.fetch_california_housing", refuse)
    return folder


@needs_files
@pytest.mark.usefixtures("_files")
@pytest.mark.parametrize(
    ("name", "sizes", "n_features", "groups", "protected", "share"),
    [
        ("adult", (25_049, 1000, 6512), 108, 8, [0], 0.2396),
        ("california", (15_504, 1000, 4126), 8, 0, [1], 0.5010),
        ("credit", (9618, 1000, 2654), 33, 3, [14], 0.5007),
        ("gmsc", (12_371, 1000, 3343), 10, 0, [1], 0.4980),
    ],
)
def test_a_table_has_the_rows_columns_and_labels_of_the_published_experiments(
    name: str, sizes: tuple[int, int, int], n_features: int, groups: int, protected: list[int], share: float
) -> None:
    data = load(name)
    assert (len(data.train), len(data.validation), len(data.test)) == sizes
    assert (data.n_features, len(data.categories)) == (n_features, groups)
    assert data.columns(data.protected) == protected
    known = torch.cat([data.train.y, data.validation.y]).double()
    assert known.mean() == pytest.approx(share, abs=5e-5)
    numeric = [i for i, feature in enumerate(data.features) if "=" not in feature]
    x = torch.cat([data.train.x, data.validation.x])[:, numeric].double()
    torch.testing.assert_close(x.mean(0), torch.zeros(len(numeric)).double(), atol=1e-4, rtol=0)
    torch.testing.assert_close(x.std(0), torch.ones(len(numeric)).double(), atol=1e-3, rtol=0)
    for group in data.categories:
        assert torch.equal(data.test.x[:, group].sum(1), torch.ones(len(data.test)))


@needs_files
@pytest.mark.usefixtures("_files")
def test_test_rows_are_the_last_fifth_of_the_file_in_file_order() -> None:
    data = load("gmsc")
    frame = pd.read_csv(FOLDER / TABLES["gmsc"].file)
    assert data.test.y.tolist() == frame["target"].tolist()[-len(data.test) :]
    ages = data.original(data.test.x)[:, data.columns(["age"])].squeeze(1)
    assert np.allclose(ages, frame["age"].to_numpy()[-len(data.test) :], atol=1e-3)


@needs_files
@pytest.mark.usefixtures("_files")
@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_also_to_be_had_in_the_units_of_people(name: str) -> None:
    (rows, labels), data, spec = load_frame(name), load(name), TABLES[name]
    assert [*rows.columns] == [column for column in spec.columns if column != spec.label]
    assert set(labels) == set(spec.classes)
    assert not any(pd.api.types.is_numeric_dtype(rows[column]) for column in spec.categorical)
    test = labels[-len(data.test) :]
    assert [spec.classes[k] for k in data.test.y.tolist()] == test.tolist()
    assert data.test_frame is not None
    assert data.encoder.tensor(data.test_frame).equal(data.test.x)
    assert data.encoder.decode(data.test.x.numpy(), origin=data.test_frame).equals(data.test_frame[[*rows.columns]])
    if name == "credit":
        assert data.features[1:4] == ("SEX=male", "SEX=female", "EDUCATION=code 0")
        assert set(rows["MARRIAGE"]) == {"married", "single", "other", "code 0"}


def test_a_table_of_another_name_is_refused() -> None:
    said = "'moons' is not the name of a table; there are 'adult', 'california', 'credit', 'gmsc', 'loans'"
    with pytest.raises(ValueError, match=said):
        load_frame("moons")


@needs_files
@pytest.mark.usefixtures("_files")
def test_mnist_has_balanced_digits_in_its_domain_and_the_whole_test_set() -> None:
    data = load("mnist")
    assert (len(data.train), len(data.validation), len(data.test)) == (10_000, 1000, 10_000)
    assert data.train.y.bincount().tolist() == [1000] * 10
    assert data.test.y.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert (float(data.train.x.min()), float(data.train.x.max())) == (-1.0, 1.0)
    assert data.columns(data.protected) == [*range(140), *range(644, 784)]


@pytest.mark.parametrize("name", ["adult", "california", "credit", "gmsc", "mnist"])
def test_without_file_and_network_the_error_names_file_variable_and_source(name: str, offline: Path) -> None:
    with pytest.raises(DataFileError) as error:
        load(name)
    said = str(error.value)
    assert (TABLES[name].file if name in TABLES else "train-images-idx3-ubyte.gz") in said
    assert "COUNTERTRAIN_DATA" in said
    assert (TABLES[name].source if name in TABLES else "OpenML, data set 554") in said
    assert not list(cache_folder().iterdir())


def write(folder: Path, frame: pd.DataFrame) -> None:
    (folder / TABLES["gmsc"].file).write_bytes(gzip.compress(frame.to_csv(index=False).encode()))


def test_a_file_with_missing_columns_wrong_counts_or_other_content_is_refused(offline: Path) -> None:
    spec = TABLES["gmsc"]
    frame = pd.DataFrame(0, index=range(spec.n_rows), columns=list(spec.columns))
    write(offline, frame.drop(columns="DebtRatio"))
    with pytest.raises(DataFileError, match="lacks the column DebtRatio"):
        load("gmsc")
    write(offline, frame[:-1])
    with pytest.raises(DataFileError, match="must have 16,714 rows; it has 16,713"):
        load("gmsc")
    write(offline, frame)
    with pytest.raises(DataFileError, match="wrong checksum"):
        load("gmsc")


def test_a_truncated_file_is_refused(offline: Path) -> None:
    (offline / TABLES["gmsc"].file).write_bytes(gzip.compress(b"target,age\n" * 1000)[:-20])
    with pytest.raises(DataFileError, match="is not a whole gzip file"):
        load("gmsc")


def test_a_variable_that_names_no_folder_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COUNTERTRAIN_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataFileError, match="which is not a folder; correct or unset it"):
        load("adult")


def test_an_interrupted_download_leaves_nothing_behind(offline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(spec: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise ConnectionResetError("reset by peer")

    monkeypatch.setattr("countertrain.tables.sources.paper._download", half)
    with pytest.raises(DataFileError, match="reset by peer"):
        load("gmsc")
    assert not list(cache_folder().iterdir())


def test_a_download_is_balanced_with_a_seed_and_then_found_in_the_cache(
    offline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def housing(**kwargs: object) -> object:
        calls.append(kwargs)
        rng = np.random.default_rng(0)
        columns = [c for c in TABLES["california"].columns if c != "target"]
        frame = pd.DataFrame(rng.normal(size=(401, 8)), columns=columns).assign(MedHouseVal=np.arange(401) / 100)
        return type("Bunch", (), {"frame": frame})

    monkeypatch.setattr("sklearn.datasets.fetch_california_housing", housing)
    monkeypatch.setattr("countertrain.tables.sources.paper._VALIDATION", 40)
    first, second = load("california"), load("california")
    assert len(calls) == 1
    assert "balanced anew" in first.title
    assert torch.equal(first.train.x, second.train.x)
    y = torch.cat([first.train.y, first.validation.y, first.test.y])
    assert y.bincount().tolist() == [200, 200]
