"""A sentence for the owner of a model with its traffic light, and numbers as a person would round them."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

__all__ = ["Finding", "Light", "number", "percent", "rate"]

Light = Literal["warn", "look", "good"]
_NOTHING = "\N{EN DASH}"


@dataclass(frozen=True)
class Finding:
    """A sentence for the owner of the model."""

    light: Light
    text: str
    section: str
    """The part of the report that has the numbers."""


def percent(share: float | None) -> str:
    """A share in whole per cent; near nothing and near all in tenths, and never rounded to either."""
    if share is None or np.isnan(share):
        return _NOTHING
    if 0 < share < 0.0005:
        return "under 0.1 %"
    if 0.9995 <= share < 1:
        return "over 99.9 %"
    return f"{100 * share:.1f} %" if 0 < share < 0.01 or 0.99 < share < 1 else f"{100 * share:.0f} %"


def rate(value: float | None) -> str:
    """A rate such as an AUC in two digits; in three where it is nearly perfect."""
    if value is None or np.isnan(value):
        return _NOTHING
    return f"{value:.3f}" if value > 0.985 else f"{value:.2f}"


def number(value: float | None) -> str:
    """A number in three digits."""
    if value is None or np.isnan(value):
        return _NOTHING
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:#.3g}".rstrip(".")
