"""For people with a table and decisions to explain: columns in their own units, a classifier, and recourse."""

from countertrain.tabular.estimator import CounterfactualClassifier
from countertrain.tabular.recourse import Recourse
from countertrain.tabular.schema import Schema, SchemaError

__all__ = ["CounterfactualClassifier", "Recourse", "Schema", "SchemaError"]
