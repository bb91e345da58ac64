"""How likely advice is to fail where it is carried out with small errors (PROBE)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from countertrain.search.losses import log_odds
from countertrain.search.state import SearchState, Slopes

__all__ = ["Fragility"]


@dataclass(frozen=True)
class Fragility:
    """By how much the share of noisy copies of a row that lose the target is above `most`, to first order.

    With noise N(0, sigma^2) in every feature and m the log-odds of the target, that share is about
    1 - Phi(m / (sigma |grad m|)). A row is mature only where it is at most `most`.
    """

    sigma: float = 0.1
    most: float = 0.1

    def __call__(self, state: SearchState) -> Tensor:
        """Penalty of each row, (P, n)."""
        return torch.relu(self.measure(state) - self.most)

    def measure(self, state: SearchState) -> Tensor:
        """The share of noisy copies that lose the target, (P, n)."""
        odds, noise = log_odds(state.by_class, state.target), self._spread(state, _differentiate(state))
        share: Tensor = torch.special.ndtr(-odds / noise)
        return share

    def allows(self, state: SearchState) -> Tensor:
        """Which rows lose no more than is allowed, (P, n)."""
        return self.measure(state) <= self.most

    def slopes(self, state: SearchState) -> Slopes:
        """As if the slope of the log-odds stayed as it is nearby; with relu and two classes it does."""
        by_logits = _differentiate(state)
        noise = self._spread(state, by_logits)
        u = log_odds(state.by_class, state.target) / noise
        density = torch.exp(-u.square() / 2) / (math.sqrt(2 * math.pi) * noise)  # of the share by the log-odds
        share = torch.where(torch.special.ndtr(-u) > self.most, -density, 0.0)
        return Slopes(by_logits=by_logits * share.unsqueeze(1))

    def _spread(self, state: SearchState, by_logits: Tensor) -> Tensor:
        """How much the log-odds differ between noisy copies, (P, n)."""
        if state.by_rows is None:
            raise ValueError("fragility looks at slopes of the model, which this state of a search does not have")
        slope: Tensor = state.by_rows(by_logits).flatten(2).norm(dim=-1)
        return (self.sigma * slope).clamp(min=torch.finfo(slope.dtype).eps)


def _differentiate(state: SearchState) -> Tensor:
    """The derivatives of the log-odds by the logits, (P, K, n)."""
    own = functional.one_hot(state.target, state.by_class.shape[1]).transpose(1, 2).to(state.by_class)
    return own - state.by_class.masked_fill(own.bool(), -torch.inf).softmax(1)
