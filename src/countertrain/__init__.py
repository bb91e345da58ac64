"""countertrain: train classifiers whose counterfactual explanations are plausible and actionable."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from countertrain.constraints import Constraints
    from countertrain.estimator import CounterfactualClassifier
    from countertrain.models.architectures import lenet, linear, mlp
    from countertrain.recourse.answer import Recourse
    from countertrain.search.generator import Generator
    from countertrain.search.generators import eccco, generic, revise
    from countertrain.search.state import Counterfactuals
    from countertrain.search.vae import fit_vae
    from countertrain.tables.schema import Schema, SchemaError
    from countertrain.training.loss import CounterfactualLoss
    from countertrain.training.trainer import CounterfactualTrainer

_PUBLIC = {
    "Constraints": "constraints",
    "CounterfactualClassifier": "estimator",
    "CounterfactualLoss": "training.loss",
    "CounterfactualTrainer": "training.trainer",
    "Counterfactuals": "search.state",
    "Generator": "search.generator",
    "Recourse": "recourse.answer",
    "Schema": "tables.schema",
    "SchemaError": "tables.schema",
    "eccco": "search.generators",
    "fit_vae": "search.vae",
    "generic": "search.generators",
    "lenet": "models.architectures",
    "linear": "models.architectures",
    "mlp": "models.architectures",
    "revise": "search.generators",
}
"""Public names and where they live: imported when they are first asked for."""

__all__ = [
    "Constraints",
    "CounterfactualClassifier",
    "CounterfactualLoss",
    "CounterfactualTrainer",
    "Counterfactuals",
    "Generator",
    "Recourse",
    "Schema",
    "SchemaError",
    "eccco",
    "fit_vae",
    "generic",
    "lenet",
    "linear",
    "mlp",
    "revise",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'countertrain' has no attribute {name!r}")
    value = getattr(import_module(f"countertrain.{_PUBLIC[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
