"""Reasons are what the model says, from what is typical of accepted people, and agree with the advice that is given."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from countertrain.recourse.answer import Recourse
from countertrain.recourse.codes import Codes
from countertrain.recourse.decider import Decider
from countertrain.recourse.landmarks import Landmarks
from countertrain.recourse.principal import MOST, measure_effects
from countertrain.recourse.search import explain
from countertrain.recourse.why import Reasons
from countertrain.tables.encoder import Encoder
from countertrain.tables.schema import Numeric, Schema
from people import SCHEMA, classifier, people

ROWS = people(60, seed=7)
NUMBERS = [column.name for column in SCHEMA.columns if isinstance(column, Numeric)]


@pytest.fixture(scope="module")
def found() -> Recourse:
    return classifier().explain(ROWS, target="granted")


@pytest.fixture(scope="module")
def reasons(found: Recourse) -> Reasons:
    return found.reasons()


@pytest.fixture(scope="module")
def real() -> pd.DataFrame:
    """The reference rows with the class of each, in people's units."""
    model = classifier()
    x, y = model.reference_x_, model.reference_y_
    assert x is not None
    assert y is not None
    return model.encoder_.decode(x.numpy()).assign(label=model.classes_[y.numpy()])


def probability(rows: pd.DataFrame) -> Any:
    model = classifier()
    return model.predict_proba(rows)[:, list(model.classes_).index("granted")]


def test_only_those_who_are_refused_have_reasons_and_no_more_than_four(found: Recourse, reasons: Reasons) -> None:
    counts = [len(person.reasons) for person in reasons]
    assert max(counts) == MOST
    for person, decision in zip(reasons, found.decision, strict=True):
        assert bool(person.reasons) == (decision == "refused")
        assert (person.note is None) == bool(person.reasons)
        assert len({reason.column for reason in person.reasons}) == len(person.reasons)
    assert {"already 'granted'"} == {person.note for person in reasons} - {None}


def test_what_a_reason_compares_with_is_the_median_or_the_most_frequent_level_of_accepted_people(
    reasons: Reasons, real: pd.DataFrame
) -> None:
    accepted = real[real["label"] == "granted"]
    told = {(r.column, r.typical) for person in reasons for r in person.reasons if r.alone}
    assert len(told) > 5
    for name, typical in told:
        if name in NUMBERS:
            middle = accepted[name].sort_values().iloc[(len(accepted) - 1) // 2]
            step = SCHEMA[name].step or 0.1  # type: ignore[union-attr]
            assert typical == pytest.approx(float(middle), abs=step)
        else:
            assert typical == accepted[name].mode()[0]


def test_the_effect_of_a_reason_is_what_the_model_says_when_that_alone_is_changed(
    found: Recourse, reasons: Reasons
) -> None:
    """The slow way: one row and one column at a time, in people's units."""
    seen = 0
    for person in reasons:
        own = found.factual.iloc[[person.row]]
        for reason in person.reasons:
            if not reason.alone:
                continue
            changed = own.copy()
            changed[reason.column] = pd.Series([reason.typical], index=own.index).astype(own[reason.column].dtype)
            assert reason.effect == pytest.approx((probability(changed) - probability(own)).item(), abs=1e-5)
            assert reason.suffices == (classifier().predict(changed)[0] == "granted")
            seen += 1
    assert seen > 50


def test_nothing_weightier_was_left_out_but_for_what_is_close_and_advised(found: Recourse, reasons: Reasons) -> None:
    order_by_advice = 0
    typical = Landmarks.of(classifier().decider).frame[list(classifier().classes_).index("granted")]
    for person in reasons:
        effects = [reason.effect for reason in person.reasons]
        for before, after in zip(person.reasons, person.reasons[1:], strict=False):
            if after.effect > before.effect:  # only where the advice changes the one, and effects are close
                assert before.advised
                assert after.effect <= 1.25 * before.effect
                order_by_advice += 1
        if len(effects) == MOST:
            own = found.factual.iloc[[person.row]]
            for name in set(SCHEMA.names) - {reason.column for reason in person.reasons}:
                changed = own.assign(**{name: typical[name].to_list()})
                gained = (probability(changed) - probability(own)).item()
                worse_off = _is_worse_off(name, own[name].iloc[0], typical[name].iloc[0])
                assert not worse_off or gained <= 1.25 * min(effects) + 1e-6
    assert order_by_advice > 0


def _is_worse_off(name: str, own: Any, typical: Any) -> bool:
    """By what the table of applicants was made from."""
    return (
        {"debt": own > typical, "rate": own > typical}.get(name, own < typical) if name in NUMBERS else own != typical
    )


class Bent(nn.Module):
    """More of the first number helps up to the middle only, less of the second always does."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.zeros(len(x), dtype=x.dtype), -self.weight * x[:, 0].abs() - x[:, 1]], 1)


def test_nobody_is_blamed_for_being_better_off_than_is_typical() -> None:
    """Real people with more income are accepted more often; that the network bends is no reason to tell anybody."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"income": rng.normal(size=500), "debt": rng.normal(size=500)})
    encoder = Encoder.fit(Schema.infer(frame), frame)
    x, merit = torch.from_numpy(encoder.encode(frame)).float(), frame["income"] - frame["debt"]
    y = torch.from_numpy((merit + 0.5 * rng.normal(size=500) > 0).to_numpy().astype(int))
    decider = Decider(encoder, ("no", "yes"), (Bent(),), (x, y))
    rich, poor = {"income": 2.5, "debt": 1.0}, {"income": -2.5, "debt": 1.0}
    typical = Landmarks.of(decider).frame[1]["income"].iloc[0]
    rows = pd.DataFrame([rich, {**rich, "income": typical}])
    p = decider.compute_probabilities(torch.from_numpy(encoder.encode(rows)))[:, 1]
    assert p[1] > 10 * p[0]  # by the model alone, it would be the weightiest reason
    of_rich, of_poor = explain(decider, [rich, poor], "yes").reasons()
    assert [(reason.column, reason.side) for reason in of_rich.reasons] == [("debt", "high")]
    assert {(reason.column, reason.side) for reason in of_poor.reasons} == {("income", "low"), ("debt", "high")}


def test_a_column_that_the_advice_changes_is_never_called_no_reason(found: Recourse, reasons: Reasons) -> None:
    listed = 0
    for person, explanation in zip(reasons, found, strict=True):
        changed = {change.column for change in explanation.options[0].changes if explanation.options[0].valid}
        assert not changed & set(person.not_reasons)
        assert not {reason.column for reason in person.reasons} & set(person.not_reasons)
        listed += len(person.not_reasons)
    assert listed > 10


def test_even_a_column_that_does_nothing_is_not_called_no_reason_where_the_advice_changes_it(found: Recourse) -> None:
    assert found.grounds is not None
    nothing = measure_effects(found.grounds, found.factual, np.zeros(found.factual.shape, dtype=bool))
    everything = measure_effects(found.grounds, found.factual, np.ones(found.factual.shape, dtype=bool))
    assert not nothing.helps.all()
    assert everything.helps.all()


def test_changing_what_is_no_reason_does_not_help(found: Recourse, reasons: Reasons) -> None:
    """Tried with values of real people, one at a time."""
    others = people(20, seed=9)
    tried = 0
    for person in reasons[:30]:
        own = found.factual.iloc[[person.row] * len(others)].reset_index(drop=True)
        for name in person.not_reasons:
            if SCHEMA[name].mutability != "both" or own[name].isna().any():
                continue
            changed = own.assign(**{name: others[name].to_numpy()})
            if isinstance(SCHEMA[name], Numeric) or getattr(SCHEMA[name], "transitions", None):
                continue
            p, q = probability(own), probability(changed[changed[name].notna()])
            assert q.max() <= p.max() + 0.01
            tried += 1
    assert tried > 3


def test_responsiveness_is_the_share_of_levels_within_reach_that_suffice(found: Recourse, reasons: Reasons) -> None:
    """Counted one by one for levels; what cannot change responds to nothing."""
    seen = set()
    for person in reasons:
        own = found.factual.iloc[[person.row]]
        if not person.reasons:
            continue
        assert person.responsiveness["region"] is None
        for name, levels in (("home", ["own", "rent", "parents"]), ("member", [False, True])):
            if own[name].isna().any():
                assert person.responsiveness[name] is None  # what is missing stays missing
                continue
            rest = [level for level in levels if level != own[name].iloc[0]]
            rows = pd.concat([own.assign(**{name: [level]}) for level in rest])
            share = (classifier().predict(rows) == "granted").mean()
            assert person.responsiveness[name] == pytest.approx(share)
            seen.add(share > 0)
    assert seen == {True, False}


def test_what_a_call_restricts_responds_to_nothing() -> None:
    limited = classifier().explain(ROWS[:20], "granted", immutable=["income"]).reasons()
    assert any(person.reasons for person in limited)
    assert {person.responsiveness["income"] for person in limited} == {None}
    assert any(reason.column == "income" for person in limited for reason in person.reasons)  # it still was a reason


def test_each_person_has_the_reasons_that_they_would_have_alone(found: Recourse, reasons: Reasons) -> None:
    alone = found.select(np.array([5, 3])).reasons()
    for one, row in zip(alone, (5, 3), strict=True):
        assert replace(one, row=row) == reasons[row]
    twice = Recourse.join([found[:4], found[4:6]]).reasons()
    assert [replace(p, row=0) for p in twice] == [replace(p, row=0) for p in reasons[:6]]


def test_without_real_rows_reasons_are_what_the_advice_changes() -> None:
    decider = replace(classifier().decider, reference=None)
    found = explain(decider, ROWS[:20], "granted")
    told = 0
    for person, explanation in zip(found.reasons(), found, strict=True):
        option = explanation.options[0]
        changed = {change.column: change.after for change in option.changes if option.valid}
        assert {reason.column for reason in person.reasons} <= set(changed)
        for reason in person.reasons:
            assert (reason.alone, reason.suffices, reason.advised) == (False, False, True)
            assert reason.typical == changed[reason.column]
            assert "with other changes" in reason.text
            told += 1
    assert told > 5


def test_with_three_classes_each_person_is_compared_with_the_class_they_want() -> None:
    found = classifier(n_classes=3).explain(ROWS[:20], target=["granted", "special"] * 10)
    typical = Landmarks.of(classifier(n_classes=3).decider).frame
    labels = list(classifier(n_classes=3).classes_)
    seen = set()
    for person in found.reasons():
        for reason in person.reasons:
            if reason.alone:
                assert reason.typical == typical[labels.index(person.target)][reason.column].iloc[0]
                seen.add(person.target)
    assert seen == {"granted", "special"}


def test_the_owner_says_it_in_words_and_codes_of_their_own(found: Recourse, tmp_path: Any) -> None:
    table = tmp_path / "codes.toml"
    table.write_text(
        '[income]\ncode = "A1"\nlabel = "yearly income"\n'
        'low = "Your {label} of {value} is too low; {typical} is usual"\n'
        '[job]\ncode = "B1"\ntext = "Kind of work"\nlevels.none = { text = "No work", code = "B2" }\n'
    )
    by_column: dict[str, set[tuple[str, str]]] = {}
    for person in found.reasons(table):
        for reason in person.reasons:
            by_column.setdefault(reason.column, set()).add((reason.code, reason.text))
    assert ("B2", "No work") in by_column["job"]
    assert by_column["job"] <= {("B2", "No work"), ("B1", "Kind of work")}
    assert {code for code, _ in by_column["income"]} == {"A1"}
    assert all(
        text.startswith("Your yearly income of ") and " EUR is too low; " in text for _, text in by_column["income"]
    )
    assert {code for code, _ in by_column["degree"]} == {"degree.other"}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"incme": {"text": "x"}}, "the code table names 'incme', .* did you mean 'income'"),
        ({"income": {"txt": "x"}}, "column 'income': unknown setting 'txt'; did you mean 'text'"),
        ({"income": {"low": "{valu}"}}, r"has the place \{valu\}; there are \{label\}, \{value\}"),
        ({"income": {"levels": {"a": "x"}}}, "a number has no levels; say `low` and `high`"),
        ({"job": {"low": "x"}}, "a category is neither low nor high"),
        ({"job": {"levels": {"nonee": "x"}}}, "there is no level 'nonee'; did you mean 'none'"),
        ({"incme": {}, "jb": {}}, r"2 things are in the way: \(1\) .*'incme'.* \(2\) .*'jb'"),
    ],
)
def test_a_code_table_that_cannot_be_is_refused_in_one_sentence(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Codes.read(table, SCHEMA)


def test_a_table_that_is_no_toml_names_the_file(tmp_path: Any) -> None:
    (tmp_path / "c.toml").write_text("income =")
    with pytest.raises(ValueError, match=r"c\.toml is not valid TOML"):
        Codes.read(tmp_path / "c.toml", SCHEMA)


def test_reasons_are_a_table_a_text_and_json(reasons: Reasons) -> None:
    frame = reasons.to_frame()
    assert len(frame) == sum(len(person.reasons) for person in reasons)
    assert {"row", "reason", "column", "code", "text", "effect", "responsiveness"} <= set(frame.columns)
    assert json.loads(json.dumps(reasons.to_dict()))[0]["row"] == 0
    person = next(person for person in reasons if person.reasons)
    text = person.summary()
    assert f"reason 1: {person.reasons[0].text} [{person.reasons[0].code}]" in text
    assert repr(reasons).startswith("Reasons(60 people, ")


def test_nobody_has_no_reasons() -> None:
    nobody = classifier().explain(ROWS[:2], "granted")[:0]
    assert len(nobody.reasons()) == 0
    assert nobody.reasons().to_frame().empty


def test_the_better_side_is_told_only_where_the_rows_tell_it() -> None:
    """A column of noise has none, one that decides has the right one."""
    model = classifier()
    assert model.reference_x_ is not None
    assert model.reference_y_ is not None
    k = list(model.classes_).index("granted")
    stream = torch.Generator().manual_seed(0)
    x = model.reference_x_.clone()
    place = model.encoder_.features.index("savings")
    x[:, place] = torch.randn(len(x), generator=stream)
    decider = Decider(model.encoder_, tuple(model.classes_), tuple(model.models_), (x, model.reference_y_))
    direction = Landmarks.of(decider).direction[k]
    assert direction[place] == 0
    assert direction[model.encoder_.features.index("income")] == 1
    assert direction[model.encoder_.features.index("debt")] == -1
