"""The training objective, Eq. (obj): named terms over the logits of one concatenated forward pass."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from countertrain.models.population import Population, Weight, member, per_model
from countertrain.search.losses import cross_entropy, energy
from countertrain.training.pairs import Group
from countertrain.training.ranks import Shared

__all__ = ["Objective", "Term", "TermState", "advloss", "ar", "bl", "cd", "ct", "div", "ridge", "yloss"]


@dataclass(frozen=True, slots=True, eq=False)
class TermState:
    """All that a term may see of one mini-batch of b real rows and its group of m counterfactuals."""

    logits: Tensor  # (P, b + 3 m, K): real rows, nascent counterfactuals, mature ones, their neighbours
    y: Tensor  # (P, b) classes of the real rows
    yloss: Tensor  # (P, b) cross-entropy of the real rows
    group: Group
    yloss_ae: Tensor  # (P, m) cross-entropy of the nascent counterfactuals
    energy_ce: Tensor  # (P, m) energy of the mature counterfactuals in their target class
    energy_plus: Tensor  # (P, m) energy of their neighbours


class Term(Protocol):
    """A term of the objective: one number a model."""

    def __call__(self, state: TermState, /) -> Tensor:
        """Loss of each model, (P,)."""
        ...


def yloss(state: TermState) -> Tensor:
    """Classification loss on the real rows."""
    return state.yloss.mean(-1)


def div(state: TermState) -> Tensor:
    """Contrastive divergence, Eq. (div): energy of the neighbours less that of the counterfactuals."""
    return state.group.mean(state.energy_plus - state.energy_ce)


def ridge(state: TermState) -> Tensor:
    """Size of both energies, Eq. (ridge): keeps the divergence from running away."""
    return state.group.mean(state.energy_plus.square() + state.energy_ce.square())


def advloss(state: TermState) -> Tensor:
    """Adversarial loss, Eq. (adv): nascent counterfactuals keep the true label of their factual."""
    return state.yloss_ae.mean(-1)


@dataclass(frozen=True)
class Objective:
    """A weighted sum of named terms. `yloss` is of the real rows; all others wait for counterfactuals."""

    terms: Mapping[str, tuple[Weight, Term]]

    @property
    def needs_counterfactuals(self) -> bool:
        """Whether any term looks at counterfactuals: without one, no search is made."""
        return any(name != "yloss" for name in self.terms)

    def __call__(
        self, model: Population | Shared, x: Tensor, y: Tensor, group: Group | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Total loss of each model (P,) and each term by name, for rows (P, b, D) and labels (P, b)."""
        if group is not None and group.size == 0:  # fewer counterfactuals than mini-batches
            group = None
        state = _forward(model, x, y, group)
        total = x.new_zeros(len(model))
        values: dict[str, Tensor] = {}
        for name, (weight, term) in self.terms.items():
            if name == "yloss" or group is not None:
                values[name] = term(state)
                total = total + _column(per_model(weight, len(model), x)) * values[name]
        return total, values

    def slopes(
        self, model: Population | Shared, x: Tensor, y: Tensor, group: Group | None = None
    ) -> tuple[dict[str, Tensor], tuple[Tensor | None, ...]]:
        """The total and each term by name, (P,) each, and the derivatives of the total by the trainable parameters."""
        total, values = self(model, x, y, group)
        # of the sum: models do not see one another
        gradients = torch.autograd.grad(total.sum(), model.trainable(), allow_unused=True)
        return {"loss": total.detach(), **{name: value.detach() for name, value in values.items()}}, gradients

    def member(self, i: int) -> "Objective":
        """The objective of model i alone."""
        return Objective({name: (member(weight, i), term) for name, (weight, term) in self.terms.items()})


def _forward(model: Population | Shared, x: Tensor, y: Tensor, group: Group | None) -> TermState:
    """One pass over real rows and counterfactuals together."""
    if group is None:
        logits = model(x)
        nothing = logits.new_zeros(len(model), 0)
        return TermState(logits, y, cross_entropy(logits, y), group, nothing, nothing, nothing)  # type: ignore[arg-type]
    b, m = x.shape[1], group.size
    if model.batch_dependent:  # batch statistics are of real rows only
        logits = model(x)
        with model.evaluating():
            logits = torch.cat([logits, model(group.rows)], dim=1)
    else:
        logits = model(_one_after_another(x, group.rows, rows_last=model.rows_last))
    labelled = cross_entropy(logits[:, : b + m], torch.cat([y, group.y_ae], dim=1))
    energies = energy(logits[:, b + m :], group.target)
    return TermState(logits, y, labelled[:, :b], group, labelled[:, b:], energies[:, :m], energies[:, m:])


def _one_after_another(x: Tensor, more: Tensor, *, rows_last: bool) -> Tensor:
    """Rows (P, b, D) and (P, m, D) as (P, b + m, D)."""
    if rows_last and torch.compiler.is_compiling():  # it reads a feature of several rows at once
        return torch.cat([x.mT, more.mT], dim=2).mT
    return torch.cat([x, more], dim=1)


def _column(weight: float | Tensor) -> float | Tensor:
    return weight if isinstance(weight, float) else weight.squeeze(-1)


def bl(*, lambda_clf: Weight = 1.0) -> Objective:
    """Conventional training, the paper's baseline: no search at all."""
    return Objective({"yloss": (lambda_clf, yloss)})


def ar(*, lambda_clf: Weight = 1.0, lambda_adv: Weight = 0.25) -> Objective:
    """Ablation: nascent counterfactuals as adversarial examples, no divergence."""
    return Objective({"yloss": (lambda_clf, yloss), "advloss": (lambda_adv, advloss)})


def cd(*, lambda_clf: Weight = 1.0, lambda_div: Weight = 0.5, lambda_reg: Weight = 0.1) -> Objective:
    """Ablation: contrastive divergence with its ridge, no adversarial loss."""
    return Objective({"yloss": (lambda_clf, yloss), "div": (lambda_div, div), "ridge": (lambda_reg, ridge)})


def ct(
    *,
    lambda_clf: Weight = 1.0,
    lambda_div: Weight = 0.5,
    lambda_adv: Weight = 0.25,
    lambda_reg: Weight = 0.1,
) -> Objective:
    """Counterfactual training, all four terms."""
    return Objective(
        {
            "yloss": (lambda_clf, yloss),
            "div": (lambda_div, div),
            "advloss": (lambda_adv, advloss),
            "ridge": (lambda_reg, ridge),
        }
    )
