"""A classifier is judged as the libraries and the paper's own functions would judge it."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import accuracy_score, brier_score_loss, confusion_matrix, f1_score
from torch import Tensor, nn

from countertrain.estimator import CounterfactualClassifier
from countertrain.evaluation.metrics import ROBUST_EPSILON
from countertrain.evaluation.protocol import EvaluationProtocol, evaluate
from countertrain.evaluation.robustness import robust_accuracy
from countertrain.models.architectures import linear, mlp
from countertrain.recourse.decider import Decider
from countertrain.report import audit
from countertrain.tables.schema import Schema
from loans import loans, quick

X, Y = loans(300)


@pytest.fixture(scope="module")
def classifier() -> CounterfactualClassifier:
    return quick(epochs=20, immutable=["age"], objective="bl").fit(X, Y)


@pytest.fixture(autouse=True)
def _fewer_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "ROUNDS", 8)
    monkeypatch.setattr(audit, "INDIVIDUALS", 40)


@pytest.fixture(scope="module")
def rows(classifier: CounterfactualClassifier) -> tuple[Tensor, Tensor]:
    """Encoded test rows and their classes."""
    frame, labels = loans(200, seed=1)
    x = torch.from_numpy(classifier.encoder_.encode(frame)).float()
    return x, torch.from_numpy((labels == "refused").to_numpy().astype(np.int64))


def with_models(classifier: CounterfactualClassifier, *models: nn.Module) -> Decider:
    """The fitted classifier with other models in it."""
    return replace(classifier.decider, models=models)


def test_decisions_and_probabilities_are_judged_as_scikit_learn_does() -> None:
    rng = np.random.default_rng(0)
    probability, y = rng.dirichlet(np.ones(3), 500), rng.integers(3, size=500)
    y[:200] = probability[:200].argmax(1)
    found = audit.measure_performance(torch.from_numpy(probability), torch.from_numpy(y), target=1)
    decided = probability.argmax(1)
    assert found.n == 500
    assert found.accuracy == pytest.approx(accuracy_score(y, decided))
    assert found.f1 == pytest.approx(f1_score(y, decided, average="macro"))
    assert np.array_equal(found.confusion, confusion_matrix(y, decided))
    assert found.brier == pytest.approx(brier_score_loss(y == 1, probability[:, 1]))
    assert found.commonest == np.bincount(y).argmax()
    assert found.commonest_share == pytest.approx(np.bincount(y).max() / 500)
    gaps = []
    for k in range(10):
        p, hit = (values[(probability[:, 1] * 10).astype(int) == k] for values in (probability[:, 1], y == 1))
        gaps.append(len(p) * abs(p.mean() - hit.mean()) if len(p) else 0)
    assert found.ece == pytest.approx(sum(gaps) / 500)
    assert sum(b.n for b in found.bins) == 500


def test_certain_and_right_is_calibrated_and_certain_and_wrong_is_not() -> None:
    y = torch.tensor([0, 1, 1, 0])
    sure = torch.eye(2, dtype=torch.float64)
    assert audit.measure_performance(sure[y], y, 1).ece == audit.measure_performance(sure[y], y, 1).brier == 0
    wrong = audit.measure_performance(sure[1 - y], y, 1)
    assert (wrong.accuracy, wrong.ece, wrong.brier) == (0, 1, 1)


def test_outcomes_are_those_of_the_papers_protocol(
    classifier: CounterfactualClassifier, rows: tuple[Tensor, Tensor]
) -> None:
    x, y = rows
    found = {o.name: o for o in audit.measure_outcomes(classifier.decider, None, x, y, seed=3)}
    for tau, names in ((0.95, ("ip", "ip_star")), (0.5, ("cost", "validity"))):
        protocol = EvaluationProtocol(rounds=audit.ROUNDS, individuals=audit.INDIVIDUALS, tau=tau, seed=3)
        constraints = classifier.encoder_.constraints()
        records = evaluate(classifier.models_, x, y, n_classes=2, constraints=constraints, protocol=protocol)
        for name in names:
            assert found[name].ours == pytest.approx(records[name].mean())
    for attack in ("fgsm", "pgd"):
        expected = robust_accuracy(classifier.models_, x, y, epsilons=[ROBUST_EPSILON], attack=attack, seed=3)
        assert found[attack].ours == pytest.approx(float(expected.mean()))
    assert all(o.theirs is None and o.verdict is None for o in found.values())


def test_a_difference_gets_a_verdict_only_if_it_is_clear(
    classifier: CounterfactualClassifier, rows: tuple[Tensor, Tensor]
) -> None:
    same = audit.measure_outcomes(classifier.decider, classifier.decider, *rows)
    assert {o.verdict for o in same} == {"no clear difference"}
    assert all(o.ours == o.theirs for o in same)
    weak = with_models(classifier, linear(x_width(rows), 2, seed=1))
    better = {o.name: o.verdict for o in audit.measure_outcomes(classifier.decider, weak, *rows)}
    worse = {o.name: o.verdict for o in audit.measure_outcomes(weak, classifier.decider, *rows)}
    assert better["pgd"] == "better"
    assert worse["pgd"] == "worse"
    swapped = {"better": "worse", "worse": "better"}
    assert {name: swapped.get(str(v), v) for name, v in better.items()} == worse


def test_what_cannot_be_measured_is_none(classifier: CounterfactualClassifier, rows: tuple[Tensor, Tensor]) -> None:
    stubborn = linear(x_width(rows), 2)
    with torch.no_grad():
        stubborn[0].weight.zero_()  # type: ignore[index, operator]
        stubborn[0].bias.copy_(torch.tensor([9.0, -9.0]))  # type: ignore[index, operator]
    found = {o.name: o for o in audit.measure_outcomes(with_models(classifier, stubborn), classifier.decider, *rows)}
    assert found["cost"].ours is None
    assert found["cost"].verdict is None
    assert found["cost"].theirs is not None
    assert found["validity"].ours == 0


def test_an_ensemble_is_the_mean_of_its_models_also_where_they_cannot_be_stacked(
    classifier: CounterfactualClassifier, rows: tuple[Tensor, Tensor]
) -> None:
    two = [linear(x_width(rows), 2), mlp(x_width(rows), 2, hidden=(4,), seed=2)]  # both with some valid ones
    assert type(two[0][0]) is type(two[1][0])  # type: ignore[index]
    alone = [audit.measure_outcomes(with_models(classifier, model), None, *rows) for model in two]
    together = audit.measure_outcomes(
        with_models(classifier, *two), None, *rows
    )  # two architectures: one after another
    for a, b, both in zip(*alone, together, strict=True):
        assert both.ours == pytest.approx((a.ours + b.ours) / 2, rel=1e-6), both.name  # type: ignore[operator]
    stacked = [linear(x_width(rows), 2, seed=seed) for seed in (1, 2)]
    pgd = [
        audit.measure_outcomes(with_models(classifier, *m), None, *rows)[-1].ours
        for m in ([stacked[0]], [stacked[1]], stacked)
    ]
    assert pgd[2] == pytest.approx((pgd[0] + pgd[1]) / 2, abs=0.011)  # type: ignore[operator]


def x_width(rows: tuple[Tensor, Tensor]) -> int:
    return rows[0].shape[1]


def test_sensitivity_of_a_linear_model_is_its_weights_times_how_far_rows_lie_from_the_average() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0, 4.0, 9.5], "b": ["x", "y", "z", "z"], "c": [0.5, 3.0, 1.0, 7.0]})
    schema = Schema.infer(frame, immutable=["c"])
    made = quick(schema=schema, module=linear, objective="bl", epochs=1).fit(frame, [0, 1, 0, 1])
    weight = made.models_[0][0].weight.detach()  # type: ignore[index, union-attr]
    with torch.no_grad():
        made.models_[0][0].weight.copy_(torch.tensor([[0, 0, 0, 0, 0], [2.0, 1, -1, 3, 0.5]]))  # type: ignore[index]
    assert weight.shape == (2, 5)
    x = made.encoder_.encode(frame)
    contribution = (x - x.mean(0)) * np.array([2.0, 1, -1, 3, 0.5])
    by_column = np.abs([contribution[:, :1].sum(1), contribution[:, 1:4].sum(1), contribution[:, 4:].sum(1)]).mean(1)
    found = {
        s.column: s for s in audit.measure_sensitivities(made.decider, None, torch.from_numpy(x).float(), target=1)
    }
    assert [found[name].share for name in "abc"] == pytest.approx((by_column / by_column.sum()).tolist(), rel=1e-4)
    assert [found[name].immutable for name in "abc"] == [False, False, True]


def test_sensitivities_are_shares_in_order_and_other_modules_agree_with_the_closed_form(
    classifier: CounterfactualClassifier, rows: tuple[Tensor, Tensor]
) -> None:
    class Wrapped(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)  # type: ignore[no-any-return]

    network = mlp(x_width(rows), 2, seed=2)
    wrapped = with_models(classifier, Wrapped(network))
    found = audit.measure_sensitivities(with_models(classifier, network), wrapped, rows[0], target=0)
    shares = [s.share for s in found]
    assert sum(shares) == pytest.approx(1)
    assert shares == sorted(shares, reverse=True)
    assert found[0].share > 2 * found[-1].share
    for s in found:
        assert s.baseline_share == pytest.approx(s.share, rel=0.05)
