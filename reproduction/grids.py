"""The paper's grid searches: which values, trained as populations, shown as box plots and tables."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from countertrain.evaluation.metrics import known
from countertrain.plots import BLUE, GREEN, INK, ORANGE, PURPLE, hide_spines
from countertrain.runs.grid import compute_population, expand, populations
from countertrain.runs.work import Task
from reproduction.published import NAMES
from reproduction.writing import write_figure, write_table

__all__ = ["GRIDS", "GridSearch", "grid_tasks", "has_records", "read_grid", "render_grid"]

_DEFAULTS = {"tau": 0.75, "lambda_reg": 0.1, "n_ce": 1000}  # of the grids, not the final settings of a data set
_GENERATORS = ("eccco", "generic", "revise")
_OBJECTIVES = ("ct", "bl")
_OUTCOMES = ("ip", "cost", "mature")


@dataclass(frozen=True)
class GridSearch:
    """A Cartesian product of settings."""

    title: str
    values: dict[str, tuple[Any, ...]]

    @property
    def varied(self) -> list[str]:
        """The settings that are looked at, one box plot each."""
        return [name for name in self.values if name not in ("generator", "objective")]


GRIDS = {
    "grid gen-params": GridSearch(
        "generator parameters",
        {
            "generator": _GENERATORS,
            "n_steps": (5, 25, 50),
            "lambda_egy": (0.1, 0.5, 5.0, 10.0, 20.0),
            "tau": (0.75, 0.9, 0.95),
            "objective": _OBJECTIVES,
        },
    ),
    "grid penalties": GridSearch(
        "penalty strengths",
        {
            "generator": _GENERATORS,
            "lambda_div": (0.01, 0.1, 1.0),
            "lambda_adv": (0.1, 0.25, 1.0),
            "lambda_reg": (0.0, 0.01, 0.1, 0.25, 0.5),
            "objective": _OBJECTIVES,
        },
    ),
    "grid training": GridSearch(
        "other training parameters",
        {
            "generator": _GENERATORS,
            "burn_in": (0.0, 0.5),
            "n_ce": (100, 1000),
            "epochs": (50, 100),
            "objective": _OBJECTIVES,
        },
    ),
    "tune key": GridSearch(
        "tuning of key parameters", {"tau": (0.5, 0.75, 0.9), "lambda_reg": (0.1, 0.25, 0.5), "objective": _OBJECTIVES}
    ),
    "tune lr": GridSearch(
        "tuning of the step size",
        {"step_size": (0.1, 0.5, 1.0), "lambda_reg": (0.01, 0.1, 0.5), "objective": _OBJECTIVES},
    ),
}


def grid_tasks(name: str, data: str, records: Path) -> list[Task]:
    """One task for each population of the grid."""
    fixed = {key: value for key, value in _DEFAULTS.items() if key not in GRIDS[name].values}
    if name == "tune lr":
        fixed["tau"] = 0.5
    runs = expand(data, GRIDS[name].values, **fixed)
    tasks = []
    for group in populations(runs, largest=135):
        key = hashlib.sha256("".join(run.to_toml() for run in group).encode()).hexdigest()[:12]
        path = _folder(name, data, records) / f"{key}.csv"
        cost = len(group) * (0.15 if group[0].objective == "bl" else group[0].n_steps / 30)
        tasks.append(Task(partial(compute_population, group, path), cost, key=path))
    return tasks


def _folder(name: str, data: str, records: Path) -> Path:
    return records / "grids" / _slug(name) / data


def _slug(name: str) -> str:
    return name.replace(" ", "-")


def has_records(name: str, data: str, records: Path) -> bool:
    """Whether any population of the grid was computed."""
    return any(_folder(name, data, records).glob("*.csv"))


def read_grid(name: str, data: str, records: Path) -> pd.DataFrame:
    """One row of outcomes a model, all populations together."""
    paths = sorted(_folder(name, data, records).glob("*.csv"))
    return pd.concat([pd.read_csv(path) for path in paths], ignore_index=True)


def render_grid(name: str, data: str, records: Path, rendered: Path) -> list[Path]:
    """Box plots of IP, cost and maturity against each varied setting, and tables of all outcomes."""
    frame = read_grid(name, data, records)
    paths = write_figure(f"{_slug(name)}-{data}", _plot_boxes(name, data, frame), rendered)
    for setting in GRIDS[name].varied:
        rows = _group_conventional(frame)
        outcome = rows.groupby(["objective", "generator", setting])[
            ["ip", "cost", "validity", "mature", "accuracy", "f1"]
        ].mean()
        paths += write_table(f"{_slug(name)}-{data}-{setting}", outcome.reset_index(), rendered)
    return paths


def _group_conventional(frame: pd.DataFrame) -> pd.DataFrame:
    """Conventional models know no generator: they are one group."""
    return frame.assign(generator=frame["generator"].where(frame["objective"] != "bl", "none (BL)"))


def _plot_boxes(name: str, data: str, frame: pd.DataFrame) -> Figure:
    varied = GRIDS[name].varied
    rows = _group_conventional(frame)
    groups = [g for g in (*_GENERATORS, "none (BL)") if (rows["generator"] == g).any()]
    colours = dict(zip((*_GENERATORS, "none (BL)"), (ORANGE, GREEN, PURPLE, BLUE), strict=True))
    figure = Figure(figsize=(3.6 * len(varied) + 0.8, 7.6), layout="constrained")
    axes = figure.subplots(3, len(varied), squeeze=False)
    for column, setting in enumerate(varied):
        values = sorted(rows[setting].unique())
        for row, metric in enumerate(_OUTCOMES):
            ax = axes[row, column]
            for k, group in enumerate(groups):
                mine = rows[rows["generator"] == group]
                samples = [_drop_missing(mine[mine[setting] == value][metric]) for value in values]
                place = np.arange(len(values)) + 0.18 * (k - (len(groups) - 1) / 2)
                boxes = ax.boxplot(
                    samples,
                    positions=place,
                    widths=0.15,
                    showfliers=False,
                    patch_artist=True,
                    medianprops={"color": INK},
                )
                for box in boxes["boxes"]:
                    box.set(facecolor=colours[group], alpha=0.65, linewidth=0.6)
                if row == column == 0:
                    ax.plot([], [], lw=6, color=colours[group], alpha=0.65, label=group)
            ax.set_xticks(range(len(values)), [f"{v:g}" for v in values])
            hide_spines(ax)
            ax.set_ylabel(_label(metric) if column == 0 else "")
            if row == 2:
                ax.set_xlabel(setting)
    figure.suptitle(f"{NAMES[data]}: {GRIDS[name].title}", fontsize=11)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def _label(outcome: str) -> str:
    return "mature, last epoch" if outcome == "mature" else known()[outcome].label


def _drop_missing(values: "pd.Series[float]") -> Sequence[float]:
    return [float(v) for v in values.dropna()]
