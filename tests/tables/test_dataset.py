"""A data set of anybody's rows: encoded, split, and back in people's units."""

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal

from countertrain.tables import Dataset, load
from countertrain.tables.scales import Standard
from countertrain.tables.schema import Schema
from countertrain.tables.splits import split_off, split_rows

JOBS = ["clerk", "smith", "king"]


@pytest.fixture
def people() -> pd.DataFrame:
    """Two thousand rows, one of them with a rare level."""
    rng = np.random.default_rng(0)
    job = rng.choice(JOBS[:2], 2000).astype(object)
    job[7] = "king"
    return pd.DataFrame(
        {
            "age": rng.integers(18, 80, 2000),
            "job": job,
            "member": rng.choice([True, False], 2000),
            "id": [f"p{i}" for i in range(2000)],
            "bought": rng.choice(["no", "yes"], 2000),
        }
    )


def test_rows_and_labels_become_a_data_set_for_training(people: pd.DataFrame) -> None:
    rows, labels = people[["age", "job", "member"]], people["bought"]
    data = Dataset.of(rows, labels, label="bought")
    assert (len(data.train), len(data.validation), len(data.test)) == (2000, 0, 0)
    assert (data.train.x.dtype, data.train.y.dtype) == (torch.float32, torch.int64)
    assert torch.equal(data.train.x, data.encoder.tensor(rows))
    assert data.schema == data.encoder.schema
    assert [data.classes[k] for k in data.train.y] == labels.tolist()
    assert_frame_equal(data.encoder.decode(data.train.x.numpy()), rows)
    array = Dataset.of(np.arange(20.0).reshape(10, 2), np.arange(10) % 2)
    assert (array.features, array.classes) == (("x0", "x1"), (0, 1))


def test_the_encoder_is_fitted_to_the_rows_named_and_knows_the_levels_of_all(people: pd.DataFrame) -> None:
    splits = split_rows((people["bought"] == "yes").to_numpy().astype(np.int64), 0)
    known = np.concatenate(splits[:2])
    rows = people[["age", "job"]]
    data = Dataset.of(rows, people["bought"], splits=splits, fit_on=known)
    numbers = rows["age"].iloc[known].to_numpy(float)
    assert data.encoder.scales[0] == Standard(numbers.mean(), numbers.std(ddof=1))
    assert numbers.mean() != rows["age"].iloc[splits[0]].mean()
    assert "job=king" in data.features


def test_labels_that_do_not_fit_are_refused(people: pd.DataFrame) -> None:
    rows = people[["age"]]
    with pytest.raises(ValueError, match="y must hold one label for each of the 2000 rows; got 3"):
        Dataset.of(rows, [0, 1, 0])
    with pytest.raises(ValueError, match="every row needs a label; row 4 has none; drop such rows"):
        Dataset.of(rows, people["bought"].where(people.index != 4))
    with pytest.raises(ValueError, match="labels must be among 'no', 'maybe'; got 'yes'"):
        Dataset.of(rows, people["bought"], classes=("no", "maybe"))


def test_columns_to_drop_are_hidden_from_the_model_and_kept_in_the_test_rows(people: pd.DataFrame) -> None:
    data = load(people, drop=["id", "member"])
    assert data.schema.names == ("age", "job")
    assert data.test_frame is not None
    assert list(data.test_frame.columns) == ["age", "job", "member", "id", "bought"]
    assert len(data.test_frame) == len(data.test) == 400
    assert torch.equal(data.encoder.tensor(data.test_frame), data.test.x)
    assert [data.classes[k] for k in data.test.y] == data.test_frame["bought"].tolist()
    with pytest.raises(ValueError, match=r"there is no column 'ids'; did you mean 'id'\?"):
        load(people, drop=["ids"])
    with pytest.raises(ValueError, match="column 'bought' of the table is to be predicted and cannot be dropped"):
        load(people, drop=["id", "bought"])


def test_a_named_set_without_a_column_is_the_set_without_it() -> None:
    whole, part = load("breast-cancer"), load("breast-cancer", drop=["mean area"])
    kept = [i for i, name in enumerate(whole.features) if name != "mean area"]
    assert part.features == tuple(whole.features[i] for i in kept)
    assert torch.equal(part.test.x, whole.test.x[:, kept])
    digits = load("digits", drop=["pixel 0,0"])
    assert digits.constraints().lower.shape == (63,)


def test_a_named_set_refuses_another_label_or_schema() -> None:
    with pytest.raises(ValueError, match="moons has the label 'class', not 'x1'; leave it out"):
        load("moons", label="x1")
    with pytest.raises(ValueError, match="moons has a schema of its own, and another one can be given for tables only"):
        load("moons", schema=load("moons").schema)


def test_without_n_sigma_the_constraints_are_the_schemas(people: pd.DataFrame) -> None:
    schema = Schema.infer(people[["age", "job", "member"]], increase=["age"]).with_columns(
        age={"lower": 10, "upper": 99}
    )
    data = Dataset.of(people[["age", "job", "member"]], people["bought"], schema=schema)
    by_schema, by_rows = (data.constraints(n_sigma=n, categories=True) for n in (None, 2.0))
    assert data.original(by_schema.lower[None])[0, 0] == pytest.approx(10)
    assert data.original(by_rows.lower[None])[0, 0] == pytest.approx(18, abs=10)
    assert by_schema.may_decrease.tolist() == by_rows.may_decrease.tolist() == [False, True, True, True, True]
    assert not by_schema.transitions[0][0, sorted(JOBS).index("king")]  # a rare level is not advised
    assert not by_rows.transitions  # in the paper's domain, every level is open
    assert by_schema.categories == by_rows.categories == data.categories == (slice(1, 4), slice(4, 5))
    with pytest.raises(ValueError, match="mutability of feature 0 must be one of"):
        data.constraints(mutability={"age": "up"})  # type: ignore[dict-item]


@pytest.mark.parametrize("rng", [np.random.default_rng(0), np.random.RandomState(0)], ids=["generator", "state"])
def test_a_share_of_the_rows_is_split_off_with_its_mix_of_classes(rng: np.random.Generator) -> None:
    y = np.array([0] * 90 + [1] * 10)
    kept, held = split_off(y, 0.2, rng)
    assert sorted([*kept, *held]) == [*range(100)]
    assert np.bincount(y[held]).tolist() == [18, 2]
    assert not np.array_equal(kept, np.sort(kept))
    with pytest.raises(ValueError, match=r"0\.02 of 100 rows cannot be held out with all 2 classes in both parts"):
        split_off(y, 0.02, rng)
