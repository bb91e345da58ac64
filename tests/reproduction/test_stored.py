"""The stored tables cannot drift from the code: two cells are trained anew and compared with their records."""

from pathlib import Path

import pytest
import torch

from countertrain.evaluation.metrics import accuracy
from countertrain.evaluation.protocol import evaluate
from countertrain.models.population import Population
from countertrain.runs.registry import build_constraints, build_models, build_protocol, build_trainer
from countertrain.runs.settings import Settings
from countertrain.tables import load
from reproduction.cells import Cell, read_cell

RECORDS = Path(__file__).parents[2] / "results" / "records"


@pytest.mark.parametrize("cell", [Cell("ls", "bl"), Cell("circles", "ct")], ids=lambda cell: cell.name)
def test_a_cell_trained_anew_gives_its_stored_records(cell: Cell) -> None:
    """Means over seeds: another processor rounds otherwise, and training amplifies that for a single seed."""
    result = read_cell(cell, RECORDS)
    assert result is not None
    settings = Settings.model_validate(result.scores["settings"])
    size = len(settings.seeds)
    assert settings == Settings.resolve(cell.data, {"objective": cell.objective, "seeds": list(range(10))})
    data, models = load(cell.data), build_models(settings, load(cell.data))
    build_trainer(settings, data).fit(models, data.train.x, data.train.y)
    population = Population(models)
    with torch.no_grad():
        logits = population(data.test.x.expand(size, -1, -1))
    wanted = sum(result.scores["accuracy"]) / size
    assert float(accuracy(logits, data.test.y.expand(size, -1)).mean()) == pytest.approx(wanted, abs=0.003)
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
