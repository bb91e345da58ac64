"""A teacher for counterfactuals: another model, fitted to the training rows, that says what it makes of them."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Lesson", "Teacher"]

_FOLDS = 4
_MOST_ROWS, _MOST_NUMBERS = 20_000, 2**22  # that a teacher is fitted to
_TEMPERATURES = np.geomspace(0.5, 4.0, 25)  # tried, by which the logits of a teacher are divided
_LEAST = 1e-4  # probability that a teacher gives to anything


@runtime_checkable
class Teacher(Protocol):
    """Anything that is fitted and gives probabilities as scikit-learn's classifiers do."""

    def fit(self, X: Any, y: Any, /) -> Any:
        """Learn from rows (n, D) of classes (n,)."""
        ...

    def predict_proba(self, X: Any, /) -> Any:
        """The probability of each class that it has seen, (n, k), in ascending order of the classes."""
        ...


@dataclass(frozen=True, eq=False)
class Lesson:
    """A teacher fitted out of fold: of a row and of what a search makes of it, those speak that never saw that row."""

    fitted: Sequence[tuple[Teacher, Tensor]]
    """One per fold, with the classes (k,) that it has seen."""
    fold: Tensor  # (n,) the fold of each training row
    seen: Tensor  # (D',) places of the features that a teacher looks at
    n_classes: int
    temperature: float

    @classmethod
    def of(cls, teacher: Teacher, x: Tensor, y: Tensor, n_classes: int, hidden: Tensor | None = None) -> Self:
        """Fit copies of a teacher to rows x (n, *shape) of classes y (n,), each without the rows of a fold.

        Of a large table, it is fitted to a sample. `hidden` (D,) tells which features it must not look at.
        Probabilities are calibrated by what the teachers say of rows that they have not seen.
        """
        seen = torch.arange(x[0].numel()) if hidden is None else (~hidden.flatten()).nonzero()[:, 0].cpu()
        if not len(seen):
            raise ValueError("a teacher that sees only what can change needs a feature that can; let it see all")
        fold = _draw_folds(y.cpu())
        most = min(_MOST_ROWS, _MOST_NUMBERS // len(seen))
        few = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))[:most].sort().values
        rows, labels, held = _to_numpy(x[few.to(x.device)], seen), y.cpu()[few].numpy(), fold[few]
        fitted: list[tuple[Teacher, Tensor]] = []
        for k in range(_FOLDS):
            others = (held != k).numpy() if (held != k).any() else np.ones(len(held), dtype=bool)
            classes = torch.from_numpy(np.unique(labels[others]))
            pupil = copy.deepcopy(teacher) if len(classes) > 1 else _OneClass()
            pupil.fit(rows[others], labels[others])
            fitted.append((pupil, classes))
        lesson = cls(fitted, fold, seen, n_classes, 1.0)
        return replace(lesson, temperature=_calibrate(lesson._ask(rows, held), labels))

    def __call__(self, x: Tensor, rows: Tensor) -> Tensor:
        """What the teacher makes of counterfactuals x (P, n, *shape) of training rows (P, n): (P, n, K)."""
        said = self._ask(_to_numpy(x.flatten(0, 1), self.seen), self.fold[rows.flatten().cpu()])
        logits = torch.from_numpy(said).log() / self.temperature  # (P n, K)
        return logits.softmax(-1).to(x).view(*x.shape[:2], -1)

    def _ask(self, x: NDArray[np.float64], fold: Tensor) -> NDArray[np.float64]:
        """Probabilities (n, K) of rows (n, D') by the teachers that have not seen their folds."""
        said = np.full((len(x), self.n_classes), _LEAST)
        for k, (teacher, classes) in enumerate(self.fitted):
            mine = np.flatnonzero((fold == k).numpy())
            if not len(mine):
                continue
            given = np.asarray(teacher.predict_proba(x[mine]))
            if given.shape != (len(mine), len(classes)):
                raise ValueError(
                    f"a teacher must give probabilities of shape {(len(mine), len(classes))}, one per row and class "
                    f"that it was fitted to; {type(teacher).__name__} gave {given.shape}"
                )
            said[np.ix_(mine, classes.numpy())] = given.clip(_LEAST)
        return np.asarray(said / said.sum(1, keepdims=True))


class _OneClass:
    """The teacher of a fold whose other rows are all of one class, which many a teacher refuses to be fitted to."""

    def fit(self, X: Any, y: Any, /) -> None:
        pass

    def predict_proba(self, X: Any, /) -> NDArray[np.float64]:
        return np.ones((len(X), 1))


def _draw_folds(y: Tensor) -> Tensor:
    """(n,), a fold for each row, of each class about as many in each; the same for the same rows."""
    stream = torch.Generator().manual_seed(0)
    order = torch.randperm(len(y), generator=stream)
    order = order[y[order].argsort(stable=True)]
    fold = torch.empty_like(y)
    fold[order] = torch.arange(len(y)) % _FOLDS
    return fold


def _calibrate(said: NDArray[np.float64], y: NDArray[np.int64]) -> float:
    """The temperature at which probabilities (n, K), given to rows of classes y (n,), are likeliest."""
    logits = np.log(said)
    losses = []
    for temperature in _TEMPERATURES:
        log_p = torch.from_numpy(logits / temperature).log_softmax(-1).numpy()
        losses.append(-log_p[np.arange(len(y)), y].mean())
    return float(_TEMPERATURES[int(np.argmin(losses))])


def _to_numpy(x: Tensor, seen: Tensor) -> NDArray[np.float64]:
    return x.detach().cpu().flatten(1)[:, seen].double().numpy()
