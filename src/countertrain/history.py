"""What training leaves to read: one record an epoch, one number a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

__all__ = ["EpochRecord", "History"]


@dataclass(frozen=True)
class EpochRecord:
    """Means over one epoch: each loss term, shares and accuracies, a list with one number a model."""

    epoch: int
    n_epochs: int
    seconds: float
    metrics: Mapping[str, Sequence[float]]

    def as_json(self) -> dict[str, Any]:
        """A flat dictionary for a line of history.jsonl."""
        return {"epoch": self.epoch, "n_epochs": self.n_epochs, "seconds": self.seconds, **self.metrics}

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Self:
        """The record of such a line."""
        metrics = {k: v for k, v in line.items() if k not in ("epoch", "n_epochs", "seconds")}
        return cls(line["epoch"], line["n_epochs"], line["seconds"], metrics)


@dataclass
class History:
    """All epochs of one call of `fit`."""

    records: list[EpochRecord] = field(default_factory=list)
    failures: dict[int, str] = field(default_factory=dict)
    """Models of a population that met a non-finite loss, and where; they keep their last good weights."""
    one_by_one: str | None = None
    """Why the models of a list could not be trained as one population, if they could not."""

    def __getitem__(self, metric: str) -> list[Sequence[float]]:
        """A metric over the epochs in which it was measured: history["div"][epoch][model]."""
        found = [record.metrics[metric] for record in self.records if metric in record.metrics]
        if not found:
            known = sorted({name for record in self.records for name in record.metrics})
            raise KeyError(f"no metric {metric!r} in this history; there are {', '.join(known) or 'none'}")
        return found
