"""Columns in which a model is to be monotone: declared, looked at before training, and made so."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from countertrain.models.monotone import Monotone
from countertrain.tables.dataset import Dataset
from countertrain.tables.labels import find_class
from countertrain.tables.schema import Categorical, Schema, SchemaError
from countertrain.tables.sentences import say_all
from countertrain.words import list_names, suggest

if TYPE_CHECKING:
    from countertrain.runs.settings import Settings

__all__ = ["build_monotone", "declare_monotone"]


def declare_monotone(settings: "Settings", schema: Schema, names: Sequence[str] | None = None) -> Schema:
    """The schema in which columns are monotone as the settings say, which overrule it; refused with all that is wrong.

    Directions without names are those of the columns `names`, or else of the schema's.
    """
    columns = schema.names if names is None else names
    signs = _name_signs(settings, columns)
    wrong = [
        f"monotone names {name!r}, which is no column; {suggest(name, schema.names)}"
        for name in signs
        if name not in schema.names and (signs[name] != "0" or name not in columns)
    ]
    known = {name: sign for name, sign in signs.items() if name in schema.names}
    for name, sign in known.items():
        column = schema[name]
        if sign != "0" and isinstance(column, Categorical) and not column.ordered:
            wrong.append(
                f"monotone names {name!r}, whose levels are in no order; declare it ordered, its levels from the first "
                "to the last, or leave it out"
            )
    declared = {c.name for c in schema.columns if c.monotone is not None} | {n for n, s in known.items() if s != "0"}
    if declared - {name for name, sign in known.items() if sign == "0"} and settings.target is None:
        wrong.append(
            "monotone is said of the class that people want, and nobody said which; give a target, too: as a column "
            "with '+' rises, its probability never falls"
        )
    if wrong:
        raise SchemaError(say_all(wrong))
    return schema.with_columns(**{name: {"monotone": sign} for name, sign in known.items()}) if known else schema


def _name_signs(settings: "Settings", columns: Sequence[str]) -> dict[str, str]:
    given = settings.monotone
    if all(isinstance(one, tuple) for one in given):
        return dict(given)  # type: ignore[arg-type]  # pairs, as was just asked
    if len(given) != len(columns):
        raise SchemaError(
            f"monotone lists {len(given)} directions; a list needs one for each of {len(columns)} columns "
            f"({list_names(columns)}); give them by name, or as many"
        )
    return dict(zip(columns, given, strict=True))  # type: ignore[arg-type]


def build_monotone(settings: "Settings", data: Dataset, module: nn.Module) -> Monotone | None:
    """What keeps a module monotone in the columns of which the schema says so; None where it says so of none."""
    ways, levels = torch.zeros(data.n_features), []
    for column, part in zip(data.schema.columns, data.encoder.slices, strict=True):
        way = {"+": 1, "-": -1, None: 0}[column.monotone]
        if way and isinstance(column, Categorical):
            levels.append((slice(part.start, part.start + len(column.levels)), way))
        else:
            ways[part.start] = way  # not of whether the number is missing
    if not levels and not ways.any():
        return None
    return Monotone.of(module, ways, find_class(settings.target, data.classes), levels)
