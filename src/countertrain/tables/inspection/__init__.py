"""A look at a table before training: everything that is odd about it at once, and a schema that deals with it."""

from countertrain.tables.inspection.findings import Finding
from countertrain.tables.inspection.inspect import inspect
from countertrain.tables.inspection.result import Inspection

__all__ = ["Finding", "Inspection", "inspect"]
