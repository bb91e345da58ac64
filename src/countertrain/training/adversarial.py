"""Adversarial training: rows that an attack makes of each mini-batch, and the terms that look at them."""

from dataclasses import dataclass, replace
from typing import Literal, Protocol, Self

import torch
from torch import Tensor

from countertrain.models.population import Models, Weight, member
from countertrain.search import generators
from countertrain.search.generator import Generator
from countertrain.search.losses import log_probabilities, predict
from countertrain.search.penalties import ClassLogProbability, CrossEntropy, Escape
from countertrain.search.rules import Sign
from countertrain.search.starts import Around
from countertrain.training.ct import advloss, yloss
from countertrain.training.method import Blocks, Session, Task, Terms, TermState, needs
from countertrain.training.ranks import unshared
from countertrain.training.sums import Shares

__all__ = ["AdversarialMethod", "Attack", "draw_seeds", "drift", "pgd", "reach", "ross", "search_rows", "trades"]


@needs("x", "x_ae")
def drift(state: TermState) -> Tensor:
    """How far opinions drift under attack: KL divergence of what is said of attacked rows from that of real ones."""
    real, attacked = state["x"].log_p, state["x_ae"].log_p
    return (real.exp() * (real - attacked)).sum(-1).mean(-1)


@needs("x_ce", shares=lambda rows: {"x_ce": Shares(loss=rows["x_ce"].share)})
def reach(state: TermState) -> Tensor:
    """Cross-entropy of the target class where one step of recourse ends (Ross et al.)."""
    return state["x_ce"].loss.mean(-1)


class Attack(Protocol):
    """What makes rows beside a mini-batch."""

    def __call__(self, task: Task, model: Models, x: Tensor, y: Tensor, /) -> Blocks:
        """The blocks beside rows (P, b, *shape) of classes (P, b)."""
        ...


@dataclass(frozen=True)
class AdversarialMethod:
    """Named terms over rows that an attack makes of each mini-batch; weights may be one number or one per model."""

    terms: Terms
    attack: Attack

    def bind(self, task: Task) -> Session:
        """The method on training rows."""
        return _AdversarialSession(self.attack, task)

    def member(self, i: int) -> Self:
        """The method of model i alone."""
        return replace(self, terms={name: (member(weight, i), term) for name, (weight, term) in self.terms.items()})


class _AdversarialSession(Session):
    def __init__(self, attack: Attack, task: Task) -> None:
        self._attack, self._task = attack, task

    def rows(self, model: Models, x: Tensor, y: Tensor) -> Blocks:
        """What the attack makes of the mini-batch."""
        return self._attack(self._task, model, x, y)


def draw_seeds(task: Task, n: int) -> Tensor:
    """A new seed for each of n rows of each model, (P, n)."""
    return task.sampler.draw(lambda stream: torch.randint(2**62, (n,), generator=stream))


def search_rows(task: Task, generator: Generator, model: Models, start: Tensor, target: Tensor) -> Tensor:
    """Where a search ends for rows (P, n, *shape) and targets (P, n); several ranks share the rows."""
    n = target.shape[1]
    mine, seed = task.ranks.share(n), draw_seeds(task, n)
    generator = replace(generator, penalties=[(_cut(weight, mine), p) for weight, p in generator.penalties])
    found = generator(
        unshared(model), start[:, mine], target[:, mine], constraints=task.constraints, seed=seed[:, mine]
    )
    return task.ranks.gather(found.x, n)


def _cut(weight: Weight, part: slice) -> Weight:
    """The weights of some rows, where each row has one of its own."""
    return weight[:, part] if isinstance(weight, Tensor) and weight.ndim == 2 else weight


@dataclass(frozen=True)
class _Worst:
    """The row near each real one that the model finds least likely in its class (Madry et al.)."""

    generator: Generator

    def __call__(self, task: Task, model: Models, x: Tensor, y: Tensor) -> Blocks:
        return Blocks.of(x_ae=(search_rows(task, self.generator, model, x, y), y))


@dataclass(frozen=True)
class _Farthest:
    """The row near each real one of which the model's opinion differs most, whatever the class (TRADES)."""

    generator: Generator

    def __call__(self, task: Task, model: Models, x: Tensor, y: Tensor) -> Blocks:
        with model.evaluating(), torch.no_grad():
            p = log_probabilities(model(x)).exp()  # (P, K, b)
        # the largest KL divergence from p has the smallest sum of p_k log q_k
        penalties = [(p[:, k], ClassLogProbability(k)) for k in range(p.shape[1])]
        generator = replace(self.generator, penalties=penalties)
        return Blocks.of(x_ae=(search_rows(task, generator, model, x, y), y))


@dataclass(frozen=True)
class _Recourse:
    """One step of recourse from each real row: to one class for all, or to one that the model does not predict."""

    generator: Generator
    target_class: int | None

    def __call__(self, task: Task, model: Models, x: Tensor, y: Tensor) -> Blocks:
        if self.target_class is None:
            with model.evaluating(), torch.no_grad():
                target = task.sampler.targets(predict(model(x)))
        else:
            target = torch.full_like(y, self.target_class)
        return Blocks.of(x_ce=(search_rows(task, self.generator, model, x, target), target))


def pgd(*, epsilon: float = 0.3, n_steps: int = 10) -> AdversarialMethod:
    """Adversarial training (Madry et al. 2018): learn from the worst row within epsilon of each real one.

    Steps of 2.5 epsilon / n_steps, so that every corner of the ball can be reached. What people cannot change, the
    attack cannot change either.
    """
    attack = generators.pgd(_check_reach(epsilon), step_size=2.5 * epsilon / max(n_steps, 1), n_steps=n_steps)
    return AdversarialMethod({"advloss": (1.0, advloss)}, _Worst(attack))


def trades(
    *, epsilon: float = 0.3, n_steps: int = 10, lambda_clf: Weight = 1.0, lambda_drift: Weight = 1.0
) -> AdversarialMethod:
    """TRADES (Zhang et al. 2019): cross-entropy of real rows, and how far the worst row near each drifts from it."""
    attack = Generator(
        (),
        loss=None,
        rule=Sign(2.5 * _check_reach(epsilon) / max(n_steps, 1)),
        start=Around(1e-3),  # at the real row itself, the divergence has no slope
        n_steps=n_steps,
        tau=None,
        radius=epsilon,
    )
    return AdversarialMethod({"yloss": (lambda_clf, yloss), "drift": (lambda_drift, drift)}, _Farthest(attack))


def ross(
    *,
    epsilon: float = 0.75,
    lambda_clf: Weight = 1.0,
    lambda_reach: Weight = 0.8,
    target_class: int | None = None,
    direction: Literal["towards", "away"] = "towards",
) -> AdversarialMethod:
    """Ross, Lakkaraju and Bastani (2021): after a step of epsilon in every feature, the target is to be reached.

    The step is the exact optimum of the linearised loss within the box. `direction="away"` is the sign of the authors'
    released program. Two classes have one that people want; without a `target_class`, it is one that is not predicted.
    """
    if direction not in ("towards", "away"):
        raise ValueError(f"direction must be one of towards, away; got {direction!r}")
    loss = CrossEntropy() if direction == "towards" else Escape()
    step = Generator((), loss=loss, rule=Sign(_check_reach(epsilon)), n_steps=1, tau=None, radius=epsilon)
    terms: Terms = {"yloss": (lambda_clf, yloss), "reach": (lambda_reach, reach)}
    return AdversarialMethod(terms, _Recourse(step, target_class))


def _check_reach(epsilon: float) -> float:
    if not isinstance(epsilon, int | float):
        raise ValueError(
            f"epsilon of an attack must be one number for all models; got {epsilon!r}; train them one after another"
        )
    return epsilon
