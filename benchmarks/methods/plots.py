"""Pictures of training methods: one for each question."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.methods.contenders import CONTENDERS
from benchmarks.methods.ranks import Ranks
from benchmarks.methods.records import reduce
from countertrain.plots import BLUE, GREEN, INK, ORANGE, PURPLE, hide_spines
from reproduction.published import NAMES

__all__ = ["plot_accuracy", "plot_dots", "plot_ranks", "plot_reductions", "plot_under_both"]

_GREY = "#777777"
_COLOURS = {
    **dict.fromkeys(("bl", "early", "ensemble"), BLUE),
    **dict.fromkeys(("ct", "ct-near", "ar", "cd"), ORANGE),
    **dict.fromkeys(("pgd", "trades"), GREEN),
    "jem": PURPLE,
}
_MARKS = "osDo^sv*osDPX"
SEARCHES = {"ECCCo search": "eccco", "plain search": "generic"}


def plot_reductions(records: pd.DataFrame, name: str, label: str) -> Figure:
    """By how much a metric of counterfactuals is lower than that of conventional training, under both searches."""
    parts = {title: reduce(records, f"{search} {name}") for title, search in SEARCHES.items()}
    return _plot(parts, "reduction", f"{label} lower than that of conventional training (%)", zero=True)


def plot_dots(records: pd.DataFrame, columns: Mapping[str, str], label: str) -> Figure:
    """A number of each method, in one or two versions: mean and standard deviation over seeds."""
    keys = ["data", "method"]
    parts = {title: records[keys].assign(value=records[column]) for title, column in columns.items()}
    return _plot(parts, "value", label)


def plot_under_both(records: pd.DataFrame, name: str, label: str) -> Figure:
    """A metric of counterfactuals under both searches."""
    return plot_dots(records, {title: f"{search} {name}" for title, search in SEARCHES.items()}, label)


def _plot(parts: Mapping[str, pd.DataFrame], value: str, label: str, *, zero: bool = False) -> Figure:
    """A panel for each data set, a line for each method, a mark for each part."""
    first = next(iter(parts.values()))
    names = [name for name in NAMES if name in set(first["data"])]
    methods = [m for m in CONTENDERS if m in set(first["method"])]
    n_rows, n_columns = _arrange(len(names))
    figure = Figure(figsize=(2.7 * n_columns + 0.6, (0.2 * len(methods) + 0.9) * n_rows + 0.4), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False, sharey=True).flatten()
    for ax, name in zip(axes, names, strict=False):
        for k, (title, frame) in enumerate(parts.items()):
            cells = frame[frame["data"] == name].groupby("method")[value]
            for method, mean, spread in zip(cells.mean().index, cells.mean(), cells.std(ddof=1), strict=True):
                colour = _COLOURS.get(str(method), _GREY)
                face = "white" if k else colour
                place = len(methods) - methods.index(str(method)) - 0.22 * k
                ax.errorbar(mean, place, xerr=spread, fmt="o", ms=4.5, lw=1, color=colour, mfc=face)
            if ax is axes[0]:
                ax.plot([], [], "o", color=INK, mfc="white" if k else INK, label=title)
        if zero:
            ax.axvline(0, color=INK, lw=0.8, ls="--", alpha=0.6)
        ax.set_title(NAMES[name], fontsize=10)
        ax.set_yticks(range(len(methods), 0, -1), methods, fontsize=8)
        hide_spines(ax)
    for ax in axes[len(names) :]:
        ax.set_visible(False)
    figure.supxlabel(label, fontsize=10)
    if len(parts) > 1:
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(parts), frameon=False)
    return figure


def _arrange(n: int) -> tuple[int, int]:
    """Rows and columns of n panels: two rows from five on."""
    n_rows = 1 if n <= 4 else 2
    return n_rows, -(-n // n_rows)


def plot_accuracy(records: pd.DataFrame) -> Figure:
    """Accuracy against implausibility: each method once in the panel of each data set."""
    names = [name for name in NAMES if name in set(records["data"])]
    n_rows, n_columns = _arrange(len(names))
    figure = Figure(figsize=(3.4 * n_columns, 2.9 * n_rows + 0.4), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False).flatten()
    for ax, name in zip(axes, names, strict=False):
        for method, cell in records[records["data"] == name].groupby("method", sort=False):
            x, y, colour = cell["eccco ip"], cell["accuracy"], _COLOURS.get(str(method), _GREY)
            spread = {"xerr": x.std(ddof=1), "yerr": y.std(ddof=1)}
            mark = _MARKS[list(CONTENDERS).index(str(method))]
            ax.errorbar(x.mean(), y.mean(), **spread, fmt=mark, ms=5, lw=0.6, color=colour, label=str(method))
        ax.set_title(NAMES[name], fontsize=10)
        ax.ticklabel_format(useOffset=False)
        hide_spines(ax)
    for ax in axes[len(names) :]:
        ax.set_visible(False)
    figure.supxlabel("IP of counterfactuals under the ECCCo search (lower is better)", fontsize=10)
    figure.supylabel("accuracy", fontsize=10)
    told = axes[0].get_legend_handles_labels()
    figure.legend(*told, loc="outside upper center", ncols=len(CONTENDERS) // 2 + 1, frameon=False, fontsize=8)
    return figure


def plot_ranks(ranks: Mapping[str, Ranks]) -> Figure:
    """Average ranks over data sets: a line for each method, a column for each question, good ones dark."""
    first = next(iter(ranks.values()))
    methods = [m for m in CONTENDERS if m in first.average.index]
    table = [[found.average[method] for found in ranks.values()] for method in methods]
    figure = Figure(figsize=(0.72 * len(ranks) + 1.6, 0.3 * len(methods) + 1.6), layout="constrained")
    ax = figure.subplots()
    ax.imshow(table, cmap="Oranges_r", vmin=1, vmax=len(methods) + 2, aspect="auto")
    for i, row in enumerate(table):
        for j, value in enumerate(row):
            ax.text(j, i, f"{value:.1f}", ha="center", va="center", fontsize=8, color="white" if value < 4 else INK)
    ax.set_xticks(range(len(ranks)), list(ranks), fontsize=8, rotation=35, ha="right")
    ax.set_yticks(range(len(methods)), methods, fontsize=9)
    told = (
        f"average rank over {first.n_blocks} data sets, 1 is best; critical difference {first.critical_difference:.1f}"
    )
    ax.set_title(told, fontsize=10)
    ax.spines[:].set_visible(False)
    return figure
