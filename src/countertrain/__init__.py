"""countertrain: train classifiers whose counterfactual explanations are plausible and actionable."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from countertrain.constraints import Constraints
    from countertrain.estimator import CounterfactualClassifier, load
    from countertrain.evaluation import metrics
    from countertrain.models.architectures import lenet, linear, mlp
    from countertrain.recourse.answer import Recourse
    from countertrain.regressor import CounterfactualRegressor
    from countertrain.search import generators, penalties, rules
    from countertrain.search.generator import Generator
    from countertrain.search.state import Counterfactuals
    from countertrain.tables.schema import Schema, SchemaError
    from countertrain.training import methods
    from countertrain.training.loss import CounterfactualLoss
    from countertrain.training.trainer import CounterfactualTrainer

    __version__: str

_PUBLIC = {
    "Constraints": "constraints",
    "CounterfactualClassifier": "estimator",
    "CounterfactualLoss": "training.loss",
    "CounterfactualRegressor": "regressor",
    "CounterfactualTrainer": "training.trainer",
    "Counterfactuals": "search.state",
    "Generator": "search.generator",
    "Recourse": "recourse.answer",
    "Schema": "tables.schema",
    "SchemaError": "tables.schema",
    "lenet": "models.architectures",
    "linear": "models.architectures",
    "load": "estimator",
    "mlp": "models.architectures",
}
"""Public names and where they live: imported when they are first asked for."""

_MODULES = {
    "generators": "search.generators",
    "methods": "training.methods",
    "metrics": "evaluation.metrics",
    "penalties": "search.penalties",
    "rules": "search.rules",
}
"""Public modules and where they live."""

__all__ = [
    "Constraints",
    "CounterfactualClassifier",
    "CounterfactualLoss",
    "CounterfactualRegressor",
    "CounterfactualTrainer",
    "Counterfactuals",
    "Generator",
    "Recourse",
    "Schema",
    "SchemaError",
    "__version__",
    "generators",
    "lenet",
    "linear",
    "load",
    "methods",
    "metrics",
    "mlp",
    "penalties",
    "rules",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("countertrain")
    elif name in _MODULES:
        value = import_module(f"countertrain.{_MODULES[name]}")
    elif name in _PUBLIC:
        value = getattr(import_module(f"countertrain.{_PUBLIC[name]}"), name)
    elif name.startswith("_"):  # Python and its tools ask for many of these
        raise AttributeError(f"module 'countertrain' has no attribute {name!r}")
    else:
        from countertrain.words import suggest

        hint = suggest(name, __all__, "dir(countertrain) lists them all")
        raise AttributeError(f"module 'countertrain' has no attribute {name!r}; {hint}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
