"""Early stopping keeps the best weights of each model, and a bar is shown to those who ask for it."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from countertrain.models.deciding import logits_of
from countertrain.runs import fitting, measure
from countertrain.runs.callbacks import EarlyStopping
from countertrain.tables import Split
from countertrain.training.history import EpochRecord
from loans import Net, loans, quick

X, Y = loans()


@pytest.mark.parametrize("module", [None, Net], ids=["one population", "one by one"])
@pytest.mark.filterwarnings("ignore:training 2 models one by one")
def test_early_stopping_ends_with_the_best_weights_of_each_model(module: Any) -> None:
    noise = np.random.default_rng(0).choice(["granted", "refused"], len(X))  # nothing to learn: soon overfitted
    settings = {"early_stopping": True, "patience": 3, "validation_fraction": 0.25, "learning_rate": 0.05}
    plain = {"model": "mlp", "encoder": "standard", "hidden": (32,), "calibrate": False}
    classifier = quick(settings=plain, **settings, epochs=60, objective="bl", n_models=2, module=module).fit(X, noise)
    losses = np.array(classifier.history_["validation_loss"])  # (epochs, 2), NaN where a model had stopped
    assert (classifier.history_.one_by_one is None) == (module is None)
    best, last = np.nanargmin(losses, axis=0), np.isfinite(losses).sum(0) - 1
    assert (last - best).min() == 3
    assert last.max() < 59
    assert best[0] != best[1]
    codes = (noise == "refused").astype(int)
    stream = np.random.RandomState(0)
    stream.randint(2**31 - 1, size=2)  # the seeds of the models come first
    _, held = fitting._hold_out(codes, 0.25, stream)
    x = torch.from_numpy(classifier.encoder_.encode(X.iloc[held])).float()
    kept = [cross_entropy(logits_of(m, x), torch.from_numpy(codes[held])).item() for m in classifier.models_]
    assert kept == pytest.approx(np.nanmin(losses, axis=0).tolist(), rel=1e-5)


@pytest.mark.parametrize("weight", [None, torch.tensor([9.0, 1.0])], ids=["plain", "weighted"])
def test_early_stopping_looks_at_the_loss_with_class_weights(weight: torch.Tensor | None) -> None:
    model = nn.Linear(1, 2)
    stopping = EarlyStopping([model], Split(torch.zeros(4, 1), torch.tensor([0, 1, 1, 1])), weight, patience=1)
    stopped = []
    for epoch, bias in enumerate((1.0, 0.0), 1):  # in favour of class 1, which has most rows; then of none
        with torch.no_grad():
            model.bias.copy_(torch.tensor([0.0, bias]))
        stopped.append(stopping(EpochRecord(epoch, 9, 0.0, {"train_loss": [0.0]})))
    assert stopped == [False, weight is None]
    stopping.restore()
    assert model.bias.tolist() == ([0, 1] if weight is None else [0, 0])


def test_a_classifier_with_class_weights_stops_by_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []

    def stop_early(models: list[nn.Module], rows: Split, weight: torch.Tensor, patience: int) -> EarlyStopping:
        seen.append(weight)
        return EarlyStopping(models, rows, weight, patience)

    monkeypatch.setattr(measure, "EarlyStopping", stop_early)
    quick(early_stopping=True, class_weight={"granted": 3}, epochs=1).fit(X, Y)
    assert seen[0][0] == pytest.approx(3 * seen[0][1])


def test_a_bar_is_shown_only_on_demand(capfd: pytest.CaptureFixture[str]) -> None:
    quick(epochs=2).fit(X, Y)
    assert capfd.readouterr() == ("", "")
    quick(epochs=2, verbose=True).fit(X, Y)
    out, err = capfd.readouterr()
    assert out == ""
    assert "training" in err
    assert "2/2" in err
    assert "train_loss" in err
