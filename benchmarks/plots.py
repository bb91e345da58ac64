"""The parts of the benchmark as pictures."""

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

from benchmarks.growth import AXES
from benchmarks.measuring import Part, slope
from countertrain.plots import BLUE, GREEN, INK, ORANGE, hide_spines

__all__ = ["FIGURES"]

_GREY = "#999999"


def search(part: Part) -> Figure:
    """Rows a second of every search that took part."""
    return _bars(part.table, "search", "rows/s", "rows per second")


def training(part: Part) -> Figure:
    """Milliseconds an epoch of every training that took part."""
    return _bars(part.table, "training", "ms per epoch", "ms per epoch")


def fitting(part: Part) -> Figure:
    """Seconds of a whole fit."""
    return _bars(part.table, "fit", "seconds", "seconds")


def _bars(table: pd.DataFrame, label: str, value: str, axis: str) -> Figure:
    """Logarithmic bars, a panel for each model; ours stand out, bare loops stand back."""
    there = table.dropna(subset=[value])
    models = list(dict.fromkeys(there["model"]))
    figure = Figure(figsize=(11, 0.34 * len(there) / len(models) + 1.3), layout="constrained")
    axes = figure.subplots(1, len(models), sharey=True, squeeze=False)[0]
    names = list(dict.fromkeys(there[label]))
    for ax, model in zip(axes, models, strict=True):
        rows = there[there["model"] == model].set_index(label)[value].reindex(names)
        ax.barh(range(len(names)), rows.to_numpy(float), color=[_colour(name) for name in names], height=0.65)
        for place, number in enumerate(rows):
            if number == number:
                ax.annotate(
                    f"{number:,.0f}" if number >= 10 else f"{number:.2g}",
                    (number, place),
                    xytext=(3, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=8,
                )
        ax.set_xscale("log")
        ax.set_xlim(right=4 * np.nanmax(rows.to_numpy(float)))
        ax.set_yticks(range(len(names)), names, fontsize=9)
        ax.set(title=model, xlabel=axis)
        hide_spines(ax)
    axes[0].invert_yaxis()
    return figure


def _colour(name: str) -> str:
    if "bare" in name:
        return _GREY
    return ORANGE if name.startswith(("ECCCo", "CT")) else BLUE


def populations(part: Part) -> Figure:
    """Seconds a model against the number of models trained at once."""
    figure = Figure(figsize=(5.6, 3.6), layout="constrained")
    ax = figure.subplots()
    for mode, colour in (("eager", BLUE), ("compiled", ORANGE)):
        rows = part.table[part.table["steps"] == mode]
        if len(rows):
            ax.plot(rows["models"], rows["seconds per model"], "o-", color=colour, label=mode)
    sizes = sorted(set(part.table["models"]))
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.set(xlabel="models trained at once", ylabel="seconds per model, 100 epochs")
    ax.legend(frameon=False)
    hide_spines(ax)
    _plain(ax)
    return figure


def growth(part: Part) -> Figure:
    """Time and peak memory along each axis, with the power laws that fit best."""
    names = list(dict.fromkeys(part.table["axis"]))
    figure = Figure(figsize=(2.5 * len(names) + 0.6, 5.0), layout="constrained")
    axes = figure.subplots(2, len(names), sharey="row", squeeze=False)  # a flat line looks flat
    for column, name in enumerate(names):
        rows = part.table[part.table["axis"] == name]
        for ax, value, colour in zip(axes[:, column], ("ms", "peak MB"), (BLUE, GREEN), strict=True):
            _power_law(ax, rows["size"].to_numpy(float), rows[value].to_numpy(float), colour)
            ax.set_ylabel(value if column == 0 else "")
            _plain(ax)
        axes[1, column].set_xlabel(f"{name}: {AXES[name].what}", fontsize=9)
    return figure


def _power_law(
    ax: Axes,
    sizes: "np.ndarray[tuple[int], np.dtype[np.float64]]",
    values: "np.ndarray[tuple[int], np.dtype[np.float64]]",
    colour: str,
) -> None:
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(sizes, [f"{size:,.0f}" for size in sizes], fontsize=7, rotation=30)
    hide_spines(ax)
    if np.isnan(values).any():
        ax.set_title("not measured", fontsize=9)
        return
    b = slope(sizes.tolist(), values.tolist())
    middle = np.exp(np.log(values).mean()) * (sizes / np.exp(np.log(sizes).mean())) ** b
    ax.plot(sizes, middle, color=INK, lw=0.8)
    ax.plot(sizes, values, "o", color=colour)
    ax.set_title(f"slope {b:.2f}", fontsize=9)


def _plain(ax: Axes) -> None:
    """Numbers on a logarithmic axis as people write them."""
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    ax.yaxis.set_minor_formatter(NullFormatter())


FIGURES: dict[str, Callable[[Part], Figure]] = {
    "search": search,
    "training": training,
    "fitting": fitting,
    "populations": populations,
    "growth": growth,
}
"""Of the parts that have one."""
