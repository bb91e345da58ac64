"""A network beside the classifier that writes counterfactuals in one pass, and learns in turns with it (CounterNet)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

from countertrain.models.population import Models, Weight, member, per_model
from countertrain.search.losses import predict
from countertrain.search.writing import Writer
from countertrain.training.ct import yloss
from countertrain.training.method import Session, Task, Terms
from countertrain.training.ranks import unshared

__all__ = ["WritingMethod", "WritingSession", "counternet"]


@dataclass(frozen=True)
class WritingMethod:
    """Named terms for the classifier, and beside it a network that learns to write counterfactuals of it."""

    terms: Terms = field(default_factory=lambda: {"yloss": (1.0, yloss)})
    lambda_valid: Weight = 1.0
    """How much it weighs that the target is reached."""
    lambda_near: Weight = 0.01
    """How much it weighs to stay near the factual."""
    hidden: tuple[int, ...] = (50, 50)
    """Units of the hidden layers of the network that writes."""
    learning_rate: float = 3e-3
    """Of the network that writes."""

    def bind(self, task: Task) -> Session:
        """The method on training rows."""
        return WritingSession(self, task)

    def member(self, i: int) -> Self:
        """The method of model i alone."""
        terms = {name: (member(weight, i), term) for name, (weight, term) in self.terms.items()}
        return type(self)(
            terms, member(self.lambda_valid, i), member(self.lambda_near, i), self.hidden, self.learning_rate
        )


class WritingSession(Session):
    """Writes a counterfactual of each row in one pass: the row itself, and what is to change for a target class."""

    def __init__(self, method: WritingMethod, task: Task) -> None:
        self._method, self._task = method, task
        seeds = task.sampler.draw(lambda stream: torch.randint(2**31, (1,), generator=stream)).flatten().tolist()
        self._writer = Writer(task.x, task.n_classes, seeds, hidden=method.hidden, learning_rate=method.learning_rate)
        self._log: list[dict[str, Tensor]] = []

    def write(self, x: Tensor, target: Tensor) -> Tensor:
        """Counterfactuals of rows (P, n, *shape) for target classes (P, n), within what people can change."""
        low, high = self._task.constraints.box(x)
        return self._writer(x, target, target).clamp(low, high)

    def before_epoch(self, model: Models, epoch: int, n_batches: int) -> None:
        """Nothing has been written yet."""
        self._log = []

    def after_step(self, model: Models, x: Tensor, y: Tensor) -> None:
        """The turn of the network that writes; the classifier stays as it is."""
        model = unshared(model)  # every rank writes the same
        size, method = len(model), self._method
        with model.evaluating():
            with torch.no_grad():
                target = self._task.sampler.targets(predict(model(x)))
            with torch.enable_grad():
                written = self.write(x, target)
                p = model(written).softmax(-1)
                aim = functional.one_hot(target, self._task.n_classes).to(p)
                valid = (p - aim).square().mean((1, 2))  # (P,)
                near = (written - x).flatten(2).square().mean((1, 2))
                weights = (per_model(weight, size, x) for weight in (method.lambda_valid, method.lambda_near))
                by_valid, by_near = (w if isinstance(w, float) else w.squeeze(-1) for w in weights)
                loss = by_valid * valid + by_near * near
                self._writer.improve(loss)
        reached = (p.detach().argmax(-1) == target).float().mean(-1)
        self._log.append({"writing": loss.detach(), "written_valid": reached})

    def metrics(self) -> dict[str, Tensor]:
        """What the network that writes is trained on, and the share of counterfactuals that reach their target."""
        names = self._log[0] if self._log else ()
        return {name: torch.stack([each[name] for each in self._log]).mean(0) for name in names}

    def state(self) -> dict[str, Tensor]:
        """The network that writes, and what its optimiser remembers."""
        return self._writer.state()

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Both as they were."""
        self._writer.load(state)


def counternet(
    *,
    lambda_clf: Weight = 1.0,
    lambda_valid: Weight = 1.0,
    lambda_near: Weight = 0.01,
    hidden_writer: tuple[int, ...] = (50, 50),
) -> WritingMethod:
    """CounterNet (Guo et al. 2023): in turns, the classifier learns from real rows, and a network to write for it.

    The classifier is any network, and shares no layer with the one that writes, which is told the target class.
    """
    return WritingMethod({"yloss": (lambda_clf, yloss)}, lambda_valid, lambda_near, hidden_writer)
