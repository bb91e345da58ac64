"""Generators and methods of other packages, found by Python entry points; no settings file ever names code."""

from collections.abc import Collection
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

__all__ = ["PluginError", "find_plugins", "load_plugin"]


class PluginError(ValueError):
    """A plug-in cannot be used; the message says whose it is and why."""


@cache
def find_plugins(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name, none of them imported yet."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        if point.name in found and found[point.name].value != point.value:
            raise PluginError(
                f"two packages offer {group} {point.name!r}, {found[point.name].value} and {point.value}; "
                "uninstall one of them"
            )
        found[point.name] = point
    return found


def load_plugin(group: str, name: str, taken: Collection[str]) -> Any:
    """What a plug-in gives: something to call."""
    point = find_plugins(group)[name]
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
