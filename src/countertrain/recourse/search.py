"""Recourse for the rows of a table: what each person could change for another decision."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Self, Union

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from countertrain.models.deciding import logits_of
from countertrain.recourse.answer import OptionTable, Recourse
from countertrain.recourse.ladder import Attempt, Ladder
from countertrain.recourse.reach import Grid, Reach
from countertrain.recourse.reasons import blocked_by, held_back_by, notes, reasons
from countertrain.recourse.reference import Plausibility, Reference
from countertrain.search.losses import predict
from countertrain.tables.encoder import Encoder
from countertrain.tables.schema import Range, as_frame
from countertrain.words import list_names, plain

if TYPE_CHECKING:
    from countertrain.estimator import CounterfactualClassifier

__all__ = ["RecourseSearch", "Request", "Rows", "explain"]

Rows = Union[pd.DataFrame, "pd.Series[Any]", Mapping[str, Any], Sequence[Mapping[str, Any]], NDArray[Any]]
"""Rows of a table: a frame, one row as a series or dictionary, several dictionaries, or an array."""

_CHUNK = 10_000  # rows searched at once, at most
_ASKED_WHY = 200  # of them, rows without a valid option for which it is found out what blocks, at most
_BUDGET = 2**22  # numbers in one tensor of encoded rows: 32 MB
_N_NEAREST = 3  # real rows named with an option


def explain(
    classifier: "CounterfactualClassifier",
    rows: Rows,
    target: Any = None,
    *,
    n_options: int = 1,
    immutable: Sequence[str] = (),
    ranges: Mapping[str, Range] | None = None,
    tau: float = 0.75,
    n_steps: int = 100,
    sparse: bool = True,
    seed: int = 0,
) -> Recourse:
    """What each row could change for the decision `target`: a class, or one a row; None: of two classes the other.

    `immutable` and `ranges` restrict columns for this call, beyond what the schema says. A counterfactual is to
    have probability `tau`; `n_steps` is the most that each of two gradient searches may take to get there. With
    `sparse`, every change that is not needed is undone. `seed` draws the real rows that options are compared with.
    """
    search = RecourseSearch.of(classifier, seed=seed)
    request = search.request(rows, target, immutable=immutable, ranges=ranges)
    return search([request], n_options=n_options, tau=tau, n_steps=n_steps, sparse=sparse)[0]


@dataclass(frozen=True, eq=False)
class Request:
    """Some people's rows, the class that each wants to be in, and where each can go."""

    frame: pd.DataFrame  # (n, C)
    target: Tensor  # (n,) class numbers
    reach: Reach


@dataclass(frozen=True, eq=False)
class RecourseSearch:
    """The search for one classifier. A service builds it once, and answers many requests with one search."""

    encoder: Encoder
    model: nn.Module
    classes: NDArray[Any]
    grid: Grid
    reference: Reference | None
    examples: pd.DataFrame
    """The rows of the reference in the user's units."""

    @classmethod
    def of(cls, classifier: "CounterfactualClassifier", *, seed: int = 0) -> Self:
        """The search for a fitted classifier; `seed` draws the real rows that options are compared with."""
        encoder, x, y = classifier.encoder_, classifier.reference_x_, classifier.reference_y_
        grid = Grid.of(encoder)
        reference = None if x is None else Reference.of(torch.as_tensor(x), torch.as_tensor(y), grid, seed=seed)
        examples = grid.tell(encoder, torch.empty(0, len(encoder.features)) if reference is None else reference.x)
        return cls(encoder, classifier.ensemble_, classifier.classes_, grid, reference, examples)

    def request(
        self,
        rows: Rows,
        target: Any = None,
        *,
        immutable: Sequence[str] = (),
        ranges: Mapping[str, Range] | None = None,
    ) -> Request:
        """What `explain` is asked for, understood and checked; refused in one sentence where it is wrong."""
        frame = _frame(rows, self.encoder.schema.names)
        origin = torch.from_numpy(self.encoder.encode(frame))
        constraints = self.encoder.constraints(immutable=immutable, ranges=ranges)
        return Request(
            frame[list(self.encoder.schema.names)].reset_index(drop=True),
            self._target(target, origin),
            Reach.of(constraints, origin),
        )

    @torch.no_grad()
    def __call__(
        self,
        requests: Sequence[Request],
        *,
        n_options: int | Sequence[int] = 1,
        tau: float = 0.75,
        n_steps: int = 100,
        sparse: bool = True,
    ) -> list[Recourse]:
        """Recourse for each request; all their rows are searched together. `n_options` may be one number a row."""
        if np.min(n_options, initial=1) < 1 or n_steps < 0 or not 0 < tau < 1:
            raise ValueError(
                "n_options must be at least 1, n_steps at least 0, and tau lie strictly between 0 and 1; "
                f"got {n_options}, {n_steps} and {tau:g}"
            )
        frame = pd.concat([request.frame for request in requests], ignore_index=True)
        target = torch.cat([request.target for request in requests])
        reach = Reach.joined([request.reach for request in requests])
        wanted = torch.as_tensor(n_options)
        if wanted.ndim and len(wanted) != len(frame):
            raise ValueError(f"n_options must be one number, or one for each of {len(frame)} rows; got {len(wanted)}")
        wanted = wanted.expand(len(frame))
        ladder = Ladder(self.model, self.grid, self.reference, tau, n_steps, sparse)
        size = min(_CHUNK, max(1, _BUDGET // len(self.encoder.features)))
        parts = [slice(first, first + size) for first in range(0, max(len(frame), 1), size)]
        found = Recourse.joined([self._found(ladder, frame[p], target[p], reach[p], wanted[p]) for p in parts])
        ends = accumulate((len(request.frame) for request in requests), initial=0)
        return [found[a:b] for a, b in pairwise(ends)]

    def _found(self, ladder: Ladder, frame: pd.DataFrame, target: Tensor, reach: Reach, n_options: Tensor) -> Recourse:
        """Recourse for as many rows as are searched at once."""
        attempts = ladder.options(reach, target, n_options)
        table = self._told(ladder, frame, target, reach, attempts)
        columns = self.encoder.schema.columns
        most = min(_ASKED_WHY, max(1, _BUDGET // (self.grid.n_columns * len(self.encoder.features))))
        first, allowed = attempts[0][1], Reach.of(self.encoder.constraints(), reach.origin)
        short = first.valid & ~ladder.mature(first) & (first.x != reach.origin).any(1)
        blocked, limited = (
            dict(zip(rows.tolist(), why(ladder, reach[rows], allowed[rows], target[rows], columns), strict=True))
            for why, rows in (
                (blocked_by, (~first.valid).nonzero()[:most, 0]),
                (held_back_by, short.nonzero()[:most, 0]),
            )
        )
        labels = self.classes[target.numpy()]
        return Recourse(
            factual=frame,
            decision=self.classes[self._decisions(reach.origin).numpy()],
            target=labels,
            probability=ladder.judge(reach.origin, target).probability.numpy(),
            note=notes(table, n_options.numpy()),
            table=replace(table, reason=reasons(table, labels, blocked, limited, ladder)),
            examples=self.examples,
            units={column.name: getattr(column, "unit", None) for column in self.encoder.schema.columns},
        )

    def _told(
        self,
        ladder: Ladder,
        frame: pd.DataFrame,
        target: Tensor,
        reach: Reach,
        attempts: Sequence[tuple[Tensor, Attempt]],
    ) -> OptionTable:
        """The attempts as the user sees them; all that is said of them is of these very values, encoded anew."""
        row = torch.cat([rows for rows, _ in attempts])
        x = torch.cat([attempt.x for _, attempt in attempts])
        order = np.lexsort((self.grid.costs(x, reach.origin[row]).sum(1).numpy(), row.numpy()))
        row, x = row[order], x[order]
        told = self.grid.tell(self.encoder, x, frame.iloc[row.numpy()].reset_index(drop=True))
        x, target = torch.from_numpy(self.encoder.encode(told)), target[row]
        seen, near = ladder.judge(x, target), self._plausibility(x, target)
        return OptionTable(
            row=row.numpy(),
            values=told,
            costs=self.grid.costs(x, reach.origin[row]).numpy(),
            probability=seen.probability.numpy(),
            valid=seen.valid.numpy(),
            mature=ladder.mature(seen).numpy(),
            distance=near.distance.numpy(),
            percentile=near.percentile.numpy(),
            nearest=near.nearest.numpy(),
            reason=np.full(len(row), None, dtype=object),
        )

    def _plausibility(self, x: Tensor, target: Tensor) -> Plausibility:
        if self.reference is None:
            return Plausibility.unknown(len(x), _N_NEAREST)
        return self.reference.plausibility(x, target, _N_NEAREST)

    def _decisions(self, x: Tensor) -> Tensor:
        """The class number (n,) that the model decides for."""
        return predict(logits_of(self.model, x.float()))

    def _target(self, target: Any, origin: Tensor) -> Tensor:
        """Class numbers (n,) of a class label, of one label a row, or of the other one of two classes."""
        labels = [plain(label) for label in self.classes]
        if target is None:
            if len(labels) != 2:
                raise ValueError(f"target must be given where there are {len(labels)} classes: {list_names(labels)}")
            return 1 - self._decisions(origin)
        many = isinstance(target, Sequence | np.ndarray | pd.Series) and not isinstance(target, str)
        wanted = [plain(label) for label in target] if many else [plain(target)] * len(origin)
        if len(wanted) != len(origin):
            raise ValueError(f"target must be one class, or one for each of {len(origin)} rows; got {len(wanted)}")
        for label in wanted:
            if label not in labels:
                raise ValueError(f"target must be one of the classes {list_names(labels)}; got {label!r}")
        return torch.tensor([labels.index(label) for label in wanted], dtype=torch.int64)


def _frame(rows: Rows, names: Sequence[str]) -> pd.DataFrame:
    """Rows of any kind as a frame."""
    if isinstance(rows, pd.DataFrame):
        return as_frame(rows)
    if isinstance(rows, np.ndarray):
        return as_frame(np.atleast_2d(rows), names).infer_objects()
    if isinstance(rows, pd.Series):
        return as_frame(rows.to_frame().T.infer_objects())
    return as_frame(pd.DataFrame([rows] if isinstance(rows, Mapping) else list(rows)))
