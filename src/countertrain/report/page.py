"""The evidence on a classifier as one HTML page; what it says is in report.html."""

import platform
from collections.abc import Mapping, Sequence
from datetime import date
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from countertrain.evaluation.metrics import ROBUST_EPSILON
from countertrain.recourse.answer import Recourse
from countertrain.recourse.decider import Decider
from countertrain.recourse.explanation import Explanation
from countertrain.recourse.rendering import WAYS, as_text, name_places, say_cost
from countertrain.report import audit, fairness, findings, leaks, ranking, validation
from countertrain.report.findings import Evidence
from countertrain.report.light import number, percent, rate
from countertrain.tables.schema import Boolean, Categorical, Numeric
from countertrain.words import list_phrases, plain

__all__ = ["render_page"]

_MOST_BARS, _MOST_ASKED, _MOST_LEVELS = 20, 8, 12  # columns in a chart and in a table, levels of a column
_OBJECTIVES = {
    "ct": "counterfactual training",
    "bl": "conventional training",
    "ar": "adversarial training",
    "cd": "training with contrastive divergence alone",
    "taught": "counterfactual training with a teacher",
    "pgd": "adversarial training by PGD",
    "trades": "adversarial training by TRADES",
    "jem": "training as a joint energy-based model",
    "ross": "training for recourse by Ross et al.",
    "gradsup": "training with gradient supervision",
    "counternet": "training beside a network that writes counterfactuals",
}
_VERSIONS = ("countertrain", "torch", "scikit-learn", "numpy", "pandas")


def render_page(
    decider: Decider,
    baseline: Decider | None,
    evidence: Evidence,
    n_examples: int,
    title: str | None,
) -> str:
    """The page; every text in it is escaped by the template engine."""
    environment = Environment(
        loader=PackageLoader("countertrain.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"text": as_text, "percent": _write_percent, "number": number, "rate": rate}
    both = [one for one in (decider, baseline) if one is not None]
    settings = [{name: _name_value(value) for name, value in one.settings.items()} for one in both]
    schema = decider.encoder.schema
    return environment.get_template("report.html").render(
        title=title or "What this model decides, and what would change its decisions",
        e=evidence,
        findings=findings.list_findings(evidence),
        trained=[_OBJECTIVES.get(str(one.settings.get("objective")), "a method of its own") for one in both],
        n_models=len(decider.models),
        threshold=decider.threshold,
        ranked=bool(decider.encoder.ranks),
        name_places=name_places,
        cost_of_1=say_cost(ranked=bool(decider.encoder.ranks)),
        shown=[one for i, one in enumerate(evidence.sensitivities) if i < _MOST_BARS or one.immutable],
        examples=_choose_examples(evidence, n_examples),
        **_summarise_advice(evidence.recourse),
        settings=settings[0],
        differences={name: value for name, value in settings[-1].items() if value != settings[0][name]},
        columns=[
            (column.name, _describe_values(column), _describe_way(decider, evidence.target, i))
            for i, column in enumerate(schema.columns)
        ],
        between=schema.rules or (),
        versions={"Python": platform.python_version(), **{name: version(name) for name in _VERSIONS}},
        model_id=decider.id,
        about=decider.about,
        date=f"{date.today().day} {date.today():%B %Y}",
        limits={"leak": leaks.LEAK, "given": leaks.GIVEN_AWAY, "perfect": ranking.PERFECT},
        behind=validation.BEHIND,
        audit=audit,
        epsilon=ROBUST_EPSILON,
        fairness=fairness,
        rules=findings,
    )


def _choose_examples(evidence: Evidence, n: int) -> list[tuple[int, Explanation]]:
    """Rejected rows and their recourse: from cheap to expensive, and one for whom none was found, if there is any."""
    table = evidence.recourse.table
    by_cost = table.costs.sum(1).argsort(kind="stable")
    helped, stuck = by_cost[table.valid[by_cost]], np.flatnonzero(~table.valid)
    n_helped = max(0, min(len(helped), n - min(1, len(stuck))))
    evenly = ((np.arange(n_helped) + 0.5) / max(n_helped, 1) * len(helped)).astype(int)
    chosen = [*helped[evenly], *stuck[: n - n_helped]]
    return [(int(evidence.rejected[i]), evidence.recourse[int(i)]) for i in chosen]


def _summarise_advice(recourse: Recourse) -> dict[str, Any]:
    """What valid advice is like: columns changed, percentile among real rows, and what is asked most often."""
    helped = recourse.table.valid
    changed, percentile = recourse.table.costs[helped] > 0, recourse.table.percentile[helped]
    percentile = percentile[~np.isnan(percentile)]  # unknown to a classifier that was saved without its rows
    asked = pd.Series(changed.sum(0) / max(len(changed), 1), index=recourse.table.values.columns)
    return {
        "n_helped": len(changed),
        "typical_changes": float(np.median(changed.sum(1))) if len(changed) else None,
        "typical_percentile": float(np.median(percentile)) if len(percentile) else None,
        "asked": asked[asked > 0].nlargest(_MOST_ASKED).to_dict(),
    }


def _name_value(value: Any) -> str:
    """A parameter in a word."""
    if isinstance(value, str | int | float | np.number | Mapping | None):
        return str(plain(value))
    if isinstance(value, Sequence | np.ndarray):
        return ", ".join(map(str, value)) or "none"
    return str(getattr(value, "__name__", type(value).__name__))


def _describe_values(column: Numeric | Categorical | Boolean) -> str:
    """What a column may hold."""
    if isinstance(column, Numeric):
        step = f", in steps of {as_text(column.step)}" if column.step else ""
        low, high = (number(end) if column.step is None else as_text(end) for end in (column.lower, column.upper))
        return f"{low} to {high}{' ' + column.unit if column.unit else ''}{step}"
    return list_phrases(column.labels, _MOST_LEVELS)


def _describe_way(decider: Decider, target: int, i: int) -> str:
    """How a column may change, and which way helps, where advice keeps to that."""
    schema = decider.encoder.schema
    column = schema.columns[i]
    if schema.rulebook is not None and column.name in schema.rulebook.following:
        return "follows"
    known = decider.list_directions(target).get(column.name)
    return f"{WAYS[column.mutability]}{'' if known is None else f': {known}'}"


def _write_percent(share: float | None) -> str:
    return percent(share).replace(" %", "\N{NO-BREAK SPACE}%")
