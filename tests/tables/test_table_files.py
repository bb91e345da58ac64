"""Tables in files: whatever separates their cells, they are read alike."""

import gzip
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal

from countertrain.tables import load, read_table
from countertrain.tables.sources.files import read_rows, write_rows


@pytest.fixture
def people() -> pd.DataFrame:
    """60 rows with decimals, a text that holds separators, missing values and a label."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "income": rng.integers(1000, 9999, 60) / 100,
            "job": rng.choice(["smith, black", "clerk; old", "a|b", "none yet"], 60),
            "age": np.where(np.arange(60) % 20 == 3, np.nan, rng.integers(18, 80, 60)),
            "bought": np.where(np.arange(60) % 3 == 0, "yes", "no"),
        }
    )


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("suffix", ["csv", "txt", "csv.gz"])
def test_the_separator_is_found_by_itself(people: pd.DataFrame, tmp_path: Path, separator: str, suffix: str) -> None:
    path = tmp_path / f"people.{suffix}"
    people.to_csv(path, sep=separator, index=False)
    assert_frame_equal(read_table(path), people)
    data = load(path, label="bought")
    assert (data.name, data.features[0], data.classes) == ("people", "income", ("no", "yes"))


def test_a_decimal_comma_is_found_between_semicolons(people: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    people.to_csv(path, sep=";", decimal=",", index=False, encoding="utf-8-sig")
    assert "," in path.read_text().splitlines()[1]
    assert_frame_equal(read_table(path), people)


def test_points_between_semicolons_stay_decimal_points(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text('a;b\n1.5;"x, y"\n2.5;"z"\n')
    assert read_table(path)["a"].tolist() == [1.5, 2.5]


def test_a_parquet_file_gives_the_data_set_of_the_frame_that_it_holds(people: pd.DataFrame, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    people.to_parquet(tmp_path / "people.parquet")
    found, wanted = load(tmp_path / "people.parquet", label="bought"), load(people, label="bought")
    assert found.encoder.to_json() == wanted.encoder.to_json()
    assert torch.equal(found.train.x, wanted.train.x)
    assert_frame_equal(found.test_frame, wanted.test_frame)


def refused(path: Path) -> str:
    with pytest.raises(ValueError) as error:
        read_table(path)
    return str(error.value)


def test_what_is_no_table_is_refused_in_one_sentence(
    people: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in {
        "empty.csv": b"",
        "cut.csv.gz": gzip.compress(b"a,b\n" * 999)[:-9],
        "no.csv.gz": b"no",
    }.items():
        (tmp_path / name).write_bytes(content)
        said = refused(tmp_path / name)
        assert said.startswith(f"{tmp_path / name} cannot be read as a CSV file with a header: ")
        assert len(said.splitlines()) == 1
    assert refused(tmp_path / "none.csv") == f"there is no file {tmp_path / 'none.csv'}; check the path"
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    path = tmp_path / "people.parquet"
    path.write_bytes(b"PAR1")
    assert refused(path) == (
        f"{path} cannot be read as a Parquet file: that needs pyarrow; "
        "pip install 'countertrain[parquet]', or bring a CSV file"
    )


def test_rows_are_read_back_in_the_types_of_their_encoder(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "zip": rng.choice(["01", "02", "NA"], 80),
            "size": pd.Categorical(rng.choice(["low", "high"], 80), ["low", "high"]),
            "weight": rng.integers(0, 90, 80).astype(np.int32),
            "rate": np.where(np.arange(80) % 9 == 0, np.nan, rng.normal(size=80)),
            "member": rng.choice([True, False], 80),
            "label": rng.choice(["0", "1"], 80),
        }
    )
    data = load(frame)
    assert data.test_frame is not None
    write_rows(tmp_path / "rows.csv", data.test_frame)
    again = read_rows(tmp_path / "rows.csv", data.encoder, data.label, data.classes)
    assert_frame_equal(again, data.test_frame)
