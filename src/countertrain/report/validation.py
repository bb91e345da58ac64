"""What a validator of models asks for: ranking, a rival, leaks, proxies, monotonicity; and what it means."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from torch import Tensor

from countertrain.judge.panel import fit_boosting
from countertrain.recourse.decider import Decider
from countertrain.report.leaks import GIVEN_AWAY, LEAK, Giveaway, Single, find_giveaways, rank_singles
from countertrain.report.light import Finding, percent, rate
from countertrain.report.monotonicity import Slope, measure_slopes
from countertrain.report.ranking import Ranking
from countertrain.tables.encoder import Encoder
from countertrain.tables.scales import Ranks
from countertrain.words import list_phrases

if TYPE_CHECKING:
    from countertrain.report.findings import Evidence

__all__ = ["BEHIND", "Validation", "judge_validation", "validate"]

BEHIND = 0.02
"""How far the AUC may be below that of boosting on the same rows before it deserves a check."""
_FALLING = 0.1  # share of people with a fall against what the rows show, for a check
_SHOWN = 3


@dataclass(frozen=True)
class Validation:
    """How well the model ranks, beside boosting; what gives too much away; where it goes the wrong way."""

    ranking: Ranking | None
    """None where the rows hold only one of the two: the wanted class, others."""
    rival: Ranking | None
    """The same of boosting, trained on the same rows; None where these were not kept."""
    singles: tuple[Single, ...]
    giveaways: tuple[Giveaway, ...]
    slopes: tuple[Slope, ...]

    @property
    def leaks(self) -> tuple[Single, ...]:
        """Columns that give the label away by themselves."""
        return tuple(one for one in self.singles if one.auc > LEAK)


def validate(decider: Decider, frame: pd.DataFrame, x: Tensor, y: Tensor, target: int, *, seed: int = 0) -> Validation:
    """Ask all of it of a decider on test rows: in people's units, encoded (n, D), and their classes (n,)."""
    wanted = (y == target).numpy()
    score = decider.compute_probabilities(x)[:, target].numpy()
    real = x if decider.reference is None else decider.reference[0]
    return Validation(
        ranking=Ranking.of(score, wanted, (decider.decide(x) == target).numpy()),
        rival=_train_rival(decider, frame, wanted, target, seed),
        singles=rank_singles(decider.encoder.schema, frame, wanted),
        giveaways=find_giveaways(decider.encoder, real.double().numpy(), seed=seed),
        slopes=measure_slopes(decider, x, target, seed=seed),
    )


def _train_rival(decider: Decider, frame: pd.DataFrame, wanted: Any, target: int, seed: int) -> Ranking | None:
    """Boosting on the rows that the model was trained on, with an encoder of its own, judged by the same test rows."""
    if decider.reference is None:
        return None
    x, y = decider.reference
    rows = decider.encoder.decode(x.numpy())
    encoder = Encoder.fit(decider.encoder.schema, rows, fit_scale=Ranks.fit)
    model = fit_boosting(encoder.encode(rows), y.numpy(), seed=seed)
    place = np.flatnonzero(model.classes_ == target)
    if not len(place):
        return None
    return Ranking.of(model.predict_proba(encoder.encode(frame))[:, place[0]], wanted)


def judge_validation(e: "Evidence") -> Iterator[Finding]:
    """What it means, in sentences."""
    if e.validation is None:
        return
    yield from _judge_ranking(e, e.validation)
    yield from _judge_leaks(e, e.validation)
    yield from _judge_giveaways(e.validation)
    yield from _judge_slopes(e, e.validation)


def _judge_ranking(e: "Evidence", v: Validation) -> Iterator[Finding]:
    one, rival = v.ranking, v.rival
    if one is None:
        return
    if one.is_suspicious:
        best = f": {v.singles[0].column} alone has {rate(v.singles[0].auc)}" if v.singles else ""
        text = (
            f"An AUC of {rate(one.auc)} is too good to be true where people are decided on. Look for columns that are "
            f"known only after the decision, or that are made from it{best}."
        )
        yield Finding("warn", text, "ranking")
    if rival is None:
        return
    behind = rival.auc - one.auc
    text = f"The AUC is {rate(one.auc)}; boosting, trained on the same rows, has {rate(rival.auc)}"
    if behind > max(BEHIND, 2 * one.error):
        yield Finding(
            "look", f"{text}: there is more to be learnt from these columns than this model knows.", "ranking"
        )
    elif not one.is_suspicious:
        yield Finding("good", f"{text}.", "ranking")


def _judge_leaks(e: "Evidence", v: Validation) -> Iterator[Finding]:
    for leak in v.leaks:
        text = f"{leak.column} alone tells who gets {e.wanted} (AUC {rate(leak.auc)}): is it known when it is decided?"
        yield Finding("warn", text, "leaks")


def _judge_giveaways(v: Validation) -> Iterator[Finding]:
    given = [one for one in v.giveaways if one.auc >= GIVEN_AWAY]
    if given:
        listed = ", ".join(f"{one.column} ({one.what}: AUC {rate(one.auc)})" for one in given[:_SHOWN])
        text = (
            f"What nobody can change can be told from the other columns together: {listed}. "
            "To leave it out would not make the model blind to it."
        )
        yield Finding("look", text, "leaks")
    elif v.giveaways:
        yield Finding("good", "What nobody can change is not given away by the other columns together.", "leaks")


def _judge_slopes(e: "Evidence", v: Validation) -> Iterator[Finding]:
    declared = [slope for slope in v.slopes if slope.declared]
    broken = [slope for slope in declared if slope.share > 0]
    odd = [slope for slope in v.slopes if not slope.declared and slope.share > _FALLING]
    if broken:
        text = f"Declared directions are broken: {e.wanted} becomes less probable somewhere as {_list_slopes(broken)}."
        yield Finding("warn", text, "monotone")
    elif declared:
        ways = list_phrases([_say_way(one) for one in declared], _SHOWN)
        text = f"By construction of the model, {e.wanted} never becomes less probable as {ways}, all else equal."
        yield Finding("good", text, "monotone")
    if odd:
        text = f"Against what the real rows show, {e.wanted} becomes less probable somewhere as {_list_slopes(odd)}."
        yield Finding("look", text, "monotone")


def _list_slopes(slopes: list[Slope]) -> str:
    """`income grows (12 % of people), debt shrinks (3 % of people) and 2 more`."""
    return list_phrases([f"{_say_way(one)} ({percent(one.share)} of people)" for one in slopes], _SHOWN)


def _say_way(slope: Slope) -> str:
    return f"{slope.column} {'grows' if slope.rises else 'shrinks'}"
