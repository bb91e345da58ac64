"""Trainers of tests: settings of the trainer and of its method side by side, as a sentence would say them."""

from dataclasses import fields, replace
from typing import Any

from countertrain.training.ct import CounterfactualMethod
from countertrain.training.methods import ct
from countertrain.training.trainer import CounterfactualTrainer

_OF_METHOD = {f.name for f in fields(CounterfactualMethod)} - {"terms"}


def make(**settings: Any) -> CounterfactualTrainer:
    """A trainer by counterfactual training, unless an objective is given."""
    return change(CounterfactualTrainer(), **settings)


def change(trainer: CounterfactualTrainer, **changes: Any) -> CounterfactualTrainer:
    """The trainer with some settings changed, of its own or of its method; an `objective` gives its terms."""
    objective: Any = changes.pop("objective", trainer.objective)
    of_method = {name: changes.pop(name) for name in [*changes] if name in _OF_METHOD}
    method = replace(trainer.objective, terms=objective.terms, **of_method)  # type: ignore[type-var]
    return replace(trainer, objective=method, **changes)


__all__ = ["change", "ct", "make"]
