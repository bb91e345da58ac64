"""Training methods by name: counterfactual training, its two halves, and conventional training."""

from typing import Any

from countertrain.models.population import Weight
from countertrain.search.generators import eccco
from countertrain.training.ct import CounterfactualMethod, advloss, div, ridge, yloss
from countertrain.training.method import Method, Session, Terms

__all__ = ["CounterfactualMethod", "Method", "Session", "ar", "bl", "cd", "ct"]


def bl(*, lambda_clf: Weight = 1.0) -> CounterfactualMethod:
    """Conventional training, the paper's baseline: no search at all."""
    return CounterfactualMethod({"yloss": (lambda_clf, yloss)})


def ar(*, lambda_clf: Weight = 1.0, lambda_adv: Weight = 0.25, **search: Any) -> CounterfactualMethod:
    """Ablation: nascent counterfactuals as adversarial examples, no divergence."""
    return _searching({"yloss": (lambda_clf, yloss), "advloss": (lambda_adv, advloss)}, search)


def cd(
    *, lambda_clf: Weight = 1.0, lambda_div: Weight = 0.5, lambda_reg: Weight = 0.1, **search: Any
) -> CounterfactualMethod:
    """Ablation: contrastive divergence with its ridge, no adversarial loss."""
    terms: Terms = {"yloss": (lambda_clf, yloss), "div": (lambda_div, div), "ridge": (lambda_reg, ridge)}
    return _searching(terms, search)


def ct(
    *,
    lambda_clf: Weight = 1.0,
    lambda_div: Weight = 0.5,
    lambda_adv: Weight = 0.25,
    lambda_reg: Weight = 0.1,
    **search: Any,
) -> CounterfactualMethod:
    """Counterfactual training, all four terms; `search` are fields of CounterfactualMethod: generator, n_ce, ..."""
    terms: Terms = {
        "yloss": (lambda_clf, yloss),
        "div": (lambda_div, div),
        "advloss": (lambda_adv, advloss),
        "ridge": (lambda_reg, ridge),
    }
    return _searching(terms, search)


def _searching(terms: Terms, search: dict[str, Any]) -> CounterfactualMethod:
    return CounterfactualMethod(terms, **{"generator": eccco(), **search})
