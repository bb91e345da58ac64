"""What would change a decision: the result of `explain`, in the user's own units and categories."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Self, overload

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from countertrain.recourse.codes import Codes, CodeSource
from countertrain.recourse.explanation import Change, Explanation, Option, say_why_first
from countertrain.recourse.principal import Grounds
from countertrain.recourse.rendering import as_html
from countertrain.recourse.why import Reasons, find_reasons
from countertrain.tables.scales import Ranks
from countertrain.words import plain

__all__ = ["OptionTable", "Recourse"]

_MOST_SHOWN = 10  # explanations in a rendering or summary


@dataclass(frozen=True, eq=False)
class OptionTable:
    """All options of all rows, column by column: m options of C table columns."""

    row: NDArray[np.int64]  # (m,) ascending: the explanation that an option belongs to
    kind: NDArray[np.object_]  # (m,) of str, e.g. "recommended"
    values: pd.DataFrame  # (m, C)
    costs: NDArray[np.float64]  # (m, C), 0 where nothing changed, or only as a consequence
    follows: NDArray[np.bool_]  # (m, C), what changes as a consequence, by a rule between columns
    probability: NDArray[np.float64]  # (m,)
    valid: NDArray[np.bool_]  # (m,)
    mature: NDArray[np.bool_]  # (m,)
    distance: NDArray[np.float64]  # (m,), NaN where unknown
    percentile: NDArray[np.float64]  # (m,), NaN where unknown
    nearest: NDArray[np.int64]  # (m, k): places in the examples
    reason: NDArray[np.object_]  # (m,) of str or None

    @property
    def number(self) -> NDArray[np.int64]:
        """1, 2, ... within each row."""
        return np.arange(len(self.row)) - np.searchsorted(self.row, self.row) + 1

    def take(self, options: NDArray[np.int64], row: NDArray[np.int64]) -> Self:
        """Some of the options, for explanations numbered anew by `row`."""
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        taken = {
            name: c.iloc[options].reset_index(drop=True) if name == "values" else c[options]
            for name, c in columns.items()
        }
        return type(self)(**(taken | {"row": row}))


@dataclass(frozen=True, eq=False, repr=False)
class Recourse(Sequence[Explanation]):
    """A sequence of `Explanation`, one per row; they are made when looked at, so that 10,000 rows cost little."""

    factual: pd.DataFrame  # (n, C)
    decision: NDArray[Any]  # (n,) class labels
    target: NDArray[Any]  # (n,) class labels
    probability: NDArray[np.float64]  # (n,)
    note: NDArray[np.object_]  # (n,) of str or None
    existence: NDArray[np.object_]  # (n,) of `Existence`
    table: OptionTable
    examples: pd.DataFrame
    """Real rows, which the options name as their nearest."""
    units: Mapping[str, str | None]
    ranks: Mapping[str, Ranks] = field(default_factory=dict)
    """Columns whose numbers have places among people."""
    last_resorts: Collection[str] = ()
    """Columns that are advised only where nothing else will do."""
    needed: Mapping[Any, float] = field(default_factory=dict)
    """By class, the probability that it needs to be decided for, where a threshold is set."""
    grounds: Grounds | None = None
    """What the reasons for the decisions are found by."""

    @classmethod
    def join(cls, parts: Sequence["Recourse"]) -> "Recourse":
        """Several results for the same table as one, one after another."""
        if len(parts) == 1:
            return parts[0]
        starts = np.cumsum([0, *(len(part) for part in parts)])
        tables = [replace(p.table, row=p.table.row + start) for p, start in zip(parts, starts, strict=False)]
        return replace(
            parts[0],
            factual=_stack([part.factual for part in parts]),
            decision=_stack([part.decision for part in parts]),
            target=_stack([part.target for part in parts]),
            probability=_stack([part.probability for part in parts]),
            note=_stack([part.note for part in parts]),
            existence=_stack([part.existence for part in parts]),
            table=OptionTable(
                **{f.name: _stack([getattr(table, f.name) for table in tables]) for f in fields(OptionTable)}
            ),
            grounds=None if parts[0].grounds is None else Grounds.join([p.grounds for p in parts if p.grounds]),
        )

    def __len__(self) -> int:
        return len(self.factual)

    @overload
    def __getitem__(self, index: int) -> Explanation: ...
    @overload
    def __getitem__(self, index: slice) -> "Recourse": ...
    def __getitem__(self, index: int | slice) -> "Explanation | Recourse":
        if isinstance(index, slice):
            return self.select(np.arange(len(self))[index])
        if not -len(self) <= index < len(self):
            raise IndexError(f"row must lie in 0..{len(self) - 1}; got {index}")
        row = index % len(self)
        first, last = np.searchsorted(self.table.row, [row, row + 1])
        options, target = tuple(self._make_option(i, row) for i in range(first, last)), plain(self.target[row])
        return Explanation(
            row=row,
            factual=self.factuals[row],
            decision=plain(self.decision[row]),
            target=target,
            probability=float(self.probability[row]),
            options=options,
            note=self.note[row],
            needed=self.needed.get(target),
            existence=self.existence[row],
            preferred=say_why_first(options, f"real people with {target!r}"),
        )

    def to_frame(self) -> pd.DataFrame:
        """One row per option: number of row and option, all columns in the user's units, and what became of it.

        Where a column of the table already has one of the names, ours gets an underscore: `target_`.
        """
        table, row = self.table, self.table.row
        known = set(table.values.columns)
        before = {"row": row, "option": table.number, "kind": table.kind}
        after = {
            "decision": self.decision[row],
            "target": self.target[row],
            "probability_before": self.probability[row],
            "probability": table.probability,
            "valid": table.valid,
            "cost": table.costs.sum(1),
            "n_changed": (table.costs > 0).sum(1),
            "plausibility_distance": table.distance,
            "plausibility_percentile": table.percentile,
            "existence": self.existence[row],
            "reason": table.reason,
        }
        sides = [pd.DataFrame({f"{n}_" if n in known else n: v for n, v in side.items()}) for side in (before, after)]
        return pd.concat([sides[0], table.values.reset_index(drop=True), sides[1]], axis=1)

    def to_dict(self) -> list[dict[str, Any]]:
        """One plain dictionary per row, which `json.dumps` takes as it is."""
        return [explanation.to_dict() for explanation in self]

    def reasons(self, codes: CodeSource = None) -> Reasons:
        """Up to four principal reasons for each decision that is not the one wanted, what was none, and what responds.

        `codes` is a code table of the owner's: a TOML file or a mapping; left out, the columns speak for themselves.
        """
        if self.grounds is None:
            raise ValueError("reasons need the model that decided; ask for them where the recourse was found")
        return find_reasons(self, Codes.read(codes, self.grounds.decider.encoder.schema))

    def letters(self, out: str | PathLike[str], **options: Any) -> list[Path]:
        """A letter to each person who does not have the decision wanted, in a folder; `write_letters` has the options.

        Among them are `owner` and `reasons`, TOML files or mappings, `templates`, `formats` and `ids`.
        """
        from countertrain.recourse.letters import write_letters  # jinja2 takes a while

        return write_letters(self, out, **options)

    def summary(self, limit: int = _MOST_SHOWN) -> str:
        """The first `limit` explanations as text."""
        more = [f"... and {len(self) - limit:,} more rows"] if len(self) > limit else []
        return "\n".join([*(explanation.summary() for explanation in self[:limit]), *more])

    def __repr__(self) -> str:
        n_valid = len(np.unique(self.table.row[self.table.valid]))
        return f"Recourse({len(self):,} rows, {len(self.table.row):,} options, {n_valid:,} rows with a valid one)"

    def _repr_html_(self) -> str:
        more = f"; the first {_MOST_SHOWN} are shown, to_frame() has all" if len(self) > _MOST_SHOWN else ""
        return as_html(self[:_MOST_SHOWN], title=f"{self!r}{more}")

    def select(self, rows: NDArray[np.int64]) -> "Recourse":
        """The explanations of some rows, in any order."""
        first, last = (np.searchsorted(self.table.row, rows, side) for side in ("left", "right"))
        options = np.concatenate([np.arange(a, b) for a, b in zip(first, last, strict=True)] or [rows])
        return replace(
            self,
            factual=self.factual.iloc[rows].reset_index(drop=True),
            decision=self.decision[rows],
            target=self.target[rows],
            probability=self.probability[rows],
            note=self.note[rows],
            existence=self.existence[rows],
            table=self.table.take(options, np.repeat(np.arange(len(rows)), last - first)),
            grounds=None if self.grounds is None else self.grounds.take(rows),
        )

    def without_nearest(self) -> "Recourse":
        """The same, but no option names the real rows that are nearest to it."""
        return replace(self, table=replace(self.table, nearest=np.full_like(self.table.nearest, -1)))

    def _make_option(self, i: int, row: int) -> Option:
        table, before, after = self.table, self.factuals[row], self._values[i]
        changes, consequences = (
            tuple(
                Change(
                    name,
                    before[name],
                    after[name],
                    cost,
                    self.units.get(name),
                    self._place(name, before, after),
                    name in self.last_resorts,
                )
                for name, cost, is_shown in zip(after, table.costs[i].tolist(), shown, strict=True)
                if is_shown
            )
            for shown in (table.costs[i] > 0, table.follows[i])
        )
        return Option(
            kind=table.kind[i],
            values=after,
            changes=changes,
            consequences=consequences,
            probability=float(table.probability[i]),
            valid=bool(table.valid[i]),
            mature=bool(table.mature[i]),
            cost=float(table.costs[i].sum()),
            plausibility_distance=_or_none(table.distance[i]),
            plausibility_percentile=_or_none(table.percentile[i]),
            nearest=tuple(self._examples[j] for j in table.nearest[i] if j >= 0),
            reason=table.reason[i],
        )

    def _place(self, name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[float, float] | None:
        """The shares of people who have less than a number, before and after."""
        pair = before[name], after[name]
        if name not in self.ranks or None in pair:
            return None
        low, high = self.ranks[name].share_below(np.array(pair, dtype=np.float64))
        return float(low), float(high)

    @cached_property
    def factuals(self) -> list[dict[str, Any]]:
        """Each person's row as a dictionary of plain values."""
        return _to_records(self.factual)

    @cached_property
    def _values(self) -> list[dict[str, Any]]:
        return _to_records(self.table.values)

    @cached_property
    def _examples(self) -> dict[int, dict[str, Any]]:
        named = np.unique(self.table.nearest[self.table.nearest >= 0])
        return dict(zip(named.tolist(), _to_records(self.examples.iloc[named]), strict=True))


def _stack(blocks: list[Any]) -> Any:
    return pd.concat(blocks, ignore_index=True) if isinstance(blocks[0], pd.DataFrame) else np.concatenate(blocks)


def _to_records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Each row as a dictionary of plain values; None where a value is missing."""
    cells = frame.to_numpy(dtype=object, na_value=None).tolist()  # type: ignore[arg-type]  # None is fine for objects
    names = frame.columns.tolist()  # much faster to go through than an index
    return [dict(zip(names, map(plain, row), strict=True)) for row in cells]


def _or_none(number: np.float64) -> float | None:
    return None if np.isnan(number) else float(number)
