"""Tables: where rows come from, what their columns mean, and how they become numbers that a model can see, and back."""

from countertrain.tables.catalogue import catalogue, load, load_frame
from countertrain.tables.dataset import Dataset, Split
from countertrain.tables.sources.files import read_table

__all__ = ["Dataset", "Split", "catalogue", "load", "load_frame", "read_table"]
