"""What is on record of training methods, put into a page: tables between its marks, and pictures beside it."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.methods.contenders import CONTENDERS
from benchmarks.methods.plots import plot_accuracy, plot_dots, plot_ranks, plot_reductions, plot_under_both
from benchmarks.methods.ranks import Ranks
from benchmarks.methods.records import find_best, rank_methods, read_trials, summarise, write_spread
from countertrain.files import write_text
from reproduction.published import NAMES
from reproduction.writing import insert_tables, markdown

__all__ = ["write_page"]


def write_page(records: pd.DataFrame, folder: Path, page: Path) -> list[str]:
    """Tables and pictures of the records, in the folder of the records and in a page."""
    ranks = rank_methods(records)
    tables = {
        "methods-best": markdown(find_best(records)),
        "methods-ranks": _write_ranks(ranks) if ranks else "Too little is on record.\n",
        "methods-eccco": _write_each(summarise(records, "eccco")),
        "methods-generic": _write_each(summarise(records, "generic")),
        "methods-spent": markdown(_sum_up_spent(records, folder)),
    }
    if "sensitivity" in records:
        tables["methods-protected"] = markdown(_compare_protected(records))
    for name, text in tables.items():
        write_text(folder / f"{name}.md", text)
    pictures = page.with_suffix("")
    pictures.mkdir(parents=True, exist_ok=True)
    for name, figure in _draw(records, ranks).items():
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        shutil.copyfile(folder / f"{name}.svg", pictures / f"{name}.svg")
    return insert_tables(page, folder)


def _draw(records: pd.DataFrame, ranks: Mapping[str, Ranks]) -> dict[str, Figure]:
    figures = {
        "plausibility": plot_reductions(records, "ip", "IP"),
        "cost": plot_reductions(records, "cost", "cost"),
        "accuracy": plot_accuracy(records),
        "attack": plot_dots(
            records, {"as they are": "accuracy", "under PGD, epsilon 0.1": "pgd"}, "accuracy on test rows"
        ),
        "density": plot_under_both(
            records,
            "density",
            "percentile of the kernel density among real rows of the target class (50 as real ones)",
        ),
        "holds": plot_under_both(
            records,
            "holds",
            "share of valid counterfactuals that boosting, forest and logistic regression all accept",
        ),
    }
    return figures | ({"ranks": plot_ranks(ranks)} if ranks else {})


def _write_each(summary: pd.DataFrame) -> str:
    """A table for each data set."""
    parts = [
        f"#### {NAMES[name]}\n\n{markdown(summary[summary['data'] == name].drop(columns='data'))}"
        for name in NAMES
        if name in set(summary["data"])
    ]
    return "\n".join(parts)


def _write_ranks(ranks: Mapping[str, Ranks]) -> str:
    """Average ranks, a line for each question, with Friedman's p and how far methods must be apart."""
    methods = list(next(iter(ranks.values())).average.sort_index().index)
    rows = [
        {
            "question": title,
            **{method: f"{found.average[method]:.1f}" for method in methods},
            "p": f"{found.p_value:.2g}",
            "critical difference": f"{found.critical_difference:.1f}",
            "data sets": found.n_blocks,
        }
        for title, found in ranks.items()
    ]
    return markdown(pd.DataFrame(rows))


def _sum_up_spent(records: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """What each method took: trials and CPU seconds of tuning, which trains all seeds, and of an epoch of one model."""
    order = list(CONTENDERS)
    trials = read_trials(folder).sort_values("method", key=lambda names: names.map(order.index), kind="stable")
    epoch = records.groupby(["data", "method"])["epoch_cpu_seconds"].mean().groupby("method").mean()
    rows = [
        {
            "method": method,
            "trials a data set": int(mine["trials"].max()),
            "CPU seconds of all trials a data set": f"{mine['seconds'].mean():.0f}",
            "CPU milliseconds of an epoch of one model": f"{1000 * epoch[method]:.1f}",
            "chosen": "; ".join(f"{d}: {c}" for d, c in zip(mine["data"], mine["chosen"], strict=True) if c),
        }
        for method, mine in trials.groupby("method", sort=False)
        if method in epoch
    ]
    return pd.DataFrame(rows)


def _compare_protected(records: pd.DataFrame) -> pd.DataFrame:
    """Sensitivity to protected features and cost around them, of models that were trained with them protected."""
    there = records.dropna(subset=["sensitivity"])
    return pd.DataFrame(
        [
            {
                "data": data,
                "method": method,
                "sensitivity": write_spread(cell["sensitivity"], 3),
                "cost, protected": write_spread(cell["protected cost"], 2),
            }
            for (data, method), cell in there.groupby(["data", "method"], sort=False)
        ]
    )
