"""Small tables under rules of every kind, drawn at random, and a slow judge of each rule that shares no code."""

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from countertrain.tables.schema import Boolean, Categorical, Column, Numeric, Schema

Row = dict[str, Any]
Judge = Callable[[Row, Row], bool]
"""Whether a told row keeps a rule, for somebody who was so before."""
N = 60
LEVELS = ("low", "mid", "high")


@dataclass
class World:
    """A few columns, the rules between them, and their judges."""

    columns: list[Column]
    rules: list[str]
    draw: Callable[[np.random.Generator], dict[str, Any]]
    judges: dict[str, Judge] = field(default_factory=dict)
    following: tuple[str, ...] = ()


def near(a: float, b: float, step: float) -> bool:
    """Whether one number is the other rounded to its step."""
    return abs(a - b) <= step * 0.5000001 + 1e-9 * abs(b)


def exact(number: float) -> Fraction:
    """The number that its decimals say: 9.6063 - 2 is 7.6063, which floating point numbers do not know."""
    return Fraction(repr(float(number)))


@st.composite
def products(draw: st.DrawFn) -> World:
    """A column that two others are multiplied to, exactly or about, or that one is divided by another to."""
    about, divided, fixed = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    step = draw(st.sampled_from([0.01, 0.1, 1.0]))
    sign, joint = ("~" if about else "="), ("/" if divided else "*")
    way = "none" if fixed else "both"

    def come_to(row: Row) -> float:
        return float(row["hours"] / row["pay"] if divided else row["hours"] * row["pay"])

    def rows(rng: np.random.Generator) -> dict[str, Any]:
        frame = {"hours": rng.integers(1, 40, N), "pay": rng.integers(50, 300, N) / 10}
        total = np.array([come_to({"hours": h, "pay": p}) for h, p in zip(frame["hours"], frame["pay"], strict=True)])
        if about:
            total = total * rng.uniform(0.9, 1.1, N)
        return {**frame, "total": np.round(total / step) * step}

    def keeps(before: Row, after: Row) -> bool:
        moved = any(before[name] != after[name] for name in ("hours", "pay"))
        due = before["total"] + come_to(after) - come_to(before) if about else come_to(after)
        return near(after["total"], due, step) if moved else bool(before["total"] == after["total"])

    return World(
        [
            Numeric(name="hours", integer=True, mutability=draw(st.sampled_from(["both", "increase"]))),
            Numeric(name="pay", step=0.1, lower=5, upper=30),
            Numeric(name="total", step=step, mutability=way, lower=0, upper=draw(st.sampled_from([200, 5_000]))),
        ],
        [f"total {sign} hours {joint} pay"],
        rows,
        {"product": keeps},
        ("total",),
    )


@st.composite
def services(draw: st.DrawFn) -> World:
    """Levels that go with others, one way or both; and what they cost."""
    both = draw(st.booleans())
    sign = "<=>" if both else "=>"
    order = draw(st.permutations(["none", "yes", "no"]))

    def price(row: Row) -> float:
        return 20.0 * (row["net"] == "fast") + 5.0 * (row["film"] == "yes")

    def rows(rng: np.random.Generator) -> dict[str, Any]:
        net = rng.choice(["off", "slow", "fast"], N)
        film = np.where(net == "off", "none", rng.choice(["yes", "no"], N))
        bill = 20.0 * (net == "fast") + 5.0 * (film == "yes")
        return {"net": net, "film": film, "bill": bill}

    def goes_with(before: Row, after: Row) -> bool:
        forth = after["net"] != "off" or after["film"] == "none"
        return forth and (not both or after["film"] != "none" or after["net"] == "off")

    return World(
        [
            Categorical(name="net", levels=("off", "slow", "fast")),
            Categorical(name="film", levels=tuple(order), mutability=draw(st.sampled_from(["both", "both", "none"]))),
            Numeric(name="bill", step=1, lower=0, upper=30),
        ],
        [f'net == "off" {sign} film == "none"', 'bill = 20 * (net == "fast") + 5 * (film == "yes")'],
        rows,
        {"goes with": goes_with, "bill": lambda before, after: after["bill"] == price(after)},
        ("bill",),
    )


@st.composite
def orders(draw: st.DrawFn) -> World:
    """Years that may not exceed one another, whole ones or any."""
    step = draw(st.sampled_from([None, 1.0, 0.5]))
    gap, strict = draw(st.sampled_from([0, 2])), draw(st.booleans())
    sign = "<" if strict else "<="

    def rows(rng: np.random.Generator) -> dict[str, Any]:
        drawn = np.sort(rng.uniform(0, 20, (N, 3)), axis=1) + np.array([0, 1, 2 + gap])
        drawn = drawn if step is None else np.round(drawn / step) * step
        return dict(zip(("role", "firm", "work"), drawn.T, strict=True))

    def keeps(before: Row, after: Row) -> bool:
        role, firm, work = (exact(after[name]) for name in _YEARS)
        return (role < firm if strict else role <= firm) and firm + gap <= work

    ways = [draw(st.sampled_from(["both", "both", "increase", "none"])) for _ in range(3)]
    columns: list[Column] = [Numeric(name=n, step=step, mutability=w) for n, w in zip(_YEARS, ways, strict=True)]
    rules = [f"role {sign} firm", f"firm + {gap} <= work" if gap else "firm <= work"]
    return World(columns, rules, rows, {"order": keeps})


_YEARS = ("role", "firm", "work")


@st.composite
def sums(draw: st.DrawFn) -> World:
    """Shares that together are no more than a limit."""
    factor = draw(st.sampled_from([1, 2, 0.5]))

    def rows(rng: np.random.Generator) -> dict[str, Any]:
        parts = rng.dirichlet([1, 1, 1], N).round(2)[:, :2] * 0.9
        parts = np.floor(parts * 100) / 100
        return {
            "bonds": parts[:, 0],
            "cash": parts[:, 1],
            "limit": np.ceil((parts[:, 0] + factor * parts[:, 1]) * 20) / 20,
        }

    def keeps(before: Row, after: Row) -> bool:
        return exact(after["bonds"]) + exact(factor) * exact(after["cash"]) <= exact(after["limit"])

    columns: list[Column] = [Numeric(name=name, step=0.01, lower=0, upper=1) for name in ("bonds", "cash")]
    columns.append(
        Numeric(name="limit", step=0.05, lower=0, upper=3, mutability=draw(st.sampled_from(["both", "none"])))
    )
    return World(columns, [f"bonds + {factor} * cash <= limit"], rows, {"sum": keeps})


@st.composite
def links(draw: st.DrawFn) -> World:
    """A level up takes years, and nobody is told to age; what comes side by side is not added up."""
    takes, experience = draw(st.integers(1, 3)), draw(st.booleans())

    def rows(rng: np.random.Generator) -> dict[str, Any]:
        return {"school": rng.choice(LEVELS, N), "job": rng.integers(0, 9, N), "age": rng.integers(20, 40, N)}

    def keeps(before: Row, after: Row) -> bool:
        up = LEVELS.index(after["school"]) - LEVELS.index(before["school"])
        longer = (after["job"] - before["job"]) if experience else 0
        return bool(after["age"] - before["age"] == max(0, takes * up, longer))

    return World(
        [
            Categorical(
                name="school", levels=LEVELS, ordered=True, mutability=draw(st.sampled_from(["both", "increase"]))
            ),
            Numeric(name="job", integer=True),
            Numeric(name="age", integer=True, lower=18, upper=draw(st.sampled_from([42, 70])), mutability="none"),
        ],
        [f"school + 1 => age + {takes}", *(["job + 1 => age + 1"] if experience else [])],
        rows,
        {"link": keeps},
        ("age",),
    )


@st.composite
def cards(draw: st.DrawFn) -> World:
    """At most one of three cards, and badges that are earned one after another."""

    def rows(rng: np.random.Generator) -> dict[str, Any]:
        card, badge = rng.integers(0, 4, N), rng.integers(0, 4, N)
        held = {name: card == i for i, name in enumerate(("gold", "silver", "blue"))}
        return {**held, **{name: badge > i for i, name in enumerate(("first", "second", "third"))}}

    ways = ["both", "both", "increase", "none"]
    names = ("gold", "silver", "blue", "first", "second", "third")
    columns: list[Column] = [Boolean(name=name, mutability=draw(st.sampled_from(ways))) for name in names]
    return World(
        columns,
        ["at most one of gold, silver, blue", "first >= second >= third"],
        rows,
        {
            "one card": lambda before, after: sum(after[name] for name in names[:3]) <= 1,
            "badges": lambda before, after: after["first"] >= after["second"] >= after["third"],
        },
    )


@st.composite
def ages(draw: st.DrawFn) -> World:
    """Conditions on numbers: whoever is under age earns little, and whoever has begun has had no rise."""
    most = draw(st.sampled_from([100, 250]))

    def rows(rng: np.random.Generator) -> dict[str, Any]:
        grown, begun = rng.integers(14, 30, N), rng.integers(0, 5, N)
        earned = np.where(grown < 18, rng.integers(0, most + 1, N), rng.integers(0, 900, N))
        return {
            "grown": grown,
            "begun": begun,
            "earned": earned,
            "rise": np.where(begun == 0, 0, rng.integers(0, 4, N)),
        }

    return World(
        [
            Numeric(name="grown", integer=True),
            Numeric(name="begun", integer=True),
            Numeric(name="earned", integer=True, step=10 if draw(st.booleans()) else 1, lower=0, upper=1_000),
            Numeric(name="rise", integer=True, lower=0, upper=5),
        ],
        [f"grown < 18 => earned <= {most}", "begun == 0 => rise == 0"],
        rows,
        {
            "under age": lambda before, after: after["grown"] >= 18 or after["earned"] <= most,
            "begun": lambda before, after: after["begun"] != 0 or after["rise"] == 0,
        },
    )


@st.composite
def posts(draw: st.DrawFn) -> World:
    """Years in a post: who has none has no number of them, and who takes one begins with the least."""
    least = draw(st.sampled_from([0, 2]))

    def rows(rng: np.random.Generator) -> dict[str, Any]:
        post = rng.choice(["idle", "part", "full"], N)
        return {"post": post, "since": np.where(post == "idle", np.nan, rng.integers(least, 30, N))}

    columns: list[Column] = [
        Categorical(name="post", levels=("idle", "part", "full")),
        Numeric(name="since", step=1, lower=least, mutability="none", missing="level"),
    ]

    def keeps(before: Row, after: Row) -> bool:
        idle, had, has = after["post"] == "idle", not np.isnan(before["since"]), not np.isnan(after["since"])
        return idle != has and (not has or after["since"] == (before["since"] if had else least))

    return World(columns, ['post == "idle" <=> since == "missing"'], rows, {"since": keeps}, ("since",))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Some of these in one table, beside two columns that no rule speaks of: one that is free, one that few know."""
    kinds = draw(
        st.lists(
            st.sampled_from([products, services, orders, sums, links, cards, ages, posts]),
            min_size=1,
            max_size=3,
            unique=True,
        )
    )
    parts = [draw(kind()) for kind in kinds]
    known = Numeric(name="known", step=0.5, missing="level", fillable=draw(st.booleans()))
    columns = [column for part in parts for column in part.columns] + [Numeric(name="free"), known]
    rules = [rule for part in parts for rule in part.rules]

    def rows(rng: np.random.Generator) -> dict[str, Any]:
        own = {"free": rng.normal(size=N), "known": np.where(rng.random(N) < 0.4, np.nan, rng.integers(0, 9, N) / 2)}
        return {name: v for part in parts for name, v in part.draw(rng).items()} | own

    judges = {name: judge for part in parts for name, judge in part.judges.items()}
    following = tuple(name for part in parts for name in part.following)
    return World(draw(st.permutations(columns)), draw(st.permutations(rules)), rows, judges, following)


def make_schema(world: World) -> Schema:
    """The schema of a world."""
    return Schema(columns=tuple(world.columns), rules=tuple(world.rules))


def make_rows(world: World, seed: int) -> pd.DataFrame:
    """People of a world, all of whom keep its rules."""
    return pd.DataFrame(world.draw(np.random.default_rng(seed)))


def find_breaches(world: World, before: pd.DataFrame, after: pd.DataFrame) -> list[str]:
    """The rules that told rows break, row by row."""
    pairs = zip(before.to_dict("records"), after.to_dict("records"), strict=True)
    return [
        f"{name}: {old} -> {new}" for old, new in pairs for name, keeps in world.judges.items() if not keeps(old, new)
    ]
