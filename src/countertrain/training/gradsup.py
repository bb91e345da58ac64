"""Gradient supervision: the slope of the model points to where real rows of another class are."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

from countertrain.models.population import Models, Weight, member
from countertrain.search.losses import predict
from countertrain.training.ct import yloss
from countertrain.training.method import Blocks, Session, Task, Terms, TermState, needs
from countertrain.training.ranks import ALONE, Shared, unshared

__all__ = ["GradientMethod", "alignment", "gradsup"]


@needs("x", "x_plus")
def alignment(state: TermState) -> Tensor:
    """One less the cosine between the slope of the target's logit at a row and the way to a real row of that class."""
    rows, plus = state["x"].x.detach(), state["x_plus"]
    n = rows.shape[1]
    ranks = state.model.ranks if isinstance(state.model, Shared) else ALONE
    mine = ranks.share(n)
    x = rows[:, mine].clone().requires_grad_()
    logits = unshared(state.model)(x)
    aim = logits.gather(-1, plus.label[:, mine].unsqueeze(-1))  # (P, n, 1)
    (slope,) = torch.autograd.grad(aim.sum(), x, create_graph=True)
    way = plus.x[:, mine] - rows[:, mine]
    cosine = functional.cosine_similarity(slope.flatten(2), way.flatten(2), dim=-1)  # (P, n)
    return ranks.gather(1 - cosine, n).mean(-1)


@dataclass(frozen=True)
class GradientMethod:
    """Named terms over the rows of a mini-batch, each beside a real row of a class that the model does not predict."""

    terms: Terms
    n_neighbours: int = 16
    """x_plus is the one nearest to its row of so many random rows of the target class."""

    def __post_init__(self) -> None:
        if self.n_neighbours < 1:
            raise ValueError(f"n_neighbours must be at least 1; got {self.n_neighbours}")

    def bind(self, task: Task) -> Session:
        """The method on training rows."""
        return _GradientSession(self, task)

    def member(self, i: int) -> Self:
        """The method of model i alone."""
        return replace(self, terms={name: (member(weight, i), term) for name, (weight, term) in self.terms.items()})


class _GradientSession(Session):
    def __init__(self, method: GradientMethod, task: Task) -> None:
        self._method, self._task = method, task

    def rows(self, model: Models, x: Tensor, y: Tensor) -> Blocks:
        """A real row of another class for each row of the mini-batch; what nobody can change is the row's own."""
        task = self._task
        with model.evaluating(), torch.no_grad():
            target = task.sampler.targets(predict(model(x)))
        x_plus = task.sampler.nearest(task.x, target, x, self._method.n_neighbours)
        return Blocks.of(x_plus=(task.constraints.reachable(x_plus, x), target))


def gradsup(*, lambda_clf: Weight = 1.0, lambda_align: Weight = 0.5, n_neighbours: int = 16) -> GradientMethod:
    """Gradient supervision (Teney, Abbasnejad and van den Hengel 2020), with the nearest of some real rows as pairs.

    Where a feature cannot move, the way has no part in it, so that a slope there counts against the model.
    """
    return GradientMethod({"yloss": (lambda_clf, yloss), "alignment": (lambda_align, alignment)}, n_neighbours)
