"""Generators and methods of other packages, found by Python entry points; no settings file ever names code."""

from collections.abc import Collection
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

__all__ = ["PluginError", "find_plugins", "load_plugin"]


class PluginError(ValueError):
    """A plug-in cannot be used; the message says whose it is and why."""


@cache
def find_plugins(group: str) -> dict[str, list[EntryPoint]]:
    """The entry points of a group by name, none of them imported yet."""
    found: dict[str, dict[str, EntryPoint]] = {}
    for point in entry_points(group=group):
        found.setdefault(point.name, {})[point.value] = point  # an installation may be listed twice
    return {name: list(points.values()) for name, points in found.items()}


def load_plugin(group: str, name: str, taken: Collection[str]) -> Any:
    """What a plug-in gives: something to call."""
    point, *others = find_plugins(group)[name]
    if others:
        raise PluginError(
            f"two packages offer {group} {name!r}, {point.value} and {others[0].value}; uninstall one of them"
        )
    if name in taken:
        raise PluginError(f"{point.value} offers {group} {name!r}, which countertrain has itself; rename the plug-in")
    try:
        maker = point.load()
    except Exception as error:  # whatever the module of somebody else raises
        raise PluginError(
            f"{group} {name!r} cannot be loaded from {point.value} ({type(error).__name__}: {error}); "
            "repair or uninstall that package"
        ) from error
    if not callable(maker):
        raise PluginError(f"{group} {name!r} must be a callable; {point.value} is of type {type(maker).__name__}")
    return maker
