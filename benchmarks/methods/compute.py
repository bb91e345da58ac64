"""A cell computed: its trials trained, one of them chosen by validation rows, judged on test rows, and written down."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from benchmarks.methods.cells import Cell, is_stored, load_rows
from benchmarks.methods.contenders import BASELINE, CONTENDERS
from benchmarks.methods.judging import judge, judge_protected, measure_on_validation
from benchmarks.methods.training import Trained, train_trials
from countertrain.files import write_text
from countertrain.runs.training import describe_environment
from countertrain.runs.tune.goal import Bound, Goal
from countertrain.tables import Dataset

__all__ = ["GOAL", "compute_cell"]

GOAL = Goal(
    bounds=(
        Bound("accuracy", at_least=True, relative=True, offset=-0.01),
        Bound("validity", at_least=True, relative=True, offset=-0.05),
    )
)
"""What settings are chosen by, on validation rows: IP and cost as shares of those of conventional training, at most a
point of accuracy and five points of validity below it."""


def compute_cell(cell: Cell) -> None:
    """Tune, train and judge a cell, unless it is stored already; killed on the way, it is begun again."""
    if is_stored(cell):
        return
    for needed in _list_needed(cell):
        compute_cell(needed)
    data = load_rows(cell)
    told = describe_environment()
    trained = train_trials(cell, data, _list_trials(cell))[0] if cell.protected else _tune(cell, data)
    scores = judge_protected(cell, data, trained) if cell.protected else judge(cell, data, trained)
    cell.folder.mkdir(parents=True, exist_ok=True)
    for seed in range(cell.effort.seeds):
        record = {
            "data": cell.data,
            "method": cell.method,
            "seed": seed,
            "effort": asdict(cell.effort),
            "settings": trained.settings.model_dump(mode="json", exclude_defaults=True, exclude={"seeds"}),
            "trial": trained.trial,
            "environment": told,
            **_of_seed(scores, seed),
        }
        write_text(cell.file(seed), json.dumps(record) + "\n")


def _of_seed(scores: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The numbers of one seed, five digits of each; what was searched is a mapping of its own."""
    return {
        name: _of_seed(found, seed) if isinstance(found, Mapping) else float(f"{found[seed]:.5g}")
        for name, found in scores.items()
    }


def _tune(cell: Cell, data: Dataset) -> Trained:
    """All trials of a method with all seeds, and of them the one that validation rows choose."""
    trained = train_trials(cell, data, _list_trials(cell))
    found = [measure_on_validation(data, each) for each in trained]
    baseline = found[0] if cell.method == BASELINE else _read_baseline(cell)
    chosen = GOAL.ranking(found, baseline)[0]
    rows = [
        {"settings": each.trial, "cpu_seconds": round(each.cpu_seconds, 2), "metrics": metrics}
        for each, metrics in zip(trained, found, strict=True)
    ]
    cell.tuning.parent.mkdir(parents=True, exist_ok=True)
    write_text(cell.tuning, json.dumps({"effort": asdict(cell.effort), "chosen": chosen, "trials": rows}) + "\n")
    return trained[chosen]


def _list_needed(cell: Cell) -> list[Cell]:
    """The cells whose choices or metrics a cell looks at."""
    free = replace(cell, protected=False)
    if cell.protected:
        return [free]
    names = {BASELINE, CONTENDERS[cell.method].like or BASELINE} - {cell.method}
    return [replace(cell, method=name) for name in sorted(names)]


def _list_trials(cell: Cell) -> Sequence[Mapping[str, Any]]:
    """What is tried: the method's own trials, or the one that was chosen for another, or without protection."""
    contender = CONTENDERS[cell.method]
    like = cell.method if cell.protected else contender.like
    if like is None:
        return contender.trials
    stored = json.loads(replace(cell, method=like).tuning.read_text(encoding="utf-8"))
    return [stored["trials"][stored["chosen"]]["settings"]]


def _read_baseline(cell: Cell) -> dict[str, float]:
    stored = json.loads(replace(cell, method=BASELINE).tuning.read_text(encoding="utf-8"))
    return dict(stored["trials"][0]["metrics"])
