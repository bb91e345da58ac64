"""Data sets: rows, labels, names, and how to turn the model's units back into a person's."""

from countertrain.data.catalogue import catalogue, load
from countertrain.data.dataset import Dataset, Split
from countertrain.data.real import load_frame

__all__ = ["Dataset", "Split", "catalogue", "load", "load_frame"]
