"""The classifier keeps scikit-learn's promises, means what its parameters say, and refuses nonsense in one sentence."""

import copy
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from torch import Tensor, nn

from countertrain.estimator import CounterfactualClassifier
from countertrain.models.architectures import Ensemble
from countertrain.models.deciding import logits_of
from countertrain.models.population import Population
from countertrain.runs import run
from countertrain.runs.fitting import make_dataset
from countertrain.runs.registry import KINDS, batch_size_for, build_trainer
from countertrain.runs.settings import Settings
from countertrain.runs.weighting import class_weights, weight_term
from countertrain.search.generators import generic
from countertrain.tables import Dataset, Split, load
from countertrain.tables.cells import UnseenLevelWarning
from countertrain.tables.schema import Schema
from countertrain.testing import check_term
from countertrain.training.ct import CounterfactualMethod, advloss, div, yloss
from countertrain.training.method import Blocks, add_up
from countertrain.training.methods import bl, ct
from loans import Net, loans, quick

X, Y = loans()
IRIS = load_iris(return_X_y=True)


def weights(classifier: CounterfactualClassifier) -> Tensor:
    """All weights of a fitted classifier as one vector."""
    return torch.cat([p.detach().flatten() for model in classifier.models_ for p in model.parameters()])


def plain(**parameters: object) -> CounterfactualClassifier:
    """A conventional classifier of one model, where how it is trained is beside the point."""
    return quick(objective="bl", n_models=1, **parameters)


def as_dataset(classifier: CounterfactualClassifier) -> Dataset:
    """The training rows as the classifier itself sees them."""
    x = torch.from_numpy(classifier.encoder_.encode(X)).float()
    codes = torch.from_numpy(np.searchsorted(classifier.classes_, Y))
    stream = np.random.RandomState(0)
    return make_dataset(classifier.settings_, classifier.encoder_, x, codes, classifier.classes_, stream)


IMMATURE = pytest.mark.filterwarnings("ignore:only .* counterfactuals reached")  # which is beside the point here


@IMMATURE
def test_scikit_learns_own_checks_all_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    few = HistGradientBoostingClassifier(max_iter=10, max_leaf_nodes=15, random_state=0)
    monkeypatch.setitem(KINDS["teacher"][0], "boosting", lambda: few)  # no check asks how good a teacher is
    checks = check_estimator(
        CounterfactualClassifier(epochs=5, learning_rate=0.05, n_steps=2, n_models=1), on_skip=None
    )
    assert len([check for check in checks if check["status"] == "passed"]) > 50


def test_a_table_with_columns_of_every_kind_is_learnt() -> None:
    classifier = quick(epochs=20).fit(X, Y)
    new, decisions = loans(seed=1)
    assert classifier.score(new, decisions) > 0.8 > (decisions == "granted").mean()
    assert classifier.classes_.tolist() == ["granted", "refused"]
    assert classifier.feature_names_in_.tolist() == list(X.columns)
    assert classifier.n_features_in_ == 5
    jobs = ("job=clerk", "job=none", "job=smith")
    assert classifier.encoder_.features == ("age", "income", *jobs, "member", "debt", "debt=missing")
    probabilities = classifier.predict_proba(new)
    assert probabilities.shape == (len(new), 2)
    np.testing.assert_allclose(probabilities.sum(1), 1)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_columns_go_by_name_and_those_of_an_array_by_place() -> None:
    classifier = plain().fit(X, Y)
    expected = classifier.predict_proba(X)
    assert np.array_equal(classifier.predict_proba(X[X.columns[::-1]].assign(spare=1)), expected)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        assert np.array_equal(classifier.predict_proba(X.to_numpy()), expected)
    with pytest.raises(ValueError, match="there is no column 'income'"):
        classifier.predict(X.drop(columns="income"))
    with pytest.raises(ValueError, match=r"X has 4 features, but .* is expecting 5"):
        classifier.predict(X.to_numpy()[:, :4])


def test_an_array_has_numbers_only_and_a_frame_without_names_is_as_good() -> None:
    x, y = IRIS
    classifier = plain().fit(x, y)
    assert {column.kind for column in classifier.encoder_.schema.columns} == {"numeric"}
    assert not hasattr(classifier, "feature_names_in_")
    assert np.array_equal(classifier.predict_proba(pd.DataFrame(x)), classifier.predict_proba(x))
    by_number = plain().fit(X.set_axis(range(5), axis=1), Y)
    assert by_number.encoder_.schema["2"].kind == "categorical"
    assert np.array_equal(by_number.predict_proba(X.set_axis(range(5), axis=1)), plain().fit(X, Y).predict_proba(X))


def test_listed_columns_are_put_on_top_of_the_schema() -> None:
    classifier = plain(immutable=["age"], increase=["income"], decrease=["debt"]).fit(X, Y)
    ways = [column.mutability for column in classifier.encoder_.schema.columns]
    assert ways == ["none", "increase", "both", "both", "decrease"]
    declared = Schema.infer(X).with_columns(age={"lower": 0, "mutability": "increase"}, job={"mutability": "none"})
    classifier = plain(schema=declared, immutable=["age"]).fit(X, Y)
    assert classifier.encoder_.schema["age"].lower == 0
    assert classifier.encoder_.schema["age"].mutability == classifier.encoder_.schema["job"].mutability == "none"
    assert classifier.schema is declared


def test_what_names_give_away_is_fixed_unless_somebody_said_what_is() -> None:
    def find_fixed(**given: Any) -> list[str]:
        schema = plain(epochs=0, **given).fit(X, Y).encoder_.schema
        return [column.name for column in schema.columns if column.mutability == "none"]

    assert plain(epochs=0, immutable=["job"]).fit(X, Y).settings_.immutable == ("job", "age")
    assert find_fixed() == ["age"]
    assert find_fixed(fix_proposed=False) == find_fixed(increase=["age"]) == []
    assert find_fixed(schema=Schema.infer(X)) == find_fixed(settings={"immutable": []}) == []
    assert find_fixed(schema=Schema.infer(X), fix_proposed=True) == ["age"]


@pytest.mark.parametrize(
    "labels",
    [
        Y.tolist(),
        Y.to_numpy(),
        Y.astype("category"),
        Y == "granted",
        np.where(Y == "granted", 7, 3),
        np.where(Y == "granted", 1.0, -1.0),
    ],
    ids=["list", "texts", "category", "bool", "int", "float"],
)
def test_labels_of_any_type_come_back_as_they_are(labels: Any) -> None:
    classifier = plain().fit(X, labels)
    predicted = classifier.predict(X)
    assert set(predicted.tolist()) == set(np.asarray(labels).tolist())
    assert (predicted == np.asarray(labels)).mean() > 0.75
    assert np.array_equal(classifier.predict_proba(X)[:, 0], plain().fit(X, labels).predict_proba(X)[:, 0])


@IMMATURE
def test_class_weights_draw_decisions_to_a_class_whatever_their_scale() -> None:
    rare = np.flatnonzero((Y == "granted").to_numpy())[20:]
    few, labels = X.drop(index=rare), Y.drop(index=rare)
    shares = {
        name: (quick(class_weight=weight).fit(few, labels).predict(X) == "granted").mean()
        for name, weight in {
            "none": None,
            "balanced": "balanced",
            "ten": {"granted": 10},
            "zero": {"granted": 0},
        }.items()
    }
    assert shares["zero"] == 0 < shares["none"] < shares["balanced"]
    assert shares["ten"] > shares["none"]
    small, large = (quick(class_weight={"granted": 2 * k, "refused": k}).fit(few, labels) for k in (1, 1000))
    torch.testing.assert_close(weights(small), weights(large))


def test_losses_against_true_classes_are_weighted_and_others_are_not() -> None:
    weight = torch.tensor([1.0, 2.0, 4.0])
    for term in (yloss, advloss):
        check_term(weight_term(term, weight))
    assert weight_term(div, weight) is div
    x, x_ae = torch.tensor([[[3.0, 0.0, 0.0], [0.0, 0.0, 5.0]]]), torch.tensor([[[0.0, 1.0, 0.0], [2.0, 0.0, 0.0]]])
    y, y_ae = torch.tensor([[0, 2]]), torch.tensor([[1, 0]])
    terms = {"yloss": (1.0, weight_term(yloss, weight)), "advloss": (1.0, weight_term(advloss, weight))}
    lookup = Population([nn.Identity()])  # whose logits are the rows
    _, values = add_up(terms, lookup, x, y, Blocks.of(x_ae=(x_ae, y_ae)))
    for name, rows, labels in (("yloss", x, y), ("advloss", x_ae, y_ae)):
        losses = nn.functional.cross_entropy(rows[0], labels[0], reduction="none")
        torch.testing.assert_close(values[name][0], (weight[labels[0]] * losses).mean())
    rows = Split(torch.zeros(4, 2), torch.tensor([0, 1, 1, 1]))
    data = replace(load("moons"), train=rows, classes=("a", "b"))
    scaled = class_weights(Settings.resolve("moons", {"class_weight": {"a": 3, "b": 1}}), data)
    assert scaled is not None
    assert scaled.tolist() == [2, pytest.approx(2 / 3)]


def test_a_seed_decides_everything_and_no_global_stream_is_touched() -> None:
    settings = {"generator": "revise", "early_stopping": True, "module": Net, "epochs": 3}
    x, y = X[:80], Y[:80]
    random, numbers = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = quick(**settings).fit(x, y).predict_proba(x)
    assert torch.equal(torch.get_rng_state(), random)
    assert np.array_equal(np.random.get_state()[1], numbers)  # noqa: NPY002
    torch.manual_seed(99)
    assert np.array_equal(first, quick(**settings).fit(x, y).predict_proba(x))
    assert not np.allclose(first, quick(**settings, random_state=1).fit(x, y).predict_proba(x))
    stream = np.random.RandomState(5)
    twice = quick(random_state=stream)
    assert not torch.equal(weights(twice.fit(x, y)), weights(twice.fit(x, y)))


@pytest.mark.parametrize("n_models", [1, 3])
def test_no_row_is_decided_otherwise_because_of_the_rows_beside_it(n_models: int) -> None:
    classifier = quick(n_models=n_models, epochs=2).fit(X, Y)
    together = classifier.predict_proba(X)
    alone = np.concatenate([classifier.predict_proba(X[i : i + 1]) for i in range(40)])
    np.testing.assert_allclose(alone, together[:40], rtol=0, atol=1e-12)


def test_an_ensemble_is_one_population_and_its_probabilities_are_the_mean() -> None:
    classifier = quick(n_models=3).fit(X, Y)
    assert classifier.history_.one_by_one is None
    assert len(classifier.history_["train_loss"][0]) == len(classifier.models_) == 3
    assert isinstance(classifier.ensemble_, Ensemble)
    x = torch.from_numpy(classifier.encoder_.encode(X)).float()
    each = torch.stack([logits_of(model, x).softmax(-1) for model in classifier.models_])
    np.testing.assert_allclose(classifier.predict_proba(X), each.mean(0), atol=1e-6)
    np.testing.assert_allclose(logits_of(classifier.ensemble_, x).exp(), each.mean(0), atol=1e-6)
    assert each.std(0).max() > 0.01
    one = quick(n_models=1).fit(X, Y)
    assert one.ensemble_ is one.models_[0]


def test_a_module_is_copied_and_goes_on_from_its_weights() -> None:
    sure = {"calibrate": False, "early_stopping": False}
    trained = quick(epochs=20, objective="bl", n_models=1, settings=sure).fit(X, Y)
    module = copy.deepcopy(trained.models_[0]).train().double()
    before = copy.deepcopy(module.state_dict())
    same = quick(module=module, epochs=0, settings=sure).fit(X, Y)
    np.testing.assert_allclose(same.predict_proba(X), trained.predict_proba(X), atol=1e-6)
    tuned = quick(module=module, epochs=1, objective="bl", settings=sure).fit(X, Y)
    scratch = quick(epochs=1, objective="bl", n_models=1, settings=sure).fit(X, Y)
    assert tuned.history_["train_loss"][0][0] < 0.8 * scratch.history_["train_loss"][0][0]
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert module.training
    assert tuned.models_[0] is not module


def test_a_module_may_be_made_to_measure_and_predicts_without_dropout() -> None:
    classifier = quick(module=Net, epochs=20).fit(X, Y)
    assert isinstance(classifier.models_[0], Net)
    assert classifier.models_[0].layers[0].in_features == 8
    assert np.array_equal(classifier.predict_proba(X), classifier.predict_proba(X))
    assert classifier.score(X, Y) > 0.75


@IMMATURE
def test_objectives_and_generators_go_by_name_or_are_given() -> None:
    ends = {}
    for objective in ("ct", "bl", "ar", "cd", bl(lambda_clf=0.1)):
        ends[str(objective)] = weights(quick(objective=objective, epochs=2, n_steps=20).fit(X, Y))
    for generator in ("generic", "revise", generic(lambda_cost=1.0)):
        ends[str(generator)] = weights(quick(generator=generator, epochs=2, n_steps=20).fit(X, Y))
    values = list(ends.values())
    assert all(not torch.allclose(a, b) for i, a in enumerate(values) for b in values[:i])


def test_parameters_reach_the_trainer() -> None:
    weights = {"lambda_div": 0.2, "lambda_adv": 0.3, "lambda_reg": 0.4}
    classifier = quick(objective="ct", n_ce=20, batch_size=17, n_neighbours=5, tau=0.6, **weights)
    classifier.fit(X, Y)
    trainer = build_trainer(classifier.settings_, as_dataset(classifier))
    assert {name: share for name, (share, _) in trainer.objective.terms.items()} == {
        "yloss": 1.0, "div": 0.2, "advloss": 0.3, "ridge": 0.4
    }  # fmt: skip
    method = trainer.objective
    assert isinstance(method, CounterfactualMethod)
    assert (method.n_ce, trainer.batch_size, method.n_neighbours, trainer.shuffle) == (20, 17, 5, True)
    assert (method.generator.tau, method.generator.n_steps, method.generator.rule.step_size) == (0.6, 10, 0.3)
    auto = quick().resolve()
    assert [batch_size_for(auto, n) for n in (20, 1919, 6400, 10**6)] == [30, 30, 100, 1000]


def test_fit_warns_where_hardly_any_counterfactual_matures_and_says_the_way_out() -> None:
    never = {"tau": 0.999, "n_steps": 1}
    said = "only 0.0% of the last epoch's counterfactuals reached the probability tau, .*; lower tau, or raise n_steps"
    for objective in ("ct", "cd"):
        with pytest.warns(ConvergenceWarning, match=said) as seen:
            quick(objective=objective, epochs=1, n_models=2, **never).fit(X, Y)
        assert [one.filename for one in seen] == [__file__]
    for objective in ("bl", "ar", ct()):  # warnings are errors in tests
        quick(objective=objective, epochs=1, **never).fit(X, Y)
    assert quick().fit(X, Y).history_["mature"][-1][0] > 0.3


def test_categories_change_as_wholes_while_it_trains_and_immutable_ones_do_not() -> None:
    classifier = quick(immutable=["member"], tau=0.95).fit(X, Y)
    x = torch.from_numpy(classifier.encoder_.encode(X)).float()
    trainer = build_trainer(classifier.settings_, as_dataset(classifier))
    found = trainer.objective.generator(
        classifier.ensemble_, x, torch.zeros(len(x), dtype=torch.int64), constraints=trainer.constraints
    )
    job, member, lacking = classifier.encoder_.categories
    changed = (found.x != x)[:, job].any(1)
    assert changed.any()
    assert not changed.all()
    assert ((found.x[:, job] == 0) | (found.x[:, job] == 1)).all()
    assert (found.x[:, job].sum(1) == 1).all()
    assert torch.equal(found.x[:, member], x[:, member])
    unknown = x[:, lacking.start] == 1
    assert unknown.any()
    assert torch.equal(found.x[:, lacking], x[:, lacking])
    assert torch.equal(found.x[unknown, lacking.start - 1], x[unknown, lacking.start - 1])  # what is missing stays so


def test_reference_rows_are_encoded_training_rows_so_many_of_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = quick(epochs=0, early_stopping=False).fit(X, Y)
    assert whole.reference_x_ is not None
    assert torch.equal(whole.reference_x_, torch.from_numpy(whole.encoder_.encode(X)).float())
    assert whole.classes_[whole.reference_y_].tolist() == Y.tolist()
    monkeypatch.setattr(run, "REFERENCE_ROWS", 7)
    few = quick(epochs=0).fit(X, Y)
    assert torch.bincount(few.reference_y_).tolist() == [7, 7]


def test_it_works_in_pipelines_searches_and_cross_validation() -> None:
    x, y = IRIS
    pipeline = make_pipeline(StandardScaler(), quick(objective="bl"))
    search = GridSearchCV(pipeline, {"counterfactualclassifier__hidden": [(8,), (16, 8)]}, cv=2).fit(x, y)
    assert search.best_score_ > 0.8
    assert search.best_params_["counterfactualclassifier__hidden"] in [(8,), (16, 8)]
    scores = cross_val_score(quick(schema=Schema.infer(X), immutable=["age"]), X, Y, cv=2)
    assert scores.min() > 0.7
    module = nn.Linear(8, 2)
    original = quick(schema=Schema.infer(X), module=module, class_weight={"granted": 2})
    copied = clone(original)
    assert copied.module is not module
    assert torch.equal(weights(copied.fit(X, Y)), weights(original.fit(X, Y)))
    unpickled = pickle.loads(pickle.dumps(original))
    assert np.array_equal(unpickled.predict_proba(X), original.predict_proba(X))


def test_recourse_is_searched_for_the_fitted_classifier() -> None:
    classifier = plain(epochs=20, immutable=["age"]).fit(X, Y)
    with pytest.raises(NotFittedError):
        quick().explain(X[:1])
    refused = X[classifier.predict(X) == "refused"][:5]
    recourse = classifier.explain(refused, "granted", options=1, seed=3)
    assert len(recourse) == len(refused)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (
            {"objective": "ctt"},
            "'objective' must be 'ct', 'taught', 'bl', 'ar', 'cd', "
            "'pgd', 'trades', 'jem', 'ross', 'gradsup' or 'counternet'; got 'ctt'; did you mean 'ct'?",
        ),
        ({"objective": 3}, "'objective' must be a valid string; got 3"),
        ({"generator": "ecco"}, "did you mean 'eccco'?"),
        ({"epochs": -1}, "setting 'epochs' must be at least 0; got -1"),
        ({"batch_size": 0}, "setting 'batch_size' must be at least 1; got 0"),
        ({"n_ce": 10**6}, "n_ce must be at most the number of training rows, 216"),
        ({"n_models": 0}, "n_models must be at least 1; got 0"),
        (
            {"tau": 1, "epochs": -1},
            "'epochs' must be at least 0; got -1, and setting 'tau' must be less than 1",
        ),
        ({"patience": 0}, "setting 'patience' must be at least 1; got 0"),
        ({"learning_rate": 0}, "setting 'learning_rate' must be greater than 0; got 0"),
        ({"step_size": -1}, "setting 'step_size' must be greater than 0; got -1"),
        ({"lambda_div": -1}, "setting 'lambda_div' must be at least 0; got -1"),
        ({"tau": 1}, "setting 'tau' must be less than 1; got 1"),
        ({"validation_fraction": 1.5}, "setting 'validation_fraction' must be less than 1; got 1.5"),
        ({"early_stopping": True, "validation_fraction": 0.001}, "early_stopping cannot hold out 0.001 of 240 rows"),
        ({"hidden": 32}, r"'hidden' lists the units of each hidden layer, such as (32,) or (64, 32); got 32"),
        ({"hidden": (8, 0)}, "'hidden' lists the units"),
        ({"immutable": ["aeg"]}, "there is no column 'aeg'; did you mean 'age'?"),
        ({"immutable": ["age"], "increase": ["age"]}, "column 'age' is listed twice"),
        ({"increase": ["job"]}, "needs levels in an order"),
        ({"class_weight": {"granted": -1}}, "class_weight must hold finite numbers from 0 upwards"),
        ({"class_weight": "balance"}, "class_weight"),
        (
            {
                "class_weight": "balanced",
                "objective": CounterfactualMethod({"yloss": (1.0, lambda state: yloss(state))}),
            },
            "class_weight needs an objective with countertrain's yloss",
        ),
        (
            {"module": nn.Linear(3, 2)},
            "module must map (n, 8) rows, in float32 or float64, to (n, 2) logits, one per class; it fails with",
        ),
        ({"module": nn.Linear(8, 3)}, "for 2 rows it returned (2, 3); a callable"),
        ({"module": nn.Linear(8, 2), "n_models": 2}, "an ensemble of 2 models needs module to be a callable"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError) as caught:
        quick(**parameters).fit(X, Y)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_parameters_of_the_wrong_type_are_refused() -> None:
    with pytest.raises(TypeError, match=r"schema must be a Schema or None; got dict; Schema.from_json"):
        quick(schema={"columns": []}).fit(X, Y)
    with pytest.raises(TypeError, match="columns are named in a list; got the text 'age'"):
        quick(immutable="age").fit(X, Y)
    with pytest.raises(TypeError, match=r"module must be an nn.Module, or a callable .* it returned int"):
        quick(module=lambda n, k: n + k).fit(X, Y)


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        (X[:0], Y[:0], "X must have at least one row and one column; got 0 rows and 5 columns"),
        (X[[]], Y, "got 240 rows and 0 columns"),
        (X, Y[:-1], "inconsistent numbers of samples: [240, 239]"),
        (X, Y.mask(Y.index == 3), "Input y contains NaN, a missing label, in row 3"),
        (X, ["granted"] * 240, "y must hold at least two classes; its 240 rows are all of one class, 'granted'"),
        (X, X["income"], "Unknown label type: continuous"),
        (X, None, "requires y to be passed"),
        (X.assign(age=X["age"].where(X["age"] > 20, np.inf)), Y, "column 'age' holds infinite values"),
        (X.assign(debt=pd.Timestamp("2020-01-01")), Y, "column 'debt' holds values of the kind 'datetime64'"),
    ],
)
def test_rows_and_labels_that_cannot_be_trained_on_are_refused(x: Any, y: Any, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        quick().fit(x, y)
    assert said in str(caught.value)


def test_rows_that_cannot_be_decided_on_are_refused() -> None:
    classifier = plain(epochs=1).fit(X, Y)
    for rows, said in (
        (X[:0], "X must have at least one row"),
        (X[:1].assign(income=np.nan), "column 'income', row 0, must not be missing"),
        (X[:1].assign(income=1e300), "column 'income', row 0, is too large a number for a network"),
    ):
        with pytest.raises(ValueError, match=said.replace("(", r"\(")):
            classifier.predict(rows)
    assert classifier.predict(X[:1].assign(debt=np.nan)).shape == (1,)  # missing values were seen in training
    with pytest.warns(
        UnseenLevelWarning, match=r"column 'job' holds 'king' \(row 2\), not among its levels; counted as"
    ):
        classifier.predict(X[:3].assign(job=["smith", "clerk", "king"]))
    strict = plain(schema=Schema.infer(X).with_columns(job={"unseen": "refuse"}), epochs=1).fit(X, Y)
    with pytest.raises(ValueError, match="column 'job', row 2, must be one of 'clerk', 'none', 'smith'"):
        strict.predict(X[:3].assign(job=["smith", "clerk", "king"]))


def test_a_second_fit_that_fails_leaves_the_first_one_usable() -> None:
    classifier = quick(epochs=1).fit(X, Y)
    before = classifier.predict_proba(X)
    for objective, labels, said in (("bl", ["granted"] * 50, "one class"), ("blue", Y[:50], "did you mean 'bl'")):
        with pytest.raises(ValueError, match=said):
            classifier.set_params(objective=objective).fit(X[:50], labels)
        assert np.array_equal(classifier.predict_proba(X), before)


@IMMATURE
def test_settings_of_a_file_a_mapping_or_an_object_are_begun_with_and_arguments_win(tmp_path: Any) -> None:
    chosen = Settings.resolve("people.csv", {"tau": 0.7, "lambda_div": 0.05, "seeds": [4, 9], "immutable": ["age"]})
    (tmp_path / "chosen.toml").write_text(chosen.to_toml())
    ends = []
    for source in (str(tmp_path / "chosen.toml"), tmp_path / "chosen.toml", chosen, chosen.model_dump()):
        classifier = CounterfactualClassifier(settings=source, epochs=2, tau=0.6).fit(X, Y)
        assert classifier.settings_ == chosen.change(data="frame", epochs=2, tau=0.6)
        assert classifier.encoder_.schema["age"].mutability == "none"
        assert len(classifier.models_) == 2
        ends.append(weights(classifier))
    assert all(torch.equal(end, ends[0]) for end in ends)  # the seeds are those of the settings
    assert not torch.equal(
        weights(CounterfactualClassifier(settings=chosen, epochs=2, tau=0.6, random_state=1).fit(X, Y)), ends[0]
    )
    some = CounterfactualClassifier(settings={"tau": 0.7, "epsilon": 0.1, "profile": "as-written"}).resolve()
    assert (some.tau, some.epsilon, some.step_size, some.n_neighbours) == (0.7, 0.1, 0.25, 1)
    assert len(CounterfactualClassifier(settings=chosen, n_models=3, epochs=0).fit(X, Y).models_) == 3


@IMMATURE
def test_settings_are_cloned_searched_and_saved_with_the_classifier(tmp_path: Any) -> None:
    settings = {"tau": 0.7, "epochs": 1, "class_weight": {"granted": 2}}
    original = CounterfactualClassifier(settings=settings, random_state=0)
    assert clone(original).settings == settings
    search = GridSearchCV(original, {"settings": [settings, {"epochs": 0}], "tau": [None, 0.6]}, cv=2).fit(X, Y)
    assert {search.best_estimator_.settings_.tau} <= {0.5, 0.6, 0.7}
    original.fit(X, Y).save(tmp_path / "model")
    loaded = CounterfactualClassifier.load(tmp_path / "model")
    assert loaded.settings_ == original.settings_
    assert loaded.resolve() == original.resolve()
    assert np.array_equal(loaded.predict_proba(X), original.predict_proba(X))


def test_columns_that_settings_drop_are_left_out() -> None:
    classifier = quick(settings={"drop": ["debt", "spare"]}, epochs=0).fit(X, Y)
    assert "debt" not in classifier.encoder_.schema.names
    assert np.array_equal(classifier.predict(X), classifier.predict(X.drop(columns="debt")))


def test_settings_that_cannot_be_used_are_refused(tmp_path: Any) -> None:
    with pytest.raises(TypeError, match="settings must be the path of a TOML file, a mapping or Settings; got int"):
        quick(settings=3).fit(X, Y)
    with pytest.raises(ValueError, match=r"there is no file .*none.toml"):
        quick(settings=tmp_path / "none.toml").fit(X, Y)
    with pytest.raises(ValueError, match=r"unknown setting 'tua'; did you mean 'tau'\?"):
        quick(settings={"tua": 0.5}).fit(X, Y)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("epoch", "did you mean 'epochs'?"),
        ("lambda_egy", "give it as settings={'lambda_egy': ...}"),
        ("xyzzy", "there are 'schema', 'settings', "),
    ],
)
def test_a_parameter_that_there_is_not_is_answered_with_what_was_meant(name: str, hint: str) -> None:
    said = f"CounterfactualClassifier got an unexpected keyword argument '{name}'; {hint}"
    with pytest.raises(TypeError) as error:
        CounterfactualClassifier(**{name: 3})
    assert str(error.value).startswith(said)
    assert clone(CounterfactualClassifier(epochs=3)).get_params()["epochs"] == 3
