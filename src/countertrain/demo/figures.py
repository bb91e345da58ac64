"""Pictures, as matplotlib figures that nobody has to show."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from countertrain.demo.job import Outcome
from countertrain.plots import BLUE, GREEN, INK, ORANGE, hide_spines

__all__ = ["Panel", "embed", "plot_panels", "plot_truth"]


@dataclass(frozen=True, eq=False)
class Panel:
    """One linear classifier with counterfactuals, in two dimensions."""

    title: str
    factual: Tensor  # (n, 2)
    x: Tensor  # (n, 2) their counterfactuals
    normal: tuple[float, float]
    offset: float
    """The decision boundary: normal . x + offset = 0."""


def plot_panels(
    panels: Sequence[Panel], x: Tensor, y: Tensor, features: Sequence[str], classes: Sequence[str]
) -> Figure:
    """The paper's Figure 1: data, boundary, and where counterfactuals of rejected applicants end up."""
    figure = Figure(figsize=(11.5, 3.5), layout="constrained")
    axes = figure.subplots(1, len(panels), sharex=True, sharey=True)
    spread = np.vstack([x.numpy(), *(panel.x.numpy() for panel in panels)])
    low, high = spread.min(0) - 0.2, spread.max(0) + 0.2
    for ax, panel in zip(axes, panels, strict=True):
        for label, colour in ((0, BLUE), (1, ORANGE)):
            rows = x[y == label].numpy()
            ax.scatter(rows[:, 0], rows[:, 1], s=7, color=colour, alpha=0.25, linewidths=0)
        _draw_boundary(ax, panel, low, high)
        start, end = panel.factual.numpy(), panel.x.numpy()
        for a, b in zip(start, end, strict=True):
            ax.plot([a[0], b[0]], [a[1], b[1]], color=INK, lw=0.5, alpha=0.35)
        ax.scatter(start[:, 0], start[:, 1], s=10, color=BLUE, zorder=3)
        ax.scatter(end[:, 0], end[:, 1], s=70, marker="*", color="#f6c945", edgecolors=INK, linewidths=0.6, zorder=4)
        ax.set(title=panel.title, xlabel=features[0], xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        ax.title.set_fontsize(10)
        ax.set_aspect("equal", adjustable="box")
        hide_spines(ax)
    axes[0].set_ylabel(features[1])
    handles = [
        axes[0].scatter([], [], s=20, color=BLUE, label=classes[0]),
        axes[0].scatter([], [], s=20, color=ORANGE, label=classes[1]),
        axes[0].scatter(
            [], [], s=70, marker="*", color="#f6c945", edgecolors=INK, linewidths=0.6, label="counterfactual"
        ),
        axes[0].plot([], [], color=GREEN, lw=2, label="decision boundary")[0],
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure


def _draw_boundary(
    ax: Axes,
    panel: Panel,
    low: "np.ndarray[tuple[int], np.dtype[np.float64]]",
    high: "np.ndarray[tuple[int], np.dtype[np.float64]]",
) -> None:
    a, b = panel.normal
    if abs(b) >= abs(a):
        xs = np.array([low[0], high[0]])
        ax.plot(xs, -(a * xs + panel.offset) / b, color=GREEN, lw=2, zorder=2)
    else:
        ys = np.array([low[1], high[1]])
        ax.plot(-(b * ys + panel.offset) / a, ys, color=GREEN, lw=2, zorder=2)


def plot_truth(outcomes: Sequence[Outcome], before: float, accepted: float) -> Figure:
    """The true probability of repaying once people have acted, against what that costs them; a line for each model."""
    figure = Figure(figsize=(5.4, 3.5), layout="constrained")
    ax = figure.subplots()
    for name, colour, marker in (("conventional", BLUE, "s"), ("CT", ORANGE, "o")):
        mine = sorted((one for one in outcomes if one.model == name), key=lambda one: one.tau)
        costs, truths = [outcome.cost for outcome in mine], [outcome.true_probability for outcome in mine]
        ax.plot(costs, truths, color=colour, marker=marker, ms=6, lw=1.8, label=name)
        for outcome in (mine[0], mine[-1]):
            place = (outcome.cost, outcome.true_probability)
            ax.annotate(f"{outcome.tau:g}", place, (5, -11), textcoords="offset points", fontsize=8, color=colour)
    for height, what in ((accepted, "accepted applicants"), (before, "declined, before the advice")):
        ax.axhline(height, color=INK, lw=0.8, ls="--", alpha=0.6)
        ax.annotate(
            what, (0.01, height), (0, 3), xycoords=("axes fraction", "data"), textcoords="offset points", fontsize=8
        )
    ax.set(xlabel="cost of the advice, mean", ylabel="true probability of repaying", ylim=(0, 1), xlim=(0, None))
    ax.legend(frameon=False, fontsize=9, loc="lower right", bbox_to_anchor=(1, 0.22))
    hide_spines(ax)
    return figure


def embed(figure: Figure) -> str:
    """A figure as the source of an <img>, so that a report needs no other file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
