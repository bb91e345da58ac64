"""Classes that count as one: a network of ordered bins as one that says whether an outcome lies in an interval."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["Merged"]


class Merged(nn.Module):
    """Two classes made of K: (n, D) rows -> (n, 2) logits, outside and inside.

    Each class lies inside by a share. The probability of inside is the sum of theirs by share, and its energy minus
    their logsumexp.
    """

    log_shares: Tensor  # (2, K), outside and inside

    def __init__(self, model: nn.Module, inside: Sequence[float]) -> None:
        super().__init__()
        self.model = model
        share = torch.tensor([[1 - each for each in inside], list(inside)], dtype=torch.float64)
        self.register_buffer("log_shares", share.log().float())
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """(n, D) -> (n, 2)."""
        logits: Tensor = self.model(x)
        return (logits.unsqueeze(-2) + self.log_shares.to(logits)).logsumexp(-1)
