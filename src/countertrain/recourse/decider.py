"""Whoever decides about people, with all that is needed to explain, to judge and to serve the decisions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor, nn

from countertrain.models.deciding import as_one, logits_of
from countertrain.search.losses import predict
from countertrain.tables.encoder import Encoder

__all__ = ["Decider"]


@dataclass(frozen=True, eq=False)
class Decider:
    """Trained models that decide together about the rows of a table."""

    encoder: Encoder
    classes: tuple[Any, ...]
    """K labels, as Python's own values."""
    models: tuple[nn.Module, ...]
    reference: tuple[Tensor, Tensor] | None = None
    """Real rows (m, D), encoded, and their class numbers (m,); None where they were not kept."""
    held_out: tuple[Tensor, Tensor] | None = None
    """The same of rows that the models were not trained on; None where there are none."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """How the models were trained."""
    id: str | None = None
    """Of the folder of the models, made of its content; None before it was written."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """The data that they were trained on: name, fingerprint, label."""

    @cached_property
    def model(self) -> nn.Module:
        """The models as one: (n, D) encoded rows -> (n, K) logits."""
        return as_one(self.models)

    def compute_probabilities(self, x: Tensor) -> Tensor:
        """The probability of each class, (n, K) float64, for encoded rows x (n, D)."""
        return logits_of(self.model, x.float()).double().softmax(-1)

    def decide(self, x: Tensor) -> Tensor:
        """The class number of each encoded row, (n,)."""
        return predict(logits_of(self.model, x.float()))
