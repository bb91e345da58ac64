"""The claims of the paper, with its final settings, five training seeds and five evaluation rounds.

The bands come from REFERENCE G, a simulation that was written before this package. A number outside of its band is
news about the package; never move a band to fit.

The stored tables cannot drift from the code, either: two cells are trained anew and compared with their records.
"""

import functools
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import nn

from countertrain.evaluation.comparison import Reduction, compare
from countertrain.evaluation.metrics import accuracy as accuracy_of
from countertrain.evaluation.protocol import evaluate
from countertrain.models.population import Population
from countertrain.runs.registry import build_constraints, build_models, build_protocol, build_trainer
from countertrain.runs.settings import Settings
from countertrain.tables import load
from countertrain.training import ct as ct_module
from countertrain.training.ct import pair_up
from countertrain.training.history import History
from reproduction.cells import Cell, read_cell

SEEDS = (0, 1, 2, 3, 4)
ROUNDS, INDIVIDUALS = 5, 250
RECORDS = Path(__file__).parents[2] / "results" / "records"
STORED = (Cell("ls", "bl"), Cell("circles", "ct"))


@functools.cache
def trained(data: str, objective: str, immutable: tuple[str, ...] = ()) -> tuple[Settings, list[nn.Module], History]:
    """Five models, trained as one population; ten of a stored cell, which has as many."""
    seeds = tuple(range(10)) if not immutable and Cell(data, objective) in STORED else SEEDS
    settings = Settings.resolve(data, {"objective": objective, "seeds": seeds, "immutable": immutable})
    rows = load(data)
    models = build_models(settings, rows)
    return settings, models, build_trainer(settings, rows).fit(models, rows.train.x, rows.train.y)


def outcomes(data: str, objective: str, immutable: tuple[str, ...] = ()) -> pd.DataFrame:
    settings, models, _ = trained(data, objective, immutable)
    rows = load(data)
    return evaluate(
        models[: len(SEEDS)],
        rows.test.x,
        rows.test.y,
        n_classes=rows.n_classes,
        constraints=build_constraints(settings, rows, test_time=True),
        protocol=build_protocol(settings, rounds=ROUNDS, individuals=INDIVIDUALS),
    )


def measure(data: str, immutable: tuple[str, ...] = ()) -> tuple[dict[str, Reduction], pd.DataFrame, pd.DataFrame]:
    """Reductions by metric, and the records of counterfactual and of conventional training."""
    treated, baseline = (outcomes(data, objective, immutable) for objective in ("ct", "bl"))
    reductions = {r.metric: r for r in compare(treated, baseline)}
    for r in reductions.values():
        seeds = ", ".join(f"{p:.1f}" for p in r.per_seed)
        print(f"{data} {r.metric}: {r.percent:.1f} % (seeds {seeds}), {r.treated:.4g} against {r.baseline:.4g}")  # noqa: T201
    print(f"{data} validity: {treated['validity'].mean():.3f} against {baseline['validity'].mean():.3f}")  # noqa: T201
    return reductions, treated, baseline


def accuracy(data: str, objective: str, immutable: tuple[str, ...] = ()) -> float:
    models = trained(data, objective, immutable)[1][: len(SEEDS)]
    test = load(data).test
    with torch.no_grad():
        return float(torch.stack([(model(test.x).argmax(-1) == test.y).double().mean() for model in models]).mean())


def test_on_circles_counterfactuals_become_plausible_and_valid() -> None:
    reductions, treated, baseline = measure("circles")
    assert 50 <= reductions["ip"].percent <= 68
    assert reductions["ip"].interval[1] < 0
    assert treated["validity"].mean() >= 0.95
    assert baseline["validity"].mean() <= 0.7
    assert treated["ip"].mean() == pytest.approx(0.98, rel=0.1)  # next to the floor: two points of the class itself
    assert accuracy("circles", "ct") >= 0.97


def test_on_moons_counterfactuals_become_more_plausible() -> None:
    reductions, treated, _ = measure("moons")
    assert 8 <= reductions["ip"].percent <= 32
    assert treated["validity"].mean() >= 0.95
    assert accuracy("moons", "ct") >= 0.97


def test_on_overlapping_clusters_recourse_around_an_immutable_feature_gets_cheaper() -> None:
    reductions, treated, baseline = measure("ol", ("x1",))
    assert 30 <= reductions["cost"].percent <= 56
    assert (treated["sparsity"] >= 0.5).all()  # x1 never moves
    assert min(treated["validity"].mean(), baseline["validity"].mean()) > 0.1
    assert accuracy("ol", "ct", ("x1",)) >= 0.85


def test_on_linearly_separable_clusters_counterfactuals_are_more_plausible_on_average() -> None:
    """The reduction is 13 +- 14 % over training seeds (REFERENCE G), so that no band of use can be given."""
    _, treated, baseline = measure("ls")
    assert treated["ip"].mean() < baseline["ip"].mean()
    assert treated["validity"].mean() >= 0.95
    assert accuracy("ls", "ct") >= 0.99


def relative_weights(models: list[nn.Module], protected: int) -> torch.Tensor:
    """|weight of the protected feature| / |weight of the other| in the difference of the two logits, one a model."""
    difference = torch.stack([model[0].weight[1] - model[0].weight[0] for model in models]).detach().abs()  # (P, 2)
    return difference[:, protected] / difference[:, 1 - protected]


def test_a_linear_model_relies_less_on_a_protected_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proposition: Gaussian classes with a common diagonal covariance, both features telling, one immutable.

    Without protection means two things, and both must come out worse: training as if the feature could change, and
    holding it fixed in the search only, which is what the proof is about.
    """
    protected = load("debt-age").columns(["age"])[0]
    _, models, history = trained("debt-age", "ct", ("age",))
    with_protection = relative_weights(models, protected)
    free = relative_weights(trained("debt-age", "ct")[1], protected)
    monkeypatch.setattr(ct_module, "pair_up", lambda found, y, x_plus, _, how: pair_up(found, y, x_plus, None, how))
    unprotected = relative_weights(trained.__wrapped__("debt-age", "ct", ("age",))[1], protected)
    print(f"age / debt: {with_protection}, free {free}, unprotected {unprotected}")  # noqa: T201
    assert (with_protection < 0.8 * free).all()
    assert (with_protection < 0.8 * unprotected).all()
    assert min(history["mature"][-1]) > 0.5  # else there was nothing to protect
    assert accuracy("debt-age", "ct", ("age",)) >= 0.9


@pytest.mark.parametrize("cell", STORED, ids=lambda cell: cell.name)
def test_a_cell_trained_anew_gives_its_stored_records(cell: Cell) -> None:
    """Means over seeds: another processor rounds otherwise, and training amplifies that for a single seed."""
    result = read_cell(cell, RECORDS)
    assert result is not None
    settings = Settings.model_validate(result.scores["settings"])
    size = len(settings.seeds)
    assert settings == Settings.resolve(cell.data, {"objective": cell.objective, "seeds": list(range(10))})
    trained_with, models, _ = trained(cell.data, cell.objective, ())
    assert trained_with == settings
    data, population = load(cell.data), Population(models)
    with torch.no_grad():
        logits = population(data.test.x.expand(size, -1, -1))
    wanted = sum(result.scores["accuracy"]) / size
    assert float(accuracy_of(logits, data.test.y.expand(size, -1)).mean()) == pytest.approx(wanted, abs=0.003)
    records = evaluate(
        population,
        data.test.x,
        data.test.y,
        n_classes=data.n_classes,
        constraints=build_constraints(settings, data, test_time=True),
        protocol=build_protocol(settings, rounds=10, individuals=250),
    )
    for metric, tolerance in (("ip", 0.01), ("cost", 0.02), ("validity", 0.01)):
        assert records[metric].mean() == pytest.approx(result.records[metric].mean(), rel=tolerance), metric
