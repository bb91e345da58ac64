"""What training leaves to read: one record per epoch, one number per model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

from torch import Tensor

from countertrain.words import suggest

__all__ = ["BatchRecord", "EpochRecord", "History"]


@dataclass(frozen=True)
class BatchRecord:
    """One mini-batch that was learnt from: each loss term, a tensor with one number per model."""

    epoch: int
    """1, 2, ..."""
    batch: int
    """1, 2, ..., n_batches."""
    n_batches: int
    values: Mapping[str, Tensor]
    first_model: int = 0
    """The place of the first model that this is about, where they are trained one by one."""


@dataclass(frozen=True)
class EpochRecord:
    """Means over one epoch: each loss term, shares and accuracies, a list with one number per model.

    A term that looks at counterfactuals is averaged over the mini-batches that had any.
    """

    epoch: int
    n_epochs: int
    seconds: float
    metrics: Mapping[str, Sequence[float]]
    compile_seconds: float = 0.0
    """Spent on compiling, apart from `seconds`."""
    first_model: int = 0
    """The place of the first model that this is about, where they are trained one by one."""

    def as_json(self) -> dict[str, Any]:
        """A flat dictionary for a line of history.jsonl."""
        apart = {"compile_seconds": self.compile_seconds} if self.compile_seconds else {}
        return {"epoch": self.epoch, "n_epochs": self.n_epochs, "seconds": self.seconds, **apart, **self.metrics}

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Self:
        """The record of such a line."""
        known = [f.name for f in fields(cls) if f.name in line]
        metrics = {name: values for name, values in line.items() if name not in known}
        return cls(**{name: line[name] for name in known}, metrics=metrics)


@dataclass
class History:
    """All epochs of one call of `fit`."""

    records: list[EpochRecord] = field(default_factory=list)
    failures: dict[int, str] = field(default_factory=dict)
    """Models of a population that met a non-finite loss, and where; they keep their last good weights."""
    one_by_one: str | None = None
    """Why the models of a list could not be trained as one population, if they could not."""

    @classmethod
    def merged(cls, histories: Sequence["History"], one_by_one: str) -> Self:
        """The history of models trained one by one; where a model had stopped, its numbers are NaN."""
        records = []
        for i in range(max(len(history.records) for history in histories)):
            known = [history.records[i] if i < len(history.records) else None for history in histories]
            names = dict.fromkeys(name for record in known if record for name in record.metrics)
            nothing = [float("nan")]
            metrics = {
                name: [v for r in known for v in (r.metrics.get(name, nothing) if r else nothing)] for name in names
            }
            seconds, compiling = (sum(getattr(r, name) for r in known if r) for name in ("seconds", "compile_seconds"))
            records.append(EpochRecord(i + 1, max(r.n_epochs for r in known if r), seconds, metrics, compiling))
        failures = {i: why for i, history in enumerate(histories) for why in history.failures.values()}
        return cls(records, failures, one_by_one)

    def __getitem__(self, metric: str) -> list[Sequence[float]]:
        """A metric over the epochs in which it was measured: history["div"][epoch][model]."""
        found = [record.metrics[metric] for record in self.records if metric in record.metrics]
        if not found:
            known = sorted({name for record in self.records for name in record.metrics})
            raise KeyError(f"no metric {metric!r} in this history; {suggest(metric, known)}")
        return found
