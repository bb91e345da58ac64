"""No told row, and no counterfactual of training, breaks a rule between columns, whatever schema, rows and model."""

import os
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from countertrain.models import mlp
from countertrain.recourse.decider import Decider
from countertrain.recourse.search import RecourseSearch, explain
from countertrain.tables.dataset import Dataset
from countertrain.tables.encoder import Encoder
from countertrain.tables.scales import Ranks, Standard
from countertrain.tables.schema import Categorical, Numeric, Schema
from people import violations
from worlds import World, find_breaches, make_rows, make_schema, worlds

CASES = int(os.environ.get("COUNTERTRAIN_RULE_CASES", "0"))
"""Schemas that are tried in each test, 5,000 once before a release; 0: as many as are quick."""


def free(schema: Schema, world: World) -> Schema:
    """The schema in which what follows from other columns may go anywhere, as a judge of single columns must see it."""
    begin = {name: {"fillable": True} for name in world.following if schema[name].missing == "level"}
    return schema.with_columns(**{name: {"mutability": "both", **begin.get(name, {})} for name in world.following})


@settings(max_examples=CASES or 40)
@given(
    world=worlds(),
    seed=st.integers(0, 10_000),
    ranked=st.booleans(),
    n_fixed=st.integers(0, 2),
    options=st.sampled_from([1, 1, 1, 2]),
)
def test_no_told_row_breaks_a_rule_or_a_constraint(
    world: World, seed: int, ranked: bool, n_fixed: int, options: int
) -> None:
    rows = make_rows(world, seed)
    encoder = Encoder.fit(make_schema(world), rows, fit_scale=Ranks.fit if ranked else Standard.fit)
    assert not any(hit.any() for hit in encoder.schema.rulebook.find_broken(rows).values())
    decoded = encoder.decode(encoder.encode(rows), rows)
    pd.testing.assert_frame_equal(decoded, rows[list(encoder.schema.names)], check_dtype=False)
    x = encoder.tensor(rows)
    model = mlp(len(encoder.features), 2, hidden=[8], seed=seed).eval()
    y = model(x).argmax(1)
    decider = Decider(encoder, ("no", "yes"), (model,), (x, y))
    fixed = [encoder.schema.names[(seed + i) % len(encoder.schema.names)] for i in range(n_fixed)]
    people = rows.iloc[:4].reset_index(drop=True)
    found = explain(decider, people, options=options, immutable=fixed, n_steps=5)
    before = people.iloc[found.table.row].reset_index(drop=True)
    told = found.table.values
    assert find_breaches(world, before, told) == []
    assert violations(free(encoder.schema, world), before, told, immutable=fixed) == []
    recoded = torch.from_numpy(encoder.encode(told))
    assert (
        found.table.valid.tolist()
        == (decider.decide(recoded).numpy() == (found.target[found.table.row] == "yes")).tolist()
    )
    pairs = [(before[name].astype(object), told[name].astype(object)) for name in encoder.schema.names]
    changed = np.stack([((old != new) & ~(old.isna() & new.isna())).to_numpy() for old, new in pairs], axis=1)
    assert (changed == ((found.table.costs > 0) | found.table.follows)).all()
    for name in world.following:
        assert not found.table.costs[:, encoder.schema.names.index(name)].any()


@settings(max_examples=CASES or 100)
@given(world=worlds(), seed=st.integers(0, 10_000), far=st.sampled_from([0.1, 1.0, 5.0]), away=st.booleans())
def test_wherever_a_search_ends_the_row_that_is_told_keeps_all_rules(
    world: World, seed: int, far: float, away: bool
) -> None:
    rows = make_rows(world, seed)
    encoder = Encoder.fit(make_schema(world), rows, fit_scale=Ranks.fit)
    model = mlp(len(encoder.features), 2, hidden=[2], seed=0).eval()
    search = RecourseSearch.of(Decider(encoder, ("no", "yes"), (model,)))
    request = search.request(rows)
    reach = search.keep_unknown(rows, request.reach)
    stream = torch.Generator().manual_seed(seed)
    aims = reach.origin[torch.randperm(len(rows), generator=stream)]
    aims = aims + far * torch.randn(aims.shape, generator=stream, dtype=torch.float64)
    x = search.grid.snap(reach.project(aims), reach, away=away)
    told = search.grid.decode(encoder, x, rows)
    assert find_breaches(world, rows, told) == []
    assert violations(free(encoder.schema, world), rows, told) == []
    assert torch.equal(search.grid.mend(x, reach), x)
    recoded = torch.from_numpy(encoder.encode(told))
    pd.testing.assert_frame_equal(search.grid.decode(encoder, recoded, rows), told)


def test_the_judges_of_rules_see_rows_that_break_them() -> None:
    seen: set[str] = set()

    @settings(max_examples=60)
    @given(world=worlds(), seed=st.integers(0, 10_000))
    def mix(world: World, seed: int) -> None:
        rows = make_rows(world, seed)
        mixed = rows.copy()
        for i, name in enumerate(rows.columns):  # everybody has another column of somebody else
            mixed[name] = rows[name].to_numpy()[np.random.default_rng([seed, i]).permutation(len(rows))]
        assert find_breaches(world, rows, rows) == []
        seen.update(breach.split(":")[0] for breach in find_breaches(world, rows, mixed))

    mix()
    assert seen == {
        "product",
        "goes with",
        "bill",
        "order",
        "sum",
        "link",
        "one card",
        "badges",
        "under age",
        "begun",
        "since",
    }


@settings(max_examples=CASES or 60)
@given(world=worlds(), seed=st.integers(0, 10_000), n_models=st.integers(1, 3))
def test_counterfactuals_of_training_keep_rules_and_what_cannot_change(world: World, seed: int, n_models: int) -> None:
    rows = make_rows(world, seed)
    data = Dataset.of(rows, np.arange(len(rows)) % 2, schema=make_schema(world))
    encoder, limits = data.encoder, data.constraints(n_sigma=None, categories=True)
    stream = torch.Generator().manual_seed(seed)
    origin = data.train.x[:20].expand(n_models, -1, -1)
    aims = data.train.x[torch.randint(len(rows), (n_models, 20), generator=stream)]
    x = limits.project(aims + 0.3 * torch.randn(aims.shape, generator=stream), origin)
    mended = limits.mend(x, origin)
    alone = torch.stack([limits.mend(one, start) for one, start in zip(x, origin, strict=True)])
    assert torch.equal(mended, alone)
    names = encoder.schema.names
    led = torch.tensor([names[i] in world.following for i in encoder.column_of])
    fixed = ~(limits.may_increase | limits.may_decrease) & ~led
    assert torch.equal(mended[..., fixed], origin[..., fixed])
    for number, holder in limits.held:
        if names[encoder.column_of[number]] in world.following:
            continue
        lacking = origin[..., holder] == 1
        assert lacking.any()
        assert torch.equal(mended[..., number][lacking], origin[..., number][lacking])
    ruled = [encoder.schema[name] for name in encoder.schema.rulebook.columns]
    if all(getattr(column, "step", 1.0) is not None for column in ruled):  # else single precision blurs an order
        people = rows.iloc[:20].reset_index(drop=True)
        for part in mended:
            assert find_breaches(world, people, encoder.decode(part.numpy(), people)) == []


def test_in_training_too_a_person_between_the_steps_of_a_column_has_the_number_that_rules_are_asked_of() -> None:
    columns = (Numeric(name="grown", integer=True), Numeric(name="earned", step=10, lower=0, upper=1_000))
    schema = Schema(columns=columns, rules=("grown < 18 => earned <= 250",))
    grown, earned = np.arange(14, 44).repeat(2), np.arange(60) * 13 % 900
    rows = pd.DataFrame({"grown": grown, "earned": np.where(grown < 18, 100, earned)})
    rows.loc[40] = [34, 251]  # which the nearest step would let be as young as anybody
    data = Dataset.of(rows, np.arange(60) % 2, schema=schema)
    limits = data.constraints(n_sigma=None, categories=True)
    origin = torch.from_numpy(data.encoder.encode(rows.loc[[40, 40]])).float()
    young = rows.loc[[40, 40]].assign(grown=15)
    young.iloc[1, 1] = 240  # who goes to another number may
    mended = limits.mend(torch.from_numpy(data.encoder.encode(young)).float(), origin)
    told = data.encoder.decode(mended.numpy(), young)
    assert told["grown"].tolist()[1] == 15
    assert not ((told["grown"] < 18) & (told["earned"] > 250)).any()


def test_what_comes_to_the_number_that_somebody_has_is_that_number_to_the_last_bit() -> None:
    steps = {"hours": 1, "pay": 0.1, "total": 0.01}
    columns = tuple(Numeric(name=name, step=step, lower=0, upper=20) for name, step in steps.items())
    schema = Schema(columns=columns, rules=("total = hours / pay",))
    own = np.round(4 / 7 / 0.01) * 0.01
    assert own != 0.57
    rows = pd.DataFrame({"hours": [4.0, 8.0], "pay": [7.0, 9.0], "total": [own, 0.89]})
    encoder = Encoder.fit(schema, rows, fit_scale=Standard.fit)
    search = RecourseSearch.of(Decider(encoder, ("no", "yes"), (mlp(3, 2, hidden=[2], seed=0).eval(),)))
    reach = search.keep_unknown(rows, search.request(rows, "yes").reach)
    twice = torch.from_numpy(encoder.encode(rows.assign(hours=[8.0, 8.0], pay=[14.0, 8.0])))
    low, high = torch.full_like(reach.low, -1e9), torch.full_like(reach.high, 1e9)
    told = search.grid.decode(encoder, search.grid.snap(twice, replace(reach, low=low, high=high)), rows)
    assert told["total"].tolist() == [own, 1.0]


def test_who_takes_a_post_begins_with_the_least_years_and_nobody_does_whose_years_must_stay() -> None:
    columns = (
        Categorical(name="post", levels=("idle", "full")),
        Numeric(name="since", step=1, lower=1, upper=30, mutability="none", missing="level", fill=9),
    )
    schema = Schema(columns=columns, rules=('post == "idle" <=> since == "missing"',))
    rows = pd.DataFrame({"post": ["idle", "full", "full"], "since": [np.nan, 9.0, 20.0]})
    encoder = Encoder.fit(schema, rows, fit_scale=Standard.fit)
    model = mlp(len(encoder.features), 2, hidden=[2], seed=0).eval()
    search = RecourseSearch.of(Decider(encoder, ("no", "yes"), (model,)))
    turned = torch.from_numpy(encoder.encode(rows.assign(post=["full", "idle", "full"])))
    for fixed, post, since in ((["since"], "idle", np.nan), ([], "full", 1.0)):
        reach = search.keep_unknown(rows, search.request(rows, "yes", immutable=fixed).reach)
        x = search.grid.snap(reach.project(turned), reach)
        told = search.grid.decode(encoder, x, rows)
        expected = pd.DataFrame({"post": [post, "full", "full"], "since": [since, 9.0, 20.0]})
        pd.testing.assert_frame_equal(told, expected, check_dtype=False)
        costs = search.grid.costs(x, reach.origin)
        assert costs[:, 1].tolist() == [0, 0, 0]  # nobody's task
        assert costs[0, 0] == (not fixed)
