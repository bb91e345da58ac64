"""What users see of recourse: plain values, tables, text and a rendering that is safe and self-contained."""

import json
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pandas as pd
import pytest

from countertrain.recourse.answer import OptionTable, Recourse
from countertrain.recourse.explanation import Change
from people import SCHEMA, classifier, people

ROWS = people(30, seed=3)
EVIL = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def found() -> Recourse:
    return classifier().explain(ROWS, options=2)


@pytest.fixture
def small() -> Recourse:
    """Two rows by hand: one with two options, one without a valid one."""
    factual = pd.DataFrame({"income": [24_000.0, 1_234.5], "target": ["a", EVIL], "debt": [np.nan, 3.0]})
    values = factual.iloc[[0, 0, 1]].reset_index(drop=True).assign(income=[31_500.0, 24_000.0, 1_234.5])
    values["debt"] = [np.nan, 0.5, 3.0]
    return Recourse(
        factual=factual,
        decision=np.array(["no", "no"]),
        target=np.array(["yes", "yes"]),
        probability=np.array([0.25, 0.125]),
        note=np.array([None, None], dtype=object),
        existence=np.array(["found", "none exists"], dtype=object),
        table=OptionTable(
            row=np.array([0, 0, 1]),
            kind=np.array(["recommended", "surest", "recommended"], dtype=object),
            values=values,
            costs=np.array([[0.75, 0, 0], [0, 0, 1.5], [0, 0, 0]]),
            follows=np.zeros((3, 3), dtype=bool),
            probability=np.array([0.875, 0.75, 0.125]),
            valid=np.array([True, True, False]),
            mature=np.array([True, True, False]),
            distance=np.array([0.25, 0.5, np.nan]),
            percentile=np.array([10.0, 90.0, np.nan]),
            nearest=np.array([[0, 1], [1, 0], [-1, -1]]),
            reason=np.array([None, None, f"blocked by {EVIL}"], dtype=object),
        ),
        examples=factual,
        units={"income": "EUR", "target": None, "debt": None},
    )


def test_an_explanation_holds_plain_values_and_what_changed(small: Recourse) -> None:
    first, last = small[0], small[-1]
    assert (first.decision, first.target, first.probability) == ("no", "yes", 0.25)
    assert first.factual == {"income": 24_000.0, "target": "a", "debt": None}
    assert first.options[0].changes == (Change("income", 24_000.0, 31_500.0, 0.75, "EUR"),)
    assert first.options[1].changes == (Change("debt", None, 0.5, 1.5),)
    assert [option.cost for option in first.options] == [0.75, 1.5]
    assert first.options[1].nearest == (last.factual, first.factual)
    assert (last.options[0].valid, last.options[0].plausibility_distance, last.options[0].nearest) == (False, None, ())


def test_results_cannot_be_changed(small: Recourse) -> None:
    option = small[0].options[0]
    for value, name in ((small, "table"), (small[0], "options"), (option, "cost"), (option.changes[0], "after")):
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, None)


def test_a_change_reads_as_people_write_it() -> None:
    assert str(Change("income", 24_000, 31_500.0, 1.0, "EUR")) == "income 24,000 -> 31,500 EUR"
    assert str(Change("rate", 0.35, 0.1 + 0.2, 1.0)) == "rate 0.35 -> 0.3"
    assert str(Change("member", False, True, 1.0)) == "member False -> True"
    assert str(Change("debt", None, -1_234.5, 1.0)) == "debt missing -> -1,234.5"


def test_a_summary_has_a_line_for_each_change_and_says_what_is_left_out(small: Recourse) -> None:
    assert small.summary().splitlines() == [
        "row 0: no (yes has probability 0.25)",
        "  option 1, recommended: yes with probability 0.88, cost 0.75",
        "    income 24,000 -> 31,500 EUR",
        "  option 2, surest: yes with probability 0.75, cost 1.50",
        "    debt missing -> 0.5",
        "row 1: no (yes has probability 0.12)",
        "  option 1: yes is not reached: it has probability 0.12, cost 0.00",
        f"    blocked by {EVIL}",
        "  proven: no change that is allowed leads to yes",
    ]
    assert small.summary(limit=1).splitlines()[-1] == "... and 1 more rows"


def test_a_frame_has_one_row_an_option_and_no_name_twice(small: Recourse) -> None:
    frame = small.to_frame()
    assert frame.columns.tolist() == [
        "row", "option", "kind", "income", "target", "debt", "decision", "target_", "probability_before", "probability",
        "valid", "cost", "n_changed", "plausibility_distance", "plausibility_percentile", "existence", "reason",
    ]  # fmt: skip
    assert frame["existence"].tolist() == ["found", "found", "none exists"]
    assert frame["row"].tolist() == [0, 0, 1]
    assert frame["option"].tolist() == [1, 2, 1]
    assert frame["target"].tolist() == ["a", "a", EVIL]
    assert frame["target_"].tolist() == ["yes"] * 3
    assert frame["n_changed"].tolist() == [1, 1, 0]
    assert frame["cost"].tolist() == [0.75, 1.5, 0.0]


def test_the_frame_of_real_recourse_keeps_the_columns_as_they_were(found: Recourse) -> None:
    frame = found.to_frame()
    assert frame[list(SCHEMA.names)].dtypes.tolist() == ROWS.dtypes.tolist()
    assert len(frame) == sum(len(explanation.options) for explanation in found) > len(ROWS)
    for _, group in frame.groupby("row"):
        assert group["option"].tolist() == [*range(1, len(group) + 1)]
        assert (group["kind"] == "recommended").tolist() == [True] + [False] * (len(group) - 1)


def test_dictionaries_go_through_json_and_back(found: Recourse) -> None:
    dicts = found.to_dict()
    assert json.loads(json.dumps(dicts, allow_nan=False)) == json.loads(json.dumps(dicts))
    assert [d["row"] for d in dicts] == list(range(len(ROWS)))
    option = dicts[0]["options"][0]
    assert set(option["values"]) == set(SCHEMA.names)
    assert option["changes"][0].keys() == {"column", "before", "after", "cost", "unit", "places", "in_time"}
    assert type(option["values"]["age"]) is int
    assert any(d["factual"]["debt"] is None for d in dicts)


def test_it_is_a_sequence_that_can_be_cut_and_joined(found: Recourse) -> None:
    parts = [found[:7], found[7:8], found[8:]]
    assert [len(part) for part in parts] == [7, 1, len(ROWS) - 8]
    assert replace(parts[1][0], row=7) == found[7]
    assert [e.factual for e in found[::-2]] == [found[i].factual for i in range(len(ROWS) - 1, -1, -2)]
    pd.testing.assert_frame_equal(Recourse.join(parts).to_frame(), found.to_frame())
    assert len(found[5:5]) == 0
    assert found[5:5].to_frame().empty
    assert found[-1].row == len(ROWS) - 1
    for wrong in (len(ROWS), -len(ROWS) - 1):
        with pytest.raises(IndexError, match=f"row must lie in 0..{len(ROWS) - 1}; got {wrong}"):
            found[wrong]


def test_the_rendering_is_escaped_self_contained_and_marks_what_changed(small: Recourse) -> None:
    html = small._repr_html_()
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 3  # factual, option and reason
    assert not any(word in html for word in ("http", "src=", "href", "<style", "#fff", "color:black"))
    assert html.count("font-weight:bold") == 2
    assert "31,500" in html
    assert "income (EUR)" in html
    assert "less typical than" in html
    assert small[0]._repr_html_().count("<details open>") == 1


def test_many_rows_are_rendered_and_told_in_short(found: Recourse) -> None:
    many = Recourse.join([found] * 50)
    assert repr(many) == f"Recourse(1,500 rows, {50 * len(found.table.row):,} options, 1,500 rows with a valid one)"
    html = many._repr_html_()
    assert html.count("<details") == 10
    assert html.count("<details open>") == 1
    assert "the first 10 are shown, to_frame() has all" in html
    assert len(many.summary().splitlines()) < 150
