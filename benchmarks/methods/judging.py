"""What is told of trained models: the paper's evaluation under two searches, attacks, and the word of referees."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pandas as pd
import torch

from benchmarks.methods.cells import Cell
from benchmarks.methods.referees import referees
from benchmarks.methods.training import Trained, time_epoch
from countertrain.evaluation.attribution import sensitivity
from countertrain.evaluation.metrics import ROBUST_EPSILON, Metric, known
from countertrain.evaluation.protocol import EvaluationProtocol, evaluate
from countertrain.evaluation.robustness import robust_accuracy
from countertrain.runs.measure import predictive
from countertrain.runs.registry import build_constraints, build_protocol, load_data
from countertrain.runs.settings import Settings
from countertrain.tables import Dataset
from countertrain.tables.dataset import Split

__all__ = ["judge", "judge_protected", "measure_on_validation"]

_CHOOSING = {"rounds": 2, "individuals": 100}


def measure_on_validation(data: Dataset, trained: Trained) -> dict[str, float]:
    """What a trial is chosen by: means over its seeds."""
    protocol = build_protocol(trained.settings, rounds=_CHOOSING["rounds"], individuals=_CHOOSING["individuals"])
    found = {**_search(trained, data, data.validation, protocol), **predictive(trained.models, data.validation)}
    return {name: float(f"{sum(values) / len(values):.5g}") for name, values in found.items()}


def judge(cell: Cell, data: Dataset, trained: Trained) -> dict[str, Any]:
    """All that is told of a cell on test rows, one number per model: under both searches, or that of its own."""
    test = data.test
    individuals = cell.effort.individuals_of(cell.data)
    eccco = build_protocol(trained.settings, rounds=cell.effort.rounds, individuals=individuals)
    generic = replace(eccco, lambda_egy=(0.0,))
    also = _call_referees(cell.data)
    searches = {"own": generic} if trained.generator else {"eccco": eccco, "generic": generic}
    return {
        **predictive(trained.models, test),
        **_measure_models(trained, test),
        "epoch_cpu_seconds": time_epoch(trained, data),
        **{name: _search(trained, data, test, protocol, also) for name, protocol in searches.items()},
    }


@lru_cache(maxsize=1)
def _call_referees(name: str) -> Sequence[Metric]:
    """The referees of a data set, fitted once for all methods: to all of its training rows, and to its test rows."""
    data = load_data(Settings.resolve(name))
    return referees(data.train, data.test, data.n_classes)


def judge_protected(cell: Cell, data: Dataset, trained: Trained) -> dict[str, Any]:
    """Sensitivity to what is protected, and the cost of just valid counterfactuals that leave it alone."""
    test, effort = data.test, cell.effort
    protocol = build_protocol(
        trained.settings, rounds=effort.rounds, individuals=effort.individuals_of(cell.data), tau=0.5
    )
    columns = data.columns(trained.settings.immutable)
    return {
        "sensitivity": [
            float(sensitivity(m, test.x, test.y, columns, rounds=effort.rounds).mean()) for m in trained.models
        ],
        "own" if trained.generator else "eccco": _search(trained, data, test, protocol),
    }


def _measure_models(trained: Trained, rows: Split) -> dict[str, list[float]]:
    """Accuracy under attack, and the area under the ROC curve, of each class against the rest if there are several."""
    from sklearn.metrics import roc_auc_score

    found: dict[str, list[float]] = {"fgsm": [], "pgd": [], "auc": []}
    for flock in trained.flocks:
        for attack in ("fgsm", "pgd"):
            under = robust_accuracy(flock, rows.x, rows.y, epsilons=[ROBUST_EPSILON], attack=attack)
            found[attack] += under[:, 0].tolist()
        with torch.no_grad(), flock.evaluating():
            p = flock(rows.x.expand(len(flock), *rows.x.shape)).double().softmax(-1)  # (P, n, K)
        scores = p[..., 1] if p.shape[-1] == 2 else p
        found["auc"] += [float(roc_auc_score(rows.y.numpy(), one.numpy(), multi_class="ovr")) for one in scores]
    return found


def _search(
    trained: Trained, data: Dataset, rows: Split, protocol: EvaluationProtocol, also: Sequence[Metric] = ()
) -> dict[str, list[float]]:
    """Every metric of counterfactuals, one number per model."""
    records = [
        evaluate(
            flock,
            rows.x,
            rows.y,
            n_classes=data.n_classes,
            constraints=build_constraints(trained.settings, data, test_time=True),
            protocol=protocol,
            generator=trained.generator,
            also=also,
        )
        for flock in trained.flocks
    ]
    table = pd.concat([each.groupby("model").mean(numeric_only=True) for each in records])
    names = [name for name, m in known().items() if m.of_counterfactuals] + [m.name for m in also]
    return {name: table[name].tolist() for name in names}
