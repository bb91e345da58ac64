"""Tables that do not fit in memory: coded as those that do, read by rows, and refused in one sentence."""

import json
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal
from safetensors.torch import load_file

from countertrain.cli import main
from countertrain.models.architectures import mlp
from countertrain.tables import load
from countertrain.tables.encoder import Encoder
from countertrain.tables.scales import UNSCALED, Ranks
from countertrain.tables.schema import Numeric, Schema
from countertrain.tables.sources import convert as module
from countertrain.tables.sources.convert import convert
from countertrain.tables.sources.folder import Description, write_folder
from countertrain.testing import toy_rows
from countertrain.training import checks, trainer
from countertrain.training.methods import ct
from countertrain.training.trainer import CounterfactualTrainer


@pytest.fixture(autouse=True)
def _few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROWS", 7)


@pytest.fixture
def people() -> pd.DataFrame:
    """200 rows; `code` looks like numbers until its last rows, `late` has a level that comes late, some are missing."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.normal(1e6, 12, 200),
            "job": rng.choice(["smith", "clerk", "none"], 200),
            "member": rng.choice([True, False], 200),
            "bought": np.where(np.arange(200) % 4 == 0, "yes", "no"),
            "code": [str(i % 3) for i in range(190)] + ["x"] * 10,
            "late": ["a"] * 150 + ["b"] * 50,
            "same": [3] * 199 + [4],
            "income": np.where(np.arange(200) % 60 == 59, np.nan, rng.integers(10, 90, 200) * 500),
            "town": [None if i % 50 == 40 else "abc"[i % 3] for i in range(200)],
            "owner": [None if i == 120 else i % 3 == 0 for i in range(200)],
            "none yet": [np.nan] * 100 + [i / 100 for i in range(100)],
            "visits": rng.integers(0, 9, 200),
        }
    )


def written(frame: pd.DataFrame, folder: Path, **changes: Any) -> Path:
    frame.assign(**changes).to_csv(folder / "people.csv", index=False)
    return folder / "people.csv"


def assert_same(folder: Path, source: Path, label: str, data_seed: int = 42) -> None:
    """The folder holds what the CSV file gives when it is read as a whole."""
    by_ranks = partial(Encoder.fit, fit_scale=Ranks.fit)
    found, wanted = load(folder), load(source, label=label, data_seed=data_seed, fit_encoder=by_ranks)
    for name in ("name", "title", "schema", "classes", "label", "features", "categories"):
        assert getattr(found, name) == getattr(wanted, name), name
    assert found.encoder.to_json() == wanted.encoder.to_json()
    assert found.test_frame is not None
    assert_frame_equal(found.test_frame, wanted.test_frame, check_column_type=False)
    for name in ("train", "validation", "test"):
        mine, theirs = getattr(found, name), getattr(wanted, name)
        torch.testing.assert_close(mine.x, theirs.x, rtol=1e-5, atol=1e-6)
        assert torch.equal(mine.y, theirs.y)
    assert torch.allclose(found.original(found.test.x), wanted.original(wanted.test.x))
    torch.testing.assert_close(found.constraints().lower, wanted.constraints().lower, rtol=1e-4, atol=1e-5)


def test_a_converted_table_is_the_table_read_as_a_whole(
    people: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, progress = [], []
    parts = module.read_parts

    def spy(*args: Any) -> Any:
        for frame in parts(*args):
            sizes.append(len(frame))
            yield frame

    monkeypatch.setattr(module, "read_parts", spy)
    source = written(people, tmp_path)
    convert(source, tmp_path / "rows", label="bought", progress=lambda *at: progress.append(at))
    assert_same(tmp_path / "rows", source, "bought")
    assert max(sizes) == 7
    assert sum(sizes) == 4 * 200 + 7  # three times, once more for texts that came late, and a look at the columns
    assert (progress[0], progress[-1]) == ((7, None), (600, 600))
    assert {"code=0", "code=x", "late=b", "member", "town=missing"} <= set(load(tmp_path / "rows").features)


def test_numbers_as_classes_keep_their_order_and_the_last_column_is_predicted(
    people: pd.DataFrame, tmp_path: Path
) -> None:
    source = written(people, tmp_path, visits=[(100, 3, 20)[i % 3] for i in range(200)])
    convert(source, tmp_path / "rows")
    assert load(tmp_path / "rows").classes == (3, 20, 100)
    assert_same(tmp_path / "rows", source, "visits")


def test_of_many_rows_only_some_are_held_out(
    people: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_HELD_OUT", 9)
    convert(written(people, tmp_path), tmp_path / "rows", label="bought")
    data = load(tmp_path / "rows")
    assert [len(split) for split in (data.train, data.validation, data.test)] == [182, 9, 9]
    assert 0 < data.test.y.sum() < 9


def test_a_parquet_file_is_converted_as_a_csv_file_is(people: pd.DataFrame, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    source = written(people, tmp_path)
    people.to_parquet(tmp_path / "people.parquet", row_group_size=50)
    for kind in ("csv", "parquet"):
        convert(tmp_path / f"people.{kind}", tmp_path / kind, label="bought")
    found, wanted = load(tmp_path / "parquet"), load(tmp_path / "csv")
    assert found.features == wanted.features
    assert torch.equal(found.train.x, wanted.train.x)
    assert torch.equal(found.test.y, wanted.test.y)
    source.rename(tmp_path / "no.parquet")
    assert refused(tmp_path / "no.parquet", tmp_path).startswith(
        f"{tmp_path / 'no.parquet'} cannot be read as a Parquet file: "
    )


def test_training_on_the_folder_is_training_on_the_table(people: pd.DataFrame, tmp_path: Path) -> None:
    source, folder = written(people, tmp_path), tmp_path / "rows"
    assert run("convert", source, folder, "--label", "bought") == 0
    settings = ("--set", "epochs=2", "--set", "n_steps=4", "--label", "bought")
    for data, out in ((source, "whole"), (folder, "mapped")):
        assert run("train", data, "--out", tmp_path / out, *settings) == 0
    assert run("explain", tmp_path / "mapped", "--row", "0") == 0
    whole, mapped = (load_file(tmp_path / out / "weights.safetensors") for out in ("whole", "mapped"))
    torch.testing.assert_close(mapped, whole, rtol=1e-4, atol=1e-5)


def run(*args: object) -> int:
    with pytest.raises(SystemExit) as end:
        main([str(arg) for arg in args])
    return int(str(end.value.code))


def refused(source: Path, folder: Path, label: str | None = None) -> str:
    with pytest.raises(ValueError) as error:
        convert(source, folder / "rows", label=label)
    assert not (folder / "rows" / "description.json").exists()
    return str(error.value)


def test_tables_that_cannot_be_used_are_refused_as_a_whole_table_would_be(people: pd.DataFrame, tmp_path: Path) -> None:
    source = written(people, tmp_path)
    names = ", ".join(map(repr, people.columns))
    assert refused(source, tmp_path, "sold") == f"people.csv has no column 'sold' to predict; there are {names}"
    assert refused(source, tmp_path, "age") == (
        "column 'age' has more than 50 different labels; group them, or predict another column"
    )
    written(people, tmp_path, same=3)
    assert refused(source, tmp_path).startswith("column 'same' is 3 in every row, so that nothing can be learnt")
    assert refused(source, tmp_path, "same") == (
        "column 'same' of people.csv must hold 2 to 50 classes with at least 5 rows each; it has 1, the rarest with 200"
    )
    written(people, tmp_path, age=people["age"].where(people.index != 111, np.inf))
    assert refused(source, tmp_path) == "column 'age' holds infinite values; replace or drop them"
    written(people, tmp_path, job=[f"job {i}" for i in range(200)])
    assert refused(source, tmp_path) == (
        "column 'job' has more than 50 different levels; drop it, group its levels, or raise max_levels"
    )
    written(people[:9], tmp_path)
    assert refused(source, tmp_path) == "people.csv needs at least 2 columns and 10 rows; it has 12 and 9"
    written(people[["age"]], tmp_path)
    assert refused(source, tmp_path).startswith("people.csv needs at least 2 columns and 10 rows; it has 1 and ")
    for content in (b"", b"\xff\xfe\x00\x9c", b"a,b\n1,2\n1,2,3\n"):
        source.write_bytes(content)
        assert refused(source, tmp_path).startswith(f"{source} cannot be read as a CSV file with a header: ")
    missing = tmp_path / "none.csv"
    assert refused(missing, tmp_path) == f"there is no file {missing}; check the path"


def test_parquet_without_pyarrow_is_refused_with_the_way_out(
    people: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    source = written(people, tmp_path).rename(tmp_path / "people.parquet")
    assert refused(source, tmp_path) == (
        f"{source} cannot be read as a Parquet file: that needs pyarrow; "
        "pip install 'countertrain[parquet]', or bring a CSV file"
    )


def test_a_folder_is_not_written_over_and_a_full_disk_is_found_out_before(
    people: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, folder = written(people, tmp_path), tmp_path / "rows"
    with monkeypatch.context() as patch:
        usage = namedtuple("usage", "free")
        patch.setattr(shutil, "disk_usage", lambda path: usage(1000))
        assert refused(source, tmp_path, "bought") == (
            f"{folder} has room for 0.0 GB, and the rows need 0.0 GB; choose a folder on another disk"
        )
    convert(source, folder, label="bought")
    with pytest.raises(ValueError) as error:
        convert(source, folder, label="bought")
    assert str(error.value) == f"{folder} holds rows already; choose another folder, or delete it first"


def unreadable(folder: Path, **asked: Any) -> str:
    with pytest.raises(ValueError) as error:
        load(folder, **asked)
    return str(error.value)


def test_a_folder_that_is_not_what_was_asked_for_is_refused(people: pd.DataFrame, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    convert(written(people, tmp_path), folder, label="bought")
    assert unreadable(folder, data_seed=7) == (
        f"{folder} was converted with data seed 42, not 7; convert its source again"
    )
    assert unreadable(folder, label="job") == (
        f"{folder} was converted with label 'bought', not 'job'; convert its source again"
    )
    assert load(folder, label="bought").classes == ("no", "yes")


def test_a_damaged_or_unfinished_folder_is_refused(people: pd.DataFrame, tmp_path: Path) -> None:
    folder, told = tmp_path / "rows", tmp_path / "rows" / "description.json"
    convert(written(people, tmp_path), folder, label="bought")
    rows, description = (folder / "rows.npy").read_bytes(), told.read_text()
    (folder / "rows.npy").write_bytes(rows[:-100])
    assert unreadable(folder).startswith(f"{folder} is damaged (")
    (folder / "rows.npy").write_bytes(rows)
    told.write_text(json.dumps(json.loads(description) | {"splits": [1, 2, 3]}))
    assert unreadable(folder) == (
        f"{folder} is damaged (rows (200, 24) and labels (200,) are not what its description says); "
        "delete it, and convert its source again"
    )
    told.write_text("{}")
    assert unreadable(folder).startswith(f"{folder} is damaged (")
    told.unlink()
    assert unreadable(folder) == (
        f"{folder} is not a folder of converted rows: it has no description.json; "
        "make one with: countertrain convert FILE FOLDER"
    )


def test_rows_looked_at_part_by_part_are_as_if_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = toy_rows()
    settings = CounterfactualTrainer(ct(n_ce=10), epochs=2, batch_size=16)
    together, parts = (mlp(3, 3, seed=0).double() for _ in range(2))
    wanted = settings.fit(together, x, y, validation=(x[:20], y[:20]))
    for part in (checks, trainer):
        monkeypatch.setattr(part, "_PART", 7)
    found = settings.fit(parts, x, y, validation=(x[:20], y[:20]))
    for one, other in zip(found.records, wanted.records, strict=True):
        assert one.metrics == {name: pytest.approx(values) for name, values in other.metrics.items()}
    x[30, 1] = torch.nan
    with pytest.raises(ValueError, match="x must be finite; row 30, feature 1 is nan"):
        settings.fit(parts, x, y)


MEASURED = """
import re, sys, threading, time
from pathlib import Path
import torch
from countertrain.tables import load
from countertrain.runs.training import train
from countertrain.runs.settings import Settings

def megabytes():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

def watch():
    while True:
        most[0] = max(most[0], megabytes())
        time.sleep(0.005)

torch.set_num_threads(1)
start = megabytes()
most = [start]
threading.Thread(target=watch, daemon=True).start()
plain = {"model": "mlp", "hidden": [32], "objective": "ct", "seeds": [0]}  # pieces of 500 columns take room
settings = Settings.resolve(sys.argv[1], {**plain, "epochs": 1, "batch_size": 4000, "n_ce": 500, "n_steps": 3})
run = train(settings, Path(sys.argv[2]))
training = most[0] - start
copy = run.data.train.x.clone()
time.sleep(0.1)
print(training, most[0] - start, run.history.records[-1].metrics["train_accuracy"][0])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process from /proc")
def test_training_on_a_file_of_400_megabytes_takes_less_than_150(tmp_path: Path) -> None:
    n, d = 200_000, 500
    schema = Schema(columns=tuple(Numeric(name=f"x{i}", lower=-9, upper=9) for i in range(d)))
    encoder = json.loads(Encoder(schema, (UNSCALED,) * d, ("float64",) * d).to_json())
    description = Description("big", "big", "y", 42, (n - 2000, 1000, 1000), "ab", encoder)
    with write_folder(tmp_path / "rows", description) as (rows, labels):
        rng = np.random.default_rng(0)
        for part in np.array_split(np.arange(n), 50):
            block = rng.standard_normal((len(part), d), dtype=np.float32)
            rows[part], labels[part] = block, block[:, :5].sum(1) > 0
    assert (tmp_path / "rows" / "rows.npy").stat().st_size > 400e6
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, tmp_path / "rows", tmp_path / "run"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    shutil.rmtree(tmp_path / "rows")
    training, copied, accuracy = map(float, done.stdout.split())
    assert training < 150
    assert copied > 400  # a copy of the rows would have been seen
    assert accuracy > 0.6
