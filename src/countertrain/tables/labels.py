"""The labels of rows as classes 0..K-1, whether they come all at once or part by part."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from countertrain.tables.summaries import MAX_LEVELS
from countertrain.words import list_names, plain, suggest

__all__ = ["LabelCoder", "check_labels", "code_labels", "find_class", "find_targets"]


class LabelCoder:
    """Collects the labels of rows; `finish` numbers them."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._known: dict[Any, int] = {}
        self._parts: list[NDArray[np.int64]] = []

    def add(self, values: "pd.Series[Any]") -> None:
        """The labels of further rows, none of them missing."""
        codes, labels = pd.factorize(values)
        places = [self._known.setdefault(plain(label), len(self._known)) for label in labels]
        self._parts.append(np.array(places, dtype=np.int64)[codes])
        if len(self._known) > MAX_LEVELS:
            raise ValueError(
                f"column {self._label!r} has more than {MAX_LEVELS} different labels; group them, or predict another "
                "column"
            )

    def finish(self) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
        """The class of each row (n,), and the labels of the classes in order; whole numbers are integers."""
        labels = sorted(self._known, key=lambda label: (isinstance(label, str), label))
        place = np.array([labels.index(label) for label in self._known], dtype=np.int64)
        whole = all(isinstance(label, int | float) and float(label).is_integer() for label in labels)
        flags = any(isinstance(label, bool) for label in labels)
        classes = tuple(int(label) for label in labels) if whole and not flags else tuple(labels)
        return place[np.concatenate(self._parts)], classes


def code_labels(
    values: "pd.Series[Any]", classes: tuple[Any, ...] | None = None
) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
    """The class of each row (n,), and the labels of the classes, sorted unless given in an order."""
    missing = np.flatnonzero(values.isna())
    if len(missing):
        raise ValueError(f"every row needs a label; row {missing[0]} has none; drop such rows")
    coder = LabelCoder(str(values.name))
    coder.add(values)
    codes, found = coder.finish()
    if classes is None:
        return codes, found
    unknown = [label for label in found if label not in classes]
    if unknown:
        raise ValueError(f"labels must be among {', '.join(map(repr, classes))}; got {unknown[0]!r}")
    return np.array([classes.index(label) for label in found], dtype=np.int64)[codes], classes


def check_labels(label: str, title: str, codes: NDArray[np.int64]) -> None:
    """Refuse too few classes, and classes of too few rows to be split."""
    counts = np.bincount(codes)
    if not 2 <= len(counts) <= MAX_LEVELS or counts.min() < 5:
        raise ValueError(
            f"column {label!r} of {title} must hold 2 to {MAX_LEVELS} classes with at least 5 rows each; "
            f"it has {len(counts)}, the rarest with {counts.min()}"
        )


def find_class(label: Any, classes: Sequence[Any], *, what: str = "target") -> int:
    """The number of a class by its label, or by the text of its label: "1" for 1."""
    wanted, labels = plain(label), [plain(one) for one in classes]
    for known, given in ((labels, wanted), ([str(one) for one in labels], str(wanted))):
        if given in known:
            return known.index(given)
    hint = suggest(wanted, labels, "")
    raise ValueError(
        f"{what} must be one of the classes {list_names(labels)}; got {wanted!r}{'; ' if hint else ''}{hint}"
    )


def find_targets(target: Any, classes: Sequence[Any], decisions: NDArray[np.int64]) -> NDArray[np.int64]:
    """The class (n,) that each row is to get into: `target` for all, one per row, or None for the other one of two."""
    if target is None:
        if len(classes) != 2:
            labels = list_names([plain(label) for label in classes])
            raise ValueError(f"target must be given where there are {len(classes)} classes: {labels}")
        return 1 - decisions
    if isinstance(target, str) or not isinstance(target, Sequence | np.ndarray | pd.Series):
        return np.full(len(decisions), find_class(target, classes), dtype=np.int64)
    if len(target) != len(decisions):
        raise ValueError(f"target must be one class, or one per row, {len(decisions)} of them; got {len(target)}")
    return np.array([find_class(label, classes) for label in target], dtype=np.int64)
