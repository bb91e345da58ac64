"""One HTML page about a classifier, for those who answer for its decisions; needs no network and no other file."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from countertrain.files import check_writable, write_text
from countertrain.judge import Verdict, judge
from countertrain.recourse.answer import Recourse
from countertrain.recourse.decider import Decider
from countertrain.recourse.explanation import NONE
from countertrain.recourse.rendering import as_text
from countertrain.recourse.search import explain
from countertrain.report import audit, fairness
from countertrain.report.findings import PYTHON, Door, Evidence
from countertrain.report.page import render_page
from countertrain.report.validation import validate
from countertrain.tables.labels import find_class
from countertrain.tables.schema import as_frame, check_names
from countertrain.words import suggest

__all__ = ["write_report"]

_MOST_ROWS = 2000  # for all that needs a search
_MOST_ASKED_WHY = 200  # people for whom reasons are counted
_FEWEST_JUDGED = 20  # people who are refused and people who are not, for their advice to be judged
_TAUS_JUDGED = (0.6, 0.75, 0.9)  # beside what is asked for by default


def write_report(
    decider: Decider,
    X: Any,
    y: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    baseline: Decider | None = None,
    target: Any = None,
    groups: Sequence[str] = (),
    n_examples: int = 5,
    title: str | None = None,
    seed: int = 0,
    door: Door = PYTHON,
) -> Path | str:
    """Judge a classifier by test rows X and their labels y; returns the page as text, or the file it was written to.

    `baseline` is a conventionally trained classifier to compare with, `target` what people want (if left out, what was
    said in training, or else the last class); `groups` names the columns of X by which people are compared, whether the
    model sees them or not.
    `door` is whose words the page uses for what to ask for next.
    """
    if n_examples < 0:
        raise ValueError(f"n_examples must be at least 0; got {n_examples}")
    if path is not None and Path(path).is_dir():
        raise ValueError(f"path must be the name of a file, such as report.html; {path} is a folder")
    _check_baseline(decider, baseline)
    test = _read_rows(decider, X, y)
    check_names(groups, test.frame.columns)
    if path is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        check_writable(Path(path))
    evidence = replace(_gather_evidence(decider, baseline, test, target, groups, seed), door=door)
    html = render_page(decider, baseline, evidence, n_examples, title)
    if path is None:
        return html
    write_text(Path(path), html)
    return Path(path)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows by which a classifier is judged."""

    frame: pd.DataFrame  # (n, all columns that came)
    x: Tensor  # (n, D) encoded
    y: Tensor  # (n,) true classes

    def __getitem__(self, places: NDArray[np.int64]) -> "_Rows":
        return _Rows(self.frame.iloc[places], self.x[places], self.y[places])


def _read_rows(decider: Decider, X: Any, y: Any) -> _Rows:
    """X and y understood and checked."""
    encoder = decider.encoder
    frame = as_frame(X if isinstance(X, pd.DataFrame) else np.asarray(X), encoder.schema.names).infer_objects()
    if not len(frame):
        raise ValueError("X must have at least one row; got none")
    if y is None:
        raise ValueError("y must hold the true label of each row of X; got None; a report needs labels to judge by")
    labels = column_or_1d(y).tolist()
    if len(labels) != len(frame):
        raise ValueError(f"y must hold one label for each of the {len(frame):,} rows of X; got {len(labels):,}")
    known = decider.classes
    codes = pd.Index(known, dtype=object).get_indexer(pd.Index(labels, dtype=object))
    if (codes < 0).any():
        row = int(np.flatnonzero(codes < 0)[0])
        raise ValueError(
            f"y, row {row}, holds the label {labels[row]!r}, which the classifier has never seen; "
            f"{suggest(labels[row], known)}"
        )
    return _Rows(frame, torch.from_numpy(encoder.encode(frame)).float(), torch.from_numpy(codes.astype(np.int64)))


def _check_baseline(decider: Decider, baseline: Decider | None) -> None:
    """Refuse a baseline whose numbers would mean something else."""
    if baseline is None:
        return
    ours, theirs = (list(one.classes) for one in (decider, baseline))
    if ours != theirs:
        raise ValueError(f"baseline must have the classes of the classifier, {ours}; it has {theirs}")
    columns = (list(zip(one.encoder.schema.columns, one.encoder.scales, strict=True)) for one in (decider, baseline))
    for mine, other in zip_longest(*columns):
        if mine != other:
            raise ValueError(
                f"baseline must see column {(mine or other)[0].name!r} as the classifier does; "
                "fit both to the same rows with the same schema"
            )


def _gather_evidence(
    decider: Decider,
    baseline: Decider | None,
    test: _Rows,
    target: Any,
    groups: Sequence[str],
    seed: int,
) -> Evidence:
    """Measure everything: decisions on all rows, what needs a search on a sample of them."""
    places = np.sort(np.random.default_rng(seed).permutation(len(test.y))[:_MOST_ROWS])
    sample, schema, classes = test[places], decider.encoder.schema, decider.classes
    target = decider.settle_target(target)
    wanted = len(classes) - 1 if target is None else find_class(target, classes)
    accepted = decider.decide(sample.x).numpy() == wanted
    recourse = explain(decider, sample.frame[~accepted], classes[wanted], seed=seed)
    fixed = recourse.existence == NONE
    people = fairness.tabulate_people(accepted, recourse.table.valid, fixed, recourse.table.costs.sum(1))
    return Evidence(
        classes=tuple(as_text(label) for label in classes),
        target=wanted,
        target_given=target is not None,
        performance=_judge_decisions(decider, test, wanted),
        baseline_performance=None if baseline is None else _judge_decisions(baseline, test, wanted),
        outcomes=audit.measure_outcomes(decider, baseline, sample.x, sample.y, seed=seed),
        sensitivities=audit.measure_sensitivities(decider, baseline, sample.x, wanted),
        recourse=recourse,
        rejected=places[~accepted],
        people=people,
        verdict=_judge_advice(decider, test, wanted, seed),
        reasons=_count_reasons(recourse),
        validation=validate(decider, test.frame, test.x, test.y, wanted, seed=seed),
        associations=fairness.measure_associations(schema, sample.frame),
        groupings=tuple(
            fairness.compare_groups(name, sample.frame[name], people, schema, seed=seed) for name in groups
        ),
    )


def _count_reasons(recourse: Recourse) -> dict[str, float]:
    """The columns that are principal reasons, and for what share of some of the people, most frequent first."""
    people = recourse[:_MOST_ASKED_WHY].reasons()
    counts = Counter(reason.column for person in people for reason in person.reasons)
    return {column: count / len(people) for column, count in counts.most_common()}


def _judge_advice(decider: Decider, test: _Rows, wanted: int, seed: int) -> Verdict | None:
    """What independent models make of the advice, where there are enough people to ask and rows to learn from."""
    refused, real = int((decider.decide(test.x) != wanted).sum()), int((test.y == wanted).sum())
    if decider.reference is None or min(refused, real) < _FEWEST_JUDGED:
        return None
    return judge(decider, test.frame, test.y.numpy(), decider.classes[wanted], taus=_TAUS_JUDGED, seed=seed)


def _judge_decisions(decider: Decider, test: _Rows, target: int) -> audit.Performance:
    decision, probability = decider.weigh(test.x)
    return audit.measure_performance(probability, test.y, target, decision)
