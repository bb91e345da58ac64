"""Rules between columns are read as they are meant, refused in one sentence, and believed only if rows keep them."""

import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from countertrain.tables import inspect_source, load
from countertrain.tables.encoder import Encoder
from countertrain.tables.rules.parse import parse_rule
from countertrain.tables.rules.repair import Room
from countertrain.tables.rules.syntax import (
    Arithmetic,
    AtMostOne,
    Comparison,
    Derived,
    IfThen,
    Link,
    Move,
    Name,
    Number,
    Text,
    Truth,
)
from countertrain.tables.schema import Boolean, Categorical, Numeric, Schema, SchemaError

A, B = Name("a"), Name("b")
COLUMNS = (
    Numeric(name="tenure", integer=True),
    Numeric(name="monthly", step=0.1),
    Numeric(name="total", step=0.1),
    Numeric(name="education-num"),
    Categorical(name="internet", levels=("No", "DSL")),
    Categorical(name="streaming", levels=("Yes", "No", "No internet service")),
    Categorical(name="degree", levels=("A", "B", "C"), ordered=True),
    Boolean(name="gold"),
    Boolean(name="silver"),
    Boolean(name="phone", values=(0, 1)),
)
RULES = (
    "total = tenure * monthly",
    'internet == "No" => streaming == "No internet service"',
    "tenure <= 72",
    "degree + 1 => `education-num` + 2",
    "at most one of gold, silver",
)


def schema(*rules: str) -> Schema:
    return Schema(columns=COLUMNS, rules=rules)


def table(n: int = 40) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    tenure, monthly, internet = rng.integers(1, 60, n), rng.integers(100, 999, n) / 10, rng.choice(["No", "DSL"], n)
    card = rng.integers(0, 3, n)
    return pd.DataFrame(
        {
            "tenure": tenure,
            "monthly": monthly,
            "total": np.round(tenure * monthly, 1),
            "education-num": rng.integers(1, 9, n).astype(float),
            "internet": internet,
            "streaming": np.where(internet == "No", "No internet service", rng.choice(["Yes", "No"], n)),
            "degree": rng.choice(["A", "B", "C"], n),
            "gold": card == 1,
            "silver": card == 2,
            "phone": rng.integers(0, 2, n),
        }
    )


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("total = tenure * monthly", Derived("total", Arithmetic("*", Name("tenure"), Name("monthly")))),
        ("total ~ tenure", Derived("total", Name("tenure"), about=True)),
        (
            "a - b - c <= -1",
            IfThen((), (Comparison(Arithmetic("-", Arithmetic("-", A, B), Name("c")), "<=", Number(-1.0)),)),
        ),
        ("a <= b < c", IfThen((), (Comparison(A, "<=", B), Comparison(B, "<", Name("c"))))),
        ("`my name` == 'x' => b", IfThen((Comparison(Name("my name"), "==", Text("x")),), (Truth(B),))),
        ("education + 1 => age + 2", Link(Move("education", 1.0), Move("age", 2.0))),
        ("at most one of a, b", AtMostOne((Truth(A), Truth(B)))),
        ("a.b == true => b", IfThen((Comparison(Name("a.b"), "==", Text("True")),), (Truth(B),))),
    ],
)  # fmt: skip
def test_a_rule_is_read_as_it_is_written(text: str, meaning: object) -> None:
    assert parse_rule(text) == meaning


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("total = tenur * monthly", "'tenur', which is no column of the schema; did you mean 'tenure'?"),
        ('internet == "Nope" => gold', "'Nope', which is no level of 'internet'; did you mean 'No'?"),
        ("internet == No => gold", "write levels in quotes, internet == \"No\""),
        ("total = tenure *", "must have a column, a number or a level in quotes after '*'; it ends there"),
        ("total = internet + 1", "reckons with 'internet', which does not hold numbers"),
        ("tenure * monthly <= total", "compares products of columns; only sums with fixed factors can be kept"),
        ("tenure + monthly == 100", "write one of them as what follows from the others"),
        ('internet == "No"', "rules without '=>' compare numbers"),
        ("tenure $ 3", "cannot be read from '$ 3' on"),
        ("internet + 1 => tenure + 2", "neither numbers nor levels in an order"),
        ("at most one of gold", "must list at least two"),
        ("tenure => gold", "takes 'tenure' for a truth value"),
        ('internet > "No" => gold', "declare ordered=True"),
        ("__import__('os') = 3", "must have '=>' and what follows after '__import__'; got '('"),
    ],
)  # fmt: skip
def test_a_rule_that_cannot_be_meant_is_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(SchemaError) as refused:
        schema(text)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_all_rules_that_cannot_be_read_are_refused_at_once() -> None:
    with pytest.raises(SchemaError, match=r"2 things are in the way: \(1\) .*'tenur'.* \(2\) .*'monthy'"):
        schema("total = tenur * 2", "tenure <= monthy")


@pytest.mark.parametrize(
    "pair",
    [
        ("total = tenure * 2", "total = monthly * 2"),
        ("total = tenure * 2", "tenure + 1 => total + 2"),
        ("total = monthly + 1", "monthly = total - 1"),
        ("tenure < monthly", "monthly <= tenure"),
        ('internet == "No" => streaming == "Yes"', 'internet == "No" => streaming == "No"'),
        ("gold => silver", "at most one of gold, silver"),
        ("gold => tenure < 10", "gold => tenure >= 10"),
    ],
)
def test_rules_that_cannot_both_be_kept_are_refused_by_name(pair: tuple[str, str]) -> None:
    with pytest.raises(SchemaError) as refused:
        schema(*pair)
    assert all(repr(rule) in str(refused.value) for rule in pair)
    for rule in pair:
        schema(rule)  # either is fine alone


def test_rules_that_meet_without_contradiction_are_kept() -> None:
    schema('internet == "No" <=> streaming == "No internet service"', 'gold => internet == "No"', "gold => tenure < 10")
    schema("tenure <= monthly", "monthly <= tenure")


def test_rules_live_in_the_schema_wherever_it_goes(tmp_path: Path) -> None:
    declared = schema(*RULES)
    assert Schema.from_toml(declared.to_toml()) == declared == Schema.from_json(declared.to_json())
    encoder = Encoder.fit(declared, table())
    assert encoder.schema.rules == Encoder.from_json(encoder.to_json()).schema.rules == RULES
    assert encoder.restrict(immutable=["tenure"]).schema.rules == RULES
    assert "rules" not in tomllib.loads(Schema(columns=COLUMNS).to_toml())
    rows = table().assign(label=np.arange(40) % 2)
    look = inspect_source(rows, "label", schema=declared)
    assert Schema.from_toml(look.to_toml()).rules == RULES
    assert load(rows, label="label", schema=declared).schema.rules == RULES
    with pytest.raises(SchemaError, match="names 'monthly', which is no column"):
        declared.drop(["monthly"])


def test_rounding_to_the_step_breaks_no_derived_column_and_more_does() -> None:
    book = schema("total = tenure * monthly / 3").rulebook
    assert book is not None
    rows = table().assign(total=lambda t: (t.tenure * t.monthly / 3).round(1))
    assert not book.find_broken(rows)["total = tenure * monthly / 3"].any()
    assert book.find_broken(rows.assign(total=rows.total + 0.1))["total = tenure * monthly / 3"].all()
    assert not book.find_broken(rows.assign(total=np.nan))["total = tenure * monthly / 3"].any()  # nobody knows


@pytest.mark.parametrize(
    ("values", "goal", "told"),
    [(7.3, 0.0, 7.0), (7.3, 9.9, 7.5), (-7.3, 0.0, -7.0), (7.3, 7.1, 7.1), (7.5, 0.0, 7.5), (7.5, 9.0, 7.5)],
)
def test_a_number_that_cannot_be_told_goes_to_the_next_one_towards_its_goal(
    values: float, goal: float, told: float
) -> None:
    room = Room({}, {}, {}, {}, {"rate": Numeric(name="rate", step=0.5)})
    assert room.round_towards("rate", np.array([values]), np.array([goal])) == told


def test_a_rule_that_many_rows_break_is_not_believed_and_one_that_few_do_is_named_with_them() -> None:
    declared, rows = schema(*RULES), table(100).assign(label=np.arange(100) % 2)
    few = rows.copy()
    few.loc[[7, 31], "total"] += 5
    found = {one.seen: one.weight for one in inspect_source(few, "label", schema=declared).findings}
    assert found["the rule 'total = tenure * monthly' is broken by 2 rows (2.0 %), rows 7, 31"] == "warning"
    assert any("3 rules between columns that no row breaks" in seen for seen in found)
    Encoder.fit(declared, few)
    many = rows.assign(total=rows.total + 5.0 * (np.arange(100) < 40))
    (refused,) = inspect_source(many, "label", schema=declared).refused
    assert "broken by 40 rows (40 %), rows 0, 1, 2 and 37 more" in refused.seen
    with pytest.raises(SchemaError, match=r"broken by 40.0 % of the rows, first by row 0; correct it"):
        Encoder.fit(declared, many)


@pytest.mark.parametrize("name", ["churn", "attrition"])
def test_the_example_schemas_can_be_read(name: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / "examples" / f"{name}.toml").read_text(encoding="utf-8")
    book = Schema.from_toml(text).rulebook
    assert book is not None
    assert len(book.rules) > 5
    assert book.following
