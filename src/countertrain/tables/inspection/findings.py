"""What a look at a table finds, and how the rows that it speaks of are called."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from countertrain.tables.columns import Boolean, Categorical, Numeric
from countertrain.words import list_phrases

__all__ = ["DROPPED", "REFUSED", "Finding", "RowNames", "Verdict", "Weight", "say_count", "say_share"]

Weight = Literal["refused", "warning", "note"]
"""Training refuses the table for it; or it would spoil the model; or it is only said."""
REFUSED = "training refuses it"
DROPPED = "drop it (proposed)"


@dataclass(frozen=True)
class Finding:
    """One thing that was seen in a table."""

    kind: str
    """`constant`, `id`, `leak`, `text`, `levels`, `date`, `mixed`, `missing`, `rare`, `code`, `fixed`, ..."""
    column: str | None
    """None: the table as a whole."""
    seen: str
    done: str
    """What training does with the table as it is."""
    way_out: str
    weight: Weight = "note"

    @property
    def sentence(self) -> str:
        """All of it in one sentence, for where nothing is proposed."""
        who = "the table" if self.column is None else f"column {self.column!r}"
        done = "" if self.weight == "refused" else f"{self.done}; "
        return f"{who}: {self.seen}; {done}{self.way_out}".replace(" (proposed)", "")


@dataclass(frozen=True, eq=False)
class Verdict:
    """What is made of one column."""

    column: Numeric | Categorical | Boolean | None
    """None: it is proposed to be dropped."""
    findings: tuple[Finding, ...] = ()
    why: str = ""
    """Why it is dropped, or what it is."""


@dataclass(frozen=True, eq=False)
class RowNames:
    """How people find a row: by its line in the file, or by its place in the table."""

    word: str = "row"
    find_numbers: Callable[[], NDArray[Any] | None] = lambda: None

    def among(self, kept: NDArray[np.bool_]) -> "RowNames":
        """The names of some of the rows."""
        if kept.all():
            return self
        numbers = self.find_numbers()
        word, known = (self.word, numbers) if numbers is not None else ("row", np.arange(len(kept)))
        return RowNames(word, lambda: known[kept])

    def name(self, place: int) -> str:
        """`line 8`, of the row at a place in the table."""
        numbers = self.find_numbers()
        return f"row {place}" if numbers is None else f"{self.word} {numbers[place]}"

    def say(self, wanted: NDArray[np.bool_], most: int = 3) -> str:
        """`lines 8, 18, 34 and 29,728 more`."""
        places = np.flatnonzero(wanted)
        numbers = self.find_numbers()
        word, named = (self.word, numbers[places]) if numbers is not None else ("row", places)
        plural = "s" if len(places) > 1 else ""
        more = f" and {len(places) - most:,} more" if len(places) > most else ""
        return f"{word}{plural} " + list_phrases([str(one) for one in named[:most]], most) + more


def say_count(n: int, what: str) -> str:
    """`1 row`, `12,000 rows`."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def say_share(n: int, total: int) -> str:
    """`19.8 %`, and never 0 % of something."""
    share = 100 * n / max(total, 1)
    return f"{share:.0f} %" if share >= 10 or share == 0 else f"{share:.1f} %" if share >= 0.1 else "under 0.1 %"
