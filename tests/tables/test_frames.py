"""Tables: standardised on training rows, one-hot coded, split without overlap, and refused in one sentence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_digits
from torch import Tensor

from countertrain.tables import Dataset, load
from countertrain.tables.schema import Schema

Write = Callable[..., Path]


@pytest.fixture
def people() -> pd.DataFrame:
    """100 rows with a number, a text, a truth value, another number and a class."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.normal(40, 12, 100),
            "job": rng.choice(["smith", "clerk", "none"], 100),
            "member": rng.choice([True, False], 100),
            "visits": rng.integers(0, 9, 100),
            "bought": np.where(np.arange(100) % 4 == 0, "yes", "no"),
        }
    )


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_csv(frame: pd.DataFrame, name: str = "people.csv", **changes: Any) -> Path:
        frame.assign(**changes).to_csv(tmp_path / name, index=False)
        return tmp_path / name

    return to_csv


def everything(data: Dataset) -> tuple[Tensor, Tensor]:
    splits = (data.train, data.validation, data.test)
    return torch.cat([s.x for s in splits]), torch.cat([s.y for s in splits])


def sorted_rows(x: Any) -> np.ndarray:
    x = np.asarray(x, dtype=np.float64)
    return x[np.lexsort(x.T[::-1])]


@pytest.mark.parametrize(("name", "source"), [("breast-cancer", load_breast_cancer), ("digits", load_digits)])
def test_the_splits_are_a_partition_of_the_original_rows_with_their_labels(name: str, source: Any) -> None:
    data, bunch = load(name), source()
    x, y = everything(data)
    mine = np.column_stack([y, data.original(x).double()])
    theirs = np.column_stack([bunch.target, bunch.data])
    assert np.allclose(sorted_rows(mine.round(2)), sorted_rows(theirs.round(2)), rtol=1e-4, atol=0.02)


@pytest.mark.parametrize("name", ["breast-cancer", "digits"])
def test_splits_hold_70_10_and_20_percent_with_the_same_mix_of_classes(name: str) -> None:
    data = load(name)
    n = len(data.train) + len(data.validation) + len(data.test)
    assert len(data.test) == pytest.approx(0.2 * n, abs=data.n_classes)
    assert len(data.validation) == pytest.approx(0.1 * n, abs=data.n_classes)
    _, y = everything(data)
    for split in (data.train, data.validation, data.test):
        share, wanted = split.y.bincount() / len(split), y.bincount() / n
        assert torch.allclose(share, wanted, atol=2.5 / len(split))


def test_breast_cancer_has_named_features_and_classes() -> None:
    data = load("breast-cancer")
    assert (data.n_features, data.features[0], data.classes) == (30, "mean radius", ("malignant", "benign"))


def test_digits_are_scaled_to_their_domain() -> None:
    data = load("digits")
    x, _ = everything(data)
    assert data.domain is not None
    assert (x.min(), x.max()) == (-1, 1)
    assert [bound.unique().tolist() for bound in data.domain] == [[-1], [1]]
    assert (data.original(x).min(), data.original(x).max()) == (0, 16)


def test_training_rows_are_not_in_the_order_of_their_classes() -> None:
    y = load("digits").train.y
    changes = (y[1:] != y[:-1]).double().mean()
    assert changes == pytest.approx(0.9, abs=0.05)  # ten classes in random order


def test_numbers_are_standardised_with_the_training_rows_only() -> None:
    data = load("breast-cancer")
    assert torch.allclose(data.train.x.mean(0), torch.zeros(30), atol=1e-5)
    assert torch.allclose(data.train.x.std(0), torch.ones(30), atol=1e-5)
    x, _ = everything(data)
    assert (x.mean(0).abs() > 1e-3).any()  # else all rows would have been used
    assert ((x.std(0) - 1).abs() > 1e-3).any()


def test_the_same_data_seed_gives_the_same_split_and_another_one_another() -> None:
    first, second, other = load("digits"), load("digits"), load("digits", data_seed=1)
    assert torch.equal(first.train.x, second.train.x)
    assert torch.equal(first.test.y, second.test.y)
    assert not torch.equal(first.test.x[:20], other.test.x[:20])


def test_a_csv_of_numbers_texts_and_truth_values_becomes_numbers_and_one_hot_groups(
    people: pd.DataFrame, write: Write
) -> None:
    data = load(write(people))
    assert data.features == (
        "age", "job=clerk", "job=none", "job=smith", "member", "visits",
    )  # fmt: skip
    assert data.categories == (slice(1, 4), slice(4, 5))
    assert (data.classes, data.name, data.title) == (("no", "yes"), "people", "people.csv")
    x, _ = everything(data)
    for group in data.categories:
        assert ((x[:, group] == 0) | (x[:, group] == 1)).all()
        assert group.stop - group.start == 1 or (x[:, group].sum(1) == 1).all()
    assert torch.allclose(data.train.x[:, [0, 5]].std(0), torch.ones(2), atol=1e-5)


def test_original_gives_back_the_rows_of_the_file(people: pd.DataFrame, write: Write) -> None:
    data = load(write(people))
    x, y = everything(data)
    wanted = pd.get_dummies(people, columns=["job"], prefix_sep="=", dtype=float)
    wanted = np.column_stack([wanted[list(data.features)].astype(float), (people["bought"] == "yes").astype(int)])
    mine = np.column_stack([data.original(x).double(), y])
    assert np.allclose(sorted_rows(mine), sorted_rows(wanted), atol=1e-4)


def test_any_column_can_be_the_one_to_predict(people: pd.DataFrame, write: Write) -> None:
    data = load(write(people), label="job")
    assert data.classes == ("clerk", "none", "smith")
    assert "age" in data.features
    assert "bought=yes" in data.features
    assert not any(name.startswith("job") for name in data.features)
    _, y = everything(data)
    assert y.bincount().tolist() == people["job"].value_counts().sort_index().tolist()


def test_numbers_as_classes_keep_their_order(people: pd.DataFrame, write: Write) -> None:
    data = load(write(people, bought=[(3, 20, 100)[i % 3] for i in range(100)]))
    assert data.classes == (3, 20, 100)


def test_a_column_that_never_changes_in_training_is_only_centred(people: pd.DataFrame, write: Write) -> None:
    path = write(people, visits=0.1)
    assert refused(path) == ("column 'visits' is 0.1 in every row, so that nothing can be learnt from it; drop it")
    assert "visits" not in load(path, drop=["visits"]).features
    declared = Schema.infer(people.drop(columns="bought")).with_columns(visits={"kind": "numeric"})
    data = load(path, schema=declared)
    x, _ = everything(data)
    assert data.encoder.scales[data.schema.names.index("visits")].scale == 1
    assert torch.allclose(x[:, data.features.index("visits")], torch.zeros(100), atol=1e-6)


@pytest.mark.parametrize(("n_classes", "per_class"), [(2, 5), (2, 6), (10, 9), (50, 5)])
def test_even_a_small_table_has_rows_in_every_split(n_classes: int, per_class: int, write: Write) -> None:
    n = n_classes * per_class
    frame = pd.DataFrame({"x": np.linspace(0, 1, n), "label": [f"c{i % n_classes:02}" for i in range(n)]})
    data = load(write(frame))
    assert min(len(data.train), len(data.validation), len(data.test)) > 0
    assert data.train.y.bincount(minlength=n_classes).min() > 0


def refused(path: Path, label: str | None = None, **options: Any) -> str:
    with pytest.raises(ValueError) as error:
        load(path, label=label, **options)
    return str(error.value)


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    for name, content in {
        "binary.csv": b"\xff\xfe\x00\x9c",
        "empty.csv": b"",
        "ragged.csv": b"a,b\n1,2\n1,2,3\n",
    }.items():
        path = tmp_path / name
        path.write_bytes(content)
        assert refused(path).startswith(f"{path} cannot be read as a CSV file with a header: ")


def test_missing_numbers_are_told_of_and_missing_levels_are_levels_unless_the_schema_refuses_them(
    people: pd.DataFrame, write: Write
) -> None:
    path = write(people, age=people["age"].where(people.index != 3), job=people["job"].where(people.index > 1))
    data = load(path)
    assert data.features[:6] == ("age", "age=missing", "job=clerk", "job=none", "job=smith", "job=missing")
    x, _ = everything(data)
    assert (x[:, 1].sum(), x[:, 5].sum()) == (1, 2)
    median = float(np.median(data.original(data.train.x)[:, 0]))
    assert data.schema["age"].fill == pytest.approx(median, abs=1)
    strict = Schema.infer(people.drop(columns="bought"))
    assert refused(path, schema=strict).startswith("column 'age', line 5, must not be missing")


def test_rows_without_a_label_are_left_out_as_the_title_says(people: pd.DataFrame, write: Write) -> None:
    known = people.index % 7 != 0
    data = load(write(people, bought=people["bought"].where(known)))
    x, y = everything(data)
    assert len(x) == len(y) == known.sum() == 85
    assert (data.classes, data.title) == (("no", "yes"), "people.csv, 15 rows without a label left out")
    whole = load(write(people[known]))
    assert torch.equal(data.train.x, whole.train.x)
    numbered = load(write(people, bought=(people["bought"] == "yes").astype(int).where(known)))
    assert numbered.classes == (0, 1)  # not 0.0 and 1.0, to which the missing ones turn them in pandas
    assert numbered.test_frame["bought"].tolist() == numbered.test.y.tolist()


def test_too_few_rows_or_columns_are_refused(people: pd.DataFrame, write: Write) -> None:
    path = write(people[:9])
    assert refused(path) == "people.csv needs at least 2 columns and 10 rows; it has 5 and 9"
    path = write(people[["bought"]])
    assert refused(path) == "people.csv needs at least 2 columns and 10 rows; it has 1 and 100"


def test_an_unknown_label_is_refused_with_all_columns(people: pd.DataFrame, write: Write) -> None:
    path = write(people)
    assert refused(path, "sold") == (
        "people.csv has no column 'sold' to predict; there are 'age', 'job', 'member', 'visits', 'bought'"
    )


def test_a_text_of_too_many_levels_is_refused(people: pd.DataFrame, write: Write) -> None:
    assert load(write(people, job=[f"job {i % 50}" for i in range(100)])).n_features == 50 + 3
    path = write(people, job=[f"job {i % 51}" for i in range(100)])
    assert refused(path) == (
        "column 'job' has more than 50 different levels; drop it, group its levels, or raise max_levels"
    )


def test_infinite_values_are_refused(people: pd.DataFrame, write: Write) -> None:
    path = write(people, age=people["age"].where(people.index != 7, np.inf))
    assert refused(path) == "column 'age' holds infinite values; replace or drop them"


def test_a_single_class_is_refused(people: pd.DataFrame, write: Write) -> None:
    path = write(people, bought="yes")
    assert refused(path) == (
        "column 'bought' of people.csv must hold 2 to 50 classes with at least 5 rows each; "
        "it has 1, the rarest with 100"
    )


def test_a_rare_class_is_refused(people: pd.DataFrame, write: Write) -> None:
    path = write(people, bought=["yes"] * 96 + ["no"] * 4)
    assert refused(path) == (
        "column 'bought' of people.csv must hold 2 to 50 classes with at least 5 rows each; it has 2, the rarest with 4"
    )
