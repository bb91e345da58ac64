"""One person's decision and the options for another one, in the person's own units and categories."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from countertrain.recourse.rendering import as_html, as_text, name_places
from countertrain.words import join_phrases

__all__ = ["FOUND", "NONE", "OPEN", "Change", "Existence", "Explanation", "Option", "say_why_first"]

Existence = Literal["found", "none exists", "not found"]
FOUND: Existence = "found"
"""There is a valid option."""
NONE: Existence = "none exists"
"""No row that the person could be told within what may change is decided as wanted: proven, for this model."""
OPEN: Existence = "not found"
"""Neither an option nor a proof was found within the limits."""


@dataclass(frozen=True, slots=True)
class Change:
    """One column that changes; its text is e.g. "income 24,000 -> 31,500 EUR (from the lowest fifth to the middle)"."""

    column: str
    before: Any
    after: Any
    cost: float
    """How far a number moves on the model's scale, in normal scores or standard deviations; 1 for another level."""
    unit: str | None = None
    places: tuple[float, float] | None = None
    """The shares of people, in 0..1, who have less than a number before and after.

    None for a level, a missing number, and where numbers are standardised.
    """
    in_time: bool = False
    """Whether only time brings it, so that it is advised where nothing else will do."""

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        when = " in time" if self.in_time else ""
        where = f" ({name_places(*self.places)})" if self.places else ""
        return f"{self.column} {as_text(self.before)} -> {as_text(self.after)}{unit}{when}{where}"

    def as_consequence(self) -> str:
        """Its text where it follows from other changes: "total follows: 240 -> 310"."""
        return f"{self.column} follows:{str(self).removeprefix(self.column)}"


@dataclass(frozen=True, slots=True)
class Option:
    """One way to another decision. Probability and validity are those of exactly these values, rounded as they are."""

    kind: str
    """What speaks for it: "recommended", "fewest changes", "another way", "surest" or "cheapest"."""
    values: dict[str, Any]
    changes: tuple[Change, ...]
    consequences: tuple[Change, ...]
    """What changes with them, by a rule between columns; it is nobody's task, and costs nothing."""
    probability: float
    """Of the target class, after the changes."""
    valid: bool
    """Whether the model now decides for the target class."""
    mature: bool
    """Whether it does so with the probability tau that was asked for."""
    cost: float
    """Sum of the costs of all changes."""
    plausibility_distance: float | None
    """To the nearest real row of the target class: mean over columns of what `Change.cost` measures.

    None where the classifier has no real rows of that class.
    """
    plausibility_percentile: float | None
    """Per cent of the real rows of the target class that are nearer to their own nearest neighbour.

    Low: the option is as typical as real rows are; near 100: farther off than almost any of them.
    """
    nearest: tuple[dict[str, Any], ...]
    """The nearest real rows of the target class, nearest first."""
    reason: str | None
    """Why the option is not valid or did not reach tau, or why nothing changes."""

    def summary(self, target: Any) -> str:
        """A line on the outcome and one line per change."""
        how = "with" if self.valid else "is not reached: it has"
        head = f"{target} {how} probability {self.probability:.2f}, cost {self.cost:.2f}"
        reason = [f"  {self.reason}"] if self.reason else []
        followed = [f"  {change.as_consequence()}" for change in self.consequences]
        return "\n".join([head, *(f"  {change}" for change in self.changes), *followed, *reason])


@dataclass(frozen=True, slots=True)
class Explanation:
    """One person's decision, and the options for another one; the first is the one to recommend."""

    row: int
    factual: dict[str, Any]
    decision: Any
    target: Any
    probability: float
    """Of the target class, before any change."""
    options: tuple[Option, ...]
    note: str | None
    """Given where there are fewer options than were asked for."""
    needed: float | None = None
    """The probability that the target class needs to be decided for, where a threshold is set."""
    existence: Existence = FOUND
    """Whether there is a valid option: "found", "none exists" (proven for this model and all that may change), or "not
    found" within the limits.
    """
    preferred: str | None = None
    """Why the first option is the one to recommend, where another one costs less."""

    def summary(self) -> str:
        """The decision and its options as text, with lines such as "income 24,000 -> 31,500"."""
        needs = "" if self.needed is None else f" and needs {self.needed:.2f}"
        lines = [f"row {self.row}: {self.decision} ({self.target} has probability {self.probability:.2f}{needs})"]
        for i, option in enumerate(self.options, 1):
            title = f"option {i}" if len(self.options) == 1 else f"option {i}, {option.kind}"
            lines += [f"  {line}" for line in f"{title}: {option.summary(self.target)}".splitlines()]
            if i == 1 and self.preferred:
                lines.append(f"    {self.preferred}")
        return "\n".join([*lines, *(f"  {remark}" for remark in (self.verdict, self.note) if remark)])

    @property
    def verdict(self) -> str | None:
        """That no option exists, where that is proven."""
        return f"proven: no change that is allowed leads to {self.target}" if self.existence == NONE else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values that `json.dumps` takes as they are."""
        return asdict(self)

    def _repr_html_(self) -> str:
        return as_html([self])


def say_why_first(options: Sequence[Option], people: str) -> str | None:
    """Why the first option comes before cheaper ones; `people` are those who have the decision, in words.

    None where no option costs less.
    """
    reasons: dict[str, list[int]] = {}
    for i, one in enumerate(options[1:], 2):
        first = options[0]
        if not one.valid or round(one.cost, 2) >= round(first.cost, 2):
            continue
        if (one.plausibility_distance or 0.0) > (first.plausibility_distance or 0.0):
            reasons.setdefault(f"more like {people}", []).append(i)
        elif one.probability < first.probability:
            reasons.setdefault("surer", []).append(i)
    if not reasons:
        return None
    said = [one if len(reasons) == 1 else f"{one} than {_number(others)}" for one, others in reasons.items()]
    less = sorted(i for others in reasons.values() for i in others)
    return f"{_number(less)} {'ask' if len(less) > 1 else 'asks'} for less; this one is {join_phrases(said)}"


def _number(options: Sequence[int]) -> str:
    return f"option{'s' * (len(options) > 1)} {join_phrases([str(i) for i in options])}"
