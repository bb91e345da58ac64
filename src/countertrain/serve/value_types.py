"""One value as people send it: what it may be, checked in words for them and written as JSON schema for machines."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from reprlib import repr as shorten
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, WithJsonSchema

from countertrain.recourse.rendering import WAYS, as_text
from countertrain.tables.encoder import Encoder
from countertrain.tables.schema import Boolean, Categorical, Level, Numeric
from countertrain.words import suggest

__all__ = ["choice_type", "find_limits", "integer_type", "make_example", "range_type", "value_type"]

Column = Numeric | Categorical | Boolean
Check = Callable[[Any], Any]

_FARTHEST = 1e30  # standard deviations


def value_type(column: Column, limits: Mapping[str, tuple[float, float]]) -> Any:
    """The type of a person's own value in a column; a number must lie within the limits of what can be computed."""
    check: Check
    shape: dict[str, Any]
    if isinstance(column, Numeric):
        low, high = limits[column.name]
        check = partial(_check_number, column, (low, high))
        shape = {"type": "integer" if column.integer else "number", "minimum": low, "maximum": high}
    elif isinstance(column, Categorical) and column.unseen != "refuse":
        check, shape = _check_scalar, {"type": ["string", "number", "boolean"], "examples": list(column.levels)}
    else:
        check, shape = partial(_check_choice, column.levels), {"enum": list(column.levels)}
    if column.missing != "refuse":
        check, shape = partial(_check_or_none, check), {"anyOf": [shape, {"type": "null"}]}
    said = (getattr(column, "unit", None), WAYS[column.mutability])
    return _annotate(check, {"title": column.name, "description": "; ".join(filter(None, said)), **shape})


def range_type(column: Column) -> Any:
    """The type of what a column may become: lowest and highest number, or a list of levels."""
    if isinstance(column, Numeric):
        ends = {"items": {"anyOf": [{"type": "number"}, {"type": "null"}]}, "minItems": 2, "maxItems": 2}
        said = f"Lowest and highest {column.name} to allow; null: any."
        return _annotate(partial(_check_range, column), {"type": "array", "description": said, **ends})
    levels = {"items": {"enum": [*dict.fromkeys((*column.levels, *column.labels))]}, "minItems": 1}
    said = f"Values that {column.name} may take."
    return _annotate(partial(_check_levels, column), {"type": "array", "description": said, **levels})


def choice_type(allowed: Sequence[Level]) -> Any:
    """The type of a value that must be one of a few."""
    return _annotate(partial(_check_choice, allowed), {"enum": list(allowed)})


def integer_type(low: int, high: int) -> Any:
    """The type of a whole number between two others."""
    check = partial(_check_number, Numeric(name="number", integer=True), (low, high))
    return _annotate(check, {"type": "integer", "minimum": low, "maximum": high})


def find_limits(encoder: Encoder) -> dict[str, tuple[float, float]]:
    """The lowest and highest number of each column that a network can compute with.

    A person's own number may lie outside the bounds of its column, which say only what advice may become.
    """
    limits = {}
    for column, scale in zip(encoder.schema.columns, encoder.scales, strict=True):
        if isinstance(column, Numeric):
            middle, reach = float(scale.decode(np.zeros(1))[0]), _FARTHEST * scale.spread
            limits[column.name] = middle - reach, middle + reach
    return limits


def make_example(column: Column) -> Any:
    """A value that a person may well have."""
    if not isinstance(column, Numeric):
        return column.levels[0]
    assert column.lower is not None
    assert column.upper is not None
    middle = float(column.round_to_step(np.array([(column.lower + column.upper) / 2]))[0])
    return int(middle) if column.integer else middle


def _annotate(check: Check, shape: dict[str, Any]) -> Any:
    return Annotated[Any, AfterValidator(check), WithJsonSchema(shape)]


def _check_number(column: Numeric, limits: tuple[float, float], value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be a number; got {shorten(value)}")
    low, high = limits
    if not low <= value <= high:  # which refuses NaN, too
        unit = f" {column.unit}" if column.unit else ""
        raise ValueError(f"must lie between {as_text(low)} and {as_text(high)}{unit}; got {shorten(value)}")
    if column.integer and value != int(value):
        raise ValueError(f"must be a whole number; got {shorten(value)}")
    return int(value) if column.integer else float(value)


def _check_choice(allowed: Sequence[Level], value: Any) -> Level:
    for level in allowed:
        if value == level and isinstance(value, bool) == isinstance(level, bool):  # JSON's true is not 1
            return level
    for level in allowed:  # the same in words, but text where it is a number or a truth value, or the other way round
        if str(value).lower() == str(level).lower() and not isinstance(value, type(level)):
            raise ValueError(f"cannot be {json.dumps(value)}; send it as {json.dumps(level)}")
    raise ValueError(f"cannot be {shorten(value)}; {suggest(value, allowed)}")


def _check_scalar(value: Any) -> Level:
    if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(f"must be text, a number or a truth value; got {shorten(value)}")


def _check_or_none(check: Check, value: Any) -> Any:
    return None if value is None else check(value)


def _check_range(column: Numeric, limits: Any) -> list[float | None]:
    everything = partial(_check_number, column.model_copy(update={"integer": False}), (-1e300, 1e300))
    if not isinstance(limits, list) or len(limits) != 2:
        raise ValueError(
            f"must be the lowest and the highest number, either of which may be null; got {shorten(limits)}"
        )
    low, high = (_check_or_none(everything, limit) for limit in limits)
    lowest, highest = (end for end in (column.lower, column.upper) if end is not None)
    if not max(lowest, lowest if low is None else low) <= min(highest, highest if high is None else high):
        raise ValueError(f"must have something in common with {as_text(lowest)} to {as_text(highest)}")
    column.within([low, high])
    return [low, high]


def _check_levels(column: Categorical | Boolean, levels: Any) -> list[str]:
    if not isinstance(levels, list):
        raise ValueError(f"must be a list of values; got {shorten(levels)}")
    labels = [level if level in column.labels else str(_check_choice(column.levels, level)) for level in levels]
    column.within(labels)
    return labels
