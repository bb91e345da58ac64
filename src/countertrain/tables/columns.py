"""The kinds of columns that a table may have: numbers, levels and truth values, and how people may change them."""

import math
from collections.abc import Callable, Collection, Sequence
from fractions import Fraction
from functools import lru_cache
from numbers import Real
from typing import TYPE_CHECKING, Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from countertrain.constraints import Mutability
from countertrain.tables.sentences import SchemaError, in_one_sentence
from countertrain.tables.spikes import find_ends, find_spikes
from countertrain.words import plain, read_sign, suggest

__all__ = [
    "EXACT",
    "MISSING",
    "MODEL",
    "OTHER",
    "Boolean",
    "Categorical",
    "Column",
    "Level",
    "Numeric",
    "Range",
    "has_indicator",
    "keeps_missing",
]

EXACT = 2.0**49
"""Up to so many steps, a number survives being standardised in float64 and back, to the nearest step."""
MISSING = "missing"
"""How a missing value is shown where it is a level of its own."""
OTHER = "any other"
"""How a level that was never seen is shown where such levels count as one of their own."""
MODEL = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
"""What all columns and the schema have in common."""

Level = Annotated[str | bool | int | float, BeforeValidator(plain)]
Range = Sequence[Level | None]
"""What a column may become: lowest and highest number (None: any), or the levels that are open."""


def _read_monotone(given: object) -> str | None:
    sign = "0" if given is None else read_sign(given)
    return None if sign == "0" else sign


Monotone = Annotated[Literal["+", "-"] | None, BeforeValidator(_read_monotone)]
"""Whether the probability of the wanted class never falls as the column rises ("+"), or as it falls ("-")."""


class Numeric(BaseModel):
    """A column of numbers in a person's own units."""

    model_config = MODEL
    if not TYPE_CHECKING:  # type checkers go on to see the fields
        __init__ = in_one_sentence

    kind: Literal["numeric"] = "numeric"
    name: str
    integer: bool = False
    unit: str | None = None
    step: float | None = Field(default=None, gt=0, validate_default=True)
    """Advice is given in multiples of it; None: 1 for integers, else any number."""
    lower: float | None = None
    """None: the lowest value of the training rows, but for codes such as -999 (`spikes`)."""
    upper: float | None = None
    """None: the highest value of the training rows, but for codes and caps such as 99,999 (`spikes`)."""
    codes: tuple[float, ...] | None = None
    """Numbers beyond the bounds that are no amounts, such as 99,999: who has one keeps it, and nobody is sent there."""
    mutability: Mutability = "both"
    monotone: Monotone = None
    missing: Literal["refuse", "fill", "level"] = "refuse"
    """'level': missing is a state of its own, which the model is told of beside the value that is filled in."""
    fill: float | None = None
    """Stands for a missing value; None: the median of the training rows."""
    fillable: bool = False
    """Whether people can be told to have the value that is missing: that filling it in is something they can do."""
    last_resort: bool = False
    """Advice changes it only for those who have no other way that is as sure."""
    blank: tuple[str, ...] | None = None
    """Texts that stand for a missing value, such as "?", among numbers that may come as texts; None: no texts."""

    @field_validator("step")
    @classmethod
    def _of_integers(cls, step: float | None, info: ValidationInfo) -> float | None:
        return 1.0 if step is None and info.data.get("integer") else step

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.integer and self.step is not None and not self.step.is_integer():
            raise ValueError(f"the step of an integer column must be a whole number; got {self.step:g}")
        lower, upper = self._bounds
        if lower > upper:
            raise ValueError(f"lower must not exceed upper; got {lower:g} and {upper:g}; swap or widen them")
        if self.step is not None:
            for bound in (self.lower, self.upper):
                if bound is not None and abs(bound) >= EXACT * self.step:
                    raise ValueError(f"{bound:g} is too many steps of {self.step:g} to count; choose a larger step")
            if _n_steps(lower, self.step, math.ceil) > _n_steps(upper, self.step, math.floor):
                raise ValueError(
                    f"no multiple of its step {self.step:g} lies between {lower:g} and {upper:g}; "
                    "widen them, or choose a smaller step"
                )
        if self.fill is not None and self.missing == "refuse":
            raise ValueError("a value to fill in needs missing='fill' or missing='level'")
        _check_fillable(self.fillable, self.missing)
        return self

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left open for training rows to say."""
        return None not in (self.lower, self.upper) and (self.missing == "refuse" or self.fill is not None)

    def round_to_step(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The nearest multiples of the step within the bounds, exactly the numbers that their decimals say."""
        lower, upper = self._bounds
        if self.step is None:
            return values.clip(lower, upper)
        n_steps = np.rint(values / self.step)
        n_steps = n_steps.clip(_n_steps(lower, self.step, math.ceil), _n_steps(upper, self.step, math.floor))
        return _multiples(n_steps, self.step)

    def read_rounded(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The same for numbers that a row has: its `codes` lie beyond the bounds, and stay what they are."""
        rounded = self.round_to_step(values)
        for code in self.codes or ():
            rounded = np.where(np.isclose(values, code, rtol=1e-5), code, rounded)
        return rounded

    def ends(self) -> NDArray[np.float64]:
        """(2,), the lowest and the highest number that it may become, once its bounds are known."""
        return self.round_to_step(np.array([self.lower, self.upper], dtype=np.float64))

    @property
    def _bounds(self) -> tuple[float, float]:
        return -math.inf if self.lower is None else self.lower, math.inf if self.upper is None else self.upper

    def bound(self, values: NDArray[np.float64]) -> Self:
        """The column with bounds and codes, where they were left open, from its values."""
        if not len(values):
            raise SchemaError(f"column {self.name!r} has no value in the training rows; drop it")
        low, high = find_ends(values)
        if self.step is not None:  # bounds that the values can be rounded to
            ends = np.array([_n_steps(low, self.step, math.floor), _n_steps(high, self.step, math.ceil)])
            low, high = _multiples(ends, self.step).tolist()
        bounds = {
            "lower": low if self.lower is None else self.lower,
            "upper": high if self.upper is None else self.upper,
        }
        codes = [code for code in find_spikes(values).tolist() if not bounds["lower"] <= code <= bounds["upper"]]
        return type(self)(**{"codes": codes or None, **self.model_dump(exclude_none=True), **bounds})

    def fit(self, values: NDArray[np.float64]) -> Self:
        """The column with bounds and fill, where they were left open, from its values in the training rows."""
        column = self.bound(values)
        if column.is_complete:
            return column
        return column.model_copy(update={"fill": float(column.round_to_step(np.median(values, keepdims=True))[0])})

    def within(self, limits: Range) -> Self:
        """The column with narrower bounds."""
        pair = [plain(limit) for limit in limits] if isinstance(limits, Collection) else []
        if len(pair) != 2 or any(not isinstance(end, Real | None) or end != end for end in pair):
            raise SchemaError(
                f"the range of column {self.name!r} is its lowest and its highest number, either of which may be None; "
                f"got {limits!r}"
            )
        lower = max((end for end in (self.lower, pair[0]) if end is not None), default=None)
        upper = min((end for end in (self.upper, pair[1]) if end is not None), default=None)
        if lower is not None and upper is not None and lower > upper:
            raise SchemaError(
                f"the range of column {self.name!r} must meet its bounds, {self.lower} to {self.upper}; got {limits!r}"
            )
        return type(self)(**{**self.model_dump(), "lower": lower, "upper": upper})


@lru_cache(maxsize=4096)
def _n_steps(number: float, step: float, towards: Callable[[Fraction], int]) -> float:
    """How many steps, rounded up or down, make a number; exactly, as both are written in decimals."""
    return number if math.isinf(number) else float(towards(Fraction(repr(number)) / Fraction(repr(step))))


def _multiples(n_steps: NDArray[np.float64], step: float) -> NDArray[np.float64]:
    """n_steps * step without its rounding error: 3 * 0.1 is not 0.3, but 3 * 1 / 10 is."""
    exact = Fraction(repr(step))
    return np.asarray(n_steps * exact.numerator / exact.denominator + 0.0)  # no negative zero


class Categorical(BaseModel):
    """A column with one of several levels."""

    model_config = MODEL
    if not TYPE_CHECKING:
        __init__ = in_one_sentence

    kind: Literal["categorical"] = "categorical"
    name: str
    levels: tuple[Level, ...]
    ordered: bool = False
    mutability: Mutability = "both"
    monotone: Monotone = None
    """As levels go on in their order; what is missing or unseen has no place in it."""
    transitions: dict[str, tuple[str, ...]] | None = None
    """Where a person at a level may go, both as texts; a level left out may go nowhere. None: to any but rare ones."""
    rare: tuple[str, ...] | None = None
    """Levels, as texts, that may be kept but are not advised unless a transition leads there.

    None: those of fewer than one in 1,000 training rows.
    """
    missing: Literal["refuse", "fill", "level"] = "refuse"
    """'level': missing is a level of its own, to which nobody is sent unless a transition says so."""
    unseen: Literal["refuse", "fill", "other"] | None = None
    """'other': levels that are not listed count as one of its own, which people may leave, but never go to.

    None: as 'other' if there are such levels to learn from, or else as 'fill', since nothing is known of it.
    """
    fill: Level | None = None
    """Stands for a missing or unseen value; None: the most frequent level of the training rows."""
    fillable: bool = False
    """Whether people can be told to have the value that is missing: that filling it in is something they can do."""
    last_resort: bool = False
    """Advice changes it only for those who have no other way that is as sure."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_levels(self.levels, self.labels, self.fill, (self.missing, self.unseen or "fill"))
        _check_fillable(self.fillable, self.missing)
        if self.mutability in ("increase", "decrease") and not self.ordered:
            raise ValueError(f"mutability {self.mutability!r} needs levels in an order; declare ordered=True")
        if self.monotone is not None and not self.ordered:
            raise ValueError(f"monotone {self.monotone!r} needs levels in an order; declare ordered=True")
        for start, ends in (self.transitions or {}).items():
            for label in (start, *ends):
                self._check_label("transitions", label)
        for label in self.rare or ():
            self._check_label("rare levels", label)
        led = (end for start, ends in (self.transitions or {}).items() for end in ends if end != start)
        if self.unseen == "other" and OTHER in led:
            raise ValueError(f"nobody can be told to become {OTHER!r}; leave it out of the transitions")
        return self

    def _check_label(self, who: str, label: str) -> None:
        if label not in self.labels:
            raise ValueError(f"{who} name {label!r}, which is no level; {suggest(label, self.labels)}")

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left open for training rows to say."""
        needs_fill = "fill" in (self.missing, self.unseen)
        return None not in (self.rare, self.unseen) and (not needs_fill or self.fill is not None)

    @property
    def unadvised(self) -> set[str]:
        """The labels that nobody is told to go to: missing and rare ones, unless a transition leads there."""
        named = {end for ends in (self.transitions or {}).values() for end in ends}
        return {*self.labels[len(self.levels) :], *(self.rare or ())} - named

    @property
    def labels(self) -> tuple[str, ...]:
        """The levels as texts, then "missing" and "any other" where these are levels of their own."""
        missing, other = self.missing == "level", self.unseen == "other"
        return (*map(str, self.levels), *([MISSING] if missing else []), *([OTHER] if other else []))

    def moves(self) -> NDArray[np.bool_]:
        """(L, L), one row and one column a label: row a says where a person at level a may go, or stay."""
        n, labels = len(self.levels), self.labels
        if self.transitions is None:
            allowed = np.tile([label not in self.unadvised for label in labels], (len(labels), 1))
        else:
            allowed = np.array([[b in self.transitions.get(a, ()) for b in labels] for a in labels])
        if self.mutability == "none":
            allowed[:] = False
        elif self.mutability != "both":  # what is missing has no place in the order
            allowed = np.triu(allowed) if self.mutability == "increase" else np.tril(allowed)
            allowed[n:] = allowed[:, n:] = False
        return allowed | np.eye(len(labels), dtype=bool)

    def within(self, limits: Range) -> Self:
        """The column of which only some levels may be gone to; any may be kept."""
        open_to = _open(self.name, self.labels, limits)
        moves = {
            start: tuple(end for end, may in zip(self.labels, row, strict=True) if may and end in open_to)
            for start, row in zip(self.labels, self.moves(), strict=True)
        }
        return self.model_copy(update={"transitions": moves})


class Boolean(BaseModel):
    """A column that is either false or true, its two values being given in this order."""

    model_config = MODEL
    if not TYPE_CHECKING:
        __init__ = in_one_sentence

    kind: Literal["boolean"] = "boolean"
    name: str
    values: tuple[Level, Level] = (False, True)
    mutability: Mutability = "both"
    """'increase': only from false to true."""
    monotone: Monotone = None
    """"+": true is never worse than false."""
    missing: Literal["refuse", "fill"] = "refuse"
    fill: Level | None = None
    """Stands for a missing value; None: the more frequent one in the training rows."""
    fillable: bool = False
    """Whether people can be told to have the value that is missing: that filling it in is something they can do."""
    last_resort: bool = False
    """Advice changes it only for those who have no other way that is as sure."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_levels(self.levels, self.labels, self.fill, (self.missing,))
        _check_fillable(self.fillable, self.missing)
        return self

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left open for training rows to say."""
        return self.missing != "fill" or self.fill is not None

    @property
    def levels(self) -> tuple[Level, Level]:
        """The two values, by another name: a truth value is a category of two."""
        return self.values

    @property
    def labels(self) -> tuple[str, str]:
        """The two values as texts."""
        return str(self.values[0]), str(self.values[1])

    def within(self, limits: Range) -> Self:
        """The column of which only some values may be gone to; either may be kept."""
        open_to = _open(self.name, self.labels, limits)
        rises = self.mutability in ("both", "increase") and self.labels[1] in open_to
        falls = self.mutability in ("both", "decrease") and self.labels[0] in open_to
        way = ("both" if falls else "increase") if rises else ("decrease" if falls else "none")
        return self.model_copy(update={"mutability": way})


Column = Annotated[Numeric | Categorical | Boolean, Field(discriminator="kind")]


def keeps_missing(column: "Numeric | Categorical | Boolean") -> bool:
    """Whether a missing value stays missing in advice: nobody says that people can fill it in, or leave that level."""
    leaves = isinstance(column, Categorical) and MISSING in (column.transitions or {})
    return column.missing != "refuse" and not column.fillable and not leaves


def has_indicator(column: "Numeric | Categorical | Boolean") -> bool:
    """Whether a model sees beside the number whether it is missing."""
    return isinstance(column, Numeric) and column.missing == "level"


def _check_fillable(fillable: bool, missing: str) -> None:
    if fillable and missing == "refuse":
        raise ValueError("fillable needs values that may be missing; declare missing='level' or 'fill'")


def _check_levels(levels: Sequence[Level], labels: Sequence[str], fill: Level | None, policies: Sequence[str]) -> None:
    """Refuse levels that cannot be told apart, and a fill that is none of them or never used."""
    if not levels:
        raise ValueError("there must be at least one level; got none")
    for these in (levels, labels):
        twice = [one for i, one in enumerate(these) if one in these[:i]]
        if twice:
            raise ValueError(f"levels must differ, also when written as texts; {twice[0]!r} is there twice; rename one")
    if fill is not None and fill not in levels:
        raise ValueError(f"the fill must be one of its levels; got {fill!r}; {suggest(fill, labels)}")
    if fill is not None and "fill" not in policies:
        raise ValueError("a level to fill in needs missing='fill' or, for levels never seen, unseen='fill'")


def _open(name: str, labels: Sequence[str], limits: Range) -> list[str]:
    """The labels of the levels in a range."""
    if isinstance(limits, str) or not isinstance(limits, Collection) or not len(limits):
        raise SchemaError(f"the range of column {name!r} is a list of its levels; got {limits!r}")
    open_to = [str(plain(limit)) for limit in limits]
    for label in open_to:
        if label not in labels:
            raise SchemaError(f"the range of column {name!r} names {label!r}, no level; {suggest(label, labels)}")
    return open_to
