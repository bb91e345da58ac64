"""Summaries of parts, merged, are the summary of the whole."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from countertrain.tables.sentences import SchemaError
from countertrain.tables.summaries import Summary

NUMBERS = st.one_of(
    st.integers(-(10**6), 10**6).map(lambda n: n / 100),
    st.integers(-5, 5).map(float),
    st.floats(-1e9, 1e9),
    st.just(2.0**48),
    st.just(np.nan),
)


@pytest.mark.parametrize("step", [12.0, 100.0, 0.05, 2.5, 1.0, 7.0, 1e-4])
def test_the_step_of_a_column_is_what_all_of_enough_values_are_multiples_of(step: float) -> None:
    steps = np.random.default_rng(0).integers(0, 9, 60)
    values = pd.Series(np.round(steps * step, 6), name="c")
    column = Summary.of(values).infer()
    assert (column.step, column.integer) == (step, step >= 1 and step != 2.5)  # type: ignore[union-attr]
    parts = [Summary.of(part) for part in (values[:7], values[7:])]
    assert parts[0].merge(parts[1]).infer() == column
    few = Summary.of(values[steps != 0][:29]).infer()
    assert few.step == {12.0: 1, 100.0: 1, 0.05: 0.01, 2.5: 0.1, 1.0: 1, 7.0: 1, 1e-4: 1e-4}[step]  # type: ignore[union-attr]
    one_between = pd.concat([values, pd.Series([round(step * 1.5, 6)])], ignore_index=True).rename("c")
    assert Summary.of(one_between).infer().step < step  # type: ignore[union-attr, operator]


def test_nobody_counts_in_eighties_because_of_one_odd_number() -> None:
    limits = pd.Series([10_000 * k for k in range(1, 60)] + [327_680], name="limit")
    assert math.gcd(10_000, 327_680) == 80
    assert Summary.of(limits).infer().step == 10  # type: ignore[union-attr]


def infer(summary: Summary) -> Any:
    try:
        return summary.infer()
    except SchemaError as error:
        return str(error)


@given(st.lists(NUMBERS, min_size=2, max_size=12), st.integers(1, 11))
def test_numbers_in_two_parts_show_what_they_show_together(values: list[float], cut: int) -> None:
    series = pd.Series(values, name="c")
    parts = [Summary.of(part) for part in (series[:cut], series[cut:]) if len(part)]
    merged = parts[0] if len(parts) == 1 else parts[0].merge(parts[1])
    assert infer(merged) == infer(Summary.of(series))


@given(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=2, max_size=12), st.integers(1, 11))
def test_levels_in_two_parts_show_what_they_show_together(values: list[str | None], cut: int) -> None:
    series = pd.Series(values, name="c", dtype="str")
    parts = [Summary.of(part) for part in (series[:cut], series[cut:]) if len(part)]
    merged = parts[0] if len(parts) == 1 else parts[0].merge(parts[1])
    assert infer(merged) == infer(Summary.of(series))
    assert merged.dtype == series.dtype


@pytest.mark.parametrize(
    ("first", "second", "dtype"),
    [
        ([1, 2], [1.5], "float64"),
        ([1, 2], [np.nan], "float64"),
        ([True, False], [np.nan], "object"),
        (["a"], [np.nan], "str"),
        ([True], [False], "bool"),
    ],
)
def test_parts_are_of_the_type_that_the_whole_would_be_of(first: list[Any], second: list[Any], dtype: str) -> None:
    one, other = (Summary.of(pd.Series(part, name="c")) for part in (first, second))
    assert str(one.merge(other).dtype) == str(other.merge(one).dtype) == dtype


def test_numbers_and_texts_clash_and_ordered_levels_keep_their_order() -> None:
    assert Summary.of(pd.Series([1, 2])).merge(Summary.of(pd.Series(["x"]))).clashes
    sizes = pd.Series(pd.Categorical(["low", "high", "mid"], ["low", "mid", "high"], ordered=True), name="c")
    merged = Summary.of(sizes[:1]).merge(Summary.of(sizes[1:]))
    assert merged.infer() == Summary.of(sizes).infer()
    assert (merged.infer().levels, merged.infer().ordered) == (("low", "mid", "high"), True)  # type: ignore[union-attr]


def test_an_identifier_takes_no_more_memory_than_its_levels_may() -> None:
    parts = [Summary.of(pd.Series([f"p{k}-{i}" for i in range(100)], name="id")) for k in range(3)]
    merged = parts[0].merge(parts[1]).merge(parts[2])
    assert len(merged.distinct) == 51
    with pytest.raises(SchemaError, match="column 'id' has more than 50 different levels"):
        merged.infer()
