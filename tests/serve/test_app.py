"""What the service answers, asked in its own process."""

import logging
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fastapi import FastAPI
from office import PATIENT, PERSON, applications, ask, classifier, content, near, people, together

from countertrain.estimator import CounterfactualClassifier
from countertrain.recourse.threshold import Threshold
from countertrain.runs.folder import write_run
from countertrain.serve.app import create_app, run
from countertrain.serve.desk import Desk
from countertrain.serve.service import Service
from countertrain.tables.schema import Numeric

TOKEN = "correct-horse-battery"


def test_a_decision_is_that_of_the_classifier(app: FastAPI) -> None:
    rows = people(30)
    decisions = content(ask(app, "/predict", {"rows": rows}))["decisions"]
    frame = applications(30, 1)
    assert [d["decision"] for d in decisions] == classifier().predict(frame).tolist()
    assert {d["decision"] for d in decisions} == {"granted", "refused"}
    for decision, row in zip(decisions, classifier().predict_proba(frame), strict=True):
        assert [chance["label"] for chance in decision["probabilities"]] == ["granted", "refused"]
        assert [chance["probability"] for chance in decision["probabilities"]] == pytest.approx(row, abs=1e-6)


def test_recourse_is_what_the_classifier_explains(candid_app: FastAPI) -> None:
    question = {"target": "granted", "immutable": ["job"], "ranges": {"credit income": [None, 45_000]}}
    answer = content(ask(candid_app, "/explain", {"rows": people(40), "options": 2, **question}))["explanations"]
    expected = classifier().explain(applications(40, 1), options=2, **question).to_dict()  # type: ignore[arg-type]
    assert near(answer, expected)
    options = [option for explanation in answer for option in explanation["options"]]
    assert any(option["changes"] for option in options)
    assert all(change["column"] != "job" for option in options for change in option["changes"])
    assert any(explanation["factual"]["debt"] is None for explanation in answer)  # no NaN, but null


def different_questions() -> list[dict[str, Any]]:
    rows = people(14)
    restrictions: list[dict[str, Any]] = [
        {"immutable": ["job", "debt"]},
        {"ranges": {"credit income": [25_000, None], "job": ["clerk"]}},
        {"ranges": {"member": [False], "grade": ["c", "b"]}, "options": 3},
        {"target": "refused"},
        {"target": "granted", "options": 2},
        {"immutable": ["job", "debt", "owner"], "ranges": {"credit income": [None, 20_000], "owner": [1]}},
        {},
    ]
    return [{"rows": rows[2 * i : 2 * i + 2], **restriction} for i, restriction in enumerate(restrictions)]


def test_reasons_are_those_of_the_classifier_where_they_are_asked_for(app: FastAPI) -> None:
    asked = {"rows": people(20), "target": "granted", "immutable": ["job"]}
    assert content(ask(app, "/explain", asked))["reasons"] is None
    answer = content(ask(app, "/explain", {**asked, "reasons": True}))["reasons"]
    found = classifier().explain(applications(20, 1), target="granted", immutable=["job"])
    expected = [{**person, "reasons": [*person["reasons"]]} for person in found.reasons().to_dict()]
    assert near([{**one, "not_reasons": ()} for one in answer], [{**one, "not_reasons": ()} for one in expected])
    assert sum(len(person["reasons"]) for person in answer) > 10


def test_reasons_are_given_in_the_words_of_a_code_table() -> None:
    app = create_app(classifier().decider, limits=PATIENT, reasons={"job": {"code": "J", "text": "Kind of work"}})
    answer = content(ask(app, "/explain", {"rows": people(20), "target": "granted", "reasons": True}))["reasons"]
    said = {(reason["code"], reason["text"]) for person in answer for reason in person["reasons"]}
    assert ("J", "Kind of work") in said


def test_questions_asked_at_once_are_answered_by_one_search_as_if_each_had_come_alone() -> None:
    app = create_app(classifier().decider, limits=replace(PATIENT, window=0.2))
    questions = different_questions()
    answers = together(app, *({"method": "POST", "url": "/explain", "json": question} for question in questions))
    assert 'countertrain_batch_requests_count{work="explain"} 1\n' in ask(app, "/metrics").text
    for question, answer in zip(questions, answers, strict=True):
        assert near(content(answer), content(ask(app, "/explain", question)))
    found = [content(answer)["explanations"] for answer in answers]
    assert max(len(explanation["options"]) for explanations in found for explanation in explanations) == 3
    assert not all(o["valid"] for explanations in found for e in explanations for o in e["options"])


def test_a_question_that_breaks_the_search_does_not_harm_its_neighbours(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = Desk.explain

    def fragile(self: Desk, questions: Any) -> Any:
        if any(question.rows[0]["age"] == 99 for question in questions):
            raise RuntimeError("secret detail")
        return whole(self, questions)

    monkeypatch.setattr(Desk, "explain", fragile)
    app = create_app(classifier().decider, limits=replace(PATIENT, window=0.2))
    rows = [PERSON, PERSON | {"age": 99}, PERSON | {"age": 50}]
    with caplog.at_level(logging.ERROR):
        answers = together(app, *({"method": "POST", "url": "/explain", "json": {"rows": [row]}} for row in rows))
    assert [answer.status_code for answer in answers] == [200, 500, 200]
    assert content(answers[1])["detail"] == "the service failed on this request; its log says why"
    assert "secret detail" in caplog.text
    assert "secret detail" not in answers[1].text


def test_who_lies_outside_the_bounds_is_decided_on_and_advised_within_them_or_to_stay(app: FastAPI) -> None:
    schema = classifier().encoder_.schema
    for own in ({"age": 12}, {"age": 130}, {"debt": -500.0}, {"debt": 1e9}, {"credit income": -3e5}, {"debt": -2e33}):
        person = PERSON | own
        (decision,) = content(ask(app, "/predict", {"rows": [person]}))["decisions"]
        assert decision["decision"] == classifier().predict(pd.DataFrame([person]))[0]
        (answer,) = content(ask(app, "/explain", {"rows": [person]}))["explanations"]
        assert answer["factual"] == person
        for name, value in answer["options"][0]["values"].items():
            column = schema[name]
            assert value == person[name] or not isinstance(column, Numeric) or column.lower <= value <= column.upper


@pytest.mark.parametrize(
    ("changes", "where", "sentence"),
    [
        ({"debtt": 3}, ["rows", 0, "debtt"], r"column 'debtt', row 0, is not known; did you mean 'debt'\?"),
        ({"age": "forty"}, ["rows", 0, "age"], "column 'age', row 0, must be a number; got 'forty'"),
        ({"age": True}, ["rows", 0, "age"], "column 'age', row 0, must be a number; got True"),
        ({"age": 40.5}, ["rows", 0, "age"], "column 'age', row 0, must be a whole number; got 40.5"),
        ({"age": None}, ["rows", 0, "age"], "column 'age', row 0, must be a number; got None"),
        ({"debt": 1e99}, ["rows", 0, "debt"], r"column 'debt', row 0, must lie between -[\d,]+ and [\d,]+; got 1e\+99"),
        ({"job": "clerck"}, ["rows", 0, "job"], "column 'job', row 0, cannot be 'clerck'; did you mean 'clerk'\\?"),
        ({"member": 1}, ["rows", 0, "member"], "column 'member', row 0, cannot be 1; there are 'False', 'True'"),
        ({"member": "False"}, ["rows", 0, "member"], "column 'member', row 0, cannot be \"False\"; send it as false"),
        ({"owner": "1"}, ["rows", 0, "owner"], "column 'owner', row 0, cannot be \"1\"; send it as 1"),
        ({"owner": [1]}, ["rows", 0, "owner"], r"column 'owner', row 0, cannot be \[1\]; there are '0', '1'"),
    ],
)
def test_a_wrong_value_is_named_in_one_sentence(
    app: FastAPI, changes: dict[str, Any], where: list[Any], sentence: str
) -> None:
    response = ask(app, "/predict", {"rows": [PERSON | changes]})
    refusal = content(response)
    assert response.status_code == 422
    assert re.fullmatch(sentence, refusal["detail"])
    assert refusal["errors"][0]["where"] == where


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"target": "grant"}, "target cannot be 'grant'; did you mean 'granted'?"),
        ({"immutable": ["jobs"]}, "immutable cannot be 'jobs'; did you mean 'job'?"),
        ({"options": 4}, "options must lie between 1 and 3; got 4"),
        ({"options": "2"}, "options must be a number; got '2'"),
        ({"ranges": {"jobs": ["clerk"]}}, "the range of column 'jobs' is not known; did you mean 'job'?"),
        ({"ranges": {"job": ["clerks"]}}, "the range of column 'job' cannot be 'clerks'; did you mean 'clerk'?"),
        ({"ranges": {"job": []}}, "the range of column 'job' is a list of its levels; got []"),
        ({"ranges": {"age": [90, 20]}}, "the range of column 'age' must have something in common with 18 to 100"),
        ({"ranges": {"age": [90]}}, "the range of column 'age' must be the lowest and the highest number, "),
        ({"model": "baseline"}, "model must be 'main'"),
        ({"imutable": ["job"]}, "imutable is not known; did you mean 'immutable'?"),
        ({"rows": []}, "rows must have at least 1 item after validation, not 0"),
        ({"rows": [PERSON] * 101}, "rows must have at most 100 items after validation, not 101"),
        ({"rows": [3]}, "row 0 must be a valid dictionary"),
    ],
)
def test_a_wrong_question_is_named_in_one_sentence(app: FastAPI, changes: dict[str, Any], sentence: str) -> None:
    response = ask(app, "/explain", {"rows": [PERSON], **changes})
    assert response.status_code == 422
    assert content(response)["detail"].startswith(sentence)


def test_all_mistakes_of_a_person_are_listed_and_a_missing_value_is_one_unless_it_may_be_missing(app: FastAPI) -> None:
    refusal = content(ask(app, "/predict", {"rows": [PERSON, {"age": "x"}]}))
    wrong = {error["where"][2]: error["message"] for error in refusal["errors"]}
    assert wrong.keys() == PERSON.keys() - {"debt"}
    assert wrong["job"] == "is missing"
    assert all(error["where"][1] == 1 for error in refusal["errors"])


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b"\xff", b'{"rows": NaN}', b"[" * 100_000, b'{"a":' + b"9" * 5_000]
)
def test_what_is_no_question_at_all_is_refused(app: FastAPI, body: bytes) -> None:
    response = together(
        app, {"method": "POST", "url": "/predict", "content": body}, headers={"content-type": "application/json"}
    )[0]
    assert response.status_code in (400, 422)
    assert content(response)["detail"]


def test_numbers_that_no_json_should_hold_are_refused_by_name(app: FastAPI) -> None:
    for number in ("NaN", "Infinity", "1e999", "-1e999", "1" * 400):
        body = '{"rows": [{"age": 40, "credit income": %s, "job": "none", "grade": "a", "member": true, "owner": 0}]}'
        response = together(
            app,
            {"method": "POST", "url": "/predict", "content": body % number},
            headers={"content-type": "application/json"},
        )[0]
        assert response.status_code == 422
        assert "credit income" in content(response)["detail"]


def test_with_more_than_two_classes_the_wanted_one_must_be_named() -> None:
    app = create_app(classifier(n_classes=3).decider, limits=PATIENT)
    assert content(ask(app, "/explain", {"rows": [PERSON]}))["detail"] == "target is missing"
    for target in ("granted", "maybe"):
        explanation = content(ask(app, "/explain", {"rows": [PERSON], "target": target}))["explanations"][0]
        assert explanation["target"] == target
        assert explanation["options"][0]["valid"]


def test_the_baseline_is_asked_by_name(app_of_two: FastAPI) -> None:
    rows = people(20)
    found = {}
    for name, model in (("main", classifier()), ("baseline", classifier("bl"))):
        decisions = content(ask(app_of_two, "/predict", {"rows": rows, "model": name}))["decisions"]
        found[name] = [d["probabilities"][0]["probability"] for d in decisions]
        assert found[name] == pytest.approx(model.predict_proba(applications(20, 1))[:, 0], abs=1e-6)
        assert content(ask(app_of_two, "/explain", {"rows": rows[:2], "model": name}))["explanations"]
    assert found["main"] != pytest.approx(found["baseline"], abs=1e-3)


def test_two_models_that_cannot_be_asked_the_same_are_refused() -> None:
    frame = applications(60).drop(columns=["grade", "debt"])
    other = CounterfactualClassifier(epochs=1, random_state=0).fit(frame, frame["age"] > 50)
    with pytest.raises(ValueError, match="the baseline must have the columns, levels and classes of the model; column"):
        create_app(classifier().decider, baseline=other.decider)


def test_a_classifier_of_an_array_is_asked_for_columns_by_number() -> None:
    frame = applications(80)[["age", "credit income"]]
    array = CounterfactualClassifier(epochs=2, random_state=0).fit(frame.to_numpy(), frame["age"] > 50)
    app = create_app(array.decider)
    answer = content(ask(app, "/explain", {"rows": [{"x0": 30, "x1": 20_000}], "target": True}))
    assert answer["explanations"][0]["target"] is True


def test_people_are_made_up_unless_the_owner_shows_real_ones(app: FastAPI, candid_app: FastAPI) -> None:
    columns = ["age", "credit income", "job", "grade", "member", "owner"]  # what is missing in debt was filled in
    known = {tuple(row) for row in applications()[columns].astype(object).to_numpy().tolist()}
    for shown, is_real in ((app, False), (candid_app, True)):
        sample = content(ask(shown, "/sample?n=200"))
        rows = [tuple(row["values"][name] for name in columns) for row in sample["rows"]]
        assert len(rows) == 200
        assert sample["real"] is content(ask(shown, "/schema"))["real_people"] is is_real
        assert sum(row in known for row in rows) == (200 if is_real else 0)
        option = content(ask(shown, "/explain", {"rows": [PERSON]}))["explanations"][0]["options"][0]
        assert bool(option["nearest"]) == (option["plausibility_distance"] is not None) == is_real
        assert option["plausibility_percentile"] is not None


def test_made_up_people_are_usual_ones_of_their_class(app: FastAPI) -> None:
    decider = classifier().decider
    for k, label in enumerate(decider.classes):
        made = pd.DataFrame([row["values"] for row in content(ask(app, f"/sample?label={label}&n=300"))["rows"]])
        assert decider.reference is not None
        real = decider.encoder.decode(decider.reference[0][decider.reference[1] == k].numpy())
        assert len(made) == 300
        for name in ("credit income", "debt"):
            low, middle, high = real[name].quantile([0.05, 0.5, 0.95])
            room = 0.05 * (high - low)  # between two people, quantiles of scores are not those of numbers
            assert made[name].dropna().between(low - room, high + room).all()
            assert abs(made[name].median() - middle) < 0.25 * (high - low)
        assert abs(made["debt"].isna().mean() - real["debt"].isna().mean()) < 0.06
        shares = [frame["job"].value_counts(normalize=True) for frame in (made, real)]
        assert (shares[0] - shares[1]).abs().max() < 0.15
    assert made[["credit income", "debt"]].corr().iloc[0, 1] * real[["credit income", "debt"]].corr().iloc[0, 1] > 0


def test_people_are_shown_by_class_or_in_turn(app: FastAPI) -> None:
    mixed = content(ask(app, "/sample?n=4"))["rows"]
    assert [row["label"] for row in mixed] == ["granted", "refused", "granted", "refused"]
    granted = content(ask(app, "/sample?label=granted&n=300"))["rows"]
    assert 100 < len(granted) <= 300
    assert {row["label"] for row in granted} == {"granted"}
    assert granted[0] == mixed[0]
    assert content(ask(app, "/predict", {"rows": [row["values"] for row in granted[:50]]}))["decisions"]


def test_nobody_is_shown_where_nobody_is_to_be() -> None:
    app = create_app(classifier().decider, limits=PATIENT, people="none")
    assert content(ask(app, "/sample"))["rows"] == []
    assert content(ask(app, "/schema"))["max_sample"] == 0
    option = content(ask(app, "/explain", {"rows": [PERSON]}))["explanations"][0]["options"][0]
    assert option["nearest"] == []
    assert option["plausibility_percentile"] is not None


def test_a_model_without_its_rows_is_served_all_the_same(tmp_path: Path) -> None:
    classifier().save(tmp_path / "model", rows=False)
    app = create_app(CounterfactualClassifier.load(tmp_path / "model").decider)
    assert content(ask(app, "/sample"))["rows"] == []
    option = content(ask(app, "/explain", {"rows": [PERSON]}))["explanations"][0]["options"][0]
    assert option["valid"]
    assert option["plausibility_percentile"] is None


def test_the_schema_tells_all_that_a_form_needs(app: FastAPI) -> None:
    form = content(ask(app, "/schema"))
    columns = {column["name"]: column for column in form["columns"]}
    assert list(columns) == list(PERSON)
    assert (columns["age"]["lower"], columns["age"]["upper"], columns["age"]["unit"]) == (18, 100, "years")
    assert columns["job"]["levels"] == ["clerk", "none", "smith"]
    assert form["classes"] == ["granted", "refused"]
    assert form["models"] == ["main"]


def test_the_schema_parts_people_into_fifths_by_each_number(app: FastAPI) -> None:
    form = content(ask(app, "/schema"))
    columns = {column["name"]: column for column in form["columns"]}
    incomes = applications()["credit income"].to_numpy()
    shares = [(incomes < edge).mean() for edge in columns["credit income"]["fifths"]]
    assert shares == pytest.approx([0.2, 0.4, 0.6, 0.8], abs=0.05)
    assert "fifths" not in columns["job"]
    assert form["fifths"][0] == "the lowest fifth"
    assert form["cost"]["main"].endswith("from the middle of all people past a third of them")
    standard = CounterfactualClassifier(epochs=1, settings={"encoder": "standard"}).fit(
        applications().drop(columns=["job", "grade", "debt"]), applications()["job"]
    )
    form = content(ask(create_app(standard.decider), "/schema"))
    assert {column["fifths"] for column in form["columns"] if column["kind"] == "numeric"} == {None}
    assert form["cost"]["main"].endswith("one standard deviation")


def test_answers_carry_the_places_of_numbers_that_change(app: FastAPI) -> None:
    found = content(ask(app, "/explain", {"rows": people(30)}))["explanations"]
    columns = {column["name"]: column for column in content(ask(app, "/schema"))["columns"]}
    changes = [change for one in found for option in one["options"] for change in option["changes"]]
    numbers = [one for one in changes if one["places"]]
    assert len(numbers) > 20
    for one in numbers:
        edges = columns[one["column"]]["fifths"]
        for value, share in zip((one["before"], one["after"]), one["places"], strict=True):
            assert 0 < share < 1
            assert sum(value >= edge for edge in edges) == int(5 * share)  # as the page counts
    others = [one for one in changes if one["places"] is None]
    assert others
    assert all(columns[one["column"]]["kind"] != "numeric" or None in (one["before"], one["after"]) for one in others)


def test_the_description_says_what_the_fields_of_an_answer_mean(app: FastAPI) -> None:
    described = content(ask(app, "/openapi.json"))["components"]["schemas"]
    assert described["Change"]["properties"]["places"]["description"].startswith("The shares of people, in 0..1,")
    assert "normal scores" in described["Change"]["properties"]["cost"]["description"]
    assert "fifths" in described["Form"]["properties"]["columns"]["description"]


def test_a_limit_that_blocks_is_told_with_its_unit_and_its_place(app: FastAPI) -> None:
    fixed = [name for name in PERSON if name != "credit income"]
    body = {"rows": [PERSON], "immutable": fixed, "ranges": {"credit income": [None, 21_500]}}
    (option,) = content(ask(app, "/explain", body))["explanations"][0]["options"]
    words = r"blocked by credit income \(kept between [\d,.-]+ and 21,500 EUR, within the lowest fifth\)"
    assert re.match(words, option["reason"])


def test_the_metrics_count_requests_rows_and_batches() -> None:
    app = create_app(classifier().decider)
    for body in ({"rows": people(3)}, {"rows": []}):
        ask(app, "/predict", body)
    ask(app, "/nowhere")
    text = ask(app, "/metrics").text
    for line in (
        'countertrain_requests_total{route="/predict",status="200"} 1',
        'countertrain_requests_total{route="/predict",status="422"} 1',
        'countertrain_requests_total{route="other",status="404"} 1',
        'countertrain_request_seconds_count{route="/predict"} 2',
        'countertrain_rows_total{work="predict"} 3',
        'countertrain_batch_requests_bucket{work="predict",le="1"} 1',
        'countertrain_batch_requests_bucket{work="predict",le="+Inf"} 1',
    ):
        assert f"{line}\n" in text
    assert all(re.fullmatch(r"#.*|\w+(\{[^}]*\})? [\d.]+", line) for line in text.splitlines())


def test_the_examples_of_the_description_are_answered(app: FastAPI) -> None:
    description = content(ask(app, "/openapi.json"))
    for path, name in (("/predict", "Question"), ("/explain", "ExplainQuestion")):
        example = description["components"]["schemas"][name]["properties"]["rows"]["examples"][0]
        assert ask(app, path, {"rows": example}).status_code == 200
    person = description["components"]["schemas"]["Person"]["properties"]
    assert person["age"]["description"] == "years; cannot change"
    assert person["grade"]["description"] == "may only increase"
    assert person["job"]["enum"] == ["clerk", "none", "smith"]


def test_with_a_token_everything_but_page_and_health_needs_it() -> None:
    app = create_app(classifier().decider, token=TOKEN)
    for path in ("/", "/page.js", "/page.css", "/icon.svg", "/healthz"):
        assert ask(app, path).status_code == 200
    questions = {"/predict": {"rows": [PERSON]}, "/explain": {"rows": [PERSON]}}
    for path in ("/schema", "/sample", "/metrics", "/openapi.json", *questions):
        body = questions.get(path)
        for wrong in (None, "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \u00e4".encode()):
            response = ask(app, path, body, headers=None if wrong is None else {"Authorization": wrong})
            assert response.status_code == 401, (path, wrong)
            assert response.headers["www-authenticate"] == "Bearer"
        assert ask(app, path, body, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert (
        "securitySchemes"
        in content(ask(app, "/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"}))["components"]
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org", ""])
def test_without_a_token_it_refuses_to_be_reached_from_elsewhere(host: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="without a token the service answers this machine only"):
        run(tmp_path, host=host)


@pytest.mark.parametrize("token", ["", "short", "with a space inside it", "\u00e4\u00f6\u00fc" * 8])
def test_a_token_that_is_easily_guessed_or_cannot_be_sent_is_refused(token: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a token must have at least 16"):
        run(tmp_path, host="0.0.0.0", token=token)


def test_run_serves_the_two_models_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier().save(tmp_path / "ct")
    classifier("bl").save(tmp_path / "bl")
    services: list[Service] = []
    monkeypatch.setattr("countertrain.serve.app._serve", lambda service, *more: services.append(service))
    write_run(replace(classifier().run_, twin=classifier("bl").run_), tmp_path / "both")
    run(tmp_path / "both", port=0)
    assert content(ask(services[-1].app, "/schema"))["models"] == ["main", "baseline"]
    run(tmp_path / "ct", port=0)
    assert content(ask(services[-1].app, "/schema"))["models"] == ["main"]
    run(tmp_path / "ct", baseline=tmp_path / "bl", host="0.0.0.0", port=0, token=TOKEN)
    assert ask(services[-1].app, "/schema").status_code == 401


def test_what_people_want_is_asked_for_where_a_question_names_nothing() -> None:
    for n_classes in (2, 3):
        decider = classifier(n_classes=n_classes).decider
        app = create_app(decider, target="granted", limits=PATIENT)
        assert content(ask(app, "/schema"))["target"] == "granted"
        rows = people(30)
        decided = [one["decision"] for one in content(ask(app, "/predict", {"rows": rows}))["decisions"]]
        told = content(ask(app, "/explain", {"rows": rows}))["explanations"]
        assert {one["target"] for one in told} == {"granted"}
        assert "granted" in decided
        assert {*decided} > {"granted"}
        for one, decision in zip(told, decided, strict=True):
            assert (one["options"][0]["reason"] == "already 'granted'") == (decision == "granted")
        other = content(ask(app, "/explain", {"rows": rows[:1], "target": "refused"}))["explanations"]
        assert other[0]["target"] == "refused"
    assert content(ask(create_app(classifier().decider, limits=PATIENT), "/schema"))["target"] is None


def test_a_wish_that_is_no_class_is_refused_before_serving() -> None:
    with pytest.raises(ValueError, match=r"target must be one of the classes .*did you mean 'granted'"):
        create_app(classifier().decider, target="grantd")


def test_a_threshold_decides_is_searched_for_and_told() -> None:
    decider = replace(classifier().decider.want("granted"), threshold=Threshold(0, 0.85))
    app, rows = create_app(decider, limits=PATIENT), people(40)
    assert content(ask(app, "/schema"))["needed"] == {"main": [0.85, pytest.approx(0.15)]}
    decisions = content(ask(app, "/predict", {"rows": rows}))["decisions"]
    granted = [one["probabilities"][0]["probability"] >= 0.85 for one in decisions]
    assert [one["decision"] == "granted" for one in decisions] == granted
    assert any(0.5 <= one["probabilities"][0]["probability"] < 0.85 for one in decisions)
    told = content(ask(app, "/explain", {"rows": rows}))["explanations"]
    assert all(one["needed"] == 0.85 for one in told)
    valid = [option for one in told for option in one["options"] if option["valid"]]
    assert len(valid) > 30
    assert all(option["probability"] >= 0.85 for option in valid)
    assert content(ask(create_app(classifier().decider, limits=PATIENT), "/schema"))["needed"] == {"main": []}


def test_the_evidence_is_told_with_the_columns_and_nobody_is_sent_against_it() -> None:
    decider = classifier().decider.want("granted")
    assert decider.evidence is not None
    app, rows = create_app(decider, limits=PATIENT), people(40)
    columns = {column["name"]: column for column in content(ask(app, "/schema"))["columns"]}
    assert columns["credit income"]["evidence"] == "more helps (evidence: +, sure)"
    assert columns["debt"]["evidence"] == "less helps (evidence: -, sure)"
    assert columns["age"]["evidence"] is None  # nobody can change it
    ranges = {"credit income": [None, 80_000]}
    told = content(ask(app, "/explain", {"rows": rows, "options": 3, "ranges": ranges}))["explanations"]
    changes = [change for one in told for option in one["options"] for change in option["changes"]]
    ways = {
        name: {c["after"] > c["before"] for c in changes if c["column"] == name} for name in ("credit income", "debt")
    }
    assert ways == {"credit income": {True}, "debt": {False}}
