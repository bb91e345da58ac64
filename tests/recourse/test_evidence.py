"""Advice does not go against what the training rows clearly say of a column, unless its owner lets it."""

import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from countertrain.estimator import CounterfactualClassifier
from countertrain.recourse.decider import Decider
from countertrain.recourse.evidence import Direction, Evidence
from countertrain.recourse.regression import cut_into_pieces, regress
from countertrain.recourse.search import explain
from countertrain.tables.encoder import Encoder
from countertrain.tables.scales import Ranks
from countertrain.tables.schema import Schema
from loans import loans, quick


def draw_people(n: int = 3000, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Income helps, debts (two columns that say much the same) hurt, forty-two `hours` are best, noise is noise."""
    rng = np.random.default_rng(seed)
    debt = rng.exponential(5_000, n)
    frame = pd.DataFrame(
        {
            "income": rng.normal(30_000, 9_000, n).round(),
            "debt": debt.round(),
            "late debt": (debt * rng.uniform(0.8, 1.2, n)).round(),
            "hours": rng.integers(0, 61, n),
            "noise": rng.normal(size=n).round(3),
            "member": rng.random(n) < 0.5,
            "job": rng.choice(["clerk", "none", "smith"], n),
            "grade": pd.Categorical(rng.choice(["a", "b", "c"], n), ["a", "b", "c"], ordered=True),
        }
    )
    merit = (frame["income"] - 30_000) / 9_000 - debt / 5_000 - ((frame["hours"] - 42) / 15) ** 2 + frame["member"]
    merit = merit + 1.5 * (frame["job"] != "none") + 0.7 * (frame["grade"].cat.codes - 1)
    return frame, (merit + rng.logistic(size=n) > 0).to_numpy().astype(np.int64)


@cache
def gathered(n: int = 3000) -> tuple[Encoder, Evidence]:
    frame, y = draw_people(n)
    encoder = Encoder.fit(Schema.infer(frame), frame, fit_scale=Ranks.fit)
    found = Evidence.of(encoder, encoder.encode(frame), y, 2)
    assert found is not None
    return encoder, found


def test_each_column_gets_the_direction_that_it_has_and_none_where_it_has_none() -> None:
    yes = {one.column: one for one in gathered()[1].by_class[1]}
    signs = {name: one.sign for name, one in yes.items()}
    assert signs == {
        "income": "+", "debt": "-", "late debt": "-", "hours": "?", "noise": "0", "member": "+", "job": "?",
        "grade": "+",
    }  # fmt: skip
    assert set(yes["job"].against) == {("clerk", "none"), ("smith", "none")}
    assert yes["income"].summary() == "more helps (evidence: +, sure)"
    assert yes["job"].summary() == "not advised: clerk -> none and 1 more (evidence: sure)"
    assert yes["noise"].summary() == "not advised: makes no difference (evidence: sure)"
    assert not yes["hours"].is_clear


def test_who_wants_the_other_class_is_told_the_other_way() -> None:
    no = {one.column: one for one in gathered()[1].by_class[0]}
    assert (no["income"].sign, no["debt"].sign, no["noise"].sign) == ("-", "+", "0")
    assert set(no["job"].against) == {("none", "clerk"), ("none", "smith")}


def test_with_three_classes_each_is_asked_against_the_rest() -> None:
    frame, _ = draw_people()
    y = np.digitize(frame["income"], [27_000, 33_000])
    encoder = gathered()[0]
    found = Evidence.of(encoder, encoder.encode(frame), y, 3)
    assert found is not None
    assert [each[0].sign for each in found.by_class] == ["-", "?", "+"]  # the middle one is neither more nor less


def test_few_rows_say_nothing_clear_of_noise() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(200, 10)), columns=[f"x{i}" for i in range(10)])
    encoder = Encoder.fit(Schema.infer(frame), frame, fit_scale=Ranks.fit)
    wrong = 0
    for _ in range(20):
        found = Evidence.of(encoder, encoder.encode(frame), rng.integers(0, 2, 200), 2)
        assert found is not None
        wrong += sum(one.is_clear for one in found.by_class[1])
    assert wrong <= 2  # of 200 columns that say nothing


def test_of_many_rows_noise_is_said_to_make_no_difference_and_of_few_rows_nothing_is() -> None:
    rng = np.random.default_rng(0)
    for n, least, most in ((200, 0, 0), (4000, 80, 100)):
        x = rng.normal(size=(n, 10))
        frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(10)])
        encoder = Encoder.fit(Schema.infer(frame), frame, fit_scale=Ranks.fit)
        drawn = [Evidence.of(encoder, encoder.encode(frame), rng.integers(0, 2, n), 2) for _ in range(10)]
        held = sum(one.sign == "0" for each in drawn if each is not None for one in each.by_class[1])
        assert least <= held <= most


def test_what_bends_or_shows_with_other_columns_only_is_not_said_to_make_no_difference() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(4000, 2))
    frame = pd.DataFrame({"bends": x[:, 0], "helps": x[:, 1], "hides": x[:, 0] - x[:, 1]}).assign(noise=x[::-1, 0])
    y = (np.abs(x[:, 0]) + 0.5 * x[:, 1] + rng.logistic(size=4000) > 0.8).astype(np.int64)
    encoder = Encoder.fit(Schema.infer(frame), frame, fit_scale=Ranks.fit)
    found = Evidence.of(encoder, encoder.encode(frame), y, 2)
    assert found is not None
    signs = {one.column: one.sign for one in found.by_class[1]}
    assert (signs["bends"], signs["noise"]) == ("?", "0")
    assert signs["hides"] != "0"


def test_the_share_of_slopes_that_chance_gives_is_as_it_is_said() -> None:
    rng = np.random.default_rng(0)
    shares = [regress(rng.normal(size=(400, 3)), rng.integers(0, 2, 400).astype(np.float64)).p for _ in range(400)]
    assert abs(np.mean(np.array(shares) < 0.2) - 0.2) < 0.05


def test_slopes_are_those_of_another_implementation() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 4))
    y = (x @ [1.0, -0.5, 0, 0] + rng.logistic(size=500) > 0).astype(np.float64)
    theirs = LogisticRegression(C=1 / (0.1 * 500 / 4), tol=1e-8).fit(x - x.mean(0), y)
    np.testing.assert_allclose(regress(x, y).slopes, theirs.coef_[0], atol=1e-4)


def test_errors_are_what_other_samples_show() -> None:
    rng = np.random.default_rng(0)

    def draw() -> np.ndarray:
        x = rng.normal(size=(400, 3))
        y = x @ [1.0, -0.5, 0] + rng.logistic(size=400) > 0
        fit = regress(x, y.astype(np.float64))
        return np.stack([fit.slopes, np.sqrt(np.diag(fit.covariance))])

    samples = np.stack([draw() for _ in range(400)])
    np.testing.assert_allclose(samples[:, 1].mean(0), samples[:, 0].std(0), rtol=0.15)


def test_pieces_say_how_far_a_number_has_come() -> None:
    values = np.arange(1000.0)
    pieces = cut_into_pieces(values, 4)
    np.testing.assert_allclose(pieces.sum(1), (values + 0.5) / 1000 * 4, atol=1e-9)
    assert (pieces[100, 1:] == 0).all()
    assert (pieces[900, :3] == pieces.max()).all()
    spike = cut_into_pieces(np.array([0.0] * 8 + [1.0, 2.0]), 4)
    assert (spike[:8] == spike[0]).all()


def test_it_takes_less_than_two_seconds_for_ten_thousand_rows() -> None:
    frame, y = draw_people(10_000)
    wide = pd.concat([frame.add_suffix(f" {i}") for i in range(4)], axis=1)
    encoder = Encoder.fit(Schema.infer(wide), wide, fit_scale=Ranks.fit)
    x = encoder.encode(wide)
    began = time.process_time()
    assert Evidence.of(encoder, x, y, 2) is not None
    assert time.process_time() - began < 2


def test_a_table_too_wide_to_tell_is_left_alone() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(100, 450)), columns=[f"x{i}" for i in range(450)])
    encoder = Encoder.fit(Schema.infer(frame), frame, fit_scale=Ranks.fit)
    assert Evidence.of(encoder, encoder.encode(frame), rng.integers(0, 2, 100), 2) is None


def test_what_the_owner_declared_stays() -> None:
    encoder, found = gathered()
    declared = encoder.schema.with_columns(
        income={"mutability": "decrease"}, debt={"mutability": "none"}, job={"transitions": {"clerk": ("none",)}}
    )
    narrow = found.narrow(declared, 1)
    assert narrow["income"] == declared["income"]
    assert narrow["debt"] == declared["debt"]
    assert narrow["job"] == declared["job"]
    assert narrow["late debt"].mutability == "decrease"
    assert narrow["hours"] == declared["hours"]
    assert narrow["noise"].mutability == "none"  # nobody is told to change what makes no difference
    assert found.allow(["late debt"]).narrow(declared, 1)["late debt"].mutability == "both"


class Contrary(nn.Module):
    """Grants to those with less income and more debt, whatever the rows say."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.places = [encoder.features.index(name) for name in ("income", "debt", "noise", "job=none")]

    def forward(self, x: Tensor) -> Tensor:
        income, debt, noise, none = (x[:, i] for i in self.places)
        merit = 2 * debt - 2 * income + noise + 2 * none - 1
        return torch.stack([-merit, merit], 1)


@pytest.fixture(scope="module")
def contrary() -> Decider:
    encoder, found = gathered()
    frame, y = draw_people()
    x = encoder.tensor(frame)
    return Decider(encoder, ("no", "yes"), (Contrary(encoder),), (x, torch.from_numpy(y)), evidence=found, target="yes")


def test_nobody_is_told_to_go_against_it_though_the_model_would_like_it(contrary: Decider) -> None:
    rows = draw_people(200, seed=1)[0]
    refused = rows[contrary.decide(contrary.encoder.tensor(rows)).numpy() == 0]
    assert len(refused) > 50

    def go_against(against: bool) -> np.ndarray:
        told = explain(contrary, refused, options=2, against_evidence=against)
        before = refused.iloc[told.table.row].reset_index(drop=True)
        after = told.table.values
        fired = (before["job"] != "none") & (after["job"] == "none")
        return ((after["income"] < before["income"]) | (after["debt"] > before["debt"]) | fired).to_numpy()

    assert go_against(against=True).mean() > 0.5
    assert not go_against(against=False).any()


def test_people_who_want_different_things_are_each_kept_to_their_own_way(contrary: Decider) -> None:
    rows = draw_people(60, seed=2)[0]
    decided = contrary.decide(contrary.encoder.tensor(rows)).numpy()
    told = explain(contrary, rows, [("yes", "no")[k] for k in decided])  # each wants the other one
    before = rows.iloc[told.table.row].reset_index(drop=True)
    up = (told.table.values["income"] - before["income"]).to_numpy()
    wants = told.target[told.table.row]
    assert {*wants} == {"yes", "no"}
    assert (up[wants == "yes"] >= 0).all()
    assert (up[wants == "no"] <= 0).all()


def test_what_blocks_then_is_named(contrary: Decider) -> None:
    rows = draw_people(200, seed=1)[0]
    told = explain(contrary, rows)
    stuck = [one.options[0].reason for one in told if not one.options[0].valid]
    assert stuck
    assert any("income (may only increase, by the evidence)" in reason for reason in stuck)
    assert any("debt (may only decrease, by the evidence)" in reason for reason in stuck)


def test_a_classifier_gathers_it_and_it_comes_back_with_the_model(tmp_path: Path) -> None:
    clf = quick(target="granted", against_evidence=["debt"]).fit(*loans(400))
    known = {one.column: one.sign for one in clf.decider.evidence.by_class[0]}
    assert known["income"] == "+"
    assert known["debt"] == "?"  # the owner lets it go either way
    assert {one.column: one.sign for one in clf.run_.evidence.by_class[0]}["debt"] == "-"
    clf.save(tmp_path / "m", rows=False)
    again = CounterfactualClassifier.load(tmp_path / "m")
    assert again.decider.evidence == clf.decider.evidence
    assert again.against_evidence == ("debt",)
    assert Evidence.from_list(clf.run_.evidence.to_list()) == clf.run_.evidence


def test_a_classifier_may_be_told_to_gather_none() -> None:
    assert quick(epochs=1, against_evidence=True).fit(*loans()).decider.evidence is None
    research = quick(epochs=1, objective="bl", settings={"profile": "as-run"})  # as the paper has it
    assert research.fit(*loans()).decider.evidence is None
    with pytest.raises(ValueError, match=r"against_evidence names 'det', which is no column .*; did you mean 'debt'"):
        quick(against_evidence=["det"], epochs=10**6).fit(*loans())


def test_a_report_shows_it_beside_the_columns() -> None:
    clf = quick(target="granted", immutable=["age"]).fit(*loans(400))
    page = " ".join(str(clf.report(*loans(80, seed=3), n_examples=0)).split())
    assert "may change: more helps (evidence: +, sure)" in page
    assert "may change: less helps (evidence: -, sure)" in page


def test_a_direction_of_no_column_is_not_clear() -> None:
    assert Direction("x", "?", 0.4).summary() == "evidence: unclear"
    encoder, found = gathered()
    everything = found.allow(encoder.schema.names)
    assert everything.narrow(encoder.schema, 1) == encoder.schema
    assert replace(found) == found
