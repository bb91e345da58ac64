"""Probabilities that mean what they say: models that decide together are made more or less sure by validation rows."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from countertrain.models.deciding import logits_of
from countertrain.tables.dataset import Split

__all__ = ["calibrate"]

_TEMPERATURES = np.geomspace(0.5, 4.0, 31)  # tried, by which logits are divided
_FEWEST = 50  # validation rows, to tell one from another


def calibrate(models: Sequence[nn.Module], rows: Split) -> float:
    """Divide the logits of all models by what makes the classes of the rows likeliest; returns what that was.

    It is written into the last layer of each model. Where one does not end in a linear layer, all stay as they are.
    """
    last = [[*model.children()][-1] if isinstance(model, nn.Sequential) else model for model in models]
    if len(rows) < _FEWEST or not all(isinstance(layer, nn.Linear) for layer in last):
        return 1.0
    logits = torch.stack([logits_of(model, rows.x) for model in models])  # (P, n, K)
    own = rows.y.expand(len(models), -1).unsqueeze(-1)
    losses = []
    for temperature in _TEMPERATURES:
        probability = (logits / temperature).softmax(-1).gather(-1, own).mean(0)  # (n, 1)
        losses.append(-float(probability.log().mean()))
    best = float(_TEMPERATURES[int(np.argmin(losses))])
    with torch.no_grad():
        for layer in last:
            for parameter in layer.parameters():
                parameter.div_(best)
    return best
