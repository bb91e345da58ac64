"""What a run is worth: predictive scores and counterfactual outcomes, for each of its models."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from torch import nn

from countertrain.evaluation.metrics import known
from countertrain.models.population import Population
from countertrain.runs.run import Run
from countertrain.tables.dataset import Split

__all__ = ["Scores", "predictive", "score"]


@dataclass(frozen=True, eq=False)
class Scores:
    """Outcomes of the models of a run."""

    table: pd.DataFrame
    """A row for each model, a column for each metric."""
    records: pd.DataFrame
    """A row for each model, energy weight and round."""


def predictive(models: Sequence[nn.Module], rows: Split) -> dict[str, list[float]]:
    """Every metric of predictions, one number per model."""
    population = Population(models)
    labels = rows.y.expand(len(population), -1)
    with torch.no_grad(), population.evaluating():
        logits = population(rows.x.expand(len(population), *rows.x.shape))
    return {
        name: metric.of_predictions(logits, labels).tolist()
        for name, metric in known().items()
        if metric.of_predictions is not None
    }


def score(
    run: Run,
    *,
    rounds: int,
    individuals: int,
    tau: float | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Scores:
    """Evaluate a run on its test rows."""
    records = run.records(rounds=rounds, individuals=individuals, tau=tau, progress=progress)
    population, test = Population(run.models), run.data.test
    table = records.groupby("model").mean(numeric_only=True).assign(**predictive(run.models, test))
    for name, metric in known().items():
        if metric.of_models is not None:
            table[name] = metric.of_models(population, test.x, test.y).tolist()
    return Scores(table[list(known())].reset_index(drop=True), records)
