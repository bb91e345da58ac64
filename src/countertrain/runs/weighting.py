"""Classes that weigh more than others: a weight for each, and the losses of rows weighted by it."""

import math
from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from countertrain.tables import Dataset
from countertrain.training.ct import advloss, cross_with_teacher, share_with_teacher, teach, yloss
from countertrain.training.method import Method, Term, TermState, needs
from countertrain.training.sums import BlockRows, Shares
from countertrain.words import suggest

if TYPE_CHECKING:
    from countertrain.runs.settings import Settings

__all__ = ["class_weights", "weight_classes", "weight_term"]


def class_weights(settings: "Settings", data: Dataset) -> Tensor | None:
    """A weight for each class, (K,), such that the training rows weigh 1 on average; None where all weigh the same.

    So scaled, the weighted losses keep their share of the whole objective.
    """
    given = settings.class_weight
    if given is None:
        return None
    counts = torch.bincount(data.train.y, minlength=data.n_classes).double()  # (K,)
    if given == "balanced":
        weight = 1 / counts.clamp(min=1)
    else:
        known = [*data.classes, *map(str, data.classes)]  # a command knows texts only
        weight = torch.ones(data.n_classes, dtype=torch.float64)
        for label, share in given:
            if label not in known:
                raise ValueError(f"class_weight has no class {label!r}; {suggest(label, data.classes)}")
            weight[known.index(label) % data.n_classes] = share
    mean = (weight * counts).sum() / counts.sum()
    if weight.min() < 0 or not 0 < mean < math.inf:
        raise ValueError(f"class_weight must hold finite numbers from 0 upwards, not all 0; got {given!r}")
    return (weight / mean).float()


def weight_classes(objective: Method, weight: Tensor) -> Method:
    """The objective with every loss against true classes weighted by class, (K,)."""
    if not is_dataclass(objective) or not any(term in (yloss, advloss) for _, term in objective.terms.values()):
        raise ValueError(
            "class_weight needs an objective with countertrain's yloss or advloss; weight the classes in your own term"
        )
    terms = {name: (share, weight_term(term, weight)) for name, (share, term) in objective.terms.items()}
    weighted: Method = replace(objective, terms=terms)
    return weighted


def weight_term(term: Term, weight: Tensor) -> Term:
    """The term with each row weighted by its class, (K,), where it is a loss against true classes or a teacher's."""
    if term is teach:
        shares = partial(share_with_teacher, weight=weight)
        return needs("x_ce", shares=shares)(lambda state: cross_with_teacher(state, weight))
    block = "x" if term is yloss else "x_ae" if term is advloss else None
    if block is None:
        return term

    def share_weighted(rows: Mapping[str, BlockRows]) -> dict[str, Shares]:
        return {block: Shares(loss=weight[rows[block].label] * rows[block].share)}

    @needs(block, shares=share_weighted)
    def weighted(state: TermState) -> Tensor:
        rows = state[block]
        return (weight[rows.label] * rows.loss).mean(-1)

    return weighted
