"""Explanations as people read them: numbers with their thousands, and a table for a notebook."""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from countertrain.recourse.explanation import Explanation

__all__ = ["FIFTHS", "WAYS", "as_html", "as_text", "name_places", "say_cost"]

FIFTHS = ("the lowest fifth", "the second fifth", "the middle", "the fourth fifth", "the highest fifth")
"""Places among people in words."""

WAYS = {
    "both": "may change",
    "increase": "may only increase",
    "decrease": "may only decrease",
    "none": "cannot change",
}
"""The mutability of a column in words."""


def as_text(value: Any) -> str:
    """A value as people write it: 24,000 and 0.35, not 24000.0 and 0.35000000000000003."""
    if value is None:
        return "missing"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() else f"{value:,.10g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def name_places(before: float, after: float) -> str:
    """Two places among people in words, by the shares of people who have less: from the lowest fifth to the middle."""
    start, end = (FIFTHS[min(int(5 * share), 4)] for share in (before, after))
    return f"within {start}" if start == end else f"from {start} to {end}"


def say_cost(ranked: bool) -> str:
    """What a cost of 1 means, where numbers have places among people (`ranked`) or are standardised."""
    if ranked:
        return "1 is another category, or a number that goes from the middle of all people past a third of them"
    return "1 is another category, or a number that changes by one standard deviation"


def as_html(explanations: Sequence["Explanation"], title: str | None = None) -> str:
    """Each factual beside its options, the first one unfolded; needs no style sheet, script or file.

    Colours are see-through, so that they suit light and dark pages.
    """
    head = f"<p>{escape(title)}</p>" if title else ""
    return f"<div>{head}{''.join(_render_table(one, unfold=i == 0) for i, one in enumerate(explanations))}</div>"


def _render_table(explanation: "Explanation", *, unfold: bool) -> str:
    """One explanation as a table that folds under its title."""
    options = explanation.options
    units = {change.column: f" ({change.unit})" for option in options for change in option.changes if change.unit}
    rows = [_render_row("", ["now", *(f"option {i}" for i in range(1, len(options) + 1))])]
    for name, now in explanation.factual.items():
        changed = [
            False,
            *(any(one.column == name for one in (*option.changes, *option.consequences)) for option in options),
        ]
        values = [now, *(option.values[name] for option in options)]
        rows.append(_render_row(name + units.get(name, ""), [as_text(value) for value in values], changed))
    rows += [_render_row(title, cells) for title, cells in _list_outcomes(explanation) if any(cells)]
    title = f"Row {explanation.row}: {explanation.decision} \N{RIGHTWARDS ARROW} {explanation.target}"
    note = "".join(f"<p>{escape(remark)}</p>" for remark in (explanation.verdict, explanation.note) if remark)
    return (
        f"<details{' open' if unfold else ''}><summary>{escape(title)}</summary>"
        f'<table style="border-collapse:collapse;color:inherit">{"".join(rows)}</table>{note}</details>'
    )


def _list_outcomes(explanation: "Explanation") -> list[tuple[str, list[str]]]:
    """What stands below the values: titles, each with a cell for the factual and for every option."""
    options = explanation.options
    typical = [option.plausibility_percentile for option in options]
    probabilities = [explanation.probability, *(option.probability for option in options)]
    kinds = [option.kind for option in options] if len(options) > 1 else [""]
    return [
        ("kind", ["", *kinds]),
        ("why first", ["", explanation.preferred or "", *[""] * (len(options) - 1)]),
        (f"probability of {explanation.target}", [f"{p:.2f}" for p in probabilities]),
        ("decision changes", ["", *("yes" if option.valid else "no" for option in options)]),
        ("cost", ["", *(f"{option.cost:.2f}" for option in options)]),
        ("less typical than", ["", *("" if share is None else f"{share:.0f} % of real rows" for share in typical)]),
        ("follows from the rest", ["", *(", ".join(one.column for one in o.consequences) for o in options)]),
        ("reason", ["", *(option.reason or "" for option in options)]),
    ]


def _render_row(title: str, cells: Sequence[str], changed: Sequence[bool] = ()) -> str:
    """A line of the table; cells that changed stand out."""
    style = "padding:2px 8px;border-bottom:1px solid rgba(128,128,128,.3);text-align:"
    mark = ";background:rgba(255,170,0,.3);font-weight:bold"
    body = "".join(
        f'<td style="{style}right{mark if stands_out else ""}">{escape(cell)}</td>'
        for cell, stands_out in zip(cells, changed or [False] * len(cells), strict=True)
    )
    return f'<tr><th style="{style}left">{escape(title)}</th>{body}</tr>'
