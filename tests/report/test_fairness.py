"""Proxies and groups that are worse off are found where they were planted, and not where they were not."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from countertrain.report import fairness
from countertrain.tables.schema import Categorical, Numeric, Schema

N = 600


def table(seed: int = 0) -> pd.DataFrame:
    """Columns that have nothing to do with one another."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 80, N),
            "sex": rng.choice(["f", "m"], N),
            "income": rng.normal(30_000, 9_000, N).round(),
            "town": rng.choice([f"t{i:02}" for i in range(40)], N),
            "member": rng.random(N) < 0.5,
        }
    )


def strengths(frame: pd.DataFrame, **settings: object) -> dict[tuple[str, str], fairness.Association]:
    schema = Schema.infer(frame, immutable=["age", "sex"]).with_columns(**settings)  # type: ignore[arg-type]
    return {(a.immutable, a.column): a for a in fairness.measure_associations(schema, frame)}


def test_clean_data_has_no_proxies_however_many_levels_a_column_has() -> None:
    for seed in range(5):
        found = strengths(table(seed))
        assert set(found) == {(a, b) for a in ("age", "sex") for b in ("income", "town", "member")}
        assert max(a.strength for a in found.values()) < 0.3 < fairness.PROXY
    frame = table()
    uncorrected = stats.contingency.association(pd.crosstab(frame["sex"], frame["town"]), method="cramer")
    assert uncorrected > 0.2 > strengths(frame)["sex", "town"].strength


def test_a_proxy_of_every_kind_is_found() -> None:
    rng, frame = np.random.default_rng(1), table()
    female = (frame["sex"] == "f").to_numpy()
    frame["pension"] = 3.0 * frame["age"] + rng.normal(0, 20, N).round(1)  # a line
    frame["savings"] = np.exp(frame["age"] / 5).round() + rng.integers(0, 2, N)  # a curve: ranks see it
    frame["title"] = np.where(female ^ (rng.random(N) < 0.1), "Ms", "Mr")
    frame["height"] = np.where(female, 165.0, 179.0) + rng.normal(0, 6, N).round(1)
    frame["cohort"] = pd.cut(frame["age"], [0, 30, 45, 60, 99], labels=["a", "b", "c", "d"]).astype(str)
    frame["wild"] = np.where(female, 10.0, 1.0) * np.exp(rng.normal(0, 1, N)).round(2)  # outliers: ranks see it
    frame.loc[0, "wild"] = 1e6
    found = strengths(frame)
    planted = {
        ("age", "pension"): "correlation",
        ("age", "savings"): "Spearman's rank correlation",
        ("sex", "title"): "Cramér's V",
        ("sex", "height"): "correlation ratio",
        ("age", "cohort"): "correlation ratio",
        ("sex", "wild"): "correlation ratio of ranks",
    }
    assert {pair for pair, a in found.items() if a.strength >= fairness.PROXY} == set(planted)
    for pair, measure in planted.items():
        assert measure in found[pair].measure, pair
    order = [a.strength for a in fairness.measure_associations(Schema.infer(frame, immutable=["age", "sex"]), frame)]
    assert order == sorted(order, reverse=True)


def test_strengths_are_those_of_scipy_and_of_the_textbook() -> None:
    rng, frame = np.random.default_rng(2), table()
    frame["pension"] = 2.0 * frame["age"] + rng.normal(0, 30, N)
    frame["title"] = np.where((frame["sex"] == "f") ^ (rng.random(N) < 0.3), "Ms", "Mr")
    found = strengths(frame)
    pearson, spearman = (abs(f(frame["age"], frame["pension"]).statistic) for f in (stats.pearsonr, stats.spearmanr))
    assert found["age", "pension"].strength == pytest.approx(max(pearson, spearman))
    counts = pd.crosstab(frame["sex"], frame["title"])
    phi2 = stats.chi2_contingency(counts, correction=False).statistic / N
    expected = np.sqrt((phi2 - 1 / (N - 1)) / (1 - 1 / (N - 1)))
    assert found["sex", "title"].strength == pytest.approx(expected)
    groups = [ages.to_numpy() for _, ages in frame.groupby("title")["age"]]
    between = sum(len(g) * (g.mean() - frame["age"].mean()) ** 2 for g in groups)
    eta2 = between / ((frame["age"] - frame["age"].mean()) ** 2).sum()
    plain = np.sqrt(max(0, 1 - (1 - eta2) * (N - 1) / (N - 2)))
    assert found["age", "title"].strength >= plain - 1e-12


def test_missing_values_are_left_out_or_count_as_a_level_as_the_schema_says() -> None:
    frame = table()
    frame["pension"] = 3.0 * frame["age"]
    frame.loc[::3, "pension"] = np.nan
    assert strengths(frame)["age", "pension"].strength == pytest.approx(1)
    frame["maiden"] = np.where(frame["sex"] == "f", "given", None)
    assert strengths(frame.assign(maiden=frame["maiden"].astype(object)))["sex", "maiden"].strength > 0.95
    column = Categorical(name="maiden", levels=("given", "other"), missing="fill")
    assert strengths(frame, maiden=column)["sex", "maiden"].strength == 0  # what is known never varies


def test_nothing_immutable_means_nothing_to_look_for() -> None:
    assert fairness.measure_associations(Schema.infer(table()), table()) == ()


def outcomes(n: int, seed: int = 0) -> pd.DataFrame:
    """People of whom half are accepted, and 90 % of the others helped at a cost of about 2."""
    rng = np.random.default_rng(seed)
    accepted = rng.random(n) < 0.5
    n_rejected = int((~accepted).sum())
    valid = rng.random(n_rejected) < 0.9
    return fairness.tabulate_people(accepted, valid, np.zeros_like(valid), rng.gamma(16, 1 / 8, n_rejected))


def test_people_count_only_where_they_should() -> None:
    accepted, valid, fixed = np.array([True, False, False]), np.array([True, False]), np.array([False, True])
    found = fairness.tabulate_people(accepted, valid, fixed, np.array([1.5, 9.0]))
    assert found["fixed"].dropna().to_dict() == {1: 0, 2: 1}
    assert found["accepted"].tolist() == [1, 0, 0]
    assert found["valid"].dropna().to_dict() == {1: 1, 2: 0}
    assert found["cost"].dropna().to_dict() == {1: 1.5}


def test_a_planted_group_is_found_and_others_are_not() -> None:
    frame, people = table(), outcomes(N)
    schema, other = Schema.infer(frame), frame["sex"] == "m"
    assert fairness.compare_groups("sex", frame["sex"], people, schema).disparities == ()
    for measure, change in (("cost", 1.5), ("valid", 0.6), ("accepted", 0.6)):
        worse = people.copy()
        if measure == "cost":
            worse.loc[other, "cost"] *= change
        else:
            rows = worse.index[other & (worse[measure] == 1)]
            worse.loc[rows[: int(len(rows) * (1 - change))], measure] = 0
        (found,) = fairness.compare_groups("sex", frame["sex"], worse, schema).disparities
        assert (found.group, found.measure) == ("m", measure)
        assert found.mine.mean == pytest.approx(worse.loc[other, measure].mean())
        assert found.others.mean == pytest.approx(worse.loc[~other, measure].mean())
        assert found.mine.differs_from(found.others)


def test_a_group_of_whom_more_are_fixed_is_found_and_counted() -> None:
    frame, people = table(), outcomes(N)
    other = frame["sex"] == "m"
    people.loc[other & (people["valid"] == 0), "fixed"] = 1.0
    grouping = fairness.compare_groups("sex", frame["sex"], people, Schema.infer(frame))
    (found,) = grouping.disparities
    assert (found.group, found.measure) == ("m", "fixed")
    counts = {group.name: (group.n_stuck, group.n_fixed) for group in grouping.groups}
    stuck = {name: int((people["valid"][frame["sex"] == name] == 0).sum()) for name in ("f", "m")}
    assert counts == {"f": (stuck["f"], 0), "m": (stuck["m"], stuck["m"])}
    assert stuck["m"] > 0


def test_a_small_or_uncertain_difference_is_no_warning() -> None:
    frame, people = table(), outcomes(N)
    schema, other = Schema.infer(frame), frame["sex"] == "m"
    slightly = people.copy()
    slightly.loc[other, "cost"] = 1.1 * 2.0
    slightly.loc[~other & people["cost"].notna(), "cost"] = 2.0  # certain, but below the ratio
    found = fairness.compare_groups("sex", frame["sex"], slightly, schema)
    assert found.groups[0].cost is not None
    assert found.groups[1].cost is not None
    assert found.groups[0].cost.differs_from(found.groups[1].cost)
    assert found.disparities == ()
    few = np.arange(N) < 40  # about 20 rejected: a ratio of 1.25, but wide intervals
    noisy = people.copy()
    noisy["cost"] = np.where(people["cost"].notna(), np.random.default_rng(0).gamma(0.5, 4, N), np.nan)
    noisy.loc[few, "cost"] *= 1.25
    assert fairness.compare_groups("few", pd.Series(few), noisy, schema).disparities == ()


def test_small_groups_are_not_judged() -> None:
    people = outcomes(N)
    values = pd.Series(np.where(np.arange(N) < fairness.ENOUGH - 1, "rare", "common"))
    people.loc[values == "rare", "cost"] = 1000.0
    people.loc[values == "rare", "accepted"] = 0.0
    found = fairness.compare_groups("kind", values, people, Schema.infer(table()))
    common, rare = found.groups
    assert (rare.name, rare.n, rare.n_rejected) == ("rare", 19, 19)
    assert rare.accepted is rare.valid is rare.cost is None
    assert common.accepted is not None
    assert found.disparities == ()


def test_an_interval_holds_the_mean_and_narrows_with_more_people() -> None:
    wide, narrow = (
        fairness.compare_groups("one", pd.Series(["x"] * n), outcomes(n), Schema.infer(table())).groups[0].cost
        for n in (100, 10_000)
    )
    assert wide is not None
    assert narrow is not None
    for one in (wide, narrow):
        assert one.low < one.mean < one.high
    assert narrow.high - narrow.low < (wide.high - wide.low) / 5
    assert narrow.high - narrow.low == pytest.approx(2 * 1.96 * 0.5 / np.sqrt(4500), rel=0.2)  # sd 0.5


def names(values: pd.Series, schema: Schema | None = None, column: str = "c") -> dict[str, int]:
    """The groups of a column, and how many people are in each."""
    found = fairness.compare_groups(column, values, outcomes(len(values)), schema or Schema.infer(table()))
    return {group.name: group.n for group in found.groups}


def test_numbers_are_split_into_bands_and_equal_numbers_stay_together() -> None:
    assert names(pd.Series(range(100))) == {"0 to 24": 25, "25 to 49": 25, "50 to 74": 25, "75 to 99": 25}
    mostly_nothing = names(pd.Series([0] * 80 + list(range(1, 21))))
    assert mostly_nothing == {"0 to 0": 80, "1 to 20": 20}
    assert names(pd.Series([1.5, None, 2.5, 1.5])) == {"1.5": 2, "2.5": 1, "missing": 1}
    wide = names(pd.Series([12_345.678 * i for i in range(8)]))
    assert list(wide) == ["0 to 12,350", "24,690 to 37,040", "49,380 to 61,730", "74,070 to 86,420"]


def test_levels_come_in_the_order_of_the_schema_and_missing_ones_last() -> None:
    schema = Schema(columns=(Categorical(name="c", levels=("low", "mid", "high")), Numeric(name="n")))
    assert list(names(pd.Series(["high", "low", None, "mid"]), schema)) == ["low", "mid", "high", "missing"]
    assert list(names(pd.Series(["low", "new", "low"]), schema)) == ["low", "new"]
    assert names(pd.Series([True, False, True])) == {"False": 1, "True": 2}
    codes = Schema(columns=(Categorical(name="c", levels=tuple(range(9))),))
    assert list(names(pd.Series(range(9)), codes)) == [str(i) for i in range(9)]  # declared as levels: no bands


def test_too_many_groups_are_refused() -> None:
    values = pd.Series([f"zip {i}" for i in range(40)])
    with pytest.raises(ValueError, match="column 'zip' makes 40 groups, more than 30; join some of them"):
        fairness.compare_groups("zip", values, outcomes(40), Schema.infer(table()))
