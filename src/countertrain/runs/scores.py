"""What a run is worth: predictive scores and counterfactual outcomes, for each of its models."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from torch import nn

from countertrain.evaluation.metrics import accuracy, f1
from countertrain.evaluation.robustness import robust_accuracy
from countertrain.models.population import Population
from countertrain.runs.run import Run
from countertrain.tables.dataset import Split

__all__ = ["OUTCOMES", "ROBUST_EPSILON", "Scores", "predictive", "score"]

ROBUST_EPSILON = 0.1
OUTCOMES = {
    "accuracy": "accuracy",
    "f1": "F1",
    "fgsm": f"accuracy under FGSM, epsilon {ROBUST_EPSILON}",
    "pgd": f"accuracy under PGD, epsilon {ROBUST_EPSILON}",
    "validity": "validity of counterfactuals",
    "maturity": "share that reach tau",
    "ip": "IP, implausibility (lower is better)",
    "ip_star": "IP*, divergence (lower is better)",
    "cost": "cost, l1 distance (lower is better)",
    "sparsity": "share of features left alone",
}
"""Names and descriptions of all outcomes, in the order in which they are shown."""


@dataclass(frozen=True, eq=False)
class Scores:
    """Outcomes of the models of a run."""

    table: pd.DataFrame
    """A row for each model, a column for each outcome."""
    records: pd.DataFrame
    """A row for each model, energy weight and round."""


def predictive(models: Sequence[nn.Module], rows: Split) -> dict[str, list[float]]:
    """Accuracy and F1 of each model."""
    population = Population(models)
    labels = rows.y.expand(len(population), -1)
    with torch.no_grad(), population.evaluating():
        logits = population(rows.x.expand(len(population), -1, -1))
    return {"accuracy": accuracy(logits, labels).tolist(), "f1": f1(logits, labels).tolist()}


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
    table = pd.DataFrame(predictive(run.models, test))
    for attack in ("fgsm", "pgd"):
        under = robust_accuracy(population, test.x, test.y, epsilons=[ROBUST_EPSILON], attack=attack)
        table[attack] = under[:, 0].tolist()
    means = records.groupby("model").mean(numeric_only=True)
    for name in OUTCOMES:
        if name not in table:
            table[name] = means[name].to_numpy()
    return Scores(table, records)
