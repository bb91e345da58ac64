"""Data sets by name, features by name, and what may change about them."""

from pathlib import Path

import pytest
import torch

from countertrain.tables import Dataset, Split, catalogue, load
from countertrain.tables.encoder import Encoder
from countertrain.tables.scales import UNSCALED
from countertrain.tables.schema import Categorical, Numeric, Schema

EMBEDDED = ("ls", "ol", "circles", "moons", "debt-age", "loans", "breast-cancer", "digits")


def table() -> Dataset:
    """Two numbers and a one-hot group of three columns, with values on which bounds differ."""
    stream = torch.Generator().manual_seed(0)
    x = torch.randn(60, 5, generator=stream)
    y = torch.arange(60) % 2
    x[40:] *= 3  # test rows reach further than all others
    schema = Schema(
        columns=(
            Numeric(name="age", lower=-9, upper=9),
            Numeric(name="income", lower=-9, upper=9),
            Categorical(name="job", levels=("none", "clerk", "smith"), rare=("smith",), unseen="refuse"),
        )
    )
    return Dataset(
        name="people",
        title="People",
        encoder=Encoder(schema, (UNSCALED,) * 3, ("float64", "float64", "str")),
        label="bought",
        classes=("no", "yes"),
        train=Split(x[:30], y[:30]),
        validation=Split(x[30:40], y[30:40]),
        test=Split(x[40:], y[40:]),
    )


def test_every_embedded_data_set_can_be_loaded_by_its_name() -> None:
    for name in EMBEDDED:
        data = load(name)
        assert name in catalogue()
        assert data.name == name
        assert data.train.x.shape[1] == data.n_features == len(data.encoder.features)
        assert set(data.train.y.tolist()) == set(range(data.n_classes))


def test_an_unknown_data_set_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError) as error:
        load("moon")
    assert str(error.value) == "unknown data set 'moon'; did you mean 'moons'?"


def test_a_data_set_like_no_other_is_refused_with_all_names() -> None:
    with pytest.raises(ValueError) as error:
        load("xyzzy")
    names = ", ".join(map(repr, [*catalogue()][:13]))
    assert str(error.value) == f"unknown data set 'xyzzy'; there are {names}, or the path of a CSV or Parquet file"


def test_a_missing_csv_file_is_refused_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(ValueError) as error:
        load(tmp_path / "nothing.csv")
    assert str(error.value) == f"there is no file {tmp_path / 'nothing.csv'}; check the path"


def test_a_feature_stands_for_its_column_and_a_group_for_all_of_its_columns() -> None:
    data = table()
    assert data.columns(["income"]) == [1]
    assert data.columns(["job"]) == [2, 3, 4]
    assert data.columns(["job=clerk", "age"]) == [3, 0]


def test_an_unknown_feature_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError) as error:
        table().columns(["age", "incomes"])
    assert str(error.value) == "people has no column 'incomes'; did you mean 'income'?"


def test_a_feature_like_no_other_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ValueError) as error:
        table().constraints(immutable=["xyzzy"])
    assert str(error.value) == "people has no column 'xyzzy'; there are 'age', 'income', 'job'"


def test_the_inferred_domain_is_of_training_and_validation_rows_only() -> None:
    data = table()
    known = torch.cat([data.train.x, data.validation.x])
    constraints = data.constraints(n_sigma=2.0)
    assert torch.allclose(constraints.lower, torch.minimum(known.mean(0) - 2 * known.std(0), known.amin(0)))
    assert torch.allclose(constraints.upper, torch.maximum(known.mean(0) + 2 * known.std(0), known.amax(0)))
    assert (data.test.x > constraints.upper).any()  # else test rows could have been among them
    train_only = torch.maximum(data.train.x.mean(0) + 2 * data.train.x.std(0), data.train.x.amax(0))
    assert not torch.allclose(constraints.upper, train_only)


def test_a_wider_n_sigma_gives_a_wider_domain() -> None:
    narrow, wide = table().constraints(n_sigma=2.0), table().constraints(n_sigma=4.0)
    assert (wide.lower < narrow.lower).all()
    assert (wide.upper > narrow.upper).all()


def test_a_given_domain_holds_for_every_feature_whatever_the_rows_are() -> None:
    constraints = load("digits").constraints(n_sigma=9.0)
    assert torch.equal(constraints.lower, torch.full((64,), -1.0))
    assert torch.equal(constraints.upper, torch.full((64,), 1.0))


def test_an_immutable_feature_may_move_neither_way_and_all_others_both() -> None:
    constraints = table().constraints(immutable=["age"])
    assert constraints.may_increase.tolist() == constraints.may_decrease.tolist() == [False, True, True, True, True]


def test_an_immutable_group_holds_all_of_its_columns() -> None:
    constraints = table().constraints(immutable=["job"])
    assert constraints.may_increase.tolist() == constraints.may_decrease.tolist() == [True, True, False, False, False]


def test_immutable_wins_over_a_one_way_feature_and_the_rest_keep_theirs() -> None:
    constraints = table().constraints(mutability={"age": "increase", "income": "decrease"}, immutable=["income"])
    assert constraints.may_increase.tolist() == [True, False, True, True, True]
    assert constraints.may_decrease.tolist() == [False, False, True, True, True]


def test_one_hot_groups_are_projected_only_if_asked_for() -> None:
    assert table().constraints().categories == ()
    assert table().constraints(categories=True).categories == (slice(2, 5),)
