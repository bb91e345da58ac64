"""Part (e), fitting: a table, nothing compiled, beside scikit-learn's plain network at the same epochs and batches."""

from collections.abc import Callable
from functools import partial
from warnings import catch_warnings, simplefilter

import pandas as pd
import torch
from sklearn.datasets import make_classification
from sklearn.neural_network import MLPClassifier
from torch import Tensor

from benchmarks.measuring import Budget, Contender, Measurement, Part, Say, Timing, race
from countertrain.models.architectures import mlp
from countertrain.training.method import Method
from countertrain.training.methods import bl, ct
from countertrain.training.trainer import CounterfactualTrainer

__all__ = ["measure_fitting"]

_ROWS, _FEATURES, _BATCH = 8_400, 8, 131  # 65 updates per epoch
_THEIRS, _CONVENTIONAL, _CT, _FIVE = "scikit-learn's MLPClassifier", "conventional", "CT", "CT, five models"
_BARS = {_CONVENTIONAL: 0.5, _CT: 1.0, _FIVE: 2.5}  # times scikit-learn's


def measure_fitting(budget: Budget, say: Say) -> Part:
    """Seconds of a fit of 32 units, and how many times scikit-learn's."""
    epochs = max(1, 30 * budget.epochs // 100)
    say(f"fitting, {_ROWS:,} rows, {epochs} epochs")
    x, y = make_classification(_ROWS, _FEATURES, n_informative=5, random_state=0)
    rows = torch.from_numpy((x - x.mean(0)) / x.std(0)).float()
    labels = torch.from_numpy(y)
    ours: dict[str, tuple[Callable[[], Method], int]] = {_CONVENTIONAL: (bl, 1), _CT: (ct, 1), _FIVE: (ct, 5)}
    contenders = [Contender(_THEIRS, partial(_fit_theirs, rows, labels, epochs), "Adam, no early stopping")]
    for name, (method, size) in ours.items():
        contenders.append(Contender(name, partial(_fit, method, size, rows, labels, epochs)))
    timings = race(contenders, budget, say)
    theirs = timings[_THEIRS].seconds
    table = pd.DataFrame([_row(name, timing, theirs) for name, timing in timings.items()])
    measurements = [
        Measurement(
            f"fit of {_ROWS:,} rows, {name}: times scikit-learn's plain network",
            timings[name].seconds / theirs,
            "x",
            bar,
            False,
            f"{timings[name].seconds:.2f} against {theirs:.2f} s",
        )
        for name, bar in _BARS.items()
    ]
    return Part("fitting", table, measurements)


def _fit(method: Callable[[], Method], size: int, x: Tensor, y: Tensor, epochs: int) -> None:
    models = [mlp(_FEATURES, 2, seed=seed) for seed in range(size)]
    CounterfactualTrainer(method(), epochs=epochs, batch_size=_BATCH, seed=list(range(size))).fit(models, x, y)


def _fit_theirs(x: Tensor, y: Tensor, epochs: int) -> None:
    network = MLPClassifier(
        (32,), batch_size=_BATCH, max_iter=epochs, alpha=0.0, n_iter_no_change=epochs, tol=0.0, shuffle=False
    )
    with catch_warnings():
        simplefilter("ignore")  # that it has not converged is not the question
        network.fit(x.numpy(), y.numpy())


def _row(name: str, timing: Timing, theirs: float) -> dict[str, object]:
    return {
        "model": "32 units",
        "fit": name,
        "seconds": timing.seconds,
        "times scikit-learn's": timing.seconds / theirs,
    }
