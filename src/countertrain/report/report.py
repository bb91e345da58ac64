"""One HTML page about a classifier, for those who answer for its decisions; needs no network and no other file."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, column_or_1d
from torch import Tensor

from countertrain.estimator import CounterfactualClassifier
from countertrain.files import write_text
from countertrain.models.deciding import logits_of
from countertrain.recourse.rendering import as_text
from countertrain.report import audit, fairness
from countertrain.report.findings import Evidence
from countertrain.report.page import page
from countertrain.search.losses import predict
from countertrain.tables.schema import as_frame, check_names
from countertrain.words import plain, suggest

__all__ = ["report"]

_MOST_ROWS = 2000  # for all that needs a search


def report(
    classifier: CounterfactualClassifier,
    X: Any,
    y: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    baseline: CounterfactualClassifier | None = None,
    target: Any = None,
    groups: Sequence[str] = (),
    n_examples: int = 5,
    title: str | None = None,
    seed: int = 0,
) -> Path | str:
    """Judge a classifier by test rows X and their labels y: the page as a text, or the file that it was written to.

    `baseline` is a conventionally trained classifier to compare with, `target` the decision that people want (None:
    the last class), `groups` names columns of X, also such that the model does not see, by which people are compared.
    """
    if n_examples < 0:
        raise ValueError(f"n_examples must be at least 0; got {n_examples}")
    if path is not None and Path(path).is_dir():
        raise ValueError(f"path must be the name of a file, such as report.html; {path} is a folder")
    _check_baseline(classifier, baseline)
    test = _test_rows(classifier, X, y)
    check_names(groups, test.frame.columns)
    evidence = _evidence(classifier, baseline, test, target, groups, seed)
    html = page(classifier, baseline, evidence, n_examples, title)
    if path is None:
        return html
    Path(path).parent.mkdir(parents=True, exist_ok=True)
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


def _test_rows(classifier: CounterfactualClassifier, X: Any, y: Any) -> _Rows:
    """X and y understood and checked."""
    check_is_fitted(classifier)
    encoder = classifier.encoder_
    frame = as_frame(X if isinstance(X, pd.DataFrame) else np.asarray(X), encoder.schema.names).infer_objects()
    if not len(frame):
        raise ValueError("X must have at least one row; got none")
    if y is None:
        raise ValueError("y must hold the true label of each row of X; got None; a report needs labels to judge by")
    labels = column_or_1d(y).tolist()
    if len(labels) != len(frame):
        raise ValueError(f"y must hold one label for each of the {len(frame):,} rows of X; got {len(labels):,}")
    known = classifier.classes_.tolist()
    codes = pd.Index(known, dtype=object).get_indexer(pd.Index(labels, dtype=object))
    if (codes < 0).any():
        row = int(np.flatnonzero(codes < 0)[0])
        raise ValueError(
            f"y, row {row}, holds the label {labels[row]!r}, which the classifier has never seen; "
            f"{suggest(labels[row], known)}"
        )
    return _Rows(frame, torch.from_numpy(encoder.encode(frame)).float(), torch.from_numpy(codes.astype(np.int64)))


def _check_baseline(classifier: CounterfactualClassifier, baseline: CounterfactualClassifier | None) -> None:
    """Refuse a baseline whose numbers would mean something else."""
    if baseline is None:
        return
    if not isinstance(baseline, CounterfactualClassifier):
        raise TypeError(f"baseline must be a CounterfactualClassifier; got {type(baseline).__name__}")
    check_is_fitted(baseline)
    ours, theirs = (one.classes_.tolist() for one in (classifier, baseline))
    if ours != theirs:
        raise ValueError(f"baseline must have the classes of the classifier, {ours}; it has {theirs}")
    columns = (
        list(zip(one.encoder_.schema.columns, one.encoder_.centre, one.encoder_.scale, strict=True))
        for one in (classifier, baseline)
    )
    for mine, other in zip_longest(*columns):
        if mine != other:
            raise ValueError(
                f"baseline must see column {(mine or other)[0].name!r} as the classifier does; "
                "fit both to the same rows with the same schema"
            )


def _place(classifier: CounterfactualClassifier, target: Any) -> int:
    """The place of the class that people want; the last one if nobody says."""
    labels: list[Any] = classifier.classes_.tolist()
    if target is None:
        return len(labels) - 1
    if plain(target) not in labels:
        raise ValueError(f"target must be a class of the classifier; got {target!r}; {suggest(target, labels)}")
    return labels.index(plain(target))


def _evidence(
    classifier: CounterfactualClassifier,
    baseline: CounterfactualClassifier | None,
    test: _Rows,
    target: Any,
    groups: Sequence[str],
    seed: int,
) -> Evidence:
    """Measure everything: decisions on all rows, what needs a search on a sample of them."""
    places = np.sort(np.random.default_rng(seed).permutation(len(test.y))[:_MOST_ROWS])
    sample, schema, wanted = test[places], classifier.encoder_.schema, _place(classifier, target)
    accepted = predict(logits_of(classifier.ensemble_, sample.x)).numpy() == wanted
    recourse = classifier.explain(sample.frame[~accepted], classifier.classes_[wanted], seed=seed)
    people = fairness.people(accepted, recourse.table.valid, recourse.table.costs.sum(1))
    return Evidence(
        classes=tuple(as_text(label) for label in classifier.classes_.tolist()),
        target=wanted,
        target_given=target is not None,
        performance=_performance(classifier, test, wanted),
        baseline_performance=None if baseline is None else _performance(baseline, test, wanted),
        outcomes=audit.outcomes(classifier, baseline, sample.x, sample.y, seed=seed),
        sensitivities=audit.sensitivities(classifier, baseline, sample.x, wanted),
        recourse=recourse,
        rejected=places[~accepted],
        people=people,
        associations=fairness.associations(schema, sample.frame),
        groupings=tuple(fairness.grouping(name, sample.frame[name], people, schema, seed=seed) for name in groups),
    )


def _performance(classifier: CounterfactualClassifier, test: _Rows, target: int) -> audit.Performance:
    return audit.performance(logits_of(classifier.ensemble_, test.x).double().softmax(-1), test.y, target)
