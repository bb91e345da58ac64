"""Colours and habits that all figures share."""

from matplotlib.axes import Axes

__all__ = ["BLUE", "GREEN", "INK", "ORANGE", "PURPLE", "hide_spines"]

BLUE, ORANGE, GREEN, PURPLE, INK = "#2b6cb0", "#dd7a24", "#2f855a", "#805ad5", "#333333"


def hide_spines(ax: Axes) -> None:
    """No frame at the top and on the right."""
    ax.spines[["top", "right"]].set_visible(False)
