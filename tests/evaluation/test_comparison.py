"""REFERENCE D.3 on tables small enough to work out by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from countertrain.evaluation.comparison import compare, over_rounds


def records(values: dict[int, list[float]], *, metric: str = "ip", spread: float = 0.4) -> pd.DataFrame:
    """Records whose mean over two energy weights is values[model][round]."""
    return pd.DataFrame(
        [
            {"model": model, "lambda_egy": weight, "round": j, metric: value + sign * spread}
            for model, series in values.items()
            for j, value in enumerate(series)
            for weight, sign in ((0.1, -1), (10.0, 1))
        ]
    )


def test_energy_weights_are_averaged_first() -> None:
    table = over_rounds(records({0: [1.0, 2.0], 1: [3.0, 4.0]}), "ip")
    assert table.loc[0].tolist() == pytest.approx([1.0, 3.0])
    assert table.loc[1].tolist() == pytest.approx([2.0, 4.0])


def test_the_reduction_is_of_the_mean_of_ratios_not_of_the_ratio_of_means() -> None:
    ours, theirs = [1.0, 2.0, 3.0], [2.0, 4.0, 4.0]  # ratios 0.5, 0.5, 0.75
    (reduction,) = compare(records({0: ours}), records({0: theirs}), ["ip"])
    assert reduction.percent == pytest.approx(100 * (1 - 1.75 / 3))
    assert reduction.percent != pytest.approx(100 * (1 - 6 / 10), abs=1)
    assert reduction.round_sd == pytest.approx(100 * np.std([0.5, 0.5, 0.75], ddof=1))
    assert (reduction.treated, reduction.baseline) == (pytest.approx(2.0), pytest.approx(10 / 3))


def test_the_interval_is_of_quantiles_of_differences_over_rounds() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = list(rng.normal(3, 1, 50)), list(rng.normal(4, 1, 50))
    (reduction,) = compare(records({0: ours}), records({0: theirs}), ["ip"])
    difference = np.abs(ours) - np.abs(theirs)
    assert reduction.interval == pytest.approx(tuple(np.quantile(difference, [0.005, 0.995])))


def test_a_star_means_that_the_interval_excludes_zero() -> None:
    (clear,) = compare(records({0: [1.0, 1.5, 2.0] * 7}), records({0: [3.0, 3.5, 4.5] * 7}), ["ip"])
    assert clear.significant
    assert clear.interval[1] < 0
    (worse,) = compare(records({0: [3.0, 3.5, 4.5] * 7}), records({0: [1.0, 1.5, 2.0] * 7}), ["ip"])
    assert worse.significant
    assert worse.percent < 0
    (mixed,) = compare(records({0: [1.0, 3.0, 2.0] * 7}), records({0: [2.0, 2.0, 2.5] * 7}), ["ip"])
    assert not mixed.significant


@pytest.mark.parametrize(("n_rounds", "starred"), [(2, False), (19, False), (20, True)])
def test_no_star_comes_from_fewer_than_20_rounds(n_rounds: int, starred: bool) -> None:
    (clear,) = compare(records({0: [1.0] * n_rounds}), records({0: [3.0] * n_rounds}), ["ip"])
    assert clear.interval[1] < 0
    assert (clear.n_rounds, clear.significant) == (n_rounds, starred)


def test_a_round_without_a_value_does_not_count_towards_a_star() -> None:
    (clear,) = compare(records({0: [1.0] * 19 + [math.nan]}), records({0: [3.0] * 20}), ["ip"])
    assert (clear.n_rounds, clear.significant) == (19, False)


def test_the_spread_over_seeds_and_the_spread_over_rounds_are_kept_apart() -> None:
    treated, baseline = {0: [1.0, 3.0], 1: [3.0, 3.0]}, {0: [4.0, 4.0], 1: [4.0, 6.0]}
    (reduction,) = compare(records(treated), records(baseline), ["ip"])  # ratios 1/4, 3/4 and 3/4, 1/2
    assert reduction.per_seed == pytest.approx((50.0, 37.5))
    assert reduction.percent == pytest.approx(43.75)
    assert reduction.seed_sd == pytest.approx(np.std([50.0, 37.5], ddof=1))
    assert reduction.round_sd == pytest.approx(100 * (np.std([0.25, 0.75], ddof=1) + np.std([0.75, 0.5], ddof=1)) / 2)
    assert reduction.seed_sd != pytest.approx(reduction.round_sd, rel=0.1)
    low = (np.quantile([-3, -1], 0.005) + np.quantile([-1, -3], 0.005)) / 2
    assert reduction.interval[0] == pytest.approx(low)


def test_one_seed_has_no_spread_over_seeds() -> None:
    (reduction,) = compare(records({0: [1.0, 2.0]}), records({0: [2.0, 3.0]}), ["ip"])
    assert math.isnan(reduction.seed_sd)
    assert not math.isnan(reduction.round_sd)


def test_rounds_without_a_value_are_left_out() -> None:
    (reduction,) = compare(records({0: [1.0, math.nan, 1.0]}), records({0: [2.0, 2.0, 4.0]}), ["ip"])
    assert reduction.percent == pytest.approx(100 * (1 - (0.5 + 0.25) / 2))


def test_an_energy_weight_without_a_value_is_left_out_of_its_round() -> None:
    treated = records({0: [1.0, 1.0]}, spread=0.0)
    treated.loc[(treated["round"] == 0) & (treated["lambda_egy"] == 10.0), "ip"] = math.nan
    (reduction,) = compare(treated, records({0: [2.0, 2.0]}), ["ip"])
    assert reduction.percent == pytest.approx(50.0)


def test_a_baseline_of_zero_is_left_out() -> None:
    (reduction,) = compare(records({0: [1.0, 1.0]}, spread=0.0), records({0: [0.0, 2.0]}, spread=0.0), ["ip"])
    assert reduction.percent == pytest.approx(50.0)


def test_the_metrics_of_the_table_are_compared_in_order() -> None:
    treated = records({0: [1.0, 1.0]}).assign(ip_star=0.5, cost=3.0)
    baseline = records({0: [2.0, 2.0]}).assign(ip_star=2.0, cost=2.0)
    reductions = compare(treated, baseline)
    assert [r.metric for r in reductions] == ["ip", "ip_star", "cost"]
    assert [r.percent for r in reductions] == pytest.approx([50.0, 75.0, -50.0])


def test_different_numbers_of_models_are_refused() -> None:
    with pytest.raises(ValueError) as error:
        compare(records({0: [1.0], 1: [1.0]}), records({0: [1.0]}), ["ip"])
    assert str(error.value) == "compare needs as many treated as baseline models; got 2 and 1"


def test_a_reduction_that_is_smaller_than_its_spread_over_seeds_has_no_star() -> None:
    theirs = {0: [3.0, 3.1, 3.2] * 7, 1: [3.0, 3.1, 3.2] * 7}
    (split,) = compare(records({0: [1.0, 1.1, 1.2] * 7, 1: [3.5, 3.6, 3.7] * 7}), records(theirs), ["ip"])
    assert split.interval[1] < 0
    assert 0 < split.percent < split.seed_sd
    assert not split.significant
    (alike,) = compare(records({0: [1.0, 1.1, 1.2] * 7, 1: [1.2, 1.3, 1.4] * 7}), records(theirs), ["ip"])
    assert alike.seed_sd < alike.percent
    assert alike.significant
