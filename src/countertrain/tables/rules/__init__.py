"""Rules between the columns of a table: read from text, checked against rows, and obeyed by whatever is searched."""

from countertrain.tables.rules.rulebook import Rulebook

__all__ = ["Rulebook"]
