"""What a validator asks for is measured as others measure it, and what is too good to be true is not green."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import ks_2samp
from sklearn.metrics import average_precision_score, precision_score, recall_score, roc_auc_score
from torch import nn

from countertrain.recourse.decider import Decider
from countertrain.report.leaks import LEAK, find_giveaways, rank_singles
from countertrain.report.light import number, percent, rate
from countertrain.report.monotonicity import measure_slopes
from countertrain.report.ranking import Ranking
from countertrain.report.validation import validate
from countertrain.tables.encoder import Encoder
from countertrain.tables.schema import Schema
from loans import loans, quick

NONE = "\N{EN DASH}"


def draw(n: int = 400, seed: int = 0) -> tuple[Any, Any, Any]:
    """Probabilities with ties, who is wanted, who is accepted."""
    rng = np.random.default_rng(seed)
    score = rng.random(n).round(2)
    return score, rng.random(n) < score, score >= 0.6


def test_the_measures_are_those_of_scikit_learn_and_scipy() -> None:
    score, wanted, accepted = draw()
    found = Ranking.of(score, wanted, accepted)
    assert found is not None
    assert found.auc == pytest.approx(roc_auc_score(wanted, score))
    assert found.gini == pytest.approx(2 * roc_auc_score(wanted, score) - 1)
    assert found.average_precision == pytest.approx(average_precision_score(wanted, score))
    assert found.ks == pytest.approx(ks_2samp(score[wanted], score[~wanted]).statistic)
    assert found.decided is not None
    assert found.decided[1:] == pytest.approx((recall_score(wanted, accepted), precision_score(wanted, accepted)))
    assert found.decided[0] == pytest.approx(accepted[~wanted].mean())


def test_curves_go_from_nobody_to_everybody_and_the_decisions_lie_on_them() -> None:
    score, wanted, accepted = draw()
    found = Ranking.of(score, wanted, accepted)
    assert found is not None
    assert (found.roc[0], found.roc[-1]) == ((0.0, 0.0), (1.0, 1.0))
    assert found.precision_recall[-1] == (1.0, pytest.approx(found.prevalence))
    assert len(found.roc) <= 120
    assert found.decided is not None
    assert min(abs(x - found.decided[0]) + abs(y - found.decided[1]) for x, y in found.roc) < 1e-9


def test_tenths_hold_everybody_once_and_their_lift_is_about_everybody() -> None:
    score, wanted, _ = draw(403)
    found = Ranking.of(score, wanted)
    assert found is not None
    assert len(found.tenths) == 10
    assert sum(tenth.n for tenth in found.tenths) == 403
    assert sum(tenth.n * tenth.share for tenth in found.tenths) == pytest.approx(wanted.sum())
    assert sum(tenth.n * tenth.lift for tenth in found.tenths) / 403 == pytest.approx(1)
    assert found.tenths[0].lift > 1 > found.tenths[-1].lift


def test_where_everybody_is_wanted_there_is_nothing_to_rank() -> None:
    assert Ranking.of(np.array([0.1, 0.2]), np.array([True, True])) is None


def test_the_standard_error_of_the_auc_is_how_much_it_varies() -> None:
    found = [Ranking.of(*draw(300, seed)[:2]) for seed in range(60)]
    aucs = [one.auc for one in found if one is not None]
    assert np.mean([one.error for one in found if one is not None]) == pytest.approx(np.std(aucs), rel=0.35)


def test_a_column_that_gives_the_label_away_comes_first_and_noise_is_chance() -> None:
    rng = np.random.default_rng(0)
    wanted = rng.random(600) < 0.3
    frame = pd.DataFrame(
        {
            "noise": rng.normal(size=600),
            "leak": np.where(wanted, 1.0, 2.0) + 0.01 * rng.normal(size=600),
            "level": np.where(wanted, "late", "early"),
            "city": rng.choice(list("abcdefgh"), 600),
            "always": np.where(np.arange(600) == 7, "y", "x"),  # but once
        }
    )
    found = {one.column: one.auc for one in rank_singles(Schema.infer(frame), frame, wanted)}
    assert next(iter(found)) in ("leak", "level")
    assert min(found["leak"], found["level"]) > LEAK
    assert max(found["noise"], found["city"], found["always"]) < 0.6


def test_what_others_give_away_together_is_told_and_chance_is_not() -> None:
    rng = np.random.default_rng(0)
    hidden = rng.random(800) < 0.5
    frame = pd.DataFrame(
        {
            "sex": np.where(hidden, "f", "m"),
            "height": rng.normal(size=800) + 1.2 * hidden,
            "shoes": rng.normal(size=800) - 1.2 * hidden,
            "birthday": rng.integers(1, 366, 800),
        }
    )
    schema = Schema.infer(frame, immutable=["sex", "birthday"])
    encoder = Encoder.fit(schema, frame)
    found = {one.column: one for one in find_giveaways(encoder, encoder.encode(frame))}
    assert found["sex"].auc > 0.8
    assert found["birthday"].auc < 0.6
    assert found["birthday"].what.startswith("above ")
    free = Encoder.fit(Schema.infer(frame), frame)
    assert find_giveaways(free, free.encode(frame)) == ()


class Bent(nn.Module):
    """More of the first number helps, unless `bent`: then it helps up to the middle only."""

    def __init__(self, bent: bool) -> None:
        super().__init__()
        self.bent = bent
        self.weight = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        score = -(x[:, 0].abs()) if self.bent else x[:, 0]
        return torch.stack([torch.zeros_like(score), self.weight * score - x[:, 1]], 1)


def decide(bent: bool, **settings: Any) -> tuple[Decider, torch.Tensor]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"income": rng.normal(size=500), "debt": rng.normal(size=500)})
    encoder = Encoder.fit(Schema.infer(frame), frame)
    x = torch.from_numpy(encoder.encode(frame)).float()
    y = torch.from_numpy((frame["income"] - frame["debt"] + 0.5 * rng.normal(size=500) > 0).to_numpy().astype(int))
    return Decider(encoder, ("no", "yes"), (Bent(bent),), (x, y), settings=settings), x


def test_a_fall_on_the_way_up_is_found_and_a_straight_way_has_none() -> None:
    straight = {slope.column: slope for slope in measure_slopes(*decide(bent=False), 1)}
    assert {name: (s.rises, s.share, s.declared) for name, s in straight.items()} == {
        "income": (True, 0.0, False),
        "debt": (False, 0.0, False),
    }
    bent = {slope.column: slope for slope in measure_slopes(*decide(bent=True), 1)}
    assert bent["income"].share > 0.9
    assert bent["income"].worst > 0.3
    assert bent["debt"].share == 0


def test_declared_directions_come_first_and_turn_for_the_other_class() -> None:
    decider, x = decide(bent=True)
    schema = decider.encoder.schema.with_columns(income={"monotone": "+"})
    told = replace(decider, encoder=replace(decider.encoder, schema=schema), settings={"target": "yes"})
    slopes = measure_slopes(told, x, 1)
    assert (slopes[0].column, slopes[0].declared, slopes[0].rises) == ("income", True, True)
    assert not slopes[1].declared
    other = measure_slopes(told, x, 0)
    assert (other[0].column, other[0].declared, other[0].rises) == ("income", True, False)


def test_boosting_is_trained_on_the_same_rows_and_judged_by_the_same() -> None:
    decider, x = decide(bent=False)
    assert decider.reference is not None
    frame = decider.encoder.decode(x.numpy())
    found = validate(decider, frame, x, decider.reference[1], 1)
    assert found.ranking is not None
    assert found.rival is not None
    assert found.rival.n == found.ranking.n == 500
    assert found.rival.auc > found.ranking.auc - 0.1
    assert validate(replace(decider, reference=None), frame, x, decider.reference[1], 1).rival is None


def test_a_perfect_model_is_suspicious_not_green() -> None:
    frame, labels = loans(300)
    frame = frame.assign(paid=np.where(labels == "granted", 100.0, 0.0) + frame["age"] / 100)
    model = quick(immutable=["age"], target="granted", monotone={"debt": "-"}, epochs=15).fit(frame, labels)
    page = str(model.report(frame, labels, n_examples=0))
    start = page.index('<ul class="findings">')
    findings = page[start : page.index("</ul>", start)].split("<li ")[1:]
    assert "too good to be true" in page
    warned = " ".join(one for one in findings if one.startswith('class="warn"'))
    assert "paid alone tells who gets “granted”" in warned
    assert "too good to be true" in warned
    green = " ".join(one for one in findings if one.startswith('class="good"'))
    assert "Decisions are right" not in green
    assert "The AUC is" not in green
    assert "By construction of the model, “granted” never becomes less probable as debt shrinks" in green
    assert "declaration, by construction" in page
    assert "less helps (by construction)" in page


def test_numbers_are_rounded_as_people_do() -> None:
    shares = (0, 0.0001, 0.004, 0.0149, 0.834, 0.994, 0.9999, 1, None, float("nan"))
    told = ["0 %", "under 0.1 %", "0.4 %", "1 %", "83 %", "99.4 %", "over 99.9 %", "100 %", NONE, NONE]
    assert [percent(share) for share in shares] == told
    assert [rate(value) for value in (0.781, 0.9964, None)] == ["0.78", "0.996", NONE]
    assert [number(value) for value in (1234.5, 1.234, None)] == ["1,234", "1.23", NONE]
