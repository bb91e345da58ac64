"""Training methods by name: counterfactual training, its two halves, and conventional training."""

from typing import Literal, TypedDict, Unpack

from countertrain.models.population import Weight
from countertrain.search.generator import Generator
from countertrain.training.ct import CounterfactualMethod, Immature, advloss, div, ridge, yloss
from countertrain.training.method import Method, Session, Terms
from countertrain.words import refuse_attribute

__all__ = ["CounterfactualMethod", "Method", "SearchOptions", "Session", "ar", "bl", "cd", "ct"]
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
