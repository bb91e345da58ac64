"""Recourse for the rows of a table: what each person could change for another decision."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Self, Union

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from countertrain.recourse.answer import OptionTable, Recourse
from countertrain.recourse.attempt import Attempt
from countertrain.recourse.decider import Decider
from countertrain.recourse.defaults import N_STEPS, OPTIONS, TAU, TAU_RANGE, TAU_SHARE
from countertrain.recourse.guesses import Guesses
from countertrain.recourse.ladder import Ladder
from countertrain.recourse.options import Options, find_options
from countertrain.recourse.principal import Grounds
from countertrain.recourse.proof import Prover, name_existence
from countertrain.recourse.reach import AnswerGrid, Reach
from countertrain.recourse.reasons import find_blocking, find_limiting, give_reasons, note_shortages
from countertrain.recourse.reference import Plausibility, Reference
from countertrain.tables.labels import find_targets
from countertrain.tables.schema import Range, as_frame

__all__ = ["RecourseSearch", "Request", "Rows", "explain"]

Rows = Union[pd.DataFrame, "pd.Series[Any]", Mapping[str, Any], Sequence[Mapping[str, Any]], NDArray[Any]]
"""Rows of a table: a frame, one row as a series or dictionary, several dictionaries, or an array."""

_MOST_ROWS = 10_000  # rows searched at once, at most
_MOST_ASKED_WHY = 200  # of them, rows without a valid option for which it is found out what blocks, at most
_BUDGET = 2**22  # numbers in one tensor of encoded rows: 32 MB
_N_NEAREST = 3  # real rows named per option


def explain(
    decider: Decider,
    rows: Rows,
    target: Any = None,
    *,
    options: int = OPTIONS,
    immutable: Sequence[str] = (),
    ranges: Mapping[str, Range] | None = None,
    tau: float | None = None,
    n_steps: int = N_STEPS,
    sparse: bool = True,
    against_evidence: bool = False,
    prove: bool | float = True,
    seed: int = 0,
) -> Recourse:
    """What each row could change for the decision `target`: a class, or one per row.

    Left out, it is the class that people were said to want in training; where nobody said, the other one of two.

    Up to `options` ways are found per row. `immutable` and `ranges` restrict columns for this call, beyond what the
    schema says. A counterfactual is to have probability `tau`; left out, the model is to be as sure as it takes for
    such advice to hold. `n_steps` is the most that each of two gradient searches may take to get there.
    With `sparse`, every change that is not needed is undone. With `against_evidence`, a column may also go the way that
    the training rows speak against. Where nothing is found, `Explanation.existence` says if anything exists: `prove=60`
    spends about a minute more on each person for whom that stays open, False does not ask. `seed` draws the real rows
    that options are compared with.
    """
    search = RecourseSearch.of(replace(decider, evidence=None) if against_evidence else decider, seed=seed)
    request = search.request(rows, target, immutable=immutable, ranges=ranges)
    return search([request], options=options, tau=tau, n_steps=n_steps, sparse=sparse, prove=prove)[0]


@dataclass(frozen=True, eq=False)
class Request:
    """Some people's rows, the class that each wants to be in, and where each can go."""

    frame: pd.DataFrame  # (n, C)
    target: Tensor  # (n,) class numbers
    reach: Reach
    guesses: Guesses | None = None
    """What a search has found out about real rows for these people, if it is kept for the next one."""


@dataclass(frozen=True, eq=False)
class RecourseSearch:
    """The search for one decider. A service builds it once, and answers many requests with one search."""

    decider: Decider
    grid: AnswerGrid
    reference: Reference | None
    examples: pd.DataFrame
    """The rows of the reference in the user's units."""

    @classmethod
    def of(cls, decider: Decider, *, seed: int = 0) -> Self:
        """The search for trained models; `seed` draws the real rows that options are compared with."""
        encoder = decider.encoder
        grid = AnswerGrid.of(encoder)
        reference = None if decider.reference is None else Reference.of(*decider.reference, grid, seed=seed)
        examples = grid.decode(encoder, torch.empty(0, len(encoder.features)) if reference is None else reference.x)
        return cls(decider, grid, reference, examples)

    @cached_property
    def _ladder(self) -> Ladder:
        decider = self.decider
        return Ladder(decider.model, self.grid, self.reference, TAU, N_STEPS, sparse=True, threshold=decider.threshold)

    def request(
        self,
        rows: Rows,
        target: Any = None,
        *,
        immutable: Sequence[str] = (),
        ranges: Mapping[str, Range] | None = None,
    ) -> Request:
        """What `explain` is asked for, read and checked; refused in one sentence where it is wrong."""
        encoder = self.decider.encoder
        frame = _to_frame(rows, encoder.schema.names)
        origin = torch.from_numpy(encoder.encode(frame))
        wanted, decided = self.decider.settle_target(target), self.decider.decide(origin).numpy()
        targets = torch.from_numpy(find_targets(wanted, self.decider.classes, decided))
        reach = self.find_reach(origin, targets, immutable=immutable, ranges=ranges)
        return Request(frame[list(encoder.schema.names)].reset_index(drop=True), targets, reach)

    def remember(self, request: Request) -> Request:
        """The same request, for people who are going to be advised again and again with other probabilities tau."""
        n_real = 0 if self.reference is None else len(self.reference.x)
        if len(request.frame) * n_real > _BUDGET:
            return request
        return replace(request, guesses=Guesses.none(len(request.frame), n_real))

    def find_reach(
        self,
        origin: Tensor,
        target: Tensor,
        *,
        immutable: Sequence[str] = (),
        ranges: Mapping[str, Range] | None = None,
    ) -> Reach:
        """Where people at rows `origin` (n, D) may be sent, each by the class (n,) that they want.

        What follows from other columns by a rule may go anywhere, unless it is `immutable` for these people: then
        nothing may change that it follows from.
        """
        given: dict[str, Any] = {"immutable": immutable, "ranges": ranges} if immutable or ranges else {}
        constraints = self.decider.restrict(int(target[0]) if len(target) else 0, **given)
        reach = Reach.of(constraints, origin)
        for k in target.unique().tolist():
            rows = (target == k).nonzero()[:, 0]
            if len(rows) < len(target):
                reach = reach.put(rows, Reach.of(self.decider.restrict(k, **given), origin[rows]))
        if self.grid.keeper is None:
            return reach
        reach = reach.pin(self.grid.keeper.find_beginning(immutable).expand_as(origin))
        names, led = self.decider.encoder.schema.names, self.grid.keeper.led
        held = torch.tensor([names[i] in immutable for i in self.grid.column_of.tolist()])
        return replace(reach.widen((led & ~held).expand_as(origin), constraints.lower, constraints.upper), led=led)

    def keep_unknown(self, frame: pd.DataFrame, reach: Reach) -> Reach:
        """What is missing in people's rows stays missing, unless filling it in is something that they can do.

        Where rules hold between columns, the reach knows people's own values, too.
        """
        reach = reach.pin(torch.from_numpy(self.decider.encoder.find_unknown(frame)))
        return reach if self.grid.keeper is None else replace(reach, own=self.grid.keeper.read(frame))

    def _join_reach(self, requests: Sequence[Request], frame: pd.DataFrame) -> Reach:
        """Where the people of all requests, at rows of the frame, may be sent."""
        reach = self.keep_unknown(frame, Reach.join([request.reach for request in requests]))
        return replace(reach, guesses=requests[0].guesses) if len(requests) == 1 else reach

    @torch.no_grad()
    def __call__(
        self,
        requests: Sequence[Request],
        *,
        options: int | Sequence[int] = OPTIONS,
        tau: float | None = None,
        n_steps: int = N_STEPS,
        sparse: bool = True,
        prove: bool | float = True,
    ) -> list[Recourse]:
        """Recourse for each request; all their rows are searched together. `options` may be one number per row."""
        wrong = {
            f"options must be at least 1; got {options}": np.min(options, initial=1) < 1,
            f"n_steps must be at least 0; got {n_steps}": n_steps < 0,
            f"tau must lie strictly between 0 and 1; got {tau or 0:g}": tau is not None and not 0 < tau < 1,
            f"prove must be True, False or a number of seconds; got {prove}": not 0 <= prove < np.inf,
        }
        if any(wrong.values()):
            raise ValueError(", and ".join(said for said, is_wrong in wrong.items() if is_wrong))
        frame = _stack([request.frame for request in requests])
        target = torch.cat([request.target for request in requests])
        reach = self._join_reach(requests, frame)
        asked = torch.as_tensor(options)
        if asked.ndim and len(asked) != len(frame):
            raise ValueError(f"options must be one number, or one for each of {len(frame)} rows; got {len(asked)}")
        asked = asked.expand(len(frame))
        ladder = replace(self._ladder, n_steps=n_steps, sparse=sparse)
        size = min(_MOST_ROWS, max(1, _BUDGET // len(self.decider.encoder.features)))
        order = target.argsort(stable=True)  # people who want the same are searched together, with the same tau
        parts = [rows for k in target.unique() for rows in order[target[order] == k].split(size)] or [order]
        found = Recourse.join(
            [
                self._search_part(
                    replace(ladder, tau=self._settle_tau(tau, target[rows])),
                    _take(frame, rows),
                    target[rows],
                    reach[rows],
                    asked[rows],
                    prove,
                )
                for rows in parts
            ]
        )
        found = found if torch.equal(order, torch.arange(len(order))) else found.select(order.argsort().numpy())
        if len(requests) == 1:
            return [found]
        ends = accumulate((len(request.frame) for request in requests), initial=0)
        return [found[a:b] for a, b in pairwise(ends)]

    @torch.no_grad()
    def advise(self, requests: Sequence[Request], tau: float) -> Attempt:
        """What is recommended to people who are refused, encoded, and no more said of it; all are searched together."""
        frame = _stack([request.frame for request in requests])
        target, ladder = torch.cat([request.target for request in requests]), replace(self._ladder, tau=tau)
        return ladder.climb(self._spare_last_resorts(ladder, self._join_reach(requests, frame), target), target)

    def _spare_last_resorts(self, ladder: Ladder, reach: Reach, target: Tensor) -> Reach:
        """Where people are sent: what is for the last resort stays as it is, but for those who need it to reach tau."""
        columns = self.decider.encoder.schema.columns
        spared = torch.tensor([columns[i].last_resort for i in self.grid.column_of.tolist()])
        if not spared.any():
            return reach
        others = reach.pin(spared.expand_as(reach.origin))
        rows = (~ladder.reaches_tau(ladder.climb(others, target))).nonzero()[:, 0]
        return others.put(rows, reach[rows])

    def default_tau(self, target: Tensor) -> float:
        """How sure advice is to make the model, for people who all want the same class.

        As sure as it takes for advice to hold, where that was learnt in training; else as of most who have that class.
        Its limits move with the threshold, so that advice is as far above it as it would be above one half.
        """
        if not len(target):
            return TAU
        k, threshold = int(target[0]), self.decider.threshold
        if k in self.decider.taus:
            return self.decider.taus[k]
        usual, low, high = (
            p if threshold is None else threshold.shift(p, k) for p in (TAU, TAU_RANGE[0], TAU_RANGE[1])
        )
        if self.reference is None or not len(places := self.reference.of_class(k)):
            return usual
        sure = self.decider.compute_probabilities(self.reference.x[places])[:, k].quantile(TAU_SHARE)
        return round(min(max(float(sure), low), high), 2 if threshold is None else 4)

    def _settle_tau(self, tau: float | None, target: Tensor) -> float:
        """The tau to search with; no advice is valid with less than what the decision needs, so nothing is lost."""
        if tau is None:
            return self.default_tau(target)
        threshold = self.decider.threshold
        return tau if threshold is None or not len(target) else max(tau, threshold.needed(int(target[0])))

    def _search_part(
        self,
        ladder: Ladder,
        frame: pd.DataFrame,
        target: Tensor,
        reach: Reach,
        asked: Tensor,
        prove: bool | float,
    ) -> Recourse:
        """Recourse for as many rows as are searched at once."""
        encoder, classes = self.decider.encoder, pd.Index(self.decider.classes).to_numpy()
        prover = Prover(ladder, seconds=0.0 if prove is True else float(prove)) if prove is not False else None
        reach = self._spare_last_resorts(ladder, reach, target)
        found, none = find_options(ladder, reach, target, asked, prover)
        table = self._tabulate(ladder, frame, target, reach, found)
        k = int(target[0]) if len(target) else 0  # all want the same
        columns = self.decider.list_columns(k)
        blocked, limited = self._find_causes(ladder, found[0].attempt, frame, target, reach)
        labels = classes[target.numpy()]
        return Recourse(
            factual=frame,
            decision=classes[self.decider.decide(reach.origin).numpy()],
            target=labels,
            probability=ladder.judge(reach.origin, target).probability.numpy(),
            note=note_shortages(table, asked.numpy()),
            existence=name_existence(found[0].attempt.valid, none),
            table=replace(table, reason=give_reasons(table, labels, blocked, limited, ladder, none.numpy())),
            examples=self.examples,
            units={column.name: getattr(column, "unit", None) for column in columns},
            ranks=encoder.ranks,
            last_resorts=[column.name for column in columns if column.last_resort],
            needed=self.list_needed(),
            grounds=Grounds(self.decider, reach, target),
        )

    def _find_causes(
        self, ladder: Ladder, first: Attempt, frame: pd.DataFrame, target: Tensor, reach: Reach
    ) -> tuple[dict[int, str | None], dict[int, str | None]]:
        """By their rows, what blocks people without a valid option, and what holds back those who are short of tau."""
        most = min(_MOST_ASKED_WHY, max(1, _BUDGET // (self.grid.n_columns * len(self.decider.encoder.features))))
        short = first.valid & ~ladder.reaches_tau(first) & (first.x != reach.origin).any(1)
        stuck, limited = (~first.valid).nonzero()[:most, 0], short.nonzero()[:most, 0]
        if not len(stuck) + len(limited):
            return {}, {}
        k, allowed = int(target[0]), self.keep_unknown(frame, self.find_reach(reach.origin, target))
        columns, held = self.decider.list_columns(k), self.decider.name_holders(k)
        said = (
            why(ladder, reach[rows], allowed[rows], target[rows], columns, held)
            for why, rows in ((find_blocking, stuck), (find_limiting, limited))
        )
        one, other = (
            dict(zip(rows.tolist(), each, strict=True)) for rows, each in zip((stuck, limited), said, strict=True)
        )
        return one, other

    def list_needed(self) -> dict[Any, float]:
        """The probability that each class needs to be decided for, where a threshold is set."""
        threshold = self.decider.threshold
        return {} if threshold is None else {label: threshold.needed(k) for k, label in enumerate(self.decider.classes)}

    def _tabulate(
        self,
        ladder: Ladder,
        frame: pd.DataFrame,
        target: Tensor,
        reach: Reach,
        found: Sequence[Options],
    ) -> OptionTable:
        """The options as the user sees them; what is said of them holds for exactly these values, encoded anew."""
        row, x = torch.cat([one.rows for one in found]), torch.cat([one.attempt.x for one in found])
        kind = np.repeat(np.array([one.kind for one in found], dtype=object), [len(one.rows) for one in found])
        order = row.argsort(stable=True)  # in the order in which they were found: what is recommended comes first
        row, x = row[order], x[order]
        encoder = self.decider.encoder
        values = self.grid.decode(encoder, x, _take(frame, row))
        x, target = torch.from_numpy(encoder.encode(values, quiet=True)), target[row]
        judged, near = ladder.judge(x, target), self._compare_with_real(x, target)
        costs = self.grid.costs(x, reach.origin[row])  # (m, C)
        return OptionTable(
            row=row.numpy(),
            kind=kind[order.numpy()],
            values=values,
            costs=costs.numpy(),
            follows=(self.grid.find_moved(x, reach.origin[row]) & (costs == 0)).numpy(),
            probability=judged.probability.numpy(),
            valid=judged.valid.numpy(),
            mature=ladder.reaches_tau(judged).numpy(),
            distance=near.distance.numpy(),
            percentile=near.percentile.numpy(),
            nearest=near.nearest.numpy(),
            reason=np.full(len(row), None, dtype=object),
        )

    def _compare_with_real(self, x: Tensor, target: Tensor) -> Plausibility:
        if self.reference is None:
            return Plausibility.unknown(len(x), _N_NEAREST)
        return self.reference.measure_plausibility(x, target, _N_NEAREST)


def _stack(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)


def _take(frame: pd.DataFrame, rows: Tensor) -> pd.DataFrame:
    """Some rows of a table, numbered anew; the table itself where these are all of them."""
    if torch.equal(rows, torch.arange(len(frame))):
        return frame
    return frame.iloc[rows.numpy()].reset_index(drop=True)


def _to_frame(rows: Rows, names: Sequence[str]) -> pd.DataFrame:
    """Rows of any kind as a frame."""
    if isinstance(rows, pd.DataFrame):
        return as_frame(rows)
    if isinstance(rows, np.ndarray):
        return as_frame(np.atleast_2d(rows), names).infer_objects()
    if isinstance(rows, pd.Series):
        return as_frame(rows.to_frame().T.infer_objects())
    return as_frame(pd.DataFrame([rows] if isinstance(rows, Mapping) else list(rows)))
