"""The evaluation protocol on rows and models about which everything is known."""

from collections.abc import Iterator

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from countertrain import Constraints, Counterfactuals, linear
from countertrain.evaluation import protocol as module
from countertrain.evaluation.metrics import Explained, Metric
from countertrain.evaluation.protocol import EvaluationProtocol, evaluate
from countertrain.models.architectures import Ensemble
from countertrain.models.deciding import Committee
from countertrain.search.generators import eccco, nearest
from countertrain.search.rules import SGD
from countertrain.tables import load

METRICS = ["n_steps", "validity", "maturity", "ip", "ip_star", "cost", "sparsity"]


def plane(weight: tuple[float, float], bias: float = 0.0) -> nn.Module:
    """A linear model with logits (-s, s), s = weight x + bias."""
    model = linear(len(weight), 2)
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[-w for w in weight], list(weight)]))
        model[0].bias.copy_(torch.tensor([-bias, bias]))
    return model


@pytest.fixture(scope="module")
def rows() -> tuple[Tensor, Tensor]:
    """Test rows of OL: the classes overlap, so that no model predicts every true class."""
    data = load("ol")
    return data.test.x, data.test.y


@pytest.fixture
def models() -> list[nn.Module]:
    return [plane((-0.4, 0.5), -0.6), plane((-0.1, 0.6), -0.9)]


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Counterfactuals]]:
    """What each search call of the protocol found."""
    seen: list[Counterfactuals] = []

    def spied(**settings: object) -> object:
        generator = eccco(**settings)  # type: ignore[arg-type]

        def search(*args: object, **kwargs: object) -> Counterfactuals:
            seen.append(generator(*args, **kwargs))  # type: ignore[arg-type]
            return seen[-1]

        return search

    monkeypatch.setattr(module, "eccco", spied)
    yield seen
    assert seen


SMALL = EvaluationProtocol(rounds=3, individuals=40, lambda_egy=(0.1, 10.0))


def test_the_defaults_are_those_of_the_published_tables() -> None:
    p = EvaluationProtocol()
    assert (p.rounds, p.individuals, p.lambda_egy) == (100, 250, (0.1, 0.5, 1.0, 5.0, 10.0))
    assert (p.lambda_cost, p.tau, p.n_steps, p.step_size) == (0.0, 0.95, 50, 0.1)
    assert (p.schedule, p.rho, p.length_scale) == (True, 1e-3, 5.0)


def test_there_is_one_record_for_each_model_energy_weight_and_round(
    rows: tuple[Tensor, Tensor], models: list[nn.Module]
) -> None:
    found = evaluate(models, *rows, n_classes=2, protocol=SMALL)
    assert list(found.columns) == ["model", "lambda_egy", "round", "n", *METRICS]
    keys = sorted(zip(found["model"], found["lambda_egy"], found["round"], strict=True))
    assert keys == [(m, w, j) for m in (0, 1) for w in (0.1, 10.0) for j in range(3)]
    assert (found["n"] == 40).all()
    assert found[METRICS].notna().all(axis=None)


def test_two_points_a_known_distance_apart_give_known_numbers() -> None:
    """Each class sits in one point, the domain ends there, and tau is out of reach: every search ends in the other."""
    y = torch.arange(40) % 2
    x = torch.stack([2.0 * y - 1, torch.zeros(40)], dim=1)
    domain = Constraints.of(2, lower=-1.0, upper=1.0)
    protocol = EvaluationProtocol(rounds=2, individuals=30, lambda_egy=(0.1, 1.0))
    found = evaluate([plane((1.0, 0.0))], x, y, n_classes=2, constraints=domain, protocol=protocol)
    for metric, value in {"validity": 1, "maturity": 0, "n_steps": 50, "ip": 0, "cost": 2, "sparsity": 0.5}.items():
        assert found[metric].tolist() == pytest.approx([value] * 4, abs=1e-6), metric
    assert found["ip_star"].tolist() == pytest.approx([0] * 4, abs=1e-6)


def test_factuals_are_rows_that_each_model_itself_puts_into_the_drawn_class(
    rows: tuple[Tensor, Tensor], models: list[nn.Module], searches: list[Counterfactuals]
) -> None:
    evaluate(models, *rows, n_classes=2, protocol=SMALL)
    (found,) = searches
    with torch.no_grad():
        predicted = torch.stack([model(x).argmax(-1) for model, x in zip(models, found.factual, strict=True)])
    assert (predicted != found.target).all()
    assert torch.equal(found.target[0], found.target[1])  # classes are drawn once for all models
    assert not torch.equal(found.factual[0], found.factual[1])  # rows are not
    known = {tuple(row) for row in rows[0].tolist()}
    assert all(tuple(row) in known for row in found.factual.flatten(0, 1).tolist())
    assert 0.3 < found.target.double().mean() < 0.7


def test_a_row_is_searched_as_a_direct_call_of_the_generator_would(
    rows: tuple[Tensor, Tensor], models: list[nn.Module], searches: list[Counterfactuals]
) -> None:
    limits = Constraints.infer(rows[0])
    evaluate(models, *rows, n_classes=2, constraints=limits, protocol=SMALL)
    (found,) = searches
    blocks = [w for w in SMALL.lambda_egy for _ in range(SMALL.rounds)]
    ends = []
    for i, model in enumerate(models):
        for k, weight in enumerate(blocks):
            here = slice(40 * k, 40 * (k + 1))
            generator = eccco(lambda_cost=0.0, lambda_egy=weight, rule=SGD(0.1), n_steps=50, tau=0.95)
            alone = generator(model, found.factual[i, here], found.target[i, here], constraints=limits)
            assert torch.allclose(alone.x, found.x[i, here], atol=1e-5)
            ends.append(generator(model, rows[0][:20], 1 - models[0](rows[0][:20]).argmax(-1)).x)
    assert not torch.allclose(ends[0], ends[-1], atol=1e-3)  # else the weights would make no difference


def test_a_generator_takes_the_place_of_the_search_and_further_metrics_stand_beside(
    rows: tuple[Tensor, Tensor], models: list[nn.Module]
) -> None:
    real = {tuple(row) for row in rows[0].tolist()}

    def is_real(e: Explained) -> Tensor:
        return torch.tensor([[[tuple(row) in real for row in block] for block in model] for model in e.x.tolist()])

    about = "is_real", "real", "share of real rows", "share", "higher"
    also = [Metric(*about, of_counterfactuals=is_real, valid_only=False)]  # type: ignore[arg-type]
    copying = nearest(tau=None).bind(*rows)
    copied = evaluate(models, *rows, n_classes=2, protocol=SMALL, generator=copying, also=also)
    searched = evaluate(models, *rows, n_classes=2, protocol=SMALL, also=also)
    assert (copied["is_real"] == 1).all()
    assert (searched["is_real"] < 1).all()
    assert copied.drop(columns="is_real").columns.tolist() == searched.drop(columns="is_real").columns.tolist()
    assert "is_real" not in evaluate(models, *rows, n_classes=2, protocol=SMALL)


def test_models_that_decide_together_are_evaluated_as_one(rows: tuple[Tensor, Tensor], models: list[nn.Module]) -> None:
    limits = Constraints.infer(rows[0])
    fast = evaluate(Committee(models), *rows, n_classes=2, constraints=limits, protocol=SMALL)
    slow = evaluate([Ensemble(models)], *rows, n_classes=2, constraints=limits, protocol=SMALL)
    assert len(fast) == SMALL.rounds * len(SMALL.lambda_egy)
    pd.testing.assert_frame_equal(fast, slow, rtol=1e-3)


def test_the_numbers_of_a_record_are_those_of_its_counterfactuals(
    rows: tuple[Tensor, Tensor], models: list[nn.Module], searches: list[Counterfactuals]
) -> None:
    protocol = EvaluationProtocol(rounds=2, individuals=30, lambda_egy=(0.5,), n_steps=20, tau=0.7)
    records = evaluate(models, *rows, n_classes=2, protocol=protocol)
    (found,) = searches
    x_ref, y_ref = rows
    shares = []
    for _, record in records.iterrows():
        i, here = int(record["model"]), slice(30 * int(record["round"]), 30 * (int(record["round"]) + 1))
        x, factual, target = found.x[i, here], found.factual[i, here], found.target[i, here]
        with torch.no_grad():
            logits = models[i](x)
        valid = logits.argmax(-1) == target
        mature = logits.softmax(-1).gather(1, target[:, None])[:, 0] >= 0.7
        assert record["validity"] == pytest.approx(valid.double().mean().item())
        assert record["maturity"] == pytest.approx(mature.double().mean().item())
        assert record["n_steps"] == pytest.approx(found.n_steps[i, here].double().mean().item())
        ip = [torch.cdist(x[[r]], x_ref[y_ref == target[r]], p=1).mean() for r in range(30) if valid[r]]
        assert record["ip"] == pytest.approx(torch.stack(ip).mean().item(), rel=1e-5)
        distance = (x - factual).abs().sum(1)
        assert record["cost"] == pytest.approx(distance[valid].mean().item(), rel=1e-5)
        assert record["cost"] != pytest.approx(distance.mean().item(), rel=1e-3)  # some are not valid
        assert record["sparsity"] == pytest.approx((x == factual)[valid].double().mean().item())
        shares.append((valid.double().mean().item(), mature.double().mean().item()))
    assert 0 < sum(mature for _, mature in shares) < sum(valid for valid, _ in shares) < len(shares)


def test_features_that_may_not_move_do_not_move(
    rows: tuple[Tensor, Tensor], models: list[nn.Module], searches: list[Counterfactuals]
) -> None:
    limits = Constraints.infer(rows[0], mutability={0: "none"})
    records = evaluate(models, *rows, n_classes=2, constraints=limits, protocol=SMALL)
    (found,) = searches
    assert torch.equal(found.x[..., 0], found.factual[..., 0])
    assert (found.x[..., 1] != found.factual[..., 1]).any()
    assert (records["sparsity"] >= 0.5).all()


def test_a_model_that_never_predicts_a_class_explains_only_the_others(
    rows: tuple[Tensor, Tensor], models: list[nn.Module]
) -> None:
    stubborn = plane((-0.4, 0.5), 1000.0)  # says 1 whatever it sees
    found = evaluate([models[0], stubborn], *rows, n_classes=2, protocol=SMALL)
    one_sided = found[found["model"] == 1]
    assert (found.loc[found["model"] == 0, "n"] == 40).all()
    assert one_sided["n"].between(1, 39).all()
    assert (one_sided["validity"] == 0).all()
    assert one_sided[["ip", "ip_star", "cost", "sparsity"]].isna().all(axis=None)
    assert found.loc[found["model"] == 0, METRICS].notna().all(axis=None)


def means(found: pd.DataFrame) -> pd.Series:
    return found[METRICS].mean()


def test_searching_in_many_small_calls_gives_the_same_statistics(
    monkeypatch: pytest.MonkeyPatch,
    rows: tuple[Tensor, Tensor],
    models: list[nn.Module],
    searches: list[Counterfactuals],
) -> None:
    protocol = EvaluationProtocol(rounds=8, individuals=100, lambda_egy=(0.1, 10.0))
    whole = evaluate(models, *rows, n_classes=2, protocol=protocol)
    assert len(searches) == 1
    monkeypatch.setattr(module, "_BUDGET", 1)
    progress: list[tuple[int, int]] = []
    parts = evaluate(
        models, *rows, n_classes=2, protocol=protocol, progress=lambda done, total: progress.append((done, total))
    )
    assert len(searches) == 1 + 16
    assert progress == [(i + 1, 16) for i in range(16)]
    keys = ["model", "lambda_egy", "round"]
    assert sorted(whole[keys].itertuples(index=False)) == sorted(parts[keys].itertuples(index=False))
    for i in (0, 1):
        one, other = whole[whole["model"] == i], parts[parts["model"] == i]
        error = (one[METRICS].std() + other[METRICS].std()) / len(one) ** 0.5
        assert ((means(one) - means(other)).abs() <= 4 * error + 1e-9).all()


def test_the_same_seed_gives_the_same_records_and_another_one_others(
    rows: tuple[Tensor, Tensor], models: list[nn.Module]
) -> None:
    before = torch.get_rng_state()
    first, second = (evaluate(models, *rows, n_classes=2, protocol=SMALL) for _ in range(2))
    other = evaluate(
        models,
        *rows,
        n_classes=2,
        protocol=EvaluationProtocol(rounds=3, individuals=40, lambda_egy=(0.1, 10.0), seed=1),
    )
    pd.testing.assert_frame_equal(first, second)
    assert (first["ip"] != other["ip"]).all()
    assert torch.equal(before, torch.get_rng_state())
