"""What the words of a column say by themselves: which level is better, how much is too much, and what is past."""

from countertrain.tables.columns import Categorical, Column, Numeric
from countertrain.tables.names import PAST, find_hint, split_name

__all__ = ["MOST_HOURS", "make_sense"]

MOST_HOURS = 60.0
"""A week's work that anybody is advised, whatever a few people do."""
_GRADES = (
    "very bad, bad, good, better, best",
    "very poor, poor, fair, average, good, very good, excellent, outstanding, exceptional",
    "low, good, excellent, outstanding",
    "unsatisfactory, needs improvement, satisfactory, meets expectations, exceeds expectations",
    "very dissatisfied, dissatisfied, neutral, satisfied, very satisfied",
    "sehr schlecht, schlecht, mittel, gut, sehr gut",
    "ungenügend, mangelhaft, ausreichend, befriedigend, gut, sehr gut",
    "mauvais, moyen, bon, très bon, excellent",
    "malo, regular, bueno, muy bueno, excelente",
    "slecht, matig, voldoende, goed, zeer goed, uitstekend",
)
_HOURS = "hours hrs stunden heures horas uren"
_WEEK = "week weekly woche semaine semana"


def make_sense(column: Column) -> Column:
    """The column with what its words say.

    Grades may only get better, a week has an end, and a count of what is past is for the last resort.
    """
    if isinstance(column, Categorical) and not column.ordered and column.transitions is None:
        names = [str(level).strip().lower().replace("_", " ") for level in column.levels]
        for grades in (scale.split(", ") for scale in _GRADES):
            if len(names) > 1 and {*names} <= {*grades}:
                levels = tuple(sorted(column.levels, key=lambda level: grades.index(names[column.levels.index(level)])))
                way = "increase" if column.mutability == "both" else column.mutability
                return column.model_copy(update={"levels": levels, "ordered": True, "mutability": way})
    if isinstance(column, Numeric) and column.mutability == "both" and find_hint(column.name) is PAST:
        return column.model_copy(update={"mutability": "decrease", "last_resort": True})
    words = {*split_name(column.name)}
    weekly = words & {*_HOURS.split()} and words & {*_WEEK.split()}
    if isinstance(column, Numeric) and weekly and column.upper is None and (column.step or 0.0) <= MOST_HOURS:
        return column.model_copy(update={"upper": MOST_HOURS})
    return column
