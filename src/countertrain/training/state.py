"""Everything that one training run would need to go on after being killed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler

from countertrain.files import CheckpointError, one_sentence, read_tensors, write_tensors
from countertrain.models.population import Population
from countertrain.models.steps import lay_out_like
from countertrain.training.averages import Averages
from countertrain.training.history import EpochRecord, History
from countertrain.training.loss import CounterfactualLoss

__all__ = ["Remembering", "TrainingState", "keep_models"]

_AGAIN = "delete it and train again"


@runtime_checkable
class Remembering(Protocol):
    """A callback whose word depends on earlier epochs: what it keeps goes into every checkpoint."""

    def __call__(self, record: EpochRecord) -> bool | None:
        """Look at an epoch; True: it was the last, also of a run that is resumed."""
        ...

    def state(self, first: int, n: int) -> Mapping[str, Tensor]:
        """What it keeps of n models, the first of which is at that place."""
        ...

    def load(self, state: Mapping[str, Tensor], first: int, n: int) -> None:
        """Go back to where `state` was taken."""
        ...


class TrainingState:
    """A population, its optimiser and schedule, what its method keeps, and its history, after a number of epochs."""

    def __init__(
        self,
        population: Population,
        optimizer: torch.optim.Optimizer,
        loss: CounterfactualLoss,
        seeds: Sequence[int],
        scheduler: LRScheduler | None = None,
        *,
        remembering: Sequence[Remembering] = (),
        averages: Averages | None = None,
        first_model: int = 0,
        note: str = "",
    ) -> None:
        self.population = population
        self.optimizer = optimizer
        self.loss = loss
        self.scheduler = scheduler
        self.averages = averages
        self.history = History()
        self.over = False
        """Whether a callback that remembers has ended the training."""
        self._remembering, self._first, self._note = remembering, first_model, note
        self._seed_note = str(list(seeds))
        self._good = self._snapshot()

    @property
    def epoch(self) -> int:
        """Epochs finished."""
        return len(self.history.records)

    def finish(self, record: EpochRecord, bad: dict[int, str]) -> None:
        """Close an epoch; models with a non-finite loss, now or before, go back to their last good weights."""
        self.history.failures.update(bad)
        with torch.no_grad():
            for name, tensor in self._tensors().items():
                for i in self.history.failures:
                    if len(self.population) == 1:
                        tensor.copy_(self._good[name])
                    elif name in self.population.parameters:
                        tensor[i] = self._good[name][i]
            if self.averages is not None and self.history.failures:
                self.averages.reset([*self.history.failures], stacked=len(self.population) > 1)
        self._good = self._snapshot()
        self.history.records.append(record)

    def watch(self, record: EpochRecord) -> None:
        """Let those look at an epoch whose word a checkpoint must hold."""
        enough = [callback(record) for callback in self._remembering]  # all of them are to see it
        self.over = any(enough)

    def save(self, path: Path) -> None:
        """Write a checkpoint."""
        optimizer = self.optimizer.state_dict()
        tensors = {f"model.{name}": tensor for name, tensor in self._tensors().items()}
        plain: dict[str, dict[str, Any]] = {}
        for i, entry in optimizer["state"].items():
            for name, value in entry.items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer.{i}.{name}"] = value
                else:
                    plain.setdefault(str(i), {})[name] = value
        tensors |= self.loss.state()
        if self.averages is not None:
            tensors |= {f"averages.{name}": tensor for name, tensor in self.averages.state().items()}
        for i, callback in enumerate(self._remembering):
            kept = callback.state(self._first, len(self.population))
            tensors |= {f"callback.{i}.{name}": value for name, value in kept.items()}
        tensors["global_stream"] = torch.get_rng_state()
        meta = {
            "note": self._note,
            "over": self.over,
            "seeds": self._seed_note,
            "param_groups": optimizer["param_groups"],
            "optimizer": plain,
            "scheduler": None if self.scheduler is None else _plain(self.scheduler.state_dict()),
            "records": [record.as_json() for record in self.history.records],
            "failures": {str(i): why for i, why in self.history.failures.items()},
        }
        write_tensors(path, tensors, meta)

    def load(self, path: Path) -> None:
        """Go back to where a checkpoint was written; refused unless models and seeds are those of the checkpoint."""
        tensors, meta = read_tensors(path)
        mine = {f"model.{name}": tuple(tensor.shape) for name, tensor in self._tensors().items()}
        theirs = {n: tuple(t.shape) for n, t in tensors.items() if n.startswith("model.")}
        if mine != theirs:
            odd = sorted(n for n in mine.keys() | theirs.keys() if mine.get(n) != theirs.get(n))[0]
            raise CheckpointError(
                f"{path} is of another architecture: {odd.removeprefix('model.')} has shape {theirs.get(odd)} there "
                f"and {mine.get(odd)} in this model; resume with the same model, or start in another folder"
            )
        if meta.get("seeds") != self._seed_note:
            raise CheckpointError(
                f"{path} was written with seeds {meta.get('seeds')}, this run has {self._seed_note}; "
                "resume with the same seeds, or start in another folder"
            )
        if meta.get("note") != self._note:
            raise CheckpointError(
                f"{path} was written by a training of other settings or rows; resume that one, or start in another "
                "folder"
            )
        with one_sentence(path, _AGAIN):
            self._restore(tensors, meta)

    def _restore(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """Take over what a checkpoint holds that is of these models."""
        with torch.no_grad():
            for name, tensor in self._tensors().items():
                tensor.copy_(tensors[f"model.{name}"])
        self._load_optimizer(tensors, meta)
        if self.scheduler is not None and meta.get("scheduler"):
            self.scheduler.load_state_dict(meta["scheduler"])
        self.loss.load(tensors, epoch=len(meta["records"]))
        if self.averages is not None:
            self.averages.load(_take_part(tensors, "averages."))
        for i, callback in enumerate(self._remembering):
            callback.load(_take_part(tensors, f"callback.{i}."), self._first, len(self.population))
        torch.set_rng_state(tensors["global_stream"])
        self.history.records = [EpochRecord.from_json(line) for line in meta["records"]]
        self.history.failures = {int(i): why for i, why in meta["failures"].items()}
        self.over = bool(meta["over"])
        self._good = self._snapshot()

    def _load_optimizer(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """Moments and counts of each parameter; a file knows no strides, so moments are laid out as it."""
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        state: dict[int, dict[str, Any]] = {int(i): dict(v) for i, v in meta["optimizer"].items()}
        for name, value in tensors.items():
            if name.startswith("optimizer."):
                _, place, key = name.split(".", 2)
                like = parameters[int(place)]
                state.setdefault(int(place), {})[key] = (
                    lay_out_like(like, value) if value.shape == like.shape else value
                )
        self.optimizer.load_state_dict({"state": state, "param_groups": meta["param_groups"]})

    def _tensors(self) -> dict[str, Tensor]:
        """Parameters, and for a single model its buffers (batch-norm statistics and the like)."""
        if len(self.population) > 1:
            return self.population.parameters
        return self.population.parameters | dict(self.population.modules[0].named_buffers())

    def _snapshot(self) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in self._tensors().items()}


def _take_part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _plain(state: dict[str, Any]) -> dict[str, Any]:
    """What JSON can hold of the state of a schedule: its numbers, not the functions that it was made with."""
    return {name: value for name, value in state.items() if isinstance(value, int | float | str | list | None)}


def keep_models(path: Path, kept: Sequence[int]) -> None:
    """Make a checkpoint of a population one of fewer models, by their places; those go on as if nothing had been."""
    tensors, meta = read_tensors(path)
    seeds = json.loads(meta["seeds"])
    if len(kept) == len(seeds):
        return
    places = torch.tensor(kept)

    def share(value: Tensor) -> Tensor:
        if value.ndim == 0:  # a count of updates, of all models
            return value
        return value[kept[0]] if len(kept) == 1 else value[places]  # one model alone is not stacked

    left = {name: share(t) for name, t in tensors.items() if name.startswith(("model.", "optimizer.", "averages."))}
    left |= {name: t[places] for name, t in tensors.items() if name.startswith("method.")}
    left |= {f"stream.{new}": tensors[f"stream.{old}"] for new, old in enumerate(kept)}
    left["global_stream"] = tensors["global_stream"]
    records = [EpochRecord.from_json(line) for line in meta["records"]]
    fewer = [replace(r, metrics={name: [v[i] for i in kept] for name, v in r.metrics.items()}) for r in records]
    failures = {str(new): meta["failures"][str(old)] for new, old in enumerate(kept) if str(old) in meta["failures"]}
    changed = {
        "seeds": str([seeds[i] for i in kept]),
        "records": [record.as_json() for record in fewer],
        "failures": failures,
    }
    write_tensors(path, left, meta | changed)
