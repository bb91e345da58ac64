"""What holds in every row is found, and what holds by chance, or not quite, is not."""

import numpy as np
import pandas as pd

from countertrain.tables import inspect, load
from countertrain.tables.regularities import find_rules, infer_schema
from countertrain.tables.schema import Schema

N = 400
draw = np.random.default_rng(0)
LINE = draw.choice(["No", "DSL", "Fibre"], N)
PEOPLE = pd.DataFrame(
    {
        "line": LINE,
        "films shown": np.where(LINE == "No", "no line", draw.choice(["yes", "no"], N)),
        "router": LINE != "No",
        "speed": np.where(LINE == "Fibre", "fast", draw.choice(["fast", "slow"], N)),
        "colour": draw.choice(["red", "blue"], N),
        "months": draw.integers(1, 60, N),
        "price": draw.integers(20, 100, N),
        "extra": draw.integers(0, 9, N),
    }
).assign(total=lambda t: t["months"] * t["price"], due=lambda t: t["price"] + t["extra"])
RULES = {
    'line == "No" <=> `films shown` == "no line"',
    'line == "No" <=> router == "False"',
    'line == "Fibre" => speed == "fast"',
    "total = months * price",
    "due = price + extra",
}


def test_levels_that_go_together_sums_and_products_are_found() -> None:
    found = find_rules(PEOPLE, Schema.infer(PEOPLE).columns)
    assert {*found} >= RULES
    assert not any("colour" in rule for rule in found)
    schema = Schema.infer(PEOPLE).with_rules(found)
    assert schema.rulebook is not None
    assert not any(hit.any() for hit in schema.rulebook.find_broken(PEOPLE).values())


def test_one_row_against_it_is_enough() -> None:
    odd = PEOPLE.copy()
    odd.loc[7, ["films shown", "router", "speed", "total", "due"]] = ["no line", False, "slow", 1, 1]
    odd.loc[7, "line"] = "Fibre"
    assert not RULES & {*find_rules(odd, Schema.infer(odd).columns)}


def test_what_holds_about_is_found_where_neither_part_says_it_alone() -> None:
    about = PEOPLE.assign(
        total=PEOPLE["total"] * draw.uniform(0.95, 1.05, N), due=PEOPLE["price"] + draw.integers(0, 2, N)
    )
    found = find_rules(about, Schema.infer(about).columns)
    assert "total ~ months * price" in found
    assert not any(rule.startswith(("due", "price")) for rule in found)  # as good as one another
    loose = PEOPLE.assign(total=PEOPLE["total"] * draw.uniform(0.5, 1.5, N))
    assert not any(rule.startswith("total") for rule in find_rules(loose, Schema.infer(loose).columns))
    held = about.rename(columns={"months": "tenure"})  # which nobody can change, but what is paid in it follows
    assert "total ~ tenure * price" in (infer_schema(held).rules or ())


def test_rules_that_contradict_one_another_are_none_and_a_file_has_those_that_hold(tmp_path) -> None:  # type: ignore[no-untyped-def]
    schema = Schema.infer(PEOPLE)
    assert schema.with_rules(["total = months * price", "total = price + extra"]).rules is None
    PEOPLE.assign(age=LINE, label=PEOPLE["colour"]).drop(columns="colour").to_csv(tmp_path / "t.csv", index=False)
    assert {*(load(tmp_path / "t.csv").schema.rules or ())} >= RULES
    assert not any("age" in rule for rule in load(tmp_path / "t.csv").schema.rules or ())
    assert {*(load(PEOPLE, label="colour").schema.rules or ())} >= RULES  # and so has a frame


def test_a_number_that_is_missing_exactly_where_a_level_says_so_is_told_of_in_a_rule() -> None:
    jobs = draw.choice(["none", "student", "clerk", "smith"], N)
    years = np.where(np.isin(jobs, ["none", "student"]), np.nan, draw.integers(0, 30, N).astype(float))
    table = pd.DataFrame({"job": jobs, "years": years, "pay": draw.integers(0, 99, N), "out": jobs == "none"})
    rule = 'job in ("none", "student") <=> years == "missing"'
    assert rule in find_rules(table, Schema.infer(table).columns)
    schema = Schema.infer(table).with_rules([rule])
    assert schema.rulebook is not None
    assert not schema.rulebook.find_broken(table)[rule].any()
    odd = table.assign(years=table["years"].where(table.index != np.flatnonzero(jobs == "none")[0], 3.0))
    assert schema.rulebook.find_broken(odd)[rule].sum() == 1
    assert rule not in find_rules(odd, Schema.infer(odd).columns)
    held = Schema.infer(table).with_columns(job={"mutability": "none"})
    assert rule not in find_rules(table, held.columns)  # no advice could break it


def test_levels_that_are_grades_may_only_get_better_and_hours_of_a_week_have_an_end() -> None:
    table = pd.DataFrame(
        {
            "balance": draw.choice(["Best", "Good", "Bad", "Better"], N),
            "rating": draw.choice(["Outstanding", "Excellent"], N),
            "debt": draw.choice(["Low", "High", "Medium"], N),
            "hours-per-week": draw.integers(1, 100, N),
            "hours": draw.integers(1, 100, N),
        }
    )
    label = pd.Series(np.arange(N) % 2, name="label")
    looked = inspect(pd.concat([table, label], axis=1), "label")
    assert {one.kind for one in looked.findings} == {"grades", "hours"}
    for schema in (infer_schema(table), looked.schema):
        balance, rating, debt, weekly, hours = schema.columns
        assert (balance.levels, balance.ordered, balance.mutability) == (
            ("Bad", "Good", "Better", "Best"),
            True,
            "increase",
        )  # type: ignore[union-attr]
        assert (rating.levels, rating.mutability) == (("Excellent", "Outstanding"), "increase")  # type: ignore[union-attr]
        assert (debt.ordered, debt.mutability) == (False, "both")  # type: ignore[union-attr]
        assert (weekly.upper, hours.upper in (None, 99)) == (60, True)  # type: ignore[union-attr]
