"""Whatever was trained, by the command, in Python, in a tuning: one value that everything else reads."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import nn

from countertrain.files import check_writable, write_text
from countertrain.models.deciding import as_one
from countertrain.recourse.decider import Decider
from countertrain.recourse.evidence import Evidence
from countertrain.recourse.threshold import Threshold
from countertrain.runs.measure import Scores, measure
from countertrain.runs.registry import build_protocol
from countertrain.runs.settings import Settings
from countertrain.tables import Dataset
from countertrain.tables.dataset import Split
from countertrain.training.history import History
from countertrain.words import plain

__all__ = ["REFERENCE_ROWS", "Run", "keep_reference"]

REFERENCE_ROWS = 10_000
"""Training rows of each class that are kept with a run, at most: what recourse is compared with."""
_REFERENCE_NUMBERS = 5_000_000
"""Numbers in all rows that are kept, at most: 20 megabytes, which only wide tables reach."""


@dataclass(frozen=True, eq=False)
class Run:
    """Settings, models, and what it takes to decide, to explain and to judge: encoder, classes, rows, history."""

    settings: Settings
    data: Dataset
    """Once it was written and read again, its training rows are the reference rows that were kept."""
    models: Sequence[nn.Module]
    """One per seed; they decide together, by the mean of their probabilities."""
    history: History
    twin: Self | None = None
    """The same, trained conventionally, to compare with."""
    own_code: Mapping[str, str] = field(default_factory=dict)
    """What was given in Python instead of by name (module, objective, generator, teacher), and what it was."""
    estimator: Mapping[str, Any] | None = None
    """What the classifier of scikit-learn remembers beside its settings, if it was trained by one."""
    threshold: Threshold | None = None
    """The probability from which the class that people want is decided for, where one is set."""
    evidence: Evidence | None = None
    """What the training rows say of each column; None where nobody was to keep to it."""
    taus: Mapping[int, float] = field(default_factory=dict)
    """By class number, how sure of it advice is to make the models, where that was learnt from people held out."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """Versions and machine of the training, and the fingerprint of its data."""
    folder: Path | None = None
    """Where it was read from or written to."""
    id: str | None = None
    """Made of the content of its files; None before it was written."""

    @cached_property
    def model(self) -> nn.Module:
        """The models as one: (n, D) encoded rows -> (n, K) logits."""
        return as_one(self.models)

    @property
    def decider(self) -> Decider:
        """What explaining, judging and serving the decisions needs of the run."""
        classes = tuple(plain(label) for label in self.data.classes)
        reference, held_out = (
            (rows.x, rows.y) if len(rows) else None for rows in (self.data.train, self.data.validation)
        )
        settings = self.settings.model_dump() | dict(self.own_code)
        about = {"data": self.data.title, "fingerprint": self.environment.get("data"), "label": self.data.label}
        decider = Decider(
            self.data.encoder,
            classes,
            tuple(self.models),
            reference,
            held_out,
            settings,
            threshold=self.threshold,
            evidence=self._weigh_evidence(),
            taus=self.taus,
            id=self.id,
            about=about,
        )
        return decider.want(self.settings.target)

    def learn_taus(self) -> Self:
        """The run with how sure its advice must be to hold, where its validation rows may be looked at for that."""
        from countertrain.judge.colleagues import choose_taus  # late: it draws in all of the search

        return replace(self, taus=choose_taus(self.decider)) if self.settings.calibrate else self

    def _weigh_evidence(self) -> Evidence | None:
        """What advice is to keep to, of what the training rows say."""
        allowed = self.settings.against_evidence
        if self.evidence is None or allowed is True:
            return None
        return self.evidence.allow(allowed) if allowed else self.evidence

    @property
    def classes(self) -> NDArray[Any]:
        """The labels of the classes, (K,), in the type that they came in."""
        dtype = None if self.estimator is None else self.estimator.get("classes_dtype")
        return np.array(self.data.classes, dtype=dtype)

    def test_rows(self) -> tuple[pd.DataFrame, "pd.Series[Any]"]:
        """The test rows in people's units, and their labels."""
        frame, label = self.data.test_frame, self.data.label
        if frame is None and not len(self.data.test):
            raise ValueError(f"{self.folder or 'this model'} holds no test rows; give rows with labels to judge it by")
        if frame is None:
            frame = self.data.encoder.decode(self.data.test.x.numpy())
            frame[label] = [self.data.classes[k] for k in self.data.test.y.tolist()]
        return frame.drop(columns=label), frame[label]

    def measure(
        self,
        *,
        rounds: int,
        individuals: int,
        tau: float | None = None,
        rows: Split | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Scores:
        """Measure every model on its test rows, or on others, by the paper's protocol; the records go to its folder."""
        rows = self.data.test if rows is None else rows
        if not len(rows):
            raise ValueError(f"{self.folder or 'this model'} holds no test rows; give rows with labels to judge it by")
        file = None if self.folder is None else self.folder / "records.csv"
        if file is not None:
            check_writable(file)
        protocol = build_protocol(self.settings, rounds=rounds, individuals=individuals, tau=tau)
        scores = measure(self.models, self.settings, self.data, rows, protocol, of_models=True, progress=progress)
        if file is not None:
            write_text(file, scores.records.to_csv(index=False, float_format="%.6g"))
        return scores


def keep_reference(rows: Split, rng: np.random.RandomState | None = None) -> Split:
    """A sample of the rows, of each class at most so many, in order."""
    rng = rng or np.random.RandomState(0)
    codes = rows.y.numpy()
    classes = np.unique(codes)
    most = min(REFERENCE_ROWS, _REFERENCE_NUMBERS // max(1, rows.x.shape[1] * len(classes)))
    places = [rng.permutation(np.flatnonzero(codes == k))[:most] for k in classes]
    kept = np.sort(np.concatenate([np.arange(0), *places]))
    return Split(rows.x[kept], rows.y[kept])
