"""Part (f), explaining: advice for many people, and its judgement, on the table whose truth is known."""

from collections.abc import Callable
from functools import partial

import pandas as pd

from benchmarks.measuring import FULL, Budget, Measurement, Part, Say, fastest
from countertrain.estimator import CounterfactualClassifier
from countertrain.tables.sources.loans import SCHEMA, draw_table

__all__ = ["measure_explaining"]

_WANTED = "repaid"
_BAR = 20.0  # seconds on one core
_OF = 10_000  # people, or rows of the table


def measure_explaining(budget: Budget, say: Say) -> Part:
    """Seconds of `explain` for 10,000 people who are refused, and of `judge` for a table of 10,000 rows.

    With a smaller budget both are of a smaller table, and the seconds of `explain` are scaled up to 10,000 people.
    """
    say(f"explaining, loans, {budget.n_people:,} people")
    rows, outcome = (part.head(budget.n_people) for part in draw_table())
    n_train = 7 * len(rows) // 10
    model = CounterfactualClassifier(SCHEMA, random_state=0).fit(rows[:n_train], outcome[:n_train])
    refused = rows[model.predict(rows) != _WANTED]
    asking = refused.sample(budget.n_people, replace=True, random_state=0).reset_index(drop=True)
    tasks: dict[str, Callable[[], object]] = {
        "explain": partial(model.explain, asking, target=_WANTED),
        "judge": partial(model.judge, rows[n_train:], outcome[n_train:], _WANTED),
    }
    seconds = dict(zip(tasks, fastest([*tasks.values()], budget.repeats, patience=budget.patience), strict=True))
    each = 1000 * seconds["explain"] / len(asking)  # milliseconds
    table = pd.DataFrame(
        [
            {
                "what": "explain, people who are refused",
                "n": len(asking),
                "seconds": seconds["explain"],
                "ms each": each,
            },
            {"what": "judge, rows of the table", "n": len(rows), "seconds": seconds["judge"]},
        ]
    )
    note = "loans, one option each" if len(asking) == _OF else f"loans, by {len(asking):,} of them"
    return Part(
        "explaining",
        table,
        [
            Measurement("explain for 10,000 people", each * _OF / 1000, "s", _BAR, False, note),
            Measurement("judge", seconds["judge"], "s", _BAR, False, f"loans, {len(rows):,} rows, two retrainings"),
        ],
    )


if __name__ == "__main__":
    import torch

    from benchmarks.__main__ import measurement_table
    from countertrain.cli.console import console

    torch.set_num_threads(1)
    console.print(measurement_table(measure_explaining(FULL, console.print).measurements))
