"""A folder with all that a decision needs: the model, a conventional one to compare with, and rows neither has seen."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
from sklearn.base import clone

from countertrain.estimator import CounterfactualClassifier
from countertrain.files import write_text
from countertrain.tables.labels import code_labels
from countertrain.tables.schema import Schema, check_names
from countertrain.tables.splits import split_off

__all__ = ["Project"]

_CT, _BL, _TEST, _ABOUT = "ct", "bl", "test.csv", "project.json"


@dataclass(frozen=True, eq=False)
class Project:
    """A trained pair of classifiers with held-out rows: `ct/`, `bl/`, `test.csv` and `project.json` in one folder."""

    folder: Path
    classifier: CounterfactualClassifier
    baseline: CounterfactualClassifier
    test: pd.DataFrame
    label: str
    """The column to predict."""

    @property
    def rows(self) -> pd.DataFrame:
        """The held-out rows without their labels."""
        return self.test.drop(columns=self.label)

    @classmethod
    def build(
        cls,
        folder: Path,
        frame: pd.DataFrame,
        label: str,
        classifier: CounterfactualClassifier,
        *,
        held_out: float = 0.2,
        seed: int = 0,
        overwrite: bool = False,
        say: Callable[[str], None] = lambda text: None,
    ) -> Self:
        """Hold out rows, train the classifier and a conventional one of the same settings, and write both."""
        check_names([label], frame.columns)
        if not overwrite and (folder / _ABOUT).exists():
            raise ValueError(f"{folder} holds models already; choose another folder, or say --overwrite")
        frame = frame[frame[label].notna()]
        known, test = _split(frame, label, held_out, seed)
        folder.mkdir(parents=True, exist_ok=True)
        baseline = clone(classifier).set_params(objective="bl")
        for name, model in ((_CT, classifier), (_BL, baseline)):
            say("counterfactual training" if name == _CT else "a conventional model to compare with")
            model.fit(known.drop(columns=label), known[label])
            model.save(folder / name, overwrite=overwrite)
        write_text(folder / _TEST, test.to_csv(index=False))
        write_text(folder / _ABOUT, json.dumps({"label": label, "n_train": len(known), "n_test": len(test)}) + "\n")
        return cls(folder, classifier, baseline, test, label)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """The project in a folder."""
        if not (folder / _ABOUT).is_file():
            raise ValueError(f"{folder} is not a folder that `countertrain fit` wrote: it has no {_ABOUT}")
        label = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))["label"]
        classifier, baseline = (CounterfactualClassifier.load(folder / name) for name in (_CT, _BL))
        test = _typed(pd.read_csv(folder / _TEST), classifier.encoder_.schema)
        return cls(folder, classifier, baseline, test, label)


def _typed(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Levels as the schema has them: a file knows no types, and "1" is not 1."""
    for column in schema.columns:
        levels = getattr(column, "levels", ())
        if levels and all(isinstance(level, str) for level in levels):
            values = frame[column.name]
            frame[column.name] = values.astype(object).where(values.isna(), values.astype(str))
    return frame


def _split(frame: pd.DataFrame, label: str, held_out: float, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    counts = frame[label].value_counts()
    if len(counts) < 2 or counts.min() < 2:
        raise ValueError(
            f"column {label!r} must hold at least two classes with two rows each; it has {counts.head(5).to_dict()}"
        )
    known, test = split_off(code_labels(frame[label])[0], held_out, np.random.default_rng(seed))
    return frame.iloc[known].reset_index(drop=True), frame.iloc[test].reset_index(drop=True)
