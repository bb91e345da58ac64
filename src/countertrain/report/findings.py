"""What the measurements of a report mean, in sentences with a traffic light."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from countertrain.evaluation.metrics import ROBUST_EPSILON
from countertrain.judge.verdict import Verdict
from countertrain.recourse.answer import Recourse
from countertrain.report.audit import Outcome, Performance, Sensitivity
from countertrain.report.fairness import PROXY, Association, Grouping

__all__ = [
    "ATYPICAL", "COMMAND", "FRAGILE", "HELPED", "HOLDING", "MISCALIBRATED", "PYTHON", "SENSITIVE", "UNLIKE", "Door",
    "Evidence", "Finding", "list_findings",
]  # fmt: skip

Light = Literal["warn", "look", "good"]
MISCALIBRATED = (0.05, 0.1)
"""ECE above which probabilities deserve a check, and a warning."""
HELPED = (0.95, 0.8)
"""Share of rejected people with a valid recourse below which it deserves a check, and a warning."""
FRAGILE = 0.1
"""Accuracy lost under attack."""
SENSITIVE = 0.2
"""Share of the decision that comes from immutable columns."""
ATYPICAL = (0.5, 0.9)
"""Share of the advice less typical than UNLIKE % of real rows above which it deserves a check, and a warning."""
UNLIKE = 95
HOLDING = 0.75
"""Of what the whole panel accepts of real people: advice below that share of it is a warning."""


@dataclass(frozen=True)
class Door:
    """How to ask for another report, in the words of whoever asked for this one."""

    target: str
    groups: str
    no_examples: str


PYTHON = Door("target=…", "groups=[…]", "n_examples=0")
COMMAND = Door("--target …", "--groups …", "--examples 0")


@dataclass(frozen=True)
class Finding:
    """A sentence for the owner of the model."""

    light: Light
    text: str
    section: str
    """The part of the report that has the numbers."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything that was measured."""

    classes: tuple[str, ...]
    target: int
    """The place of the class that people want to be in."""
    target_given: bool
    """Whether the user said so."""
    performance: Performance
    baseline_performance: Performance | None
    outcomes: tuple[Outcome, ...]
    sensitivities: tuple[Sensitivity, ...]
    recourse: Recourse
    """Of those in a sample of the rows who are rejected: decided otherwise than they want."""
    rejected: NDArray[np.int64]
    """Their places among all rows."""
    people: pd.DataFrame
    """All in the sample, as `fairness.tabulate_people` describes them."""
    associations: tuple[Association, ...]
    groupings: tuple[Grouping, ...]
    verdict: Verdict | None = None
    """What independent models make of the advice; None where it could not be judged."""
    door: Door = PYTHON

    @property
    def wanted(self) -> str:
        """The decision that people want."""
        return f"“{self.classes[self.target]}”"

    @property
    def proxies(self) -> tuple[Association, ...]:
        """Columns that say much about an immutable one."""
        return tuple(one for one in self.associations if one.strength >= PROXY)

    def find_outcome(self, name: str) -> Outcome:
        """The measure of that name."""
        return next(one for one in self.outcomes if one.name == name)


def list_findings(evidence: Evidence) -> list[Finding]:
    """What is found, warnings first."""
    rules = (
        _judge_wanted,
        _judge_decisions,
        _judge_probabilities,
        _judge_recourse,
        _judge_holding,
        _judge_typicality,
        _judge_groups,
        _judge_proxies,
        _judge_immutable,
        _judge_comparison,
        _judge_robustness,
    )
    found = [finding for rule in rules for finding in rule(evidence)]
    order: list[Light] = ["warn", "look", "good"]
    return sorted(found, key=lambda finding: order.index(finding.light))


def _judge_wanted(e: Evidence) -> Iterator[Finding]:
    if not e.target_given:
        text = (
            f"Nobody said which decision people want; this report takes it to be {e.wanted}. "
            f"If it is another one, make the report again with {e.door.target}"
        )
        yield Finding("look", text, "method")


def _judge_decisions(e: Evidence) -> Iterator[Finding]:
    p = e.performance
    usual = f"always answering “{e.classes[p.commonest]}” would be right in {_per_100(p.commonest_share)}"
    if p.accuracy - p.commonest_share > 2 * (p.accuracy * (1 - p.accuracy) / p.n) ** 0.5:
        yield Finding("good", f"Decisions are right in {_per_100(p.accuracy)} cases; {usual}.", "decisions")
    else:
        yield Finding(
            "warn",
            f"Decisions are right in {_per_100(p.accuracy)} cases, not clearly more than a constant answer: {usual}.",
            "decisions",
        )


def _judge_probabilities(e: Evidence) -> Iterator[Finding]:
    off = e.performance.ece
    light: Light = "good" if off <= MISCALIBRATED[0] else "look" if off <= MISCALIBRATED[1] else "warn"
    text = f"Stated probabilities of {e.wanted} are off by {100 * off:.1f} percentage points on average"
    advice = "." if light == "good" else "; do not read them as chances without recalibrating them."
    yield Finding(light, text + advice, "decisions")


def _judge_recourse(e: Evidence) -> Iterator[Finding]:
    helped = e.people["valid"].dropna()
    if helped.empty:
        yield Finding("look", f"The decision is {e.wanted} for every row: there is nothing to explain.", "recourse")
        return
    share = float(helped.mean())
    light: Light = "good" if share >= HELPED[0] else "look" if share >= HELPED[1] else "warn"
    text = f"{_percent(share)} of the {len(helped):,} rejected people can be shown a change that leads to {e.wanted}"
    stuck, fixed = int((helped == 0).sum()), int((e.people["fixed"] == 1).sum())
    proven = f" It is proven for {fixed:,} of them that no change that is allowed would do." if fixed else ""
    rest = "." if share == 1 else f"; {stuck:,} cannot.{proven}"
    yield Finding(light, text + rest, "recourse")


def _judge_holding(e: Evidence) -> Iterator[Finding]:
    if e.verdict is None:
        return
    one, ceiling = e.verdict.standing, e.verdict.ceiling
    short = [name for name, share in one.accepted.items() if share < ceiling[name] - 2 * (0.25 / max(one.n, 1)) ** 0.5]
    text = f"{_percent(one.whole)} of the advice holds: independent models of three kinds all accept whoever follows it"
    if not short:
        yield Finding(
            "good",
            f"{text}; of real people with {e.wanted} they accept {_percent(e.verdict.whole_ceiling)}.",
            "holding",
        )
        return
    names = ", ".join(f"{name} ({_percent(one.accepted[name])} against {_percent(ceiling[name])})" for name in short)
    light: Light = "warn" if one.whole < HOLDING * e.verdict.whole_ceiling else "look"
    yield Finding(light, f"{text}. Of real people with {e.wanted}, more are accepted by {names}.", "holding")


def _judge_typicality(e: Evidence) -> Iterator[Finding]:
    percentile = e.recourse.table.percentile[e.recourse.table.valid]
    percentile = percentile[~np.isnan(percentile)]  # unknown to a classifier that was saved without its rows
    share = float((percentile >= UNLIKE).mean()) if len(percentile) else 0.0
    if share > ATYPICAL[0]:
        text = (
            f"{_percent(share)} of the advice asks people to become unlike the real rows that have {e.wanted}: it is "
            f"less typical than {UNLIKE} % of them, so that the model may be wrong about it."
        )
        yield Finding("warn" if share > ATYPICAL[1] else "look", text, "recourse")


def _judge_groups(e: Evidence) -> Iterator[Finding]:
    if not e.groupings:
        yield Finding(
            "look",
            f"Groups of people were not compared, because none were named; make the report again with {e.door.groups}.",
            "groups",
        )
    for grouping in e.groupings:
        for d in grouping.disparities:
            who = f"{grouping.column} = {d.group}"
            if d.measure == "cost":
                text = f"Recourse costs more for {who}: {d.mine.mean:.2f} on average, others {d.others.mean:.2f}."
            elif d.measure == "fixed":
                text = (
                    f"Whatever they change, more people cannot get {e.wanted} among {who}: {_percent(d.mine.mean)} of "
                    f"those rejected, {_percent(d.others.mean)} of others."
                )
            elif d.measure == "valid":
                text = (
                    f"Recourse is found less often for {who}: for {_percent(d.mine.mean)} of those rejected, for "
                    f"{_percent(d.others.mean)} of others."
                )
            else:
                text = f"{who} is accepted less often: {_percent(d.mine.mean)}, others {_percent(d.others.mean)}."
            yield Finding("warn", text, "groups")
    fine = [grouping.column for grouping in e.groupings if not grouping.disparities]
    if fine:
        yield Finding("good", f"No group by {', '.join(fine)} was found to be clearly worse off.", "groups")


def _judge_proxies(e: Evidence) -> Iterator[Finding]:
    for fixed in dict.fromkeys(proxy.immutable for proxy in e.proxies):
        named = [f"{one.column} ({one.strength:.2f})" for one in e.proxies if one.immutable == fixed]
        text = (
            f"Much about {fixed}, which nobody can change, can be guessed from {', '.join(named)}: "
            f"to rely on {'them' if len(named) > 1 else 'it'} is to rely on {fixed} in part."
        )
        yield Finding("look", text, "proxies")
    if e.associations and not e.proxies:
        yield Finding("good", "No single column was found to be a proxy of an immutable one.", "proxies")


def _judge_immutable(e: Evidence) -> Iterator[Finding]:
    fixed = [one for one in e.sensitivities if one.immutable]
    if not fixed:
        yield Finding(
            "look", "No column is declared immutable: advice may ask people to change anything.", "sensitivity"
        )
        return
    share = sum(one.share for one in fixed)
    light: Light = "good" if share <= SENSITIVE else "look"
    names = ", ".join(f"{one.column} {_percent(one.share)}" for one in fixed)
    text = f"{_percent(share)} of what moves the decision comes from columns that nobody can change ({names})."
    yield Finding(light, text, "sensitivity")


def _judge_comparison(e: Evidence) -> Iterator[Finding]:
    if e.baseline_performance is None:
        yield Finding("look", "The model was not compared with a conventionally trained one.", "comparison")
        return
    titles = {"ip": "plausibility", "cost": "distance", "validity": "validity", "pgd": "robustness"}
    verdicts = {title: e.find_outcome(name).verdict for name, title in titles.items()}
    better, worse = ([t for t, v in verdicts.items() if v == which] for which in ("better", "worse"))
    parts = [f"{word} in {', '.join(names)}" for word, names in (("better", better), ("worse", worse)) if names]
    text = " and ".join(parts) or "not clearly different"
    yield Finding("look" if worse else "good", f"Compared with its baseline, the model is {text}.", "comparison")


def _judge_robustness(e: Evidence) -> Iterator[Finding]:
    left = e.find_outcome("pgd").ours
    assert left is not None  # an accuracy is always a number
    if e.performance.accuracy - left > FRAGILE:
        text = f"Changes of {ROBUST_EPSILON:g} in what the model sees can push accuracy down to {_percent(left)}."
        yield Finding("look", text, "comparison")
    else:
        text = (
            f"Even the worst changes of {ROBUST_EPSILON:g} in what the model sees leave accuracy at {_percent(left)}."
        )
        yield Finding("good", text, "comparison")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _per_100(share: float) -> str:
    return f"{100 * share:.0f} of 100"
