"""The encoder: there and back without loss, in the model's units and in people's, and only where they may go."""

import json
import math
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from countertrain.tables.cells import UnseenLevelWarning, naming_rows
from countertrain.tables.encoder import Encoder
from countertrain.tables.scales import UNSCALED
from countertrain.tables.schema import Boolean, Categorical, Numeric, Schema, SchemaError
from countertrain.tables.sources.downloads import find
from countertrain.tables.sources.paper import TABLES

BESIDE = Path(__file__).parents[3] / "shared" / "data"
FOLDER = Path(os.environ.get("COUNTERTRAIN_DATA", BESIDE))


@pytest.fixture
def people() -> pd.DataFrame:
    """200 rows of every kind of column, three of which have missing values."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, 200),
            "income": (rng.integers(10, 90, 200) * 500).astype(float),
            "rate": rng.integers(0, 400, 200) / 100,
            "ratio": rng.normal(size=200),
            "job": rng.choice(["smith", "clerk", "none"], 200),
            "school": pd.Categorical(rng.choice(["low", "mid", "high"], 200), ["low", "mid", "high"], ordered=True),
            "member": rng.choice([True, False], 200),
            "owner": rng.integers(0, 2, 200),
        }
    )
    for i, name in enumerate(["income", "ratio", "job"]):
        frame.loc[i::20, name] = None
    return frame


def encoder_of(frame: pd.DataFrame, **changes: Any) -> Encoder:
    """An encoder of the inferred schema with some changes."""
    return Encoder.fit(Schema.infer(frame).with_columns(**changes), frame)


def column(values: Any, **how: Any) -> Encoder:
    """An encoder of one column."""
    return encoder_of(pd.DataFrame({"c": values}), c=how)


def decoded(encoder: Encoder, *x: list[float], origin: Any = None) -> list[Any]:
    """The decoded values of one column."""
    frame = encoder.decode(np.array(x), None if origin is None else pd.DataFrame({"c": origin}))
    return frame["c"].tolist()


# --- there and back ---------------------------------------------------------------------------------------------------

KINDS: dict[str, tuple[st.SearchStrategy[Any], Any]] = {
    "int": (st.integers(-(10**9), 10**9), "int64"),
    "byte": (st.integers(0, 255), "uint8"),
    "nullable": (st.integers(-5, 5), "Int64"),
    "whole": (st.integers(-(10**12), 10**12).map(float), "float64"),
    "cents": (st.integers(-(10**9), 10**9).map(lambda n: n / 100), "float64"),
    "micro": (st.integers(-(10**9), 10**9).map(lambda n: n / 10**6), "float64"),
    "single": (st.integers(-999, 999).map(lambda n: n / 10), "float32"),
    "text": (st.text(st.characters(exclude_categories=["Cs"]), max_size=3), "str"),
    "object": (st.sampled_from(["a", "b", 3, 2.5]), "object"),
    "category": (st.sampled_from(["z", "b", "c"]), "category"),
    "flag": (st.booleans(), "bool"),
    "bit": (st.integers(0, 1), "int8"),
}


@st.composite
def tables(draw: st.DrawFn) -> pd.DataFrame:
    """Up to 20 rows of columns whose values lie on a grid or are levels, none of them constant."""
    n, cells = draw(st.integers(2, 20)), {}
    for name, (values, dtype) in KINDS.items():
        drawn = draw(st.lists(values, min_size=n, max_size=n).filter(lambda drawn: len(set(drawn)) > 1))
        cells[name] = pd.Series(drawn, dtype=dtype)
    return pd.DataFrame(cells)


@given(tables())
def test_what_lies_on_a_grid_or_is_a_level_comes_back_exactly_with_its_type(frame: pd.DataFrame) -> None:
    encoder = encoder_of(frame)
    assert all(c.step is not None for c in encoder.schema.columns if isinstance(c, Numeric))
    x = encoder.encode(frame)
    assert np.isfinite(x).all()
    assert_frame_equal(encoder.decode(x), frame, check_exact=True)


@given(tables())
def test_a_saved_encoder_is_the_same_encoder(frame: pd.DataFrame) -> None:
    encoder = encoder_of(frame)
    again = Encoder.from_json(encoder.to_json())
    assert (again.schema, again.dtypes, again.features) == (encoder.schema, encoder.dtypes, encoder.features)
    assert np.array_equal(again.encode(frame), encoder.encode(frame))
    assert_frame_equal(again.decode(encoder.encode(frame)), frame, check_exact=True)


@given(st.lists(st.floats(-1e12, 1e12), min_size=2, max_size=30).filter(lambda v: np.std(v) > 1e-3))
def test_any_real_number_comes_back_to_a_billionth_of_the_spread_and_exactly_from_its_origin(
    values: list[float],
) -> None:
    frame = pd.DataFrame({"c": values})
    encoder = Encoder.fit(Schema(columns=(Numeric(name="c"),)), frame)
    x = encoder.encode(frame)
    error = (encoder.decode(x)["c"] - frame["c"]).abs().max()
    assert error <= 1e-9 * np.std(values) + 4 * np.spacing(np.abs(values).max())
    assert_frame_equal(encoder.decode(x, origin=frame), frame, check_exact=True)


def test_unchanged_rows_are_their_origin_bit_for_bit_even_in_single_precision_and_where_missing(
    people: pd.DataFrame,
) -> None:
    people.index = pd.Index(range(1000, 1200))
    encoder = encoder_of(people, income={"missing": "fill", "fill": 1.0})
    x = encoder.encode(people)
    for rows in (x, x.astype(np.float32)):
        assert_frame_equal(encoder.decode(rows, origin=people), people, check_exact=True)
    assert people.isna().any().sum() == 3
    alone = encoder.decode(x)
    assert not alone["income"].isna().any()  # alone, it shows what was filled in
    assert (alone["ratio"].isna().to_numpy() == people["ratio"].isna().to_numpy()).all()  # a state of its own
    assert encoder.decode(x)["job"].isna().sum() == 10  # a level of its own
    assert encoder.decode(x)["school"].equals(people["school"].reset_index(drop=True))


@pytest.mark.parametrize("name", ["credit", "adult"])
def test_every_row_of_the_real_files_comes_back_exactly(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if FOLDER.is_dir():
        monkeypatch.setenv("COUNTERTRAIN_DATA", str(FOLDER))
    path = find(TABLES[name].file)
    if path is None:
        pytest.skip(f"{TABLES[name].file} is not in {FOLDER}; set COUNTERTRAIN_DATA")
    frame = pd.read_csv(path)
    assert len(frame) == TABLES[name].n_rows
    levels = [c for c in TABLES[name].categorical if pd.api.types.is_numeric_dtype(frame[c])]
    codes = {c: {"kind": "categorical", "levels": sorted(frame[c].unique().tolist())} for c in levels}
    encoder = Encoder.fit(Schema.infer(frame).with_columns(**codes), frame)
    groups = sum(isinstance(c, Categorical) for c in encoder.schema.columns)
    assert groups == len(TABLES[name].categorical) + (name == "adult")  # whose income is a text
    x = encoder.encode(frame)
    assert_frame_equal(encoder.decode(x), frame, check_exact=True)
    assert_frame_equal(encoder.decode(x.astype(np.float32), origin=frame), frame, check_exact=True)


# --- the model's side -------------------------------------------------------------------------------------------------


def test_numbers_are_standardised_and_levels_one_hot_coded(people: pd.DataFrame) -> None:
    encoder = encoder_of(people)
    x = encoder.encode(people)
    assert encoder.features == (
        "age", "income", "income=missing", "rate", "ratio", "ratio=missing", "job=clerk", "job=none", "job=smith",
        "job=missing", "school=low", "school=mid", "school=high", "member", "owner",
    )  # fmt: skip
    assert encoder.column_of == (0, 1, 1, 2, 3, 3, 4, 4, 4, 4, 5, 5, 5, 6, 7)
    indicators = (slice(2, 3), slice(5, 6))
    assert encoder.categories == (*indicators, slice(6, 10), slice(10, 13), slice(13, 14), slice(14, 15))
    assert encoder.slices[:5] == (slice(0, 1), slice(1, 3), slice(3, 4), slice(4, 6), slice(6, 10))
    assert (encoder.numbers, encoder.indicators) == ((0, 1, 3, 4), (2, 5))
    assert np.allclose(x[:, encoder.numbers].mean(0), 0)
    assert np.allclose(x[:, encoder.numbers].std(0, ddof=1), 1)
    assert set(x[:, [*encoder.indicators, *range(6, 15)]].flatten()) == {0.0, 1.0}
    assert (x[:, 6:10].sum(1) == 1).all()
    assert (x[:, 2] == people["income"].isna()).all()
    assert people["income"].isna().any()
    assert (x[:, 9] == people["job"].isna()).all()
    assert (x[:, 12] == (people["school"] == "high")).all()
    assert (x[:, 13] == people["member"]).all()


def test_what_the_schema_leaves_open_is_taken_from_the_training_rows(people: pd.DataFrame) -> None:
    schema = encoder_of(people, job={"missing": "fill", "unseen": "fill"}, rate={"lower": 0.5}).schema
    assert (schema["age"].lower, schema["age"].upper) == (people["age"].min(), people["age"].max())
    assert (schema["rate"].lower, schema["rate"].upper) == (0.5, people["rate"].max())
    assert schema["income"].step == 500  # as all incomes have it
    assert schema["income"].fill == 500 * round(people["income"].median() / 500)
    assert schema["job"].fill == people["job"].mode()[0]
    assert schema["member"].fill is None


def test_open_bounds_are_whole_numbers_of_steps_around_the_training_rows() -> None:
    fitted = column([0.26, 0.93], step=0.25).schema["c"]
    assert (fitted.lower, fitted.upper) == (0.25, 1.0)


def test_a_constant_column_that_was_declared_is_centred_only() -> None:
    encoder = Encoder.fit(Schema(columns=(Numeric(name="c"),)), pd.DataFrame({"c": [0.1] * 3}))
    assert np.allclose(encoder.encode(pd.DataFrame({"c": [0.1, 1.1]})), [[0.0], [1.0]])


def test_columns_may_come_in_any_order_with_others_or_as_an_array(people: pd.DataFrame) -> None:
    numbers = people[["age", "rate", "owner"]]
    encoder = encoder_of(numbers)
    x = encoder.encode(numbers)
    assert np.array_equal(encoder.encode(people[people.columns[::-1]]), x)
    assert np.array_equal(encoder.encode(numbers.to_numpy()), x)
    assert np.array_equal(encoder.encode(numbers.astype(object)), x)
    assert encoder.encode(numbers[:0]).shape == (0, 3)
    assert_frame_equal(encoder.decode(x[:0], origin=numbers[:0]), numbers[:0])
    with pytest.raises(ValueError, match=r"must have shape \(n, 3\); got \(200, 8\)"):
        encoder.encode(people.to_numpy())
    with pytest.raises(ValueError, match=r"there is no column 'age'; did you mean 'Age'\?"):
        encoder.encode(people.rename(columns={"age": "Age"}))


def test_missing_and_unseen_values_are_treated_as_declared() -> None:
    rows = ["a", "b", "b"]
    fill = column(rows, missing="fill", unseen="fill")
    with pytest.warns(
        UnseenLevelWarning, match=r"column 'c' holds 'new' \(row 2\), not among its levels; counted as 'b'"
    ):
        assert fill.encode(pd.DataFrame({"c": ["a", None, "new"]})).tolist() == [[1, 0], [0, 1], [0, 1]]
    first, new = column(rows, missing="level", unseen="fill", fill="a"), pd.DataFrame({"c": ["b", None, "new"]})
    assert first.encode(new, quiet=True).tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    state = column([1.0, 2.0, 3.0], missing="level", fill=3)
    assert state.encode(pd.DataFrame({"c": [None, 1.0]})).tolist() == [[1.0, 1.0], [-1.0, 0.0]]
    assert np.array_equal(
        state.decode(state.encode(pd.DataFrame({"c": [None, 1.0]})))["c"], [np.nan, 1], equal_nan=True
    )
    number = column([1.0, 2.0, 3.0], missing="fill", fill=3)
    assert number.encode(pd.DataFrame({"c": [None, 1.0]})).tolist() == [[1.0], [-1.0]]
    flag = column([True, False, True], missing="fill")
    assert flag.encode(pd.DataFrame({"c": [None, False]})).tolist() == [[1.0], [0.0]]


def test_the_same_level_in_another_type_is_that_level() -> None:
    assert column([3, 1, 7], kind="categorical", levels=(1, 3, 7)).encode(pd.DataFrame({"c": [3.0]})).argmax() == 1
    assert column([True, False]).encode(pd.DataFrame({"c": [1.0]})).tolist() == [[1.0]]
    assert column([1, 2, 4]).encode(pd.DataFrame({"c": pd.Categorical([4])})) > 0
    assert column([1, 2, 3]).encode(pd.DataFrame({"c": pd.Series([True, 2.5], dtype=object)})).shape == (2, 1)


@pytest.mark.parametrize(
    ("rows", "wrong", "sentence"),
    [
        ([1, 2], [1, "old"], "column 'c', row 1, must be a number; got 'old'; correct it, or declare the column as"),
        ([1, 2], ["1"], "column 'c', row 0, must be a number; got '1'"),
        ([1, 2], [1 + 1j], r"column 'c', row 0, must be a number; got \(1\+1j\)"),
        ([1, 2], [True, 2.5, "x"], "column 'c', row 2, must be a number; got 'x'"),
        ([1, 2], [1, 10**400], "column 'c' holds an integer that is too large to compute with; correct it"),
        ([1, 2], [1, math.inf], "column 'c', row 1, must be finite; got inf; replace it, or drop the row"),
        (
            [1, 2],
            [1, None],
            "column 'c', row 1, must not be missing; got nan; give a number, or declare missing='level'",
        ),
        (["a", "b"], ["b", None], "column 'c', row 1, must not be missing; got nan; give a value"),
        (["a", "b"], [["a"]], "column 'c' may hold texts, numbers and truth values only: unhashable type: 'list'"),
        ([True, False], [2], "column 'c', row 0, must be one of False, True; got 2; correct it$"),
        (
            [True, False],
            pd.Series([None], dtype=object),
            "column 'c', row 0, must not be missing; got None; give a val",
        ),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_column_row_and_value(rows: Any, wrong: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as error:
        column(rows).encode(pd.DataFrame({"c": wrong}))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("wrong", ["c", 1])
def test_a_level_that_was_never_seen_is_refused_by_declaration_only(wrong: Any) -> None:
    new = pd.DataFrame({"c": ["b", wrong]}, index=[30, 40])
    sentence = f"column 'c', row 40, must be one of 'a', 'b'; got {wrong!r}; correct it, or declare unseen='other'"
    with pytest.raises(ValueError, match=sentence):
        column(["a", "b"], unseen="refuse").encode(new)
    with pytest.warns(
        UnseenLevelWarning, match=rf"holds {wrong!r} \(row 40\), not among its levels; counted as 'a', the"
    ):
        assert column(["a", "b"]).encode(new).tolist() == [[0, 1], [1, 0]]
    with pytest.warns(UnseenLevelWarning, match=r"holds 'z' \(row 2\), not among its levels; counted as 'any other'"):
        learnt = column(["a", "b", "z"], kind="categorical", levels=("a", "b"))
    with naming_rows(lambda place: f"line {place + 2}"), pytest.warns(UnseenLevelWarning, match=r"\(line 42\)"):
        assert learnt.encode(new).tolist() == [[0, 1, 0], [0, 0, 1]]


def test_an_encoder_is_fitted_to_rows_with_values() -> None:
    schema = Schema(columns=(Numeric(name="c", missing="fill"),))
    with pytest.raises(ValueError, match="fitted to at least one row; got none"):
        Encoder.fit(schema, pd.DataFrame({"c": []}))
    with pytest.raises(ValueError, match="column 'c' has no value in the training rows; drop it"):
        Encoder.fit(schema, pd.DataFrame({"c": [math.nan]}))
    with pytest.raises(ValueError, match="column 'c' leaves bounds, a fill or rare levels open; use En"):
        Encoder(schema, (UNSCALED,), ("float64",))


def test_a_level_of_fewer_than_one_in_1000_training_rows_is_rare() -> None:
    rows = pd.DataFrame({"c": ["a"] * 1996 + ["b"] * 2 + ["d", None]})
    levels = Categorical(name="c", levels=("a", "b", "d", "e"), missing="level")
    rare = [
        Encoder.fit(Schema(columns=(column,)), rows).schema["c"].rare
        for column in (levels, levels.model_copy(update={"rare": ()}), levels.model_copy(update={"rare": ("a",)}))
    ]
    assert rare == [("d", "e"), (), ("a",)]
    again = Encoder.from_json(Encoder.fit(Schema(columns=(levels,)), rows).to_json())
    assert again.constraints().transitions[0].tolist()[0] == [True, True, False, False, False]


# --- the person's side ------------------------------------------------------------------------------------------------


def test_numbers_are_rounded_to_their_step_within_their_bounds() -> None:
    years = column([20, 30, 40])  # centre 30, scale 10
    assert decoded(years, [0.04], [0.06], [-9.0], [9.0]) == [30, 31, 20, 40]
    assert [type(v) for v in decoded(years, [0.04])] == [int]
    assert decoded(column([20.0, 30.0, 40.0], step=2.5, integer=False), [0.1], [0.2]) == [30.0, 32.5]
    assert decoded(column([0.1, 0.3, 0.7]), [0.0], [9.0]) == [0.4, 0.7]
    assert decoded(Encoder.fit(Schema(columns=(Numeric(name="c"),)), pd.DataFrame({"c": [20, 30, 40]})), [0.123]) == [
        31.23
    ]


def test_a_code_beyond_the_bounds_stays_what_it_is_and_is_written_down() -> None:
    frame = pd.DataFrame({"c": [*range(0, 4000, 20), *[99_999] * 5]})
    encoder = encoder_of(frame)
    gains = encoder.schema["c"]
    assert isinstance(gains, Numeric)
    assert (gains.upper, gains.codes) == (3980, (99_999,))
    assert Schema.from_toml(encoder.schema.to_toml()) == encoder.schema
    assert_frame_equal(encoder.decode(encoder.encode(frame)), frame, check_exact=True)
    assert encoder.decode(encoder.encode(pd.DataFrame({"c": [50_000]})))["c"].tolist() == [3980]


def test_levels_need_not_be_one_hot_to_be_decoded() -> None:
    encoder = column(["a", "b", None])
    assert decoded(encoder, [0.2, 0.3, 0.1], [0.9, 0.1, 0.0]) == ["b", "a"]
    assert pd.isna(decoded(encoder, [0.0, 0.0, 1.0])[0])
    assert decoded(column([True, False]), [0.4], [0.6]) == [False, True]


def test_a_type_that_cannot_hold_what_a_column_may_become_is_widened() -> None:
    byte = np.array([20, 40], dtype=np.uint8)
    assert column(byte).dtypes == ("uint8",)
    assert column(byte, upper=300).dtypes == ("int64",)
    assert column(byte, lower=-1).dtypes == ("int64",)
    assert column(byte, integer=False, step=0.5).dtypes == ("float64",)
    assert column([1, 2, 4], kind="categorical", levels=(1, 2, 4, "other")).dtypes == ("object",)
    assert column(pd.Categorical([1, 2]), kind="numeric", integer=True).dtypes == ("int64",)
    assert decoded(column(byte, lower=-1), [-9.0]) == [-1]


def test_only_cells_that_changed_differ_from_the_origin() -> None:
    encoder = column(["a", "b", "b"], missing="fill", unseen="fill")
    frame = pd.DataFrame({"c": [None, "new", "b", "new"]})
    x = encoder.encode(frame, quiet=True)
    x[2:] = [1.0, 0.0]
    after = encoder.decode(x, origin=frame)["c"]
    assert pd.isna(after[0])
    assert after[1:].tolist() == ["new", "a", "a"]
    category = encoder_of(pd.DataFrame({"c": pd.Categorical(["a", "b"], ["a", "unused", "b"])}))
    assert category.features == ("c=a", "c=b")
    origin = pd.DataFrame({"c": pd.Categorical(["a", "a"], ["a", "unused", "b"])})
    after = category.decode(np.array([[1.0, 0.0], [0.0, 1.0]]), origin)["c"]
    assert (after.tolist(), after.dtype) == (["a", "b"], origin["c"].dtype)


@pytest.mark.parametrize(("way", "origin", "moved"), [("increase", 24_200, 0.005), ("decrease", 24_300, -0.005)])
def test_rounding_does_not_take_a_number_that_is_off_its_grid_the_wrong_way(
    way: str, origin: int, moved: float
) -> None:
    encoder = column([20_000, 30_000], step=500, mutability=way)  # scale 5000
    x = encoder.encode(pd.DataFrame({"c": [origin]}))[0] + moved
    alone, further = decoded(encoder, x)[0], decoded(encoder, x + 20 * moved, origin=[origin])[0]
    assert (alone - origin) * moved < 0
    assert decoded(encoder, x, origin=[origin]) == [origin]
    assert (further - origin) * moved > 0


def test_rows_that_are_no_encoded_rows_are_refused() -> None:
    encoder = column([20, 40])
    with pytest.raises(ValueError, match=r"x must have shape \(n, 1\), one column a feature; got \(2,\)"):
        encoder.decode(np.zeros(2))
    with pytest.raises(ValueError, match="x must be finite; row 1, feature 'c' is nan"):
        encoder.decode(np.array([[0.0], [math.nan]]))
    with pytest.raises(ValueError, match="origin must have one row for each row of x, 2; got 1"):
        encoder.decode(np.zeros((2, 1)), origin=pd.DataFrame({"c": [20]}))


# --- what may change --------------------------------------------------------------------------------------------------


def test_constraints_are_the_schema_in_the_models_units(people: pd.DataFrame) -> None:
    encoder = encoder_of(
        people,
        age={"mutability": "increase"},
        rate={"lower": 0.005, "upper": 2.0},
        job={"mutability": "none"},
        school={"mutability": "increase"},
        owner={"mutability": "decrease"},
    )
    constraints = encoder.constraints()
    both, up, down, none = (True, True), (True, False), (False, True), (False, False)
    ways = list(zip(constraints.may_increase.tolist(), constraints.may_decrease.tolist(), strict=True))
    assert ways == [up, both, none, both, both, none, none, none, none, none, both, both, both, both, down]
    x = encoder.encode(people)
    assert np.allclose(constraints.lower[:2], x[:, :2].min(0))
    assert constraints.held == ((1, 2), (4, 5))
    rate = (np.array([0.01, 2.0]) - people["rate"].mean()) / people["rate"].std()  # 0.005 is half a step
    assert np.allclose([constraints.lower[3], constraints.upper[3]], rate)
    assert (constraints.lower[5:] == 0).all()
    assert (constraints.upper[5:] == 1).all()
    assert constraints.categories == encoder.categories
    assert list(constraints.transitions) == [3]
    assert constraints.transitions[3].tolist() == [[True, True, True], [False, True, True], [False, False, True]]


def test_a_single_level_is_no_choice() -> None:
    encoder = Encoder.fit(Schema(columns=(Categorical(name="c", levels=("a",)),)), pd.DataFrame({"c": ["a"]}))
    x = torch.ones(1, 1)
    assert encoder.constraints().project(x - 1, x).item() == 1
    assert decoded(encoder, [0.0]) == ["a"]


def test_a_call_may_ask_for_less_but_not_for_more(people: pd.DataFrame) -> None:
    encoder = encoder_of(people)
    ranges = {"income": (20_000, None), "age": (None, 200), "job": ["clerk"], "member": [True]}
    less = encoder.restrict(immutable=["school"], ranges=ranges)
    assert np.array_equal(less.encode(people), encoder.encode(people))
    assert (less.schema["income"].lower, less.schema["age"].upper) == (20_000, people["age"].max())
    asked, declared = encoder.constraints(immutable=["school"], ranges=ranges), less.constraints()
    for name in ("may_increase", "may_decrease", "lower", "upper"):
        assert torch.equal(getattr(asked, name), getattr(declared, name))
    assert (asked.may_increase[10:].tolist(), asked.may_decrease[10:].tolist()) == (
        [False] * 3 + [True, True],
        [False] * 4 + [True],
    )
    assert encoder.restrict(immutable=["age"], ranges={"age": (30, 40)}).schema["age"].mutability == "none"
    with pytest.raises(SchemaError, match=r"there is no column 'agee'; did you mean 'age'\?"):
        encoder.constraints(immutable=["agee"])
    with pytest.raises(SchemaError, match=r"there is no column 'jop'; did you mean 'job'\?"):
        encoder.constraints(ranges={"jop": ["clerk"]})
    with pytest.raises(SchemaError, match="the range of column 'age' must meet its bounds"):
        encoder.constraints(ranges={"age": (200, None)})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_wherever_a_search_goes_what_is_decoded_respects_every_constraint(
    people: pd.DataFrame, dtype: torch.dtype
) -> None:
    encoder = encoder_of(
        people,
        age={"mutability": "increase"},
        rate={"mutability": "decrease", "step": 0.25},
        job={"transitions": {"clerk": ["smith"], "none": ["clerk", "smith"], "missing": ["none"]}},
        school={"mutability": "increase"},
        member={"mutability": "decrease"},
    ).restrict(immutable=["owner"], ranges={"ratio": (-0.3, 0.7), "income": (12_345.6, 30_000.4)})
    start = torch.from_numpy(encoder.encode(people)).to(dtype)
    there = start + 3 * torch.randn(start.shape, dtype=dtype)
    x = encoder.constraints().to(start).project(there, start)
    after = encoder.decode(x.numpy(), origin=people)
    changed = {name: (after[name] != people[name]) & ~(after[name].isna() & people[name].isna()) for name in people}
    assert all(changed[name].any() for name in people if name != "owner")
    assert not changed["owner"].any()
    assert (after["age"] >= people["age"]).all()
    assert (after["rate"] <= people["rate"]).all()
    assert (after["rate"][changed["rate"]] * 4 % 1 == 0).all()
    assert after["ratio"][changed["ratio"]].between(-0.3, 0.7).all()
    assert after["income"][changed["income"]].between(12_346, 30_000).all()
    assert (after["school"].cat.codes >= people["school"].cat.codes).all()
    assert not (after["member"] & ~people["member"]).any()
    moves = set(zip(people["job"].fillna("missing"), after["job"].fillna("missing"), strict=True))
    assert {move for move in moves if move[0] != move[1]} == {
        ("clerk", "smith"), ("none", "clerk"), ("none", "smith"), ("missing", "none"),
    }  # fmt: skip


# --- saved ------------------------------------------------------------------------------------------------------------


def test_an_encoder_can_be_pickled(people: pd.DataFrame) -> None:
    encoder = encoder_of(people)
    assert pickle.loads(pickle.dumps(encoder)).to_json() == encoder.to_json()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"schema": {"columns": [{"kind": "numeric", "name": "c", "lowr": 1}]}}, "has no setting 'lowr'; did you mean"),
        ({"schema": 3}, "must be a mapping, not int"),
        ({"scales": 2 * [{"centre": 0.0, "scale": 1.0}]}, "a scale and a type for each of its 1 columns"),
        ({"scales": [{"centre": "x", "scale": 1.0}]}, "could not convert string"),
        ({"scales": [{"centre": 0.0, "scale": 0.0}]}, "a centre must be finite, a scale finite and positive; got 0, 0"),
        ({"scales": [{"centre": math.nan, "scale": 1.0}]}, "a centre must be finite, a scale finite and positive"),
        ({"scales": [{"centre": 0.0}]}, "'scale'"),
        (
            {"scales": [{"values": [1.0, 1.0], "scores": [0.0, 1.0], "gaps": []}]},
            "the knots of a rank scale must be fi",
        ),
        ({"scales": [{"values": [1.0, 2.0], "scores": [0.0], "gaps": []}]}, "as many scores as values"),
        ({"scales": [{"values": [1.0, 2.0]}]}, "'scores'"),
        ({"scales": [3]}, "int"),
        ({"dtypes": ["os.system"]}, "'os.system' not understood"),
    ],
)
def test_what_is_no_saved_encoder_is_refused(change: dict[str, Any], sentence: str) -> None:
    saved = json.loads(column([20, 40]).to_json())
    with pytest.raises(ValueError, match=f"this is not an encoder as `to_json` writes it: .*{sentence}"):
        Encoder.from_json(json.dumps(saved | change))
    del saved["dtypes"]
    with pytest.raises(ValueError, match="this is not an encoder as `to_json` writes it: 'dtypes'"):
        Encoder.from_json(json.dumps(saved))


def test_two_values_of_any_kind_can_be_a_truth_value() -> None:
    schema = Schema(columns=(Boolean(name="c", values=("no", "yes")),))
    frame = pd.DataFrame({"c": ["yes", "no"]})
    encoder = Encoder.fit(schema, frame)
    assert encoder.encode(frame).tolist() == [[1.0], [0.0]]
    assert_frame_equal(encoder.decode(encoder.encode(frame)), frame)
