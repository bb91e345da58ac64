"""The regressor: outcomes as ordered bins, intervals as targets, scikit-learn's promises."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.utils.estimator_checks import check_estimator

from countertrain import CounterfactualClassifier, CounterfactualRegressor
from countertrain.models.architectures import mlp
from countertrain.models.deciding import logits_of
from countertrain.models.merging import Merged
from countertrain.regressor import Bins

QUICK = {"objective": "bl", "n_models": 1, "learning_rate": 0.02, "hidden": (16,)}


def houses(n: int = 600, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame({"rooms": draw.integers(1, 9, n), "area": draw.normal(100, 20, n).round(1)})
    frame["built"] = draw.integers(1900, 2020, n)
    return frame, (40_000 * frame.rooms + 500 * frame.area + draw.normal(0, 5_000, n)).to_numpy().round()


@pytest.fixture(scope="module")
def fitted() -> CounterfactualRegressor:
    classifier = CounterfactualClassifier(immutable=["built"], epochs=25, **QUICK)
    return CounterfactualRegressor(classifier, n_bins=8, random_state=0).fit(*houses())


def test_scikit_learn_finds_nothing_to_complain_about() -> None:
    quick = CounterfactualClassifier(epochs=12, n_steps=2, **QUICK)
    checks = check_estimator(CounterfactualRegressor(quick, n_bins=6), on_skip=None)
    assert len([check for check in checks if check["status"] == "passed"]) > 40


def test_bins_hold_about_equally_many_and_none_is_empty() -> None:
    y = np.random.default_rng(0).gamma(2, 3, 1000)
    bins = Bins.of(y, 5, edges=[4.0, 1e9, -3.0])
    counts = np.bincount(bins.find(y))
    assert 4.0 in bins.edges
    assert len(counts) == len(bins.means) == 6
    assert (counts > 0).all()
    assert np.bincount(Bins.of(y, 5).find(y)).tolist() == [200] * 5
    tied = Bins.of(np.array([0.0] * 90 + [1.0] * 10), 10)
    assert tied.edges.tolist() == [1.0]
    assert tied.means.tolist() == [0.0, 1.0]


def test_the_share_of_a_bin_in_an_interval_is_that_of_its_outcomes() -> None:
    y = np.random.default_rng(1).normal(size=2000)
    bins = Bins.of(y, 4, edges=[0.3])
    code = bins.find(y)
    for above, below in [(None, -0.1), (0.2, None), (-0.5, 1.0), (0.3, None), (-0.2, -0.1)]:
        inside = (y >= (-np.inf if above is None else above)) & (y < (np.inf if below is None else below))
        by_hand = [inside[code == k].mean() for k in range(5)]
        np.testing.assert_allclose(bins.share(above, below), by_hand, atol=0.06)
    assert set(bins.share(0.3, None)) == {0.0, 1.0}  # an edge cuts no bin


def test_merged_classes_have_the_sum_of_their_probabilities() -> None:
    model, x = mlp(3, 4, seed=0), torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    merged = Merged(model, [0.0, 0.25, 1.0, 1.0])
    p, both = logits_of(model, x).softmax(-1), logits_of(merged, x).softmax(-1)
    torch.testing.assert_close(both[:, 1], p @ torch.tensor([0.0, 0.25, 1.0, 1.0], dtype=torch.float64))
    energy = -torch.logsumexp(model(x)[:, 2:], -1)
    torch.testing.assert_close(-Merged(model, [0, 0, 1, 1])(x)[:, 1], energy)


def test_it_predicts_and_its_intervals_are_likely_where_they_are_true(fitted: CounterfactualRegressor) -> None:
    frame, price = houses(seed=1)
    assert fitted.score(frame, price) > 0.9
    p = fitted.predict_interval(frame, above=200_000)
    assert ((p > 0.5) == (price >= 200_000)).mean() > 0.9
    np.testing.assert_allclose(p + fitted.predict_interval(frame, below=200_000), 1.0, atol=1e-9)


def test_people_are_told_what_would_bring_the_outcome_into_an_interval(fitted: CounterfactualRegressor) -> None:
    frame, price = houses(seed=1)
    poor = frame[price < 120_000][:6]
    found = fitted.explain(poor, above=250_000, options=1)
    assert len(found) == len(poor)
    assert "at least 250,000" in found.summary()
    told = found.table.values[list(frame)]
    assert (fitted.predict_interval(told, above=250_000) > 0.5).all()
    assert (told["built"].to_numpy() == poor["built"].to_numpy()).all()
    assert (fitted.predict(told) > fitted.predict(poor) + 50_000).all()
    between = fitted.explain(poor[:2], above=200_000, below=300_000, options=1)
    assert "200,000 to below 300,000" in between.summary()


def test_it_comes_back_from_a_folder_as_it_was(fitted: CounterfactualRegressor, tmp_path) -> None:
    frame, _ = houses(seed=2)
    fitted.save(tmp_path / "prices")
    again = CounterfactualRegressor.load(tmp_path / "prices")
    np.testing.assert_array_equal(again.predict(frame), fitted.predict(frame))
    np.testing.assert_array_equal(
        again.predict_interval(frame, above=2e5, below=3e5), fitted.predict_interval(frame, above=2e5, below=3e5)
    )
    assert again.get_params()["n_bins"] == 8
    fitted.classifier_.save(tmp_path / "classifier")  # it remembers the bins, too


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda model, x: model.explain(x), "an interval needs an end: give above=, below= or both"),
        (lambda model, x: model.explain(x, above=3, below=2), "must be larger; got 3 and 2"),
        (lambda model, x: model.explain(x, above=1e9), "must hold some of the training outcomes, .* got at least"),
        (lambda model, x: model.explain(x, above=-1e9), "and not all of them"),
        (lambda model, x: CounterfactualRegressor(n_bins=1).fit(x, [1.0] * len(x)), "n_bins must be at least 2; got 1"),
        (lambda model, x: CounterfactualRegressor().fit(x, [1.0] * len(x)).save("none"), "of one outcome only"),
        (lambda model, x: CounterfactualRegressor().fit(x, [1.0] * len(x)).explain(x, above=1), "not all of them"),
        (lambda model, x: CounterfactualRegressor().fit(x, ["a"] * len(x)), "take CounterfactualClassifier"),
        (
            lambda model, x: CounterfactualRegressor(CounterfactualClassifier(target=1)).fit(x, range(len(x))),
            "leave target, threshold and monotone of its classifier out",
        ),
    ],
)
def test_nonsense_is_refused_in_one_sentence(fitted: CounterfactualRegressor, call, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call(fitted, houses(20)[0])
