"""Pictures, as matplotlib figures that nobody has to show."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from countertrain.evaluation.comparison import Reduction
from countertrain.plots import BLUE, GREEN, INK, ORANGE, hide_spines

__all__ = ["Panel", "embed", "plot_panels", "plot_reductions"]


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


def plot_reductions(results: Sequence[Reduction], labels: Sequence[str]) -> Figure:
    """Percentage reductions, a dot for each training seed and a bar for their mean."""
    figure = Figure(figsize=(6.4, 0.62 * len(results) + 1.0), layout="constrained")
    ax = figure.subplots()
    for i, r in enumerate(results):
        ax.barh(i, r.percent, color=ORANGE if r.percent >= 0 else BLUE, alpha=0.55, height=0.55)
        ax.scatter(r.per_seed, [i] * len(r.per_seed), s=18, color=INK, zorder=3)
    ax.axvline(0, color=INK, lw=0.8)
    ax.set_yticks(range(len(results)), list(labels))
    ax.invert_yaxis()
    ax.set_xlabel("reduction against conventional training (%), a dot for each training seed")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(left=False)
    return figure


def embed(figure: Figure) -> str:
    """A figure as the source of an <img>, so that a report needs no other file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
