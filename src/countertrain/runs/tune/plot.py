"""A tuning as a picture."""

import itertools
from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from countertrain.plots import BLUE, INK, ORANGE, hide_spines

__all__ = ["plot_front"]


def plot_front(trials: pd.DataFrame, metrics: Sequence[str]) -> Figure:
    """Reductions by every trial of a tuning, two metrics at a time: those that clear every bar, and the front."""
    pairs = list(itertools.combinations(metrics, 2)) or [(metrics[0], metrics[0])]
    figure = Figure(figsize=(4.4 * len(pairs), 4.0), layout="constrained")
    axes = figure.subplots(1, len(pairs), squeeze=False)[0]
    kinds = (
        ("misses a bar", ~trials["feasible"], "#bbbbbb", 18),
        ("clears every bar", trials["feasible"] & ~trials["front"], BLUE, 22),
        ("on the front", trials["front"], ORANGE, 44),
    )
    best = trials[trials["feasible"]].nsmallest(1, "loss")
    for ax, (first, second) in zip(axes, pairs, strict=True):
        x, y = f"{first} reduction", f"{second} reduction"
        for label, mask, colour, size in kinds:
            ax.scatter(trials.loc[mask, x], trials.loc[mask, y], s=size, color=colour, label=label, alpha=0.85)
        ax.scatter(best[x], best[y], s=150, facecolors="none", edgecolors=INK, label="chosen")
        ax.axhline(0, color=INK, lw=0.6)
        ax.axvline(0, color=INK, lw=0.6)
        ax.set(xlabel=f"reduction of {first} (%)", ylabel=f"reduction of {second} (%)")
        hide_spines(ax)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure
