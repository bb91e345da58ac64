"""Data sets: rows, labels, names, and how to turn the model's units back into a person's."""

from countertrain.tables.catalogue import catalogue, load
from countertrain.tables.dataset import Dataset, Split
from countertrain.tables.real import load_frame

__all__ = ["Dataset", "Split", "catalogue", "load", "load_frame"]
