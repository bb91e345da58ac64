"""Drift, and what processes share: boards, counters, rates."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from office import PATIENT, applications, ask, classifier, content, people
from running import read_metrics

from countertrain.serve.access import Rates
from countertrain.serve.app import create_app
from countertrain.serve.board import Board
from countertrain.serve.counters import Counters
from countertrain.serve.drift import Drift, compute_psi


def test_the_index_is_that_of_the_books() -> None:
    counts, shares = np.array([30.0, 50.0, 20.0]), np.array([0.2, 0.5, 0.3])
    by_hand = (0.3 - 0.2) * np.log(0.3 / 0.2) + (0.2 - 0.3) * np.log(0.2 / 0.3)
    assert compute_psi(counts, shares) == pytest.approx(by_hand)
    assert compute_psi(100 * shares, shares) == pytest.approx(0)
    assert np.isfinite(compute_psi(np.array([100.0, 0.0, 0.0]), shares))
    assert compute_psi(np.array([100.0, 0.0, 0.0]), shares) > 1


def test_a_column_that_has_moved_stands_out_and_the_others_do_not() -> None:
    decider = classifier().decider
    drift = Drift.of(decider)
    frame = applications(2_000, 5)
    frame["credit income"] += 15_000
    x = torch.from_numpy(decider.encoder.encode(frame))
    for part in x.split(250):
        drift.count_people(part, decider.decide(part))
    found = {(name, *labels.values()): value for name, value, labels in drift.measure([])}
    by_column = {key[1]: value for key, value in found.items() if key[0] == "countertrain_drift_psi"}
    assert by_column.keys() == set(frame.columns)
    assert by_column["credit income"] > 1
    assert max(value for name, value in by_column.items() if name not in ("credit income", "debt")) < 0.15
    assert found["countertrain_decision_psi",] > 0.1
    assert 1_500 < found["countertrain_drift_rows",] < 2_000  # old ones count less
    half = [Drift.of(decider) for _ in range(2)]
    for one, part in zip(half, x.split(1_000), strict=True):
        one.count_people(part, decider.decide(part))
    together = {(n, *labels.values()): v for n, v, labels in half[0].measure([half[1].to_dict()])}
    assert together["countertrain_drift_psi", "credit income"] == pytest.approx(by_column["credit income"], rel=0.1)


def test_the_metrics_tell_of_drift_advice_models_and_the_queue() -> None:
    app = create_app(classifier().decider, limits=PATIENT)
    few = read_metrics(ask(app, "/metrics").text)
    assert not any("psi" in name for name in few)  # nobody has asked yet
    for seed in range(3):
        ask(app, "/predict", {"rows": people(100, seed)})
    fixed = [name for name in people(1)[0] if name != "age"]
    answer = content(ask(app, "/explain", {"rows": people(5), "target": "granted", "immutable": fixed}))["explanations"]
    refused = [one for one in answer if one["decision"] == "refused"]
    found = read_metrics(ask(app, "/metrics").text)
    assert sum(name.startswith("countertrain_drift_psi{") for name in found) == 7
    assert found['countertrain_advice_total{model="main",valid="no"}'] == len(refused) > 0
    assert found['countertrain_queue_rows{model="main",work="predict"}'] == 0
    assert any(name.startswith('countertrain_model_info{model="main"') for name in found)


def test_a_model_without_its_rows_has_no_drift() -> None:
    drift = Drift.of(replace(classifier().decider, reference=None))
    drift.count_people(torch.zeros(3, 2), torch.zeros(3))
    assert [name for name, _, _ in drift.measure([])] == ["countertrain_advice_total"] * 2


def test_what_processes_count_is_added_up_and_labels_may_hold_anything() -> None:
    one, other = Counters(), Counters()
    for counters, n in ((one, 2), (other, 3)):
        counters.add("countertrain_refused_total", n, cause='a "b\\c"\nd')
        counters.set("countertrain_queue_rows", n)
        counters.count_request("/predict", 200, 0.02)
    page = json.loads(json.dumps(other.to_dict()))
    one.merge(page)
    text = one.render()
    assert r'countertrain_refused_total{cause="a \"b\\c\"\nd"} 5' in text
    assert "countertrain_queue_rows 5\n" in text
    assert 'countertrain_request_seconds_bucket{route="/predict",le="0.025"} 2\n' in text
    fresh = Counters()
    fresh.merge(page, gauges=False)  # who takes the place of another one goes on with its counts, not with its queue
    assert "countertrain_queue_rows 3" not in fresh.render()


def test_a_page_that_is_being_written_is_read_as_it_was_before() -> None:
    board = Board(2)
    board.write({"a": 1})
    board.worker = 1
    assert board.read_others() == [{"a": 1}]
    board._memory[8:12] = b"####"  # half of another content
    assert board.read_others() == [{"a": 1}]
    assert (board.wanted, board.count_written()) == ({}, 1)
    board.wanted = {"generation": 1}
    assert board.wanted == {"generation": 1}


def test_workers_count_the_requests_of_a_token_together(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [600.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    rates = Rates(5, n_tokens=2, n_workers=2)
    waits = []
    for i in range(7):
        rates.worker = i % 2
        waits.append(rates.take(1))
    assert waits == [0] * 5 + [60, 60]
    assert rates.take(2) == 0
    now[0] = 645.5
    assert rates.take(1) == 15
    now[0] = 660.0
    assert rates.take(1) == 0
    assert not any(Rates(0, 0).take(0) for _ in range(1000))
