"""Advice leads where real people are, makes the model as sure as it is of them, and says where that is among people."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from countertrain import CounterfactualClassifier
from countertrain.recourse import ladder
from countertrain.recourse.decider import Decider
from countertrain.recourse.defaults import TAU, TAU_RANGE, TAU_SHARE
from countertrain.recourse.explanation import Change
from countertrain.recourse.rendering import name_places
from countertrain.recourse.search import RecourseSearch, explain
from countertrain.tables.encoder import Encoder
from countertrain.tables.schema import Schema
from people import classifier, people

ROWS = people(60, seed=5)


def test_the_default_tau_is_what_the_model_gives_to_most_real_people_of_a_class() -> None:
    clf = classifier()
    search = RecourseSearch.of(clf.decider)
    assert search.reference is not None
    for k in range(2):
        mine = search.reference.x[search.reference.y == k]
        share = clf.decider.compute_probabilities(mine)[:, k].quantile(TAU_SHARE)
        assert search.default_tau(torch.tensor([k])) == pytest.approx(float(share.clamp(*TAU_RANGE)), abs=0.006)
    alone = replace(search, reference=None)
    assert alone.default_tau(torch.tensor([0])) == TAU


def test_people_who_want_different_things_are_answered_in_their_own_order() -> None:
    clf = classifier("bl", 3)
    wanted = np.array(["special", "granted", "refused"])[np.arange(30) % 3]
    together = clf.explain(ROWS[:30], wanted).to_frame()
    for k, label in enumerate(("special", "granted", "refused")):
        alone = clf.explain(ROWS[:30][k::3].reset_index(drop=True), label).to_frame()
        mine = together[together["target"] == label].reset_index(drop=True)
        assert len(alone) == 10
        pd.testing.assert_frame_equal(
            mine.drop(columns="row"), alone.drop(columns="row"), check_dtype=False, atol=1e-4, rtol=1e-4
        )


def test_what_is_made_simpler_is_no_less_typical_than_real_people_or_than_it_was() -> None:
    clf = classifier()
    search = RecourseSearch.of(clf.decider)
    assert search.reference is not None
    away = {}
    for sparse in (True, False):
        table = clf.explain(ROWS, tau=0.75, sparse=sparse).table
        x = torch.from_numpy(clf.encoder_.encode(table.values))
        target = torch.tensor([list(clf.classes_).index(t) for t in clf.explain(ROWS, tau=0.75).target[table.row]])
        away[sparse] = search.reference.measure_atypicality(x, target).numpy()
    assert away[True].mean() <= max(1.1, away[False].mean()) + 0.1


def test_a_crowd_of_its_own_rows_is_typical_and_a_stranger_is_not() -> None:
    clf = classifier()
    reference = RecourseSearch.of(clf.decider).reference
    assert reference is not None
    usual = reference.measure_atypicality(reference.x, reference.y)
    strange = reference.measure_atypicality(reference.x + 5, reference.y)
    assert 0.5 < float(usual.median()) < 1.2  # each row is its own nearest neighbour here
    assert float(strange.min()) > 1.5


def test_places_are_named_by_fifths() -> None:
    assert name_places(0.1, 0.5) == "from the lowest fifth to the middle"
    assert name_places(0.81, 1.0) == "within the highest fifth"
    change = Change("income", 31, 39.1, 1.0, "EUR", (0.05, 0.7))
    assert str(change) == "income 31 -> 39.1 EUR (from the lowest fifth to the fourth fifth)"
    assert str(Change("job", "clerk", "smith", 1.0)) == "job clerk -> smith"


def test_nobody_is_told_a_number_that_lies_where_nobody_is() -> None:
    rng = np.random.default_rng(0)
    gain = np.where(rng.random(800) < 0.8, 0.0, rng.uniform(5_000, 20_000, 800).round())
    frame = pd.DataFrame({"gain": gain, "age": rng.integers(20, 60, 800)})
    labels = np.where(gain / 5_000 + rng.normal(0, 0.3, 800) > 1, "yes", "no")
    clf = CounterfactualClassifier(immutable=["age"], epochs=6, teacher="none", random_state=0).fit(frame, labels)
    told = clf.explain(frame[clf.predict(frame) == "no"][:100], "yes", tau=0.6).table.values["gain"]
    least = gain[gain > 0].min()
    assert (told > 0).any()
    assert ((told == 0) | (told >= least)).all()


class Cliff(nn.Module):
    """Yes where gain and group together are large enough, no elsewhere: there is no slope to follow."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.low, self.high = (torch.from_numpy(encoder.encode(row))[0] for row in (_person(3.0, 0), _person(1.0, 1)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gain = torch.where(x[:, 1] >= self.high[1].to(x), self.high[0].to(x), self.low[0].to(x))
        yes = 4.0 * (x[:, 0] > gain)
        return torch.stack([2.0 + 0 * x[:, 0], yes], dim=1)


def _person(gain: float, group: int) -> pd.DataFrame:
    return pd.DataFrame({"gain": [gain], "group": [float(group)]})


def test_who_is_not_helped_by_the_likeliest_real_people_is_shown_more_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    common, rare = rng.uniform(1.5, 2.9, 290).round(2), rng.uniform(5, 6, 10).round(2)
    frame = pd.DataFrame({"gain": [*common, *rare, *np.zeros(300)], "group": [1.0] * 300 + [0.0, 1.0] * 150})
    schema = Schema.infer(frame).with_columns(group={"mutability": "none"})
    encoder = Encoder.fit(schema, frame)
    x, y = torch.from_numpy(encoder.encode(frame)).float(), torch.tensor([1] * 300 + [0] * 300)
    decider = Decider(encoder, ("no", "yes"), (Cliff(encoder),), (x, y))
    helped = {}
    for tried in ((40,), (40, 200, 2000)):
        monkeypatch.setattr(ladder, "_REAL_ROWS", tried)
        option = explain(decider, pd.concat([_person(0.0, 0), _person(0.0, 1)]), "yes", prove=False)
        helped[tried] = option.table.valid.tolist()
    assert helped == {(40,): [False, True], (40, 200, 2000): [True, True]}
    assert option.table.values["gain"][0] > 3 >= option.table.values["gain"][1]
    low = explain(decider, _person(0.0, 0), "yes", tau=0.1)  # which rows that are refused have, too
    assert low.table.valid.all()


def test_distances_are_those_of_a_plain_loop_in_all_columns_and_in_some() -> None:
    clf = classifier()
    reference = RecourseSearch.of(clf.decider).reference
    assert reference is not None
    x, among = torch.from_numpy(clf.encoder_.encode(ROWS[:12])), torch.arange(0, 40, 3)
    some = torch.rand(12, x.shape[1], generator=torch.Generator().manual_seed(0)) < 0.5
    columns = torch.zeros(12, reference.grid.n_columns, dtype=torch.bool)
    columns[:, ::2] = some[:, : columns[:, ::2].shape[1]]
    features = columns[:, reference.grid.column_of]
    apart, within = reference.measure_distances(x, among, features)
    for i in range(12):
        for j, place in enumerate(among.tolist()):
            costs = reference.grid.costs(x[i : i + 1], reference.x[place : place + 1])[0]
            assert float(apart[i, j]) == pytest.approx(float(costs.mean()), abs=1e-5)
            mine = float(costs[columns[i]].sum()) / reference.grid.n_columns
            assert float(within[i, j]) == pytest.approx(mine, abs=1e-5)
    assert columns.any()
    assert not columns.all()
