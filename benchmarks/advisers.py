"""Who gives the advice that is judged, and how one cell is: train, ask, judge."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from benchmarks.advice_tables import Problem
from countertrain import CounterfactualClassifier
from countertrain.judge.adviser import Adviser, Searching
from countertrain.judge.judge import CLASSIFIER, TAUS, judge_adviser, seat_panel
from countertrain.recourse.decider import Decider

__all__ = ["Contender", "Prepare", "fit", "judge_cell", "network"]

_PEOPLE = 200
_PANEL = ("boosting", "forest", "logistic")
"""Who judges, whatever else is installed: records of two machines must be comparable."""


@dataclass(frozen=True, eq=False)
class Contender:
    """An adviser that is trained, and the decider whose reference rows the panel is fitted to."""

    adviser: Adviser
    decider: Decider
    people: int = _PEOPLE
    """Who may ask, at most."""
    note: str = ""


Prepare = Callable[[Problem], Contender]
"""Training and whatever else has to be done once."""


def network(**parameters: Any) -> Prepare:
    """A CounterfactualClassifier of these parameters, which searches its own advice."""

    def prepare(problem: Problem) -> Contender:
        decider = fit(problem, **parameters).decider
        return Contender(Searching.of(decider, seed=problem.seed), decider)

    return prepare


def fit(problem: Problem, **parameters: Any) -> CounterfactualClassifier:
    """A classifier trained on the rows of a problem."""
    table = problem.table
    model = CounterfactualClassifier(table.schema, immutable=table.immutable, random_state=problem.seed, **parameters)
    return model.fit(problem.train, problem.train_labels)


def judge_cell(problem: Problem, prepare: Prepare) -> pd.DataFrame:
    """Train one method on one split, and judge its advice: a row for each tau."""
    started = time.process_time()
    contender = prepare(problem)
    seconds = time.process_time() - started
    classes = list(contender.adviser.classes)
    encoder, panel = seat_panel(contender.decider, None, problem.seed)
    verdict = judge_adviser(
        contender.adviser,
        problem.test,
        pd.Index(classes).get_indexer(pd.Index(problem.test_labels)),
        classes.index(problem.table.wanted),
        encoder,
        {name: panel[name] for name in _PANEL},
        people=contender.people,
        among=problem.refused,
        taus=TAUS,
        seed=problem.seed,
    )
    record = verdict.to_frame()
    return record.assign(
        accuracy=verdict.accuracy[CLASSIFIER],
        auc=verdict.auc[CLASSIFIER],
        auc_boosting=verdict.auc["boosting"],
        accuracy_boosting=verdict.accuracy["boosting"],
        fit_seconds=seconds,
        default=record["tau"] == verdict.default,
        people=contender.people,
        note=contender.note,
        **{f"real {name}": share for name, share in verdict.ceiling.items()},
        **{"real whole panel": verdict.whole_ceiling},
    )
