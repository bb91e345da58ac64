"""Training methods by name: counterfactual training, its halves, with a teacher; and those of others to compare."""

from dataclasses import replace
from typing import Literal, TypedDict, Unpack

from countertrain.models.population import Weight
from countertrain.search.generator import Generator
from countertrain.training.adversarial import pgd, ross, trades
from countertrain.training.counternet import counternet
from countertrain.training.ct import CounterfactualMethod, Immature, advloss, div, ridge, teach, yloss
from countertrain.training.gradsup import gradsup
from countertrain.training.jem import jem
from countertrain.training.method import Method, Session, Terms
from countertrain.training.teaching import Teacher
from countertrain.words import refuse_attribute

__all__ = [
    "CounterfactualMethod", "Method", "SearchOptions", "Session", "ar", "bl", "cd", "counternet", "ct", "gradsup",
    "jem", "pgd", "ross", "taught", "trades",
]  # fmt: skip
__getattr__ = refuse_attribute(__name__, __all__)


class SearchOptions(TypedDict, total=False):
    """How a method searches, as the fields of CounterfactualMethod say."""

    generator: Generator
    n_ce: int | None
    burn_in: float
    epsilon: Weight
    immature: Immature
    n_neighbours: int
    generate: Literal["sweep", "batch"]


def bl(*, lambda_clf: Weight = 1.0) -> CounterfactualMethod:
    """Conventional training, the paper's baseline: no search at all."""
    return CounterfactualMethod({"yloss": (lambda_clf, yloss)})


def ar(*, lambda_clf: Weight = 1.0, lambda_adv: Weight = 0.25, **search: Unpack[SearchOptions]) -> CounterfactualMethod:
    """Ablation: nascent counterfactuals as adversarial examples, no divergence."""
    return CounterfactualMethod({"yloss": (lambda_clf, yloss), "advloss": (lambda_adv, advloss)}, **search)


def cd(
    *, lambda_clf: Weight = 1.0, lambda_div: Weight = 0.5, lambda_reg: Weight = 0.1, **search: Unpack[SearchOptions]
) -> CounterfactualMethod:
    """Ablation: contrastive divergence with its ridge, no adversarial loss."""
    terms: Terms = {"yloss": (lambda_clf, yloss), "div": (lambda_div, div), "ridge": (lambda_reg, ridge)}
    return CounterfactualMethod(terms, **search)


def ct(
    *,
    lambda_clf: Weight = 1.0,
    lambda_div: Weight = 0.5,
    lambda_adv: Weight = 0.25,
    lambda_reg: Weight = 0.1,
    **search: Unpack[SearchOptions],
) -> CounterfactualMethod:
    """Counterfactual training, all four terms."""
    terms: Terms = {
        "yloss": (lambda_clf, yloss),
        "div": (lambda_div, div),
        "advloss": (lambda_adv, advloss),
        "ridge": (lambda_reg, ridge),
    }
    return CounterfactualMethod(terms, **search)


def taught(
    *,
    teacher: Teacher | None,
    teacher_sees: Literal["all", "mutable"] = "all",
    lambda_clf: Weight = 1.0,
    lambda_div: Weight = 0.1,
    lambda_reg: Weight = 0.1,
    lambda_teach: Weight = 2.0,
    **search: Unpack[SearchOptions],
) -> CounterfactualMethod:
    """Counterfactual training with a teacher, ours and not the paper's: it speaks in the place of the adversarial loss.

    Without a teacher, divergence and ridge are left.
    """
    half = cd(lambda_clf=lambda_clf, lambda_div=lambda_div, lambda_reg=lambda_reg, **search)
    if teacher is None:
        return half
    terms: Terms = {**half.terms, "teach": (lambda_teach, teach)}
    return replace(half, terms=terms, teacher=teacher, teacher_sees=teacher_sees)
