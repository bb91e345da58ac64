"""Tables: where rows come from, what their columns mean, and how they become numbers that a model can see, and back."""

from countertrain.tables.catalogue import catalogue, inspect_source, load, load_frame, naming_lines, propose_fixed
from countertrain.tables.dataset import Dataset, Split
from countertrain.tables.inspection import Finding, Inspection, inspect
from countertrain.tables.sources.files import read_table

__all__ = [
    "Dataset", "Finding", "Inspection", "Split", "catalogue", "inspect", "inspect_source", "load", "load_frame",
    "naming_lines", "propose_fixed", "read_table",
]  # fmt: skip
