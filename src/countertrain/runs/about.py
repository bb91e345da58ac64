"""about.json of a folder: what the models decide, what they were made with, and what a classifier remembers."""

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from countertrain.runs.run import Run

__all__ = ["About", "check_labels"]

Label = str | bool | int | float
_KINDS = "biufUO"  # types of labels: truth values, integers, floats, texts, and objects that are one of these


class Estimator(BaseModel):
    """What a classifier of scikit-learn remembers beside its settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    parameters: dict[str, Any]
    classes_dtype: str
    n_features_in: int
    feature_names_in: list[str] | None
    bins: dict[str, Any] | None = None
    """Of a regressor, the bins of its outcomes."""


class About(BaseModel):
    """All that is neither settings, encoder, weights, history nor rows."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: Literal["countertrain folder, version 4", "countertrain folder, version 5"] = (
        "countertrain folder, version 5"
    )
    """Of version 4, the encoder says all that version 5 says, but for numbers whose being missing is a state."""
    name: str
    title: str
    label: str
    classes: list[Label]
    protected: list[str]
    own_code: dict[str, str]
    estimator: Estimator | None
    environment: dict[str, Any]
    threshold: float | None = None
    """The probability that the wanted class needs, as a number, however it was chosen."""
    evidence: list[list[dict[str, Any]]] | None = None
    """By class and column, what the training rows say, against which nobody is advised to go."""
    taus: dict[int, float] = {}
    """By class number, how sure of it advice is to make the models, where that was learnt."""

    @classmethod
    def of(cls, run: Run) -> Self:
        """What is to be written of a run."""
        data = run.data
        return cls(
            name=data.name,
            title=data.title,
            label=data.label,
            classes=list(data.classes),
            protected=list(data.protected),
            own_code=dict(run.own_code),
            estimator=None if run.estimator is None else Estimator(**run.estimator),
            environment=dict(run.environment),
            threshold=None if run.threshold is None else run.threshold.at,
            evidence=None if run.evidence is None else run.evidence.to_list(),
            taus=dict(run.taus),
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What a file says, if it says two classes at least, in a type that labels can have."""
        about = cls.model_validate_json(text)
        dtype = None if about.estimator is None else np.dtype(about.estimator.classes_dtype)
        classes: NDArray[Any] = np.array(about.classes, dtype=dtype)
        wrong_type = dtype is not None and (dtype.kind not in _KINDS or classes.tolist() != about.classes)
        if wrong_type or len(set(about.classes)) < 2:
            raise ValueError(f"{about.classes} are no classes of the type {classes.dtype}")
        return about

    def to_json(self) -> str:
        """The text of the file, for people to read."""
        return self.model_dump_json(indent=2)


def check_labels(classes: tuple[Any, ...]) -> None:
    """Refuse labels that JSON cannot hold."""
    for label in classes:
        if not isinstance(label, Label):
            kind = type(label).__name__
            raise TypeError(f"labels of the type {kind} such as {label!r} cannot be saved; use texts or numbers")
