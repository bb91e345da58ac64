"""What is on record of training methods, as tables: means and spread, who is best, and ranks over data sets."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.methods.contenders import BASELINE, CONTENDERS
from benchmarks.methods.ranks import Ranks, rank

__all__ = [
    "QUESTIONS", "Question", "find_best", "keep_complete", "means", "rank_methods", "read_records", "read_trials",
    "reduce", "summarise", "write_spread",
]  # fmt: skip

SEARCHES = ("eccco", "generic")
_ENOUGH = 0.9  # validity from which a method can be the best at anything that is asked of valid counterfactuals


@dataclass(frozen=True)
class Question:
    """A question to all methods: the column that answers it, which way is better, and how it is written."""

    title: str
    column: str
    better: str
    digits: int = 3

    @property
    def of_counterfactuals(self) -> bool:
        """Whether it is asked of counterfactuals rather than of predictions."""
        return self.column.startswith(SEARCHES)


def _ask_both(title: str, name: str, better: str, digits: int) -> list[Question]:
    return [
        Question(f"{title}, {'ECCCo' if search == 'eccco' else 'plain'}", f"{search} {name}", better, digits)
        for search in SEARCHES
    ]


QUESTIONS: tuple[Question, ...] = (
    Question("accuracy", "accuracy", "higher"),
    Question("under PGD", "pgd", "higher"),
    *_ask_both("IP", "ip", "lower", 2),
    *_ask_both("IP*", "ip_star", "lower", 3),
    *_ask_both("cost", "cost", "lower", 2),
    *_ask_both("density", "density", "higher", 0),
    *_ask_both("holds", "holds", "higher", 2),
)
"""What methods are ranked by."""


def read_records(folder: Path) -> pd.DataFrame:
    """A row for each data set, method and seed; what a method's own network wrote stands for both searches.

    Where it was trained with protected features, too, `sensitivity` and `protected cost` stand beside.
    """
    rows: dict[tuple[str, str, int], dict[str, Any]] = {}
    for file in sorted(folder.glob("*-[0-9]*.json")):
        record = json.loads(file.read_text(encoding="utf-8"))
        key = record["data"], record["method"], record["seed"]
        row = rows.setdefault(key, dict(zip(("data", "method", "seed"), key, strict=True)))
        if record["settings"].get("immutable"):
            found = record.get("own") or record["eccco"]
            row |= {"sensitivity": record["sensitivity"], "protected cost": found["cost"]}
            continue
        row |= {name: value for name, value in record.items() if isinstance(value, float)}
        for search in SEARCHES:
            found = record.get("own") or record[search]
            row |= {f"{search} {name}": value for name, value in found.items()}
    frame = pd.DataFrame(rows.values())
    return frame if frame.empty else _sort(frame)


def _sort(frame: pd.DataFrame) -> pd.DataFrame:
    """Methods in the order in which they are listed."""
    order = {name: i for i, name in enumerate(CONTENDERS)}
    return frame.sort_values(["data", "method", "seed"], key=lambda c: c.map(order) if c.name == "method" else c)


def read_trials(folder: Path) -> pd.DataFrame:
    """A row for each method: trials and CPU seconds that were spent on tuning, over all data sets."""
    rows = []
    for file in sorted((folder / "tuning").glob("*.json")):
        stored = json.loads(file.read_text(encoding="utf-8"))
        data, _, method = file.stem.partition("-")
        spent = sum(trial["cpu_seconds"] for trial in stored["trials"])
        chosen = dict(stored["trials"][stored["chosen"]]["settings"])
        told = ", ".join(f"{k} {v:g}" for k, v in {**chosen.pop("terms", {}), **chosen}.items())
        rows.append({"data": data, "method": method, "trials": len(stored["trials"]), "seconds": spent, "chosen": told})
    return pd.DataFrame(rows)


def write_spread(values: "pd.Series[float]", digits: int) -> str:
    """Mean and standard deviation over seeds."""
    return f"{values.mean():.{digits}f} ± {values.std(ddof=1):.{digits}f}"


def summarise(records: pd.DataFrame, search: str) -> pd.DataFrame:
    """A line for each data set and method, means and standard deviations over seeds, under one of both searches."""
    columns = {
        "accuracy": ("accuracy", 3), "AUC": ("auc", 3), "FGSM": ("fgsm", 3), "PGD": ("pgd", 3),
        **{
            title: (f"{search} {name}", digits)
            for title, name, digits in (
                ("IP", "ip", 2), ("IP*", "ip_star", 3), ("cost", "cost", 2), ("validity", "validity", 2),
                ("maturity", "maturity", 2), ("density", "density", 0), ("holds", "holds", 2),
            )
        },
    }  # fmt: skip
    rows = []
    for (data, method), cell in records.groupby(["data", "method"], sort=False):
        told = {title: write_spread(cell[column], digits) for title, (column, digits) in columns.items()}
        rows.append({"data": data, "method": method, **told})
    return pd.DataFrame(rows)


def reduce(records: pd.DataFrame, column: str) -> pd.DataFrame:
    """By how many percent a column is lower than in conventional training with the same seed; its own rows left out."""
    keys = ["data", "seed"]
    baseline = records[records["method"] == BASELINE].set_index(keys)[column]
    others = records[records["method"] != BASELINE]
    theirs = others.join(baseline.rename("baseline"), on=keys)["baseline"]
    return others[[*keys, "method"]].assign(reduction=100 * (1 - others[column] / theirs))


def keep_complete(records: pd.DataFrame) -> pd.DataFrame:
    """The data sets on which every method that is on record was computed: only there can one be the best."""
    n = records.groupby("data")["method"].nunique()
    return records[records["data"].map(n) == records["method"].nunique()]


def means(records: pd.DataFrame, question: Question) -> pd.DataFrame:
    """The answer to a question, means over seeds: data sets (rows) by methods (columns), complete data sets only."""
    table = keep_complete(records).pivot_table(question.column, "data", "method", aggfunc="mean", sort=False)
    return table.dropna().astype(float)


def rank_methods(records: pd.DataFrame, questions: Iterable[Question] = QUESTIONS) -> dict[str, Ranks]:
    """Average ranks over data sets, question by question; none where too little is on record."""
    tables = {q.title: (means(records, q), q.better) for q in questions}
    return {
        title: rank(table, better=better)
        for title, (table, better) in tables.items()
        if len(table) >= 2 and table.shape[1] >= 3
    }


def find_best(records: pd.DataFrame, questions: Iterable[Question] = QUESTIONS) -> pd.DataFrame:
    """For each question and data set the best method, those as good within the spread over seeds, and CT beside it.

    Of counterfactuals, only a method competes of which nine in ten are valid. As good is one whose mean is as near to
    the best as the larger standard deviation of both.
    """
    rows, complete = [], keep_complete(records)
    for q in questions:
        for data, mine in complete.groupby("data", sort=False):
            cells = mine.groupby("method", sort=False)
            mean, spread = cells[q.column].mean(), cells[q.column].std(ddof=1).fillna(0)
            if q.of_counterfactuals:
                search = q.column.split(" ")[0]
                mean = mean[cells[f"{search} validity"].mean() >= _ENOUGH]
            if mean.empty:
                continue
            first = str(mean.idxmax() if q.better == "higher" else mean.idxmin())
            gap = (mean - mean[first]).abs()
            near = [m for m in mean.index if m != first and gap[m] <= max(spread[m], spread[first])]
            shown = (BASELINE, "ct", "ct-near")
            told = {m: write_spread(mine[mine["method"] == m][q.column], q.digits) for m in (first, *shown)}
            rows.append(
                {
                    "question": q.title,
                    "data": data,
                    "best": f"{first}: {told[first]}",
                    "as good": ", ".join(near),
                    **{m: told[m] for m in shown},
                }
            )
    return pd.DataFrame(rows)
