"""One fit-and-measure: what the settings say is done, whoever asks."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from countertrain.evaluation.metrics import known
from countertrain.evaluation.protocol import evaluate
from countertrain.runs.folder import read_run
from countertrain.runs.measure import Training, measure, predictive
from countertrain.runs.registry import build_constraints, build_protocol, load_data
from countertrain.runs.settings import Settings
from countertrain.runs.training import train
from countertrain.training.history import EpochRecord
from countertrain.training.trouble import NonFiniteLossError

SMALL = {"epochs": 3, "batch_size": 500, "n_ce": 60, "hidden": [8], "n_steps": 5, "tau": 0.6, "learning_rate": 0.05}


def small(**overrides: object) -> Settings:
    return Settings.resolve("moons", SMALL | overrides)


def test_a_table_has_the_means_of_the_records_and_the_rows_that_are_asked_for() -> None:
    settings = small(seeds=[0, 1], immutable=["x1"])
    data = load_data(settings)
    training = Training.begin([settings], data)
    training.fit()
    protocol = build_protocol(settings, rounds=2, individuals=20, tau=0.7)
    constraints = build_constraints(settings, data, test_time=True)
    tables = []
    for rows in (data.validation, data.test):
        scores = measure(training.models, settings, data, rows, protocol, of_models=True)
        wanted = evaluate(training.models, rows.x, rows.y, n_classes=2, constraints=constraints, protocol=protocol)
        assert scores.records.equals(wanted)
        assert list(scores.table) == list(known())
        assert scores.table["accuracy"].tolist() == predictive(training.models, rows)["accuracy"]
        assert scores.table["cost"].tolist() == pytest.approx(wanted.groupby("model")["cost"].mean().tolist())
        tables.append(scores.table)
    assert not tables[0].equals(tables[1])
    assert "pgd" not in measure(training.models, settings, data, data.test, protocol).table


def test_a_training_that_stops_and_leaves_runs_behind_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    runs = [small(seeds=[i, i + 9], lambda_div=weight) for i, weight in enumerate((0.1, 0.5, 0.9))]
    data = load_data(runs[0])
    whole = Training.begin(runs, data)
    whole.fit()
    broken = Training.begin(runs, data, checkpoint=tmp_path / "c.safetensors")
    assert len(broken.fit(until=2, resume=True).records) == 2
    left = broken.keep([0, 2])
    assert [run.lambda_div for run in left.runs] == [0.1, 0.9]
    left.fit(resume=True)
    for mine, theirs in zip(left.models, [whole.models[i] for i in (0, 1, 4, 5)], strict=True):
        assert torch.allclose(mine[0].weight, theirs[0].weight, atol=1e-4)
    assert not torch.allclose(whole.models[0][0].weight, whole.models[2][0].weight, atol=1e-2)


def test_runs_that_all_fail_are_an_error_or_a_history() -> None:
    settings = small(lambda_clf=1e39)
    training = Training.begin([settings], load_data(settings))
    with pytest.raises(NonFiniteLossError):
        training.fit()
    history = Training.begin([settings], training.data).fit(fail=False)
    assert "not finite" in history.failures[0]


def test_early_stopping_is_a_setting_of_any_training_and_keeps_the_best_weights(tmp_path: Path) -> None:
    settings = small(objective="bl", epochs=40, early_stopping=True, patience=2, learning_rate=0.5, hidden=[32])
    run = train(settings, tmp_path / "run")
    losses = [record.metrics["validation_loss"][0] for record in run.history.records]
    assert len(losses) < 40
    assert np.argmin(losses) == len(losses) - 3
    held = run.data.validation
    kept = torch.nn.functional.cross_entropy(read_run(tmp_path / "run").models[0](held.x), held.y)
    assert kept.item() == pytest.approx(min(losses), rel=1e-4)


@pytest.mark.parametrize("overrides", [{}, {"seeds": [0, 1]}, {"seeds": [0, 1], "on_nonfinite": "skip"}])
@pytest.mark.filterwarnings("ignore:training 2 models one by one")
def test_a_run_with_early_stopping_that_is_killed_at_any_epoch_ends_as_if_it_had_not_been(
    tmp_path: Path, overrides: dict[str, object]
) -> None:
    """The best weights lie some epochs back when it ends: they, and how long ago they were, must survive."""
    quick = {"objective": "bl", "epochs": 40, "early_stopping": True, "patience": 2, "learning_rate": 0.5}
    settings = small(**quick, hidden=[32], **overrides)
    whole = train(settings, tmp_path / "whole")
    n = len(whole.history.records)
    assert n > 3
    assert n < 40 or overrides  # two models stop together, or not at all

    def kill(record: EpochRecord) -> None:
        if record.epoch == at:
            raise KeyboardInterrupt

    for at in (1, n - 2, n - 1, n):  # after n, nothing is left to train
        with pytest.raises(KeyboardInterrupt):
            train(settings, tmp_path / str(at), callbacks=[kill])
        resumed = train(settings, tmp_path / str(at), resume=True)
        assert resumed.id == whole.id
        assert len(resumed.history.records) == n


def test_class_weights_are_a_setting_of_any_training() -> None:
    decided = {}
    for name, weight in (("plain", None), ("heavy", {"0": 30}), ("balanced", "balanced")):
        settings = small(objective="bl", class_weight=weight)
        data = load_data(settings)
        few = data.train.y.cumsum(0) <= 100  # rows of class 1 are rare: the first hundred of it, and all of class 0
        rare = replace(data.train, x=data.train.x[few], y=data.train.y[few])
        training = Training.begin([settings], replace(data, train=rare))
        training.fit()
        decided[name] = float((training.models[0](data.test.x).argmax(-1) == 0).double().mean())
    assert decided["heavy"] > decided["plain"]
    wrong = small(class_weight={"2": 3})
    with pytest.raises(ValueError, match="class_weight has no class '2'; there are '0', '1'"):
        Training.begin([wrong], load_data(wrong)).fit()
