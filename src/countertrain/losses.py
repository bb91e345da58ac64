"""The quantities of logits that search and training share."""

from torch import Tensor
from torch.nn import functional

__all__ = ["cross_entropy", "energy", "predict"]


def cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    """Cross-entropy of each row, unreduced: (..., n, K) logits and (..., n) labels -> (..., n).

    The soft-max runs over the last but one axis of the transposed logits: with few classes and
    many rows that is several times faster than over the last one.
    """
    log_p = functional.log_softmax(logits.transpose(-1, -2), dim=-2)  # (..., K, n)
    return -log_p.gather(-2, label.unsqueeze(-2)).squeeze(-2)


def energy(logits: Tensor, label: Tensor) -> Tensor:
    """Energy of each row under the classifier read as an energy-based model: E(x, y) = -M(x)[y]."""
    return -logits.transpose(-1, -2).gather(-2, label.unsqueeze(-2)).squeeze(-2)


def predict(logits: Tensor) -> Tensor:
    """The class with the largest logit: (..., n, K) -> (..., n). `max` is ten times faster than `argmax` here."""
    return logits.max(-1).indices
