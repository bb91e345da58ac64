"""How trained models decide: several as one, and logits that do not depend on the rows beside a row."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from countertrain.models.architectures import Ensemble
from countertrain.models.frozen import Frozen
from countertrain.models.population import NotStackableError, Population
from countertrain.models.traces import ChainTrace

__all__ = ["Committee", "as_one", "as_searchable", "logits_of"]


def as_one(models: Sequence[nn.Module]) -> nn.Module:
    """One module (n, D) -> (n, K) logits: the model itself, or the ensemble of several."""
    return models[0] if len(models) == 1 else Ensemble(models)


class Committee:
    """Models of one architecture that decide together, run as one population: what an Ensemble says, but faster."""

    batch_dependent = False

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self._population = Population(models)

    @property
    def rows_last(self) -> bool:
        """Whether (1, n, D) inputs should lie in memory as (1, D, n)."""
        return self._population.rows_last

    @property
    def width(self) -> int:
        """Numbers that all models together make of a row before their first layer."""
        return len(self._population) * self._population.width

    def __len__(self) -> int:
        return 1

    def __call__(self, x: Tensor) -> Tensor:
        """(1, n, D) rows -> (1, n, K) logits, the logarithm of the mean of all probabilities."""
        size = len(self._population)
        log_p = self._population(x.expand(size, *x.shape[1:])).log_softmax(-1)  # (P, n, K)
        return log_p.logsumexp(0, keepdim=True) - math.log(size)

    def trace(self, x: Tensor) -> "_CommitteeTrace | None":
        """The same, ready for derivatives by the rows; None where only autograd knows them."""
        size = len(self._population)
        seen = self._population.trace(x.expand(size, *x.shape[1:]))
        return None if seen is None else _CommitteeTrace(seen)

    def trainable(self) -> list[Tensor]:
        """Nothing: it decides and does not learn."""
        return []

    def evaluating(self) -> AbstractContextManager[None]:
        """All models as they decide inside."""
        return self._population.evaluating()


class _CommitteeTrace:
    """What a committee said of rows (1, n, D), and the derivative of that."""

    def __init__(self, seen: ChainTrace) -> None:
        self._seen = seen
        self._read(seen)

    def look(self, x: Tensor) -> Self:
        """The same over other rows, as many as before."""
        self._read(self._seen.look(x.expand(len(self._log_p), *x.shape[1:])))
        return self

    def _read(self, seen: ChainTrace) -> None:
        self._log_p = functional.log_softmax(seen.rows_last, dim=1)  # (P, K, n)
        self._log_sum = self._log_p.logsumexp(0, keepdim=True)  # (1, K, n)
        self.rows_last = self._log_sum - math.log(len(self._log_p))  # (1, K, n)

    def by_rows(self, by_logits: Tensor) -> Tensor:
        """The derivative by the rows, (1, n, D): each model has its share in the probability of each class."""
        by_log_p = by_logits * (self._log_p - self._log_sum).exp()  # (P, K, n)
        by_own = torch.addcmul(by_log_p, self._log_p.exp(), by_log_p.sum(1, keepdim=True), value=-1)
        return self._seen.by_rows(by_own).sum(0, keepdim=True)


def as_searchable(model: nn.Module) -> nn.Module | Committee:
    """The model as a search is fastest with it."""
    if isinstance(model, Ensemble):
        try:
            return Committee([*model.models])
        except NotStackableError:
            return model
    return model


def logits_of(model: nn.Module, x: Tensor) -> Tensor:
    """Logits (n, K) of rows x (n, D), on which all decisions rest.

    They are computed in float64, in evaluation mode: no row is decided otherwise because of the rows beside it.
    """
    return Frozen(model)(x)
