"""How long fit, explain and judge take on 10,000 rows of real tables: `python -m benchmarks.advice_speed [TABLE ...]`.

Seconds are those of the processor on one thread, so that other work on the machine counts as little as it can.
"""

import sys
import time
from collections.abc import Callable, Sequence

import torch

from benchmarks.__main__ import measurement_table
from benchmarks.advice_tables import TABLES
from benchmarks.measuring import Measurement, Say
from countertrain.estimator import CounterfactualClassifier

__all__ = ["measure_advice_speed"]

_NAMES = ("credit", "california", "adult", "gmsc")
_ROWS, _JUDGED = 10_000, 3_000  # to train on and to advise, and to judge by
_BARS = {"fit": 15.0, "explain": 20.0, "judge": 20.0}  # seconds on one core


def measure_advice_speed(name: str, say: Say, *, n: int = _ROWS) -> list[Measurement]:
    """Seconds of a fit of the first n rows of a table, of advice for n people, and of a judgement by the next rows.

    Who is refused asks for advice, drawn with repetition.
    """
    table = TABLES[name]
    rows, labels = table.read_whole()
    X, y, spare = rows[:n], labels[:n], slice(n, n + _JUDGED)
    model = CounterfactualClassifier(immutable=table.immutable, random_state=0)
    seconds = {"fit": _clock(lambda: model.fit(X, y))}
    asking = X[model.predict(X) != table.wanted].sample(n, replace=True, random_state=0)
    seconds["explain"] = _clock(lambda: model.explain(asking, table.wanted))
    seconds["judge"] = _clock(lambda: model.judge(rows[spare], labels[spare], table.wanted))
    notes = {
        "fit": f"{len(X):,} rows, {len(model.history_.records)} epochs",
        "explain": f"{len(asking):,} people",
        "judge": f"{len(rows[spare]):,} rows, two retrainings",
    }
    for what, took in seconds.items():
        say(f"{name}: {what} {took:.1f} s")
    return [
        Measurement(f"{name}: {what}", took, "s", _BARS[what], False, notes[what]) for what, took in seconds.items()
    ]


def _clock(task: Callable[[], object]) -> float:
    """Seconds of the processor that a task takes."""
    started = time.process_time()
    task()
    return time.process_time() - started


def main(names: Sequence[str]) -> None:
    """Measure some tables, or all."""
    from countertrain.cli.console import console

    torch.set_num_threads(1)
    found = [one for name in names or _NAMES for one in measure_advice_speed(name, console.print)]
    console.print(measurement_table(found))


if __name__ == "__main__":
    main(sys.argv[1:])
