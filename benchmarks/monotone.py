"""`python -m benchmarks.monotone`, from a clone: what it costs to make a model monotone, and whether it is.

Models that are told which way each column goes, and models that are not, on the same rows: AUC, and how many of 10,000
random pairs of test people who differ in one column only are out of order.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from sklearn.metrics import roc_auc_score

from benchmarks.advice_tables import TABLES, split
from countertrain.cli.app import run
from countertrain.cli.console import console, frame_table
from countertrain.estimator import CounterfactualClassifier

__all__ = ["COLUMNS", "compare", "count_pairs", "main"]

_LATE = ("NumberOfTime30-59DaysPastDueNotWorse", "NumberOfTime60-89DaysPastDueNotWorse", "NumberOfTimes90DaysLate")
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "credit": {
        "LIMIT_BAL": "+",
        **{f"PAY_{i}": "-" for i in (0, 2, 3, 4, 5, 6)},
        **{f"PAY_AMT{i}": "+" for i in range(1, 7)},
    },
    "gmsc": {**dict.fromkeys(_LATE, "-"), "RevolvingUtilizationOfUnsecuredLines": "-", "MonthlyIncome": "+"},
}
"""Which way the decision that people want becomes more likely."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def count_pairs(
    clf: CounterfactualClassifier, people: pd.DataFrame, column: str, way: str, *, n: int, seed: int
) -> float:
    """The share of n random pairs, who differ in one column only, in which the better one is less likely to get it."""
    draw = np.random.default_rng(seed)
    rows = people.iloc[draw.integers(len(people), size=n)].reset_index(drop=True)
    one, other = (people[column].to_numpy()[draw.integers(len(people), size=n)] for _ in range(2))
    low, high = np.minimum(one, other), np.maximum(one, other)
    k = list(clf.classes_).index(clf.target)
    at_low, at_high = (clf.predict_proba(rows.assign(**{column: values}))[:, k] for values in (low, high))
    wrong = at_high < at_low if way == "+" else at_high > at_low
    return float(wrong.mean())


def compare(name: str, seed: int, *, pairs: int, **settings: Any) -> pd.DataFrame:
    """One row for a model that was told, and one for a model that was not."""
    table = TABLES[name].take()
    train, test, labels, test_labels = split(table.rows, table.labels, seed)
    found = []
    for told in (True, False):
        clf = CounterfactualClassifier(
            table.schema,
            target=table.wanted,
            immutable=list(table.immutable),
            monotone=COLUMNS[name] if told else None,
            random_state=seed,
            **settings,
        ).fit(train, labels)
        k = list(clf.classes_).index(table.wanted)
        wrong = [
            count_pairs(clf, test, column, way, n=pairs, seed=seed) for column, way in COLUMNS[name].items()
        ]  # of each column
        auc = roc_auc_score(test_labels == table.wanted, clf.predict_proba(test)[:, k])
        scores = {"AUC": 100 * auc, "out of order": 100 * np.mean(wrong), "worst column": 100 * np.max(wrong)}
        found.append({"table": name, "told": told, "seed": seed, **scores, "epochs": len(clf.history_.records)})
    return pd.DataFrame(found)


@app.command()
def monotone(
    tables: Annotated[str, typer.Option(help="Tables to train on: a,b.")] = ",".join(COLUMNS),
    seeds: Annotated[int, typer.Option(help="Seeds of split and training.", min=1)] = 3,
    pairs: Annotated[int, typer.Option(help="Random pairs per column.", min=1)] = 10_000,
) -> None:
    """Train models that are told the way of their columns, and models that are not, and compare them."""
    found = pd.concat([compare(name, seed, pairs=pairs) for name in tables.split(",") for seed in range(seeds)])
    mean = found.groupby(["table", "told"], as_index=False)[["AUC", "out of order"]].mean()
    for title, frame in (("Monotone by construction, per cent", found), ("Means over seeds, per cent", mean)):
        console.print(
            frame_table(title, frame.map(lambda value: f"{value:.2f}" if isinstance(value, float) else value))
        )


def main(args: Sequence[str] | None = None) -> None:
    """Run the comparison."""
    run(app, args, "python -m benchmarks.monotone")


if __name__ == "__main__":
    main()
