"""Decisions that need another probability than one half."""

from dataclasses import dataclass

import torch
from torch import Tensor

from countertrain.search.losses import predict

__all__ = ["Threshold", "decide"]


@dataclass(frozen=True)
class Threshold:
    """Of two classes, the one that people want is decided for from some probability on, be it the likelier or not.

    Probabilities stay what they are: only what is made of them changes.
    """

    wanted: int
    """The number of that class, 0 or 1."""
    at: float

    def choose(self, probability: Tensor) -> Tensor:
        """The class number of each row, (..., n), by the probabilities of both classes, (..., n, 2)."""
        return torch.where(probability[..., self.wanted] >= self.at, self.wanted, 1 - self.wanted)

    def needed(self, k: int) -> float:
        """The probability that class k needs to be decided for."""
        return self.at if k == self.wanted else 1 - self.at

    def shift(self, probability: float, k: int) -> float:
        """The probability of class k that is as far above what it needs as this one is above one half, in log-odds."""
        odds = probability / (1 - probability) * self.needed(k) / (1 - self.needed(k))
        return odds / (1 + odds)


def decide(logits: Tensor, threshold: Threshold | None = None) -> Tensor:
    """What is decided about people, (..., n), by logits (..., n, K): the likeliest class, unless a threshold is set."""
    return predict(logits) if threshold is None else threshold.choose(logits.double().softmax(-1))
