"""What the judge found of advice, as a page with a picture."""

import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from countertrain.files import write_text
from countertrain.plots import BLUE, GREEN, INK, ORANGE, PURPLE, hide_spines
from reproduction.writing import insert_tables, markdown, write_figure

__all__ = [
    "average_tables",
    "compare_at_equal_cost",
    "measure_area",
    "measure_at_equal_cost",
    "plot_curves",
    "summarise",
    "write_page",
]

OURS, TWIN = "taught", "conventional"
_SHARES = ("boosting", "forest", "logistic", "whole panel")
_GREY = "#777777"
_COLOURS = {
    OURS: ORANGE,
    TWIN: BLUE,
    "CT as published": GREEN,
    "divergence alone": PURPLE,
    "teacher alone": "#b7791f",
    "boosting with nearest person": _GREY,
    "boosting with DiCE": "#c0392b",
}


def summarise(records: pd.DataFrame) -> pd.DataFrame:
    """Advice as it is given by default: a row for each table and method, means and spread over seeds."""
    rows = []
    for (table, method), cell in records[records["default"]].groupby(["table", "method"], sort=False):
        real = {name: cell[f"real {name}"].mean() for name in _SHARES}
        rows.append(
            {
                "table": table,
                "method": method,
                "AUC": _spread(cell["auc"], 3),
                "boosting's": f"{cell['auc_boosting'].mean():.3f}",
                "cost": _spread(cell["cost"], 1),
                "columns": f"{cell['n_changed'].mean():.1f}",
                **{name: f"{_spread(100 * cell[name], 0)} ({100 * real[name]:.0f})" for name in _SHARES},
                "typical": _spread(cell["typical"], 0),
                "distance": _spread(cell["distance"], 2),
                "valid": f"{cell['valid'].mean():.3f}",
            }
        )
    return pd.DataFrame(rows)


def average_tables(records: pd.DataFrame, groups: Mapping[str, Collection[str]]) -> pd.DataFrame:
    """Advice as it is given by default, on average over each group of tables: a row for each method that has all."""
    rows = []
    equal = measure_at_equal_cost(records)
    for group, tables in groups.items():
        mine = records[records["default"] & records["table"].isin(tables)]
        for method, cell in mine.groupby("method", sort=False):
            means = cell.groupby("table").mean(numeric_only=True)
            if len(means) < len(tables):
                continue
            ahead = equal[(equal["method"] == method) & equal["table"].isin(tables)]
            gain = (ahead["holds"] - ahead["twin"]).groupby(ahead["table"]).mean()
            average = means.mean()
            rows.append(
                {
                    "tables": group,
                    "method": method,
                    "seeds": cell.groupby("table")["seed"].nunique().min(),
                    "whole panel": f"{100 * average['whole panel']:.1f} ({100 * average['real whole panel']:.0f})",
                    "at equal cost": f"{100 * gain.mean():+.1f}" if len(gain) else "",
                    "cost": f"{average['cost']:.2f}",
                    "typical": f"{average['typical']:.0f}",
                    "distance": f"{average['distance']:.2f}",
                    "AUC": f"{average['auc']:.3f}",
                    "boosting's": f"{average['auc_boosting']:.3f}",
                }
            )
    return pd.DataFrame(rows)


def _spread(values: "pd.Series[float]", digits: int) -> str:
    mean = f"{values.mean():.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {values.std(ddof=1):.{digits}f}"


def measure_area(ours: pd.DataFrame, theirs: pd.DataFrame) -> tuple[float, float] | None:
    """Mean holding of two methods over the costs that both reach, from their curves: as many as hold at equal cost."""
    curves = [one.sort_values("cost").groupby("cost")["whole panel"].mean() for one in (ours, theirs)]
    low = max(curve.index.min() for curve in curves)
    high = min(curve.index.max() for curve in curves)
    if not low < high:
        return None
    at = np.linspace(low, high, 101)
    first, second = (float(np.interp(at, curve.index.to_numpy(), curve.to_numpy()).mean()) for curve in curves)
    return first, second


def measure_at_equal_cost(records: pd.DataFrame) -> pd.DataFrame:
    """For each table, method and seed, the share that holds at costs which the conventional twin reaches, too.

    Columns `holds` and `twin` are shares; a method whose costs are all others than the twin's has no row.
    """
    rows = []
    for (table, method, seed), cell in records[records["method"] != TWIN].groupby(
        ["table", "method", "seed"], sort=False
    ):
        twin = records[(records["table"] == table) & (records["method"] == TWIN) & (records["seed"] == seed)]
        found = measure_area(cell, twin) if len(twin) else None
        if found is not None:
            rows.append({"table": table, "method": method, "seed": seed, "holds": found[0], "twin": found[1]})
    return pd.DataFrame(rows, columns=["table", "method", "seed", "holds", "twin"])


def compare_at_equal_cost(records: pd.DataFrame) -> pd.DataFrame:
    """For each table and method, the share that holds at the costs which it and the conventional twin both reach."""
    return pd.DataFrame(
        [
            {
                "table": table,
                "method": method,
                "holds": f"{100 * cell['holds'].mean():.0f} %",
                "its twin": f"{100 * cell['twin'].mean():.0f} %",
                "difference": _spread(100 * (cell["holds"] - cell["twin"]), 1),
            }
            for (table, method), cell in measure_at_equal_cost(records).groupby(["table", "method"], sort=False)
        ]
    )


def plot_curves(records: pd.DataFrame) -> Figure:
    """Share of the advice that the whole panel accepts against its cost: a panel for each table, a line per method."""
    tables = list(dict.fromkeys(records["table"]))
    n_columns = min(3, len(tables))
    n_rows = -(-len(tables) // n_columns)
    figure = Figure(figsize=(3.6 * n_columns, 2.9 * n_rows + 0.5), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False, sharey=True).flatten()
    for ax, table in zip(axes, tables, strict=False):
        mine = records[records["table"] == table]
        for method, cell in mine.groupby("method", sort=False):
            cell = cell[cell["tau"].isin([0.5, 0.6, 0.75, 0.85, 0.9, 0.95]) & (cell["n"] > 0)]  # nobody, nothing held
            curve = cell.groupby("tau")[["cost", "whole panel"]].mean()
            wide = 2.4 if method == OURS else 1.2
            colour = _COLOURS.get(str(method), _GREY)
            ax.plot(curve["cost"], curve["whole panel"], "o-", ms=3, lw=wide, color=colour, label=str(method))
        ax.axhline(mine["real whole panel"].mean(), color=INK, lw=0.8, ls="--", alpha=0.6)
        ax.set(title=table, ylim=(0, 1.03), xlabel="cost")
        hide_spines(ax)
    for ax in axes[len(tables) :]:
        ax.set_visible(False)
    axes[0].set_ylabel("accepted by the whole panel")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def write_page(records: pd.DataFrame, page: Path, folder: Path, groups: Mapping[str, Collection[str]]) -> list[str]:
    """Put tables and picture of the records into a page, between its marks."""
    write_text(folder / "advice-mean.md", markdown(average_tables(records, groups)))
    write_text(folder / "advice-default.md", markdown(summarise(records)))
    write_text(folder / "advice-equal-cost.md", markdown(compare_at_equal_cost(records)))
    write_figure("advice", plot_curves(records), folder)
    pictures = page.with_suffix("")
    pictures.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(folder / "advice.svg", pictures / "curves.svg")
    return insert_tables(page, folder)
