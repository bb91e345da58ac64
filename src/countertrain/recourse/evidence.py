"""What training rows say of each column: which way the wanted outcome becomes more frequent, all else equal."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from countertrain.constraints import Mutability
from countertrain.recourse.regression import Regression, cut_into_pieces, regress
from countertrain.tables.encoder import Encoder
from countertrain.tables.schema import Boolean, Categorical, Column, Numeric, Schema
from countertrain.words import list_phrases

__all__ = ["Direction", "Evidence"]

_ROWS = 10_000  # looked at, at most
_PIECES = 4  # of a number's line, each with a slope of its own
_MOST = 400  # slopes in all: a wide table has fewer pieces, and one that is wider still is not looked at
_MOST_CLASSES = 10
_CLEAR = 3.0  # standard errors by which a slope must differ from 0
_OPPOSED = 1.5  # standard errors by which a piece of it may go the other way
_ALONE = 2.0  # standard errors by which the column must show the same by itself
_NOTHING = 0.05  # by chance alone, so many columns that make no difference would look as if they made one
_HARDLY = 0.5  # log-odds between the lowest and the highest place of a column that, if any, makes hardly a difference
_FEWEST = 20  # rows of a level, to be compared with another

Floats = NDArray[np.float64]
Sign = Literal["+", "-", "0", "?"]


@dataclass(frozen=True)
class Direction:
    """What is known of one column for people who want one class."""

    column: str
    sign: Sign
    """"+": more helps, or true; "-": less helps, or false; "?": the rows do not tell, or there is no more and less.

    "0": it makes no difference, and there are enough rows to say so.
    """
    z: float
    """Standard errors by which the slope differs from 0; of levels, those of the clearest move that hurts."""
    against: tuple[tuple[str, str], ...] = ()
    """Of levels, as texts: moves from one to another after which the outcome is clearly less frequent."""

    @property
    def is_clear(self) -> bool:
        """Whether advice is to keep to it."""
        return self.sign != "?" or bool(self.against)

    def summary(self) -> str:
        """In a few words."""
        if self.against:
            moves = [f"{start} -> {end}" for start, end in self.against]
            return f"not advised: {list_phrases(moves, 1)} (evidence: sure)"
        if self.sign == "0":
            return "not advised: makes no difference (evidence: sure)"
        helps = {"+": "more helps", "-": "less helps"}
        return f"{helps[self.sign]} (evidence: {self.sign}, sure)" if self.sign in helps else "evidence: unclear"


@dataclass(frozen=True)
class Evidence:
    """By class number, what is known of each column for people who want it."""

    by_class: tuple[tuple[Direction, ...], ...]

    @classmethod
    def of(
        cls, encoder: Encoder, x: NDArray[np.floating[Any]], y: NDArray[np.int64], n_classes: int, *, seed: int = 0
    ) -> Self | None:
        """What rows x (n, D) of classes y (n,) show; None where they are too wide, or of too many classes, to tell.

        One logistic regression per class of all columns at once, in which columns that go together share what they
        show; a number has a slope for each quarter of its line, so that one that helps only in the middle is not taken
        for one that helps throughout.
        """
        n_pieces = _count_pieces(encoder)
        if n_pieces is None or n_classes > _MOST_CLASSES or len(x) < 2 * _FEWEST:
            return None
        rows = np.sort(np.random.default_rng(seed).permutation(len(x))[:_ROWS])
        seen = x[rows].astype(np.float64)
        judged = _lay_out(encoder, seen, n_pieces)
        blocks = [*judged, seen[:, list(encoder.indicators)]]  # what is missing is not taken for the number filled in
        ends = np.cumsum([0, *(block.shape[1] for block in blocks)])
        parts = [slice(a, b) for a, b in pairwise(ends.tolist())]
        columns = encoder.schema.columns
        found = []
        for k in range(n_classes if n_classes > 2 else 1):
            outcome = (y[rows] == k).astype(np.float64)
            fit = regress(np.hstack(blocks), outcome)
            found.append(
                tuple(
                    _judge_column(column, block, fit.of(part), outcome)
                    for column, block, part in zip(columns, judged, parts, strict=False)
                )
            )
        return cls((found[0], tuple(map(_turn, found[0]))) if n_classes == 2 else tuple(found))

    def allow(self, names: Collection[str]) -> Self:
        """Without what is known of some columns, of which the owner knows better."""
        kept = tuple(
            tuple(replace(one, sign="?", against=()) if one.column in names else one for one in each)
            for each in self.by_class
        )
        return replace(self, by_class=kept)

    def narrow(self, schema: Schema, k: int) -> Schema:
        """The schema in which nothing goes against what is known, for people who want class k.

        What the owner has declared of a column, a direction or the moves between its levels, stays as it is.
        """
        known = {one.column: one for one in self.by_class[k]}
        columns = tuple(_narrow(column, known[column.name]) for column in schema.columns)
        return schema.model_copy(update={"columns": columns})

    def to_list(self) -> list[list[dict[str, Any]]]:
        """Plain values that `json.dumps` takes as they are."""
        return [[asdict(one) for one in each] for each in self.by_class]

    @classmethod
    def from_list(cls, saved: Sequence[Sequence[Mapping[str, Any]]]) -> Self:
        """The evidence that `to_list` gave."""
        return cls(
            tuple(
                tuple(Direction(**{**one, "against": tuple((a, b) for a, b in one["against"])}) for one in each)
                for each in saved
            )
        )


def _count_pieces(encoder: Encoder) -> int | None:
    """Into how many pieces each number is cut; None where the table is too wide for any."""
    width = sum(1 if _has_order(column) else part.stop - part.start for column, part in _columns(encoder))
    width += len(encoder.indicators)
    n_ordered = sum(map(_has_order, encoder.schema.columns))
    return next((p for p in (_PIECES, 2, 1) if width + (p - 1) * n_ordered <= _MOST), None)


def _lay_out(encoder: Encoder, x: Floats, n_pieces: int) -> list[Floats]:
    """For each column what the regression sees of it, (n, w): pieces of a number, truth values, levels."""
    blocks = []
    for column, part in _columns(encoder):
        block = x[:, part]
        if not _has_order(column):
            blocks.append(block)
        else:
            place = block @ np.arange(block.shape[1]) if isinstance(column, Categorical) else block[:, 0]
            blocks.append(cut_into_pieces(place, n_pieces))
    return blocks


def _columns(encoder: Encoder) -> list[tuple[Column, slice]]:
    return list(zip(encoder.schema.columns, encoder.slices, strict=True))


def _has_order(column: Column) -> bool:
    """Whether there is more and less of it; levels of their own for what is missing or unseen have no place."""
    return isinstance(column, Numeric) or (
        isinstance(column, Categorical) and column.ordered and len(column.labels) == len(column.levels)
    )


def _judge_column(column: Column, block: Floats, fit: Regression, outcome: Floats) -> Direction:
    """What the slopes of one column say, if it says so by itself, too."""
    if not _has_order(column) and not isinstance(column, Boolean):
        return _judge_levels(column, block, fit, outcome)
    whole, alone = fit.compare(np.ones(block.shape[1])), _correlate(block.sum(1), outcome)
    side = np.sign(whole)
    agrees = (side * fit.z > -_OPPOSED).all() and side * alone > _ALONE
    sign: Sign = "?" if abs(whole) < _CLEAR or not agrees else "+" if side > 0 else "-"
    if sign == "?" and isinstance(column, Numeric) and abs(alone) < _ALONE and _makes_no_difference(fit):
        sign = "0"
    return Direction(column.name, sign, round(float(whole), 1))


def _makes_no_difference(fit: Regression) -> bool:
    """Whether slopes are what chance would give, of so many rows that a difference worth the name would have shown."""
    spread = np.sqrt(fit.covariance.sum())
    return fit.p > _NOTHING and abs(fit.slopes.sum()) + _ALONE * spread < _HARDLY


def _judge_levels(column: Column, block: Floats, fit: Regression, outcome: Floats) -> Direction:
    """Which moves between levels hurt: clearly so all else equal, and by the shares of people alone."""
    assert isinstance(column, Categorical)
    n = block.sum(0)  # (L,)
    share = block.T @ outcome / np.maximum(n, 1)
    spread = share * (1 - share) / np.maximum(n, 1)
    alone = (share[None, :] - share[:, None]) / np.sqrt(spread[None, :] + spread[:, None] + 1e-12)  # (L, L) from, to
    z = fit.compare_pairs()
    hurts = (z < -_CLEAR) & (alone < -_ALONE) & (np.minimum.outer(n, n) >= _FEWEST)
    against = tuple((column.labels[i], column.labels[j]) for i, j in np.argwhere(hurts))
    return Direction(column.name, "?", round(float(z[hurts].min()) if against else 0.0, 1), against)


def _correlate(values: Floats, outcome: Floats) -> float:
    """By how many standard errors two things go together."""
    spread = values.std() * outcome.std()
    return float(
        ((values - values.mean()) * (outcome - outcome.mean())).mean() / max(spread, 1e-12) * len(values) ** 0.5
    )


def _turn(one: Direction) -> Direction:
    """What is known for people who want the other one of two classes."""
    other: dict[Sign, Sign] = {"+": "-", "-": "+", "0": "0", "?": "?"}
    z = one.z if one.against else -one.z
    return replace(one, sign=other[one.sign], z=z, against=tuple((b, a) for a, b in one.against))


def _narrow(column: Column, known: Direction) -> Column:
    if column.mutability != "both" or not known.is_clear:
        return column
    ways: dict[Sign, Mutability] = {"+": "increase", "-": "decrease", "0": "none"}
    if known.sign in ways:
        return column.model_copy(update={"mutability": ways[known.sign]})
    if not isinstance(column, Categorical) or column.transitions is not None:
        return column
    moves = {
        start: tuple(
            end for end, may in zip(column.labels, row, strict=True) if may and (start, end) not in known.against
        )
        for start, row in zip(column.labels, column.moves(), strict=True)
    }
    return column.model_copy(update={"transitions": moves})
