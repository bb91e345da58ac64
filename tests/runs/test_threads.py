"""The same settings and seed train the same model, however many threads do it."""

import torch

from countertrain.runs.measure import Training
from countertrain.runs.registry import load_data
from countertrain.runs.settings import Settings


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
