"""What watches a training: early stopping, and a bar for people who wait."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from countertrain.models.deciding import logits_of
from countertrain.tables.dataset import Split
from countertrain.training.history import EpochRecord
from countertrain.training.trainer import Callback

__all__ = ["EarlyStopping", "progress_bar"]


class EarlyStopping:
    """A callback that ends training once no model's validation loss has fallen for `patience` epochs.

    It keeps the best weights of each model, in checkpoints, too; `restore` brings them back.
    """

    def __init__(self, models: Sequence[nn.Module], rows: Split, weight: Tensor | None, patience: int) -> None:
        self._all = [_Best(model) for model in models]
        self._rows, self._patience = rows, patience
        self._weight = None if weight is None else weight.double()

    def __call__(self, record: EpochRecord) -> bool:
        """Look at the weights after an epoch; True: it was the last."""
        first = record.first_model
        training = self._all[first : first + len(record.metrics["train_loss"])]
        for best in training:
            logits = logits_of(best.model, self._rows.x)
            best.see(float(functional.cross_entropy(logits, self._rows.y, self._weight)))
        return all(best.age >= self._patience for best in training)

    def state(self, first: int, n: int) -> dict[str, Tensor]:
        """The best weights so far of n models, their loss and their age."""
        return {f"{i}.{name}": value for i in range(n) for name, value in self._all[first + i].state().items()}

    def load(self, state: Mapping[str, Tensor], first: int, n: int) -> None:
        """Go back to where `state` was taken."""
        for i in range(n):
            prefix = f"{i}."
            self._all[first + i].load(
                {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
            )

    def restore(self) -> None:
        """Put the best weights of each model back into it."""
        for best in self._all:
            if best.weights:
                best.model.load_state_dict(best.weights)


@dataclass
class _Best:
    """A model, its lowest validation loss, the weights that had it, and how many epochs ago that was."""

    model: nn.Module
    loss: float = float("inf")
    age: int = 0
    weights: dict[str, Any] = field(default_factory=dict)

    def see(self, loss: float) -> None:
        self.age += 1
        if loss < self.loss:
            self.loss, self.age, self.weights = loss, 0, copy.deepcopy(self.model.state_dict())

    def state(self) -> dict[str, Tensor]:
        numbers = {"loss": torch.tensor(self.loss, dtype=torch.float64), "age": torch.tensor(self.age)}
        return numbers | {f"weights.{name}": value for name, value in self.weights.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.loss, self.age = float(state["loss"]), int(state["age"])
        self.weights = {n.removeprefix("weights."): t for n, t in state.items() if n.startswith("weights.")}


@contextmanager
def progress_bar(n_epochs: int, *, shown: bool) -> Iterator[list[Callback]]:
    """A bar on stderr with epochs, time left, loss and share of mature counterfactuals, if it is to be `shown`."""
    if not shown:
        yield []
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TextColumn

    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("training", total=n_epochs, note="")

        def show(record: EpochRecord) -> None:
            metrics = {name: sum(values) / len(values) for name, values in record.metrics.items()}
            note = "  ".join(f"{name} {metrics[name]:.3g}" for name in ("train_loss", "mature") if name in metrics)
            progress.update(task, completed=record.epoch, note=note)

        yield [show]
