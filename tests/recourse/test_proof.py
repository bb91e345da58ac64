"""That no option exists is said only where exhaustive search finds none, and an option that is found is one."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from countertrain.models.architectures import Ensemble, mlp, piecewise
from countertrain.models.deciding import as_one, logits_of
from countertrain.recourse.decider import Decider
from countertrain.recourse.ladder import Ladder
from countertrain.recourse.network import Network
from countertrain.recourse.proof import Prover, prove
from countertrain.recourse.proof.bounds import Bounds
from countertrain.recourse.proof.exact import ask_exactly
from countertrain.recourse.proof.parts import Parts
from countertrain.recourse.reach import AnswerGrid, Reach
from countertrain.recourse.search import explain
from countertrain.recourse.threshold import Threshold
from countertrain.search.losses import predict
from countertrain.tables.encoder import Encoder
from countertrain.tables.scales import Ranks
from countertrain.tables.schema import Boolean, Categorical, Numeric, Schema

SCHEMA = Schema(
    columns=(
        Numeric(name="late", integer=True, lower=0, upper=4, missing="level"),
        Categorical(name="job", levels=("none", "clerk", "smith"), transitions={"none": ("clerk",)}),
        Numeric(
            name="rate", step=0.5, lower=0, upper=3, mutability="decrease", missing="level", fill=1.5, fillable=True
        ),
        Boolean(name="member"),
        Categorical(name="home", levels=("own", "rent"), mutability="none"),
    )
)
HIDDEN = [(), (6,), (5, 4)]


def draw_people(n: int, seed: int) -> pd.DataFrame:
    """People some of whom are outside a bound or between two steps, or do not say what they are."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "late": np.where(rng.random(n) < 0.2, np.nan, rng.integers(0, 7, n)),
            "job": rng.choice(["none", "clerk", "smith"], n),
            "rate": rng.choice([*np.arange(0, 3.5, 0.5), 1.25, np.nan], n),  # all that can be told, and none in a gap
            "member": rng.random(n) < 0.5,
            "home": rng.choice(["own", "rent"], n),
        }
    )


ENCODER = Encoder.fit(SCHEMA, draw_people(200, 0), fit_scale=Ranks.fit)
GRID = AnswerGrid.of(ENCODER)
FEATURES = len(ENCODER.features)


def make_models(
    n: int, hidden: tuple[int, ...], n_classes: int, seed: int, *, pieces: bool, against: float = 2.0
) -> list[nn.Module]:
    """Random networks that are as sure of themselves as trained ones."""
    models = []
    for i in range(n):
        one = (
            piecewise(FEATURES, n_classes, numbers=ENCODER.numbers, hidden=hidden, n_pieces=4, seed=seed + i)
            if pieces
            else mlp(FEATURES, n_classes, hidden=hidden, seed=seed + i)
        )
        with torch.no_grad():
            for parameter in one.parameters():
                parameter.add_(
                    0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed + 7 * i))
                )
            last: Any = [*one.children()][-1]
            last.bias[0] += against  # most rows are of class 0, so that the others are hard to get
        models.append(one)
    return models


def list_rows(person: "pd.Series[Any]") -> pd.DataFrame:
    """Every row that a person could be told, by the schema alone."""
    late = {person["late"], *(range(5) if person["late"] >= 0 else ())}  # what is missing stays so,
    job = {person["job"], *({"none": ["clerk"]}.get(person["job"], []))}
    most = person["rate"] if person["rate"] >= 0 else 1.5  # unless people can fill it in
    rate = {person["rate"], *(r for r in np.arange(0, 3.5, 0.5) if r <= most)}
    rows = itertools.product(sorted(late), sorted(job), sorted(rate), [False, True], [person["home"]])
    return pd.DataFrame(rows, columns=list(SCHEMA.names))


def decide(model: nn.Module, frame: pd.DataFrame) -> Tensor:
    return predict(logits_of(model, ENCODER.tensor(frame)))


def make_ladder(model: nn.Module) -> Ladder:
    return Ladder(model, GRID, None, 0.6, 5, sparse=True)


networks = st.fixed_dictionaries(
    {
        "n": st.integers(1, 3),
        "hidden": st.sampled_from(HIDDEN),
        "n_classes": st.integers(2, 3),
        "seed": st.integers(0, 10_000),
        "pieces": st.booleans(),
    }
)


@settings(max_examples=25, deadline=None)
@given(network=networks, leaf=st.sampled_from([1, 8, 128]))
def test_none_exists_exactly_where_exhaustive_search_finds_none(network: dict[str, Any], leaf: int) -> None:
    model, people = as_one(make_models(**network)), draw_people(6, network["seed"])
    origin = torch.from_numpy(ENCODER.encode(people))
    reach, target = Reach.of(ENCODER.constraints(), origin), torch.full((6,), network["n_classes"] - 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prove, "_LEAF", leaf)
        with torch.no_grad():
            proof = Prover(make_ladder(model))(reach, target)
    exists = [bool((decide(model, list_rows(person)) == target[0]).any()) for _, person in people.iterrows()]
    assert proof.none.tolist() == [not each for each in exists]
    assert proof.witness.valid.tolist() == exists
    told = GRID.decode(ENCODER, proof.witness.x, people)
    for i in np.flatnonzero(exists):
        assert int(decide(model, told.iloc[[i]])[0]) == int(target[0])
        assert (list_rows(people.iloc[i]).fillna(-1) == told.iloc[i].fillna(-1)).all(axis=1).any()


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("at", [0.1, 0.7])
def test_with_a_threshold_none_exists_only_where_exhaustive_search_finds_none(n: int, at: float) -> None:
    threshold, answers = Threshold(1, at), set()
    for seed in range(8):
        against = 2.0 if at < 0.5 else 0.0  # so that some can get the decision, and some cannot
        model, people = as_one(make_models(n, (6,), 2, seed, pieces=True, against=against)), draw_people(6, seed)
        reach = Reach.of(ENCODER.constraints(), torch.from_numpy(ENCODER.encode(people)))
        with pytest.MonkeyPatch.context() as patch, torch.no_grad():
            patch.setattr(prove, "_LEAF", 1)
            ladder = replace(make_ladder(model), threshold=threshold)
            proof = Prover(ladder)(reach, torch.ones(6, dtype=torch.int64))
        for i, (_, person) in enumerate(people.iterrows()):
            chosen = threshold.choose(logits_of(model, ENCODER.tensor(list_rows(person))).double().softmax(-1))
            assert bool(proof.none[i]) == (not chosen.any()), "a small reach is answered either way"
            assert bool(proof.witness.valid[i]) == bool(chosen.any())
            answers.add(bool(proof.none[i]))
    assert answers == {True, False}


def test_random_networks_leave_both_answers_open() -> None:
    """The test above would be vacuous if nobody, or everybody, could get the decision."""
    answers = set()
    for seed in range(12):
        model = as_one(make_models(1 + seed % 3, (6,), 2, seed, pieces=True))
        people = draw_people(6, seed)
        for _, person in people.iterrows():
            answers.add(((decide(model, list_rows(person)) == 1).any().item(), seed % 3))
    assert answers == set(itertools.product([True, False], range(3)))


@settings(max_examples=25, deadline=None)
@given(network=networks, width=st.floats(0.0, 2.0))
def test_no_row_of_a_part_exceeds_its_ceiling(network: dict[str, Any], width: float) -> None:
    models = make_models(**network)
    read = Network.of(as_one(models))
    assert read is not None
    stream = torch.Generator().manual_seed(network["seed"])
    parts = Parts.whole(GRID, Reach.of(ENCODER.constraints(), torch.from_numpy(ENCODER.encode(draw_people(8, 1)))))
    low, high = parts.low.clone(), parts.high.clone()
    middle = torch.randn(low.shape, generator=stream, dtype=torch.float64)
    low[:, GRID.number], high[:, GRID.number] = ((middle + d * width)[:, GRID.number] for d in (-1, 1))
    k = network["n_classes"] - 1
    ceiling = Bounds(read, parts.groups).find_ceiling(low, high, k).score
    shares = torch.rand(8, 200, FEATURES, generator=stream, dtype=torch.float64)
    shares[:, :80] = shares[:, :80].round()  # corners
    x = low.unsqueeze(1) + shares * (high - low).unsqueeze(1)
    for group in ENCODER.categories:
        if group.stop - group.start == 1:
            x[..., group] = x[..., group].round()
            continue
        level = torch.multinomial(high[:, group], 200, replacement=True, generator=stream)
        x[..., group] = nn.functional.one_hot(level, group.stop - group.start).double()
    logits = torch.stack([logits_of(model, x.flatten(0, 1)) for model in models]).unflatten(
        1, (8, 200)
    )  # (P, 8, 200, K)
    values = logits if read.adds_up else logits.softmax(-1)
    score = (values[..., [k]] - values[..., :k]).sum(0).amin(-1)
    assert (score.amax(1) <= ceiling + 1e-9).all()
    if width == 0 and not network["hidden"] and (network["n"], network["n_classes"]) == (1, 2):
        assert torch.allclose(score.amax(1), ceiling, atol=1e-3)


def test_what_units_come_to_between_two_ends_is_what_they_come_to_at_each_knot_there() -> None:
    read = Network.of(as_one(make_models(n=1, hidden=(4,), n_classes=2, seed=0, pieces=True)))
    assert read is not None
    bounds, knots = Bounds(read, ENCODER.categories), read.codes.knots  # (J,)
    ends = torch.randn(50, len(read.codes.numbers), 2, dtype=torch.float64).sort(-1).values
    low, high = (end.contiguous() for end in ends.unbind(-1))
    inside = ((low.unsqueeze(-1) < knots) & (knots < high.unsqueeze(-1))).unsqueeze(-1)  # (50, R, J, 1)
    assert {*inside.sum((-1, -2)).flatten().tolist()} >= {0, 1, 2, 3}
    for found, (at_knots, *_), none in zip(
        bounds._look_up(low, high), bounds._runs, (torch.inf, -torch.inf), strict=True
    ):
        each = torch.where(inside, at_knots, none)  # (50, R, J, h)
        assert torch.equal(found, each.amin(2) if none > 0 else each.amax(2))


@settings(max_examples=10, deadline=None)
@given(hidden=st.sampled_from([(4,), (4, 3)]), n=st.integers(1, 2), seed=st.integers(0, 1_000), pieces=st.booleans())
def test_the_program_finds_what_exhaustive_search_finds(
    hidden: tuple[int, ...], n: int, seed: int, pieces: bool
) -> None:
    model, people = as_one(make_models(n, hidden, 2, seed, pieces=pieces)), draw_people(3, seed)
    network = Network.of(model)
    assert network is not None
    for i in range(3):
        origin = torch.from_numpy(ENCODER.encode(people.iloc[[i]]))
        reach = Reach.of(ENCODER.constraints(), origin)
        answer = ask_exactly(network, GRID, reach, 1, seconds=20.0, cheapest=True)
        rows = list_rows(people.iloc[i])
        good = torch.from_numpy(ENCODER.encode(rows[(decide(model, rows) == 1).numpy()]))
        costs = GRID.costs(good, origin.expand(len(good), -1)).sum(1)
        assert answer.impossible == (len(good) == 0)
        if len(good):
            assert answer.solved
            assert answer.least_cost == pytest.approx(float(costs.min()), abs=2e-3)


class Opaque(nn.Module):
    """A model of which nothing is known but its decisions."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """The logits of the model inside."""
        return torch.sin(3 * self.inner(x))


def test_of_an_opaque_model_every_row_is_looked_at_and_too_many_leave_the_question_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = set()
    for seed in range(6):
        model, people = Opaque(mlp(FEATURES, 2, hidden=(4,), seed=seed)), draw_people(4, seed)
        assert Network.of(model) is None
        reach = Reach.of(ENCODER.constraints(immutable=["late"]), torch.from_numpy(ENCODER.encode(people)))
        target = 1 - predict(logits_of(model, reach.origin.float()))
        with torch.no_grad():
            proof = Prover(make_ladder(model))(reach, target)
        for i, (_, person) in enumerate(people.iterrows()):
            rows = list_rows(person)
            rows = rows[(rows["late"] == person["late"]) | rows["late"].isna()]
            exists = bool((decide(model, rows) == target[i]).any())
            assert bool(proof.none[i]) == (not exists)
            answers.add(exists)
        with monkeypatch.context() as patch, torch.no_grad():
            patch.setattr(prove, "_EVERY_ROW", 1)
            assert not Prover(make_ladder(model))(reach, target).none.any()
    assert answers == {True, False}


def test_what_the_network_reads_is_what_the_model_computes() -> None:
    x = torch.randn(50, FEATURES, dtype=torch.float64)
    for n, hidden, pieces in itertools.product((1, 2), HIDDEN, (True, False)):
        models = make_models(n, hidden, 3, 0, pieces=pieces)
        read = Network.of(as_one(models))
        assert read is not None
        units = torch.cat([x, read.codes(x[:, read.codes.numbers]).flatten(1)], 1)
        for i, (weight, bias) in enumerate(read.layers):
            units = (units.relu() if i else units) @ weight.T + bias
        logits = torch.cat([logits_of(model, x) for model in models], 1)
        torch.testing.assert_close(units, logits)
    odd = [nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2), nn.ReLU())]
    assert [Network.of(model) for model in odd] == [None, None]
    assert Network.of(Ensemble([mlp(2, 2), mlp(2, 2, hidden=())])) is None  # of other depths
    hooked = mlp(2, 2)
    hooked.register_forward_hook(lambda *_: None)
    assert Network.of(hooked) is None


@pytest.fixture(scope="module")
def decider() -> Decider:
    """Someone who decides by networks that nobody can please altogether."""
    return Decider(ENCODER, ("no", "yes"), tuple(make_models(2, (6,), 2, 3, pieces=True)))


def test_answers_say_whether_an_option_exists(decider: Decider) -> None:
    people = draw_people(80, 5)
    found = explain(decider, people, "yes", n_steps=5)
    exists = [bool((decide(decider.model, list_rows(person)) == 1).any()) for _, person in people.iterrows()]
    assert [one.existence for one in found] == ["found" if each else "none exists" for each in exists]
    assert set(exists) == {True, False}
    assert found.table.valid.tolist() == exists
    assert found.to_frame()["existence"].tolist() == found.existence.tolist()
    without = found[exists.index(False)]
    assert "proven: no change that is allowed leads to yes" in without.summary()
    assert "proven: no change" in without._repr_html_()
    assert without.to_dict()["existence"] == "none exists"
    assert "proven" not in found[exists.index(True)].summary()
    assert found[5:].existence.tolist() == found.existence[5:].tolist()


def test_who_does_not_ask_for_proofs_gets_none_and_wrong_limits_are_refused(decider: Decider) -> None:
    unasked = explain(decider, draw_people(80, 5), "yes", n_steps=5, prove=False)
    assert set(unasked.existence) == {"found", "not found"}
    with pytest.raises(ValueError, match=r"prove must be True, False or a number of seconds; got -1"):
        explain(decider, draw_people(3, 5), "yes", prove=-1)


def test_a_question_left_open_is_answered_with_more_time(decider: Decider, monkeypatch: pytest.MonkeyPatch) -> None:
    people = draw_people(80, 5)
    proven = explain(decider, people, "yes", n_steps=5).existence.tolist()
    monkeypatch.setattr(prove, "_PARTS", 1)
    monkeypatch.setattr(prove, "_LEAF", 1)
    assert "not found" in explain(decider, people, "yes", n_steps=5).existence.tolist()
    assert explain(decider, people, "yes", n_steps=5, prove=0.5).existence.tolist() == proven


def test_the_rest_of_many_people_is_asked_briefly(decider: Decider, monkeypatch: pytest.MonkeyPatch) -> None:
    people = draw_people(80, 5)
    proven = explain(decider, people, "yes", n_steps=5).existence
    monkeypatch.setattr(prove, "_MOST_ASKED", 0)
    monkeypatch.setattr(prove, "_LEAF", 1)
    brief = explain(decider, people, "yes", n_steps=5).existence
    assert "not found" in brief
    assert all(a == b for a, b in zip(brief, proven, strict=True) if a == "none exists")


def test_the_cheapest_option_is_the_cheapest_that_there_is_on_a_small_grid() -> None:
    people, ratios = draw_people(20, 9), []
    reach = Reach.of(ENCODER.constraints(), torch.from_numpy(ENCODER.encode(people)))
    target = torch.ones(len(people), dtype=torch.int64)
    for seed in range(8):
        model = as_one(make_models(1 + seed % 2, (8,), 2, seed, pieces=True, against=0.5))
        ladder = Ladder(model, GRID, None, 0.6, 50, sparse=True)
        with torch.no_grad():
            found = ladder.climb_cheaply(reach, target)
        for i in ladder.reaches_tau(found).nonzero()[:, 0].tolist():
            rows = torch.from_numpy(ENCODER.encode(list_rows(people.iloc[i])))
            judged = ladder.judge(rows, torch.ones(len(rows), dtype=torch.int64))
            least = GRID.costs(rows, reach.origin[[i]]).sum(1)[ladder.reaches_tau(judged)].min()
            if least > 0:
                ratios.append(float(GRID.costs(found.x[[i]], reach.origin[[i]]).sum() / least))
    assert len(ratios) > 20
    assert min(ratios) >= 1 - 1e-9
    assert np.mean(ratios) <= 1.05
