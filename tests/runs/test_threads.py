"""The same settings and seed train the same model, however many threads do it, and in whatever process."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from countertrain.runs.measure import Training
from countertrain.runs.registry import load_data
from countertrain.runs.settings import Settings
from countertrain.runs.training import train

_ELSEWHERE = """
import sys, torch
from pathlib import Path
from countertrain.runs.settings import read_settings
from countertrain.runs.training import train
torch.set_num_threads(int(sys.argv[3]))
run = train(read_settings(Path(sys.argv[1])), Path(sys.argv[2]))
print(run.id, [record.metrics for record in run.history.records])
"""


def test_two_threads_train_what_one_does() -> None:
    settings = Settings.resolve("moons", {"epochs": 2, "hidden": [64], "n_ce": 200, "batch_size": 1000, "n_steps": 10})
    data = load_data(settings)
    before, weights = torch.get_num_threads(), list[torch.Tensor]()
    try:
        for n in (1, 2, 2):
            torch.set_num_threads(n)
            training = Training.begin([settings], data)
            start = torch.cat([p.detach().flatten() for model in training.models for p in model.parameters()])
            training.fit()
            weights.append(torch.cat([p.detach().flatten() for model in training.models for p in model.parameters()]))
    finally:
        torch.set_num_threads(before)
    assert (weights[0] - start).abs().max() > 1e-3  # something was learnt
    assert torch.equal(weights[1], weights[2])
    assert torch.allclose(weights[0], weights[1], atol=1e-5)


def test_other_processes_train_the_very_same_model(tmp_path: Path) -> None:
    ages, jobs = np.random.default_rng(0).integers(18, 80, (2, 300))
    rows = [f"{age},{'abc'[job % 3]},{'yes' if age > 40 else 'no'}" for age, job in zip(ages, jobs, strict=True)]
    (tmp_path / "table.csv").write_text("\n".join(["age,job,granted", *rows]) + "\n")
    quick = {"label": "granted", "target": "yes", "epochs": 3, "hidden": [8], "n_ce": 40, "n_steps": 5, "patience": 2}
    settings = Settings.resolve(str(tmp_path / "table.csv"), quick)
    (tmp_path / "settings.toml").write_text(settings.to_toml())
    run = train(settings, tmp_path / "here")
    assert len({str(record.metrics) for record in run.history.records}) > 1  # something was learnt
    there = [str(tmp_path / name) for name in ("settings.toml", "there")]
    said = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE, *there, str(torch.get_num_threads())],
        env={**os.environ, "PYTHONHASHSEED": "1"},  # in which sets have another order than here
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    assert said.strip().endswith(f"{run.id} {[record.metrics for record in run.history.records]}")
