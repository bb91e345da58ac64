"""The reasons for decisions as people read them: up to four per person, what was none, and what would respond."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pandas as pd

from countertrain.recourse.codes import Codes, Side
from countertrain.recourse.landmarks import Landmarks
from countertrain.recourse.principal import Effects, measure_effects
from countertrain.tables.schema import Numeric
from countertrain.words import plain

if TYPE_CHECKING:
    from countertrain.recourse.answer import Recourse

__all__ = ["PersonReasons", "Reason", "Reasons", "find_reasons"]


@dataclass(frozen=True, slots=True)
class Reason:
    """One principal reason; its text is e.g. "income is low: 24,000 EUR (typical of approved: 31,500 EUR)"."""

    column: str
    code: str
    """The owner's, or column and side: `income.low`."""
    text: str
    side: Side
    value: Any
    typical: Any
    """What is typical of real people who have the decision wanted; what is advised, where `alone` is false."""
    effect: float
    """What that value alone adds to the probability of the decision wanted."""
    suffices: bool
    """Whether that alone changes the decision."""
    alone: bool
    """False where no column helps by itself: then these count together, and `effect` is the share of each."""
    advised: bool
    """Whether the first option changes this column."""
    changeable: bool
    """Whether people can change it at all."""
    responsiveness: float | None
    """The share of single changes of this column, within the person's reach, that would suffice; None: none there."""


@dataclass(frozen=True, slots=True)
class PersonReasons:
    """Why one person does not get the decision wanted."""

    row: int
    decision: Any
    target: Any
    reasons: tuple[Reason, ...]
    """The weightiest first; none for those who have what they want."""
    not_reasons: tuple[str, ...]
    """Columns whose change would not have helped."""
    responsiveness: dict[str, float | None]
    """Of every column, the share of single changes within reach that would suffice; None where none is in reach."""
    note: str | None
    """Given where there is no reason to tell."""

    def list_lines(self) -> list[str]:
        """A line per reason, and one on what was none."""
        lines = [f"reason {i}: {reason.text} [{reason.code}]" for i, reason in enumerate(self.reasons, 1)]
        if self.reasons and self.not_reasons:
            lines.append(f"not a reason: {', '.join(self.not_reasons)}")
        return lines or [str(self.note)]

    def summary(self) -> str:
        """The decision, and below it the reasons."""
        return "\n".join([f"row {self.row}: {self.decision}", *(f"  {line}" for line in self.list_lines())])

    def to_dict(self) -> dict[str, Any]:
        """Plain values that `json.dumps` takes as they are."""
        return asdict(self)


@dataclass(frozen=True, eq=False, repr=False)
class Reasons(Sequence[PersonReasons]):
    """The reasons of all people, one after another."""

    people: tuple[PersonReasons, ...]

    def __len__(self) -> int:
        return len(self.people)

    @overload
    def __getitem__(self, index: int) -> PersonReasons: ...
    @overload
    def __getitem__(self, index: slice) -> "Reasons": ...
    def __getitem__(self, index: int | slice) -> "PersonReasons | Reasons":
        return Reasons(self.people[index]) if isinstance(index, slice) else self.people[index]

    def to_frame(self) -> pd.DataFrame:
        """One row per reason: number of row and reason, column, code, text, values, and what it is worth."""
        rows = [
            {"row": person.row, "reason": i, "decision": person.decision, "target": person.target, **asdict(reason)}
            for person in self.people
            for i, reason in enumerate(person.reasons, 1)
        ]
        names = ["row", "reason", "decision", "target", *Reason.__dataclass_fields__]
        return pd.DataFrame(rows, columns=names)

    def to_dict(self) -> list[dict[str, Any]]:
        """One plain dictionary per person."""
        return [person.to_dict() for person in self.people]

    def summary(self, limit: int = 10) -> str:
        """The reasons of the first `limit` people as text."""
        more = [f"... and {len(self) - limit:,} more people"] if len(self) > limit else []
        return "\n".join([*(person.summary() for person in self.people[:limit]), *more])

    def __repr__(self) -> str:
        return f"Reasons({len(self):,} people, {sum(len(person.reasons) for person in self.people):,} reasons)"


def find_reasons(recourse: "Recourse", codes: Codes, landmarks: Landmarks | None = None) -> Reasons:
    """Why each person of a recourse does not get the decision wanted, in the words of a code table."""
    assert recourse.grounds is not None
    table = recourse.table
    first = np.searchsorted(table.row, np.arange(len(recourse)))  # everybody has one
    advice = table.values.iloc[first].reset_index(drop=True)
    advised = (table.costs[first] > 0) & table.valid[first][:, None]
    effects = measure_effects(recourse.grounds, advice, advised, landmarks)
    told, typical = (
        frame.to_numpy(dtype=object, na_value=None)  # type: ignore[arg-type]  # None is fine for objects
        for frame in (advice, effects.typical)
    )
    better = np.where(effects.together[:, None], told, typical)
    return Reasons(tuple(_tell(recourse, codes, effects, advised[i], better[i], i) for i in range(len(recourse))))


def _tell(recourse: "Recourse", codes: Codes, effects: Effects, advised: Any, better: Any, row: int) -> PersonReasons:
    """The reasons of one person, whose columns would better be as in `better` (C,)."""
    columns, own, target = codes.schema.columns, recourse.factuals[row], plain(recourse.target[row])
    responsive = [None if np.isnan(share) else float(share) for share in effects.responsiveness[row]]
    alone = not effects.together[row]
    reasons = []
    for place in effects.order[row][effects.order[row] >= 0].tolist():
        column = columns[place]
        value = own[column.name]
        then = plain(better[place])
        side = _name_side(value, then, isinstance(column, Numeric))
        code, text = codes.word(column.name, side, value, then, target, together=not alone)
        reasons.append(
            Reason(
                column=column.name,
                code=code,
                text=text,
                side=side,
                value=value,
                typical=then,
                effect=float(effects.effect[row, place]),
                suffices=bool(effects.suffices[row, place]) and alone,
                alone=alone,
                advised=bool(advised[place]),
                changeable=column.mutability != "none",
                responsiveness=responsive[place],
            )
        )
    refused = bool(effects.refused[row])
    return PersonReasons(
        row=row,
        decision=plain(recourse.decision[row]),
        target=target,
        reasons=tuple(reasons),
        not_reasons=tuple(
            c.name for c, helps in zip(columns, effects.helps[row], strict=True) if refused and not helps
        ),
        responsiveness={c.name: share for c, share in zip(columns, responsive, strict=True)},
        note=None if reasons else "no single column stands out" if refused else f"already {target!r}",
    )


def _name_side(value: Any, better: Any, numeric: bool) -> Side:
    """Where a value is, compared with a better one."""
    if value is None:
        return "missing"
    return ("low" if value < better else "high") if numeric else "other"
