"""The schema: what is inferred is what the rows show, what is written down is read again, nonsense is one sentence."""

import copy
import math
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from countertrain.tables.schema import Boolean, Categorical, Numeric, Schema, SchemaError, as_frame

AGE = Numeric(name="age", integer=True, lower=18, unit="years", mutability="increase")
JOB = Categorical(name="job", levels=("none", "clerk", "smith"), ordered=True, missing="level")
SCHEMA = Schema(columns=(AGE, JOB, Boolean(name="member")))


def infer(values: Any, **how: Any) -> Any:
    """The column that is inferred from some values."""
    return Schema.infer(pd.DataFrame({"c": values}), **how)["c"]


MAYBE = Categorical(name="c", levels=(False, True), ordered=True, missing="level")


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([3, 1, 2], Numeric(name="c", integer=True, step=1)),
        (np.array([3, 200], dtype=np.uint8), Numeric(name="c", integer=True)),
        ([0, 1, 1], Boolean(name="c", values=(0, 1))),
        ([0.0, 1.0, None], Categorical(name="c", levels=(0, 1), ordered=True, missing="level")),
        ([True, False], Boolean(name="c")),
        (pd.array([True, False, None], dtype="boolean"), MAYBE),
        (pd.Series([True, False, None], dtype=object), MAYBE),
        ([1.0, 2.0, 5.0], Numeric(name="c", integer=True)),
        ([1.0, 2.0, math.nan], Numeric(name="c", integer=True, missing="level")),
        (pd.array([1, 2, None], dtype="Int64"), Numeric(name="c", integer=True, missing="level")),
        (pd.Series([1, 2.5, None], dtype=object), Numeric(name="c", step=0.1, missing="level")),
        ([0.1, 0.2, 0.3], Numeric(name="c", step=0.1)),
        ([0.1 + 0.2, 0.2], Numeric(name="c")),  # 0.30000000000000004
        ([1.25, 1e-6], Numeric(name="c", step=1e-6)),
        ([1.25, 1e-7], Numeric(name="c")),
        ([1e300, 2e300], Numeric(name="c")),
        (np.array([0.1, 0.7], dtype=np.float32), Numeric(name="c", step=0.1)),
        (["b", "a", "b"], Categorical(name="c", levels=("a", "b"))),
        (["b", "a", None], Categorical(name="c", levels=("a", "b"), missing="level")),
        (["a", None], Categorical(name="c", levels=("a",), missing="level")),
        (pd.Series(["b", 2, 1], dtype=object), Categorical(name="c", levels=(1, 2, "b"))),
        (pd.Categorical([3, 1], categories=[3, 2, 1]), Categorical(name="c", levels=(3, 1))),
        (
            pd.Categorical(["lo", "hi"], categories=["lo", "mid", "hi"], ordered=True),
            Categorical(name="c", levels=("lo", "hi"), ordered=True),
        ),
    ],
)
def test_a_column_is_inferred_as_what_its_values_show(values: Any, shown: Any) -> None:
    assert infer(values) == shown


def test_levels_are_values_of_python_itself_and_keep_their_types() -> None:
    levels = infer(pd.Categorical([1.5, 2.5])).levels
    assert [type(level) for level in levels] == [float, float]
    mixed = Categorical(name="c", levels=(np.int64(1), "1.0", np.float64(2.5), np.bool_(False)))  # type: ignore[arg-type]
    assert [type(level) for level in mixed.levels] == [int, str, float, bool]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([None, None], "column 'c' has no value at all; drop it"),
        ([], "column 'c' has no value at all"),
        ([7, 7], "column 'c' is 7 in every row"),
        ([7.0, math.nan], "column 'c' is 7.0 in every row"),
        (["a", "a"], "column 'c' is 'a' in every row"),
        ([f"text {i}" for i in range(51)], "column 'c' has more than 50 different levels; drop it, group"),
        (pd.date_range("2020", periods=2), "column 'c' holds values of the kind 'datetime64', .* days since a date"),
        ([1 + 2j, 3j], "kind 'complex'"),
        ([[1], [2]], r"column 'c' may hold texts, numbers and truth values; got \[1\]; drop it"),
        (pd.interval_range(0, 3), "column 'c'"),
        ([1.0, math.inf], "column 'c' holds infinite values"),
        ([2**60, 1], "column 'c' holds integers that are too large"),
        (pd.Series([1, "1"], dtype=object), "levels must differ, also when written as texts; '1' is there twice"),
        (["missing", "a", None], "'missing' is there twice"),
    ],
)
def test_a_column_that_no_model_can_use_is_refused_with_the_way_out(values: Any, sentence: str) -> None:
    with pytest.raises(SchemaError, match=sentence) as error:
        infer(values)
    assert "\n" not in str(error.value)


def test_more_levels_are_allowed_on_request() -> None:
    assert len(infer([f"text {i}" for i in range(60)], max_levels=60).levels) == 60


def test_an_array_has_real_numbers_called_x0_x1_even_where_they_are_constant() -> None:
    schema = Schema.infer(np.array([[1, 0], [1, 1]]), immutable=["x1"])
    assert schema.columns == (Numeric(name="x0"), Numeric(name="x1", mutability="none"))
    with pytest.raises(ValueError, match=r"must have shape \(n, D\); got \(3,\)"):
        Schema.infer(np.arange(3))


def test_mutability_is_listed_by_name() -> None:
    frame = pd.DataFrame({"age": [1, 2], "debt": [1, 2], "sex": ["f", "m"], "pay": [1, 2]})
    schema = Schema.infer(frame, immutable=["sex"], increase=["age"], decrease=["debt"])
    assert [column.mutability for column in schema.columns] == ["increase", "decrease", "none", "both"]
    with pytest.raises(SchemaError, match=r"there is no column 'aeg'; did you mean 'age'\?"):
        Schema.infer(frame, immutable=["aeg"])
    with pytest.raises(SchemaError, match="column 'age' is listed as 'none' and as 'increase'; choose one"):
        Schema.infer(frame, immutable=["age"], increase=["age"])
    with pytest.raises(TypeError, match=r"got the text 'age'; write \['age'\]"):
        Schema.infer(frame, immutable="age")
    with pytest.raises(SchemaError, match="column 'sex': mutability 'increase' needs levels in an order"):
        Schema.infer(frame, increase=["sex"])


def test_names_are_texts_and_distinct() -> None:
    assert list(as_frame(pd.DataFrame({0: [1], "a": [2]})).columns) == ["0", "a"]
    assert list(as_frame(np.zeros((1, 2)), ["a", "b"]).columns) == ["a", "b"]
    with pytest.raises(SchemaError, match="two columns are called 'a'; rename one"):
        Schema.infer(pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]))
    with pytest.raises(SchemaError, match="two columns are called '1'"):
        as_frame(pd.DataFrame([[1, 2]], columns=[1, "1"]))
    with pytest.raises(TypeError, match="must be a DataFrame or a two-dimensional array; got list"):
        as_frame([[1]])  # type: ignore[arg-type]


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "typo": (lambda: Numeric(name="a", lowr=1), "column 'a' has no setting 'lowr'; did you mean 'lower'?"),  # type: ignore[call-arg]
    "typo beside what it leaves out": (
        lambda: Categorical(name="a", levles=["b"]),  # type: ignore[call-arg]
        "column 'a' has no setting 'levles'; did you mean 'levels'?",
    ),
    "no levels": (lambda: Categorical(name="a"), "column 'a' needs the setting 'levels'"),  # type: ignore[call-arg]
    "empty levels": (lambda: Categorical(name="a", levels=()), "column 'a': there must be at least one level"),
    "no name": (lambda: Numeric(), "a numeric column needs the setting 'name'"),  # type: ignore[call-arg]
    "way": (
        lambda: Numeric(name="a", mutability="up"),  # type: ignore[arg-type]
        "column 'a': mutability must be 'both', 'increase', 'decrease' or 'none'; got 'up'",
    ),
    "bounds": (lambda: Numeric(name="a", lower=3, upper=1), "column 'a': lower must not exceed upper; got 3 and 1"),
    "nan": (lambda: Numeric(name="a", lower=math.nan), "column 'a': lower must be a finite number; got nan"),
    "step": (lambda: Numeric(name="a", step=0), "column 'a': step must be greater than 0; got 0"),
    "half steps": (lambda: Numeric(name="a", integer=True, step=0.5), "must be a whole number; got 0.5"),
    "no multiple": (
        lambda: Numeric(name="a", step=0.5, lower=0.6, upper=0.9),
        "column 'a': no multiple of its step 0.5 lies between 0.6 and 0.9",
    ),
    "too fine": (
        lambda: Numeric(name="a", step=1e-6, upper=1e300),
        r"column 'a': 1e\+300 is too many steps of 1e-06 to count; choose a larger step",
    ),
    "needless fill": (lambda: Numeric(name="a", fill=1), "column 'a': a value to fill in needs missing='fill'"),
    "needless level": (lambda: Boolean(name="a", fill=True), "column 'a': a level to fill in needs missing='fill'"),
    "fill": (
        lambda: Categorical(name="a", levels=("b", "c"), unseen="fill", fill="bb"),
        "column 'a': the fill must be one of its levels; got 'bb'; did you mean 'b'?",
    ),
    "same": (lambda: Categorical(name="a", levels=(1, True)), "levels must differ, .* True is there twice"),
    "one truth": (lambda: Boolean(name="a", values=(1, 1)), "levels must differ, .* 1 is there twice"),
    "transition": (
        lambda: Categorical(name="a", levels=("b", "c"), transitions={"b": ("d",)}),
        "column 'a': transitions name 'd', which is no level; there are 'b', 'c'",
    ),
    "rare": (
        lambda: Categorical(name="a", levels=("b", "c"), rare=("bb",)),
        "column 'a': rare levels name 'bb', which is no level; did you mean 'b'?",
    ),
    "kind": (lambda: Schema.from_toml("[[columns]]\nname = 'a'"), "every column needs a kind, 'numeric', 'categ"),
    "other kind": (lambda: Schema.from_toml("[[columns]]\nkind = 'text'"), "every column needs a kind"),
    "key": (lambda: Schema.from_toml("colums = []"), "the schema has no setting 'colums'; did you mean 'columns'?"),
    "nested": (
        lambda: Schema.from_json('{"columns": [{"kind": "numeric", "name": "a", "lowr": 1}]}'),
        "column 'a' has no setting 'lowr'; did you mean 'lower'?",
    ),
    "nothing": (lambda: Schema(columns=()), "a schema needs at least one column"),
    "twice": (lambda: Schema(columns=(AGE, AGE)), "two columns are called 'age'; rename one of them"),
    "json": (lambda: Schema.from_json("{"), "the schema is not valid JSON: "),
    "toml": (lambda: Schema.from_toml("="), "the schema is not valid TOML: "),
    "not a table": (lambda: Schema.from_json("[]"), r"a schema is written as a table with the key 'columns'; got \[\]"),
    "lookup": (lambda: SCHEMA["agee"], "there is no column 'agee'; did you mean 'age'?"),
    "change": (lambda: SCHEMA.with_columns(jop={}), "there is no column 'jop'; did you mean 'job'?"),
    "changed key": (
        lambda: SCHEMA.with_columns(age={"uper": 3}),
        "column 'age' has no setting 'uper'; did you mean 'u",
    ),
    "far": (lambda: AGE.within((1, 5)), r"the range of column 'age' must meet its bounds, 18.0 to None; got \(1, 5\)"),
    "between steps": (lambda: AGE.within((30.2, 30.7)), "column 'age': no multiple of its step 1 lies between 30.2 a"),
    "triple": (lambda: AGE.within((1, 5, 7)), "the range of column 'age' is its lowest and its highest number"),
    "number": (lambda: AGE.within(5), "the range of column 'age' is its lowest and its highest"),  # type: ignore[arg-type]
    "nan range": (lambda: AGE.within((20, math.nan)), "the range of column 'age' is its lowest and its highest"),
    "text": (lambda: JOB.within("clerk"), "the range of column 'job' is a list of its levels; got 'clerk'"),
    "no level": (lambda: JOB.within(["clerc"]), "the range of column 'job' names 'clerc', no level; did you mean 'cl"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_declared_wrongly_is_refused_in_one_sentence(case: str) -> None:
    call, sentence = BAD[case]
    with pytest.raises(SchemaError, match=sentence) as error:
        call()
    assert "\n" not in str(error.value)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
floats = st.floats(allow_nan=False, allow_infinity=False)
numbers = st.floats(-1e12, 1e12)
levels = st.lists(texts | st.integers() | floats | st.booleans(), min_size=2, max_size=5)
ways = st.sampled_from(["both", "increase", "decrease", "none"])


@st.composite
def columns(draw: st.DrawFn) -> Any:
    """Any column that can be declared."""
    kind, name = draw(st.sampled_from([Numeric, Categorical, Boolean])), draw(texts)
    if kind is Numeric:
        bounds = sorted(draw(st.tuples(numbers, numbers)))
        keys: dict[str, Any] = draw(st.fixed_dictionaries({}, optional={"integer": st.booleans(), "unit": texts}))
        keys |= {"lower": bounds[0], "upper": bounds[1], "missing": "fill", "fill": draw(st.none() | floats)}
    elif kind is Categorical:
        values = draw(levels)
        names = [str(value) for value in values]
        moves = st.dictionaries(st.sampled_from(names), st.lists(st.sampled_from(names)))
        keys = {"levels": values, "ordered": True, "transitions": draw(st.none() | moves), "unseen": "fill"}
        keys |= {"missing": draw(st.sampled_from(["refuse", "fill", "level"])), "fill": draw(st.sampled_from(values))}
        keys |= {"rare": draw(st.none() | st.lists(st.sampled_from(names)))}
    else:
        keys = {"values": draw(levels)[:2]}
    try:
        return kind(name=name, mutability=draw(ways), **keys)
    except SchemaError:  # such as levels that are the same
        return assume(False)


@given(st.lists(columns(), min_size=1, max_size=4, unique_by=lambda column: column.name))
def test_a_schema_is_read_as_it_was_written(declared: list[Any]) -> None:
    schema = Schema(columns=tuple(declared))
    for again in (Schema.from_json(schema.to_json()), Schema.from_toml(schema.to_toml())):
        assert again == schema
        for one, other in zip(schema.columns, again.columns, strict=True):
            assert repr(one) == repr(other)  # so that 1, 1.0 and True are told apart


def test_a_schema_is_written_for_people_too() -> None:
    assert SCHEMA.to_toml().startswith('[[columns]]\nkind = "numeric"\nname = "age"\ninteger = true\nunit = "years"\n')
    assert '"name": "größe"' in Schema(columns=(Numeric(name="größe"),)).to_json()


def test_a_schema_can_be_copied_pickled_and_not_changed() -> None:
    assert copy.deepcopy(SCHEMA) == SCHEMA
    assert pickle.loads(pickle.dumps(SCHEMA)) == SCHEMA
    with pytest.raises(ValueError, match="frozen"):
        SCHEMA["age"].mutability = "none"  # type: ignore[misc]


def test_columns_are_changed_in_a_new_schema() -> None:
    other = SCHEMA.with_columns(age={"upper": 99, "mutability": "none"}, member=Boolean(name="member", values=(0, 1)))
    assert other["age"] == Numeric(name="age", integer=True, unit="years", lower=18, upper=99, mutability="none")
    assert (other.names, other["job"]) == (SCHEMA.names, JOB)
    assert SCHEMA["age"] == AGE
    anew = SCHEMA.with_columns(age={"kind": "categorical", "levels": (18, 19)})
    assert anew["age"] == Categorical(name="age", levels=(18, 19))


@given(
    values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20),
    step=st.sampled_from([1e-6, 0.001, 0.05, 0.1, 0.25, 1.0, 7.0, 500.0]),
    bounds=st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)),
)
def test_numbers_are_rounded_to_the_very_decimals_of_their_step_within_their_bounds(
    values: list[float], step: float, bounds: tuple[float, float]
) -> None:
    lower, upper = sorted(bounds)
    assume(upper - lower >= step)
    column = Numeric(name="a", step=step, lower=lower, upper=upper)
    rounded = column.round_to_step(np.array(values))
    exact_step = Fraction(repr(step))
    for value, result in zip(values, rounded.tolist(), strict=True):
        exact = Fraction(repr(result))
        assert exact % exact_step == 0
        assert lower <= result <= upper
        for other in (exact - exact_step, exact + exact_step):  # no multiple within the bounds is nearer
            outside = not Fraction(repr(lower)) <= other <= Fraction(repr(upper))
            assert outside or abs(other - Fraction(value)) >= abs(exact - Fraction(value)) * (1 - Fraction(1, 10**9))
    assert np.array_equal(column.round_to_step(rounded), rounded)


def test_an_integer_goes_in_steps_of_1_unless_another_is_declared() -> None:
    assert AGE.step == 1
    assert AGE.round_to_step(np.array([3.0, 18.4, 18.6])).tolist() == [18, 18, 19]
    assert Numeric(name="a", integer=True, step=5).round_to_step(np.array([18.4, -1.0])).tolist() == [20, 0]
    assert Numeric(name="a").round_to_step(np.array([18.4])).tolist() == [18.4]


def moves(column: Categorical) -> list[str]:
    """Where each level may go, other than to stay."""
    allowed = column.moves()
    assert allowed.diagonal().all()
    return [
        f"{a}>{b}" for a, row in zip(column.labels, allowed, strict=True)
        for b, may in zip(column.labels, row, strict=True) if may and a != b
    ]  # fmt: skip


def test_levels_go_anywhere_upwards_downwards_nowhere_or_where_transitions_say() -> None:
    free = Categorical(name="c", levels=("a", "b", "c"), ordered=True)
    change = {way: free.model_copy(update={"mutability": way}) for way in ("increase", "decrease", "none")}
    assert moves(free) == ["a>b", "a>c", "b>a", "b>c", "c>a", "c>b"]
    assert moves(change["increase"]) == ["a>b", "a>c", "b>c"]
    assert moves(change["decrease"]) == ["b>a", "c>a", "c>b"]
    assert moves(change["none"]) == []
    some = {"a": ("b",), "c": ("b",)}
    assert moves(free.model_copy(update={"transitions": some})) == ["a>b", "c>b"]
    assert moves(change["increase"].model_copy(update={"transitions": some})) == ["a>b"]


def test_missing_is_left_but_not_gone_to_unless_a_transition_says_so() -> None:
    column = Categorical(name="c", levels=("a", "b"), missing="level", ordered=True)
    assert column.labels == ("a", "b", "missing")
    assert moves(column) == ["a>b", "b>a", "missing>a", "missing>b"]
    assert moves(column.model_copy(update={"mutability": "increase"})) == ["a>b"]
    assert moves(column.model_copy(update={"mutability": "decrease"})) == ["b>a"]
    assert moves(column.model_copy(update={"transitions": {"a": ("missing",)}})) == ["a>missing"]


def test_a_rare_level_is_kept_and_left_but_not_gone_to_unless_a_transition_says_so() -> None:
    column = Categorical(name="c", levels=("a", "b", 0), rare=("0",))
    assert moves(column) == ["a>b", "b>a", "0>a", "0>b"]
    assert moves(column.within(["b", 0])) == ["a>b", "0>b"]
    assert moves(column.model_copy(update={"transitions": {"a": ("0",)}})) == ["a>0"]
    assert moves(column.model_copy(update={"rare": ()})) == ["a>b", "a>0", "b>a", "b>0", "0>a", "0>b"]


def test_a_range_narrows_what_a_column_may_become() -> None:
    assert AGE.within((20, None)).lower == 20
    assert (AGE.within((None, 40)).lower, AGE.within((None, 40)).upper) == (18, 40)
    assert moves(JOB.within(["clerk"])) == ["none>clerk", "smith>clerk", "missing>clerk"]
    assert moves(JOB.model_copy(update={"mutability": "increase"}).within(["none", "clerk"])) == ["none>clerk"]
    assert moves(JOB.model_copy(update={"transitions": {"none": ("clerk",)}}).within(["clerk", "smith"])) == [
        "none>clerk"
    ]
    flag = Boolean(name="b", values=(0, 1))
    assert [flag.within(only).mutability for only in ([0], [1], [0, 1])] == ["decrease", "increase", "both"]
    assert flag.model_copy(update={"mutability": "increase"}).within([0]).mutability == "none"
