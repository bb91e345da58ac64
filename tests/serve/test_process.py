"""The service as a process: connections, signals, workers, other models; each asked over a real socket."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fuzzing import find_failures, fuzz
from office import PERSON, classifier, content
from running import PATIENCE, Running, read_answer, read_metrics, serving

from countertrain import cli

HEAD = b"POST /predict HTTP/1.1\r\nhost: localhost\r\n"
TOKEN, OTHER, ADMIN = "correct-horse-battery", "another-horse-staple", "admin-admin-admin-1"
QUESTION = {"rows": [PERSON]}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models that answer alike and have different ids."""
    path = tmp_path_factory.mktemp("models")
    classifier().save(path / "one")
    classifier("bl").save(path / "two")
    return path


@pytest.fixture(scope="module")
def small(folders: Path) -> Iterator[Running]:
    """A service with few descriptors and short time-outs."""
    times = ("--header-seconds", "1.5", "--idle-seconds", "1", "--seconds", "30")
    with serving(folders / "one", *times, files=200, log=folders / "small.log") as running:
        yield running


def wait_for_close(one: socket.socket) -> float:
    """Seconds until the other side ends the connection."""
    start = time.monotonic()
    with contextlib.suppress(ConnectionResetError):
        while one.recv(65536):
            pass
    return time.monotonic() - start


def test_more_half_open_connections_than_descriptors_neither_stop_it_nor_fill_its_log(small: Running) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(260):
            stack.enter_context(small.connect(HEAD))
        start = time.monotonic()
        assert small.ask("/predict", QUESTION).status_code == 200
        assert time.monotonic() - start < 10
        closed = read_metrics(small.ask("/metrics").text)
    assert closed['countertrain_connections_closed_total{reason="full"}'] > 50
    assert "Traceback" not in small.log
    assert small.log.count("\n") < 5


def test_a_head_that_does_not_end_and_an_unused_connection_are_ended_and_a_good_one_is_not(small: Running) -> None:
    with small.connect(HEAD) as slow:
        drip = threading.Thread(target=lambda: _drip(slow))  # every byte in time, the head never
        drip.start()
        assert 1 < wait_for_close(slow) < 15
        drip.join()
    with small.connect(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n") as unused:
        assert read_answer(unused)[0] == 200
        assert 0.5 < wait_for_close(unused) < 10
    with httpx.Client(base_url=small.address) as client:
        assert [client.post("/predict", json=QUESTION, timeout=PATIENCE).status_code for _ in range(3)] == [200] * 3


def test_nothing_that_comes_over_a_socket_breaks_it(small: Running) -> None:
    outcomes = fuzz(small.port, 150, seed=1, seconds=40)
    assert outcomes.total() > 20
    assert {"400", "404", "200"} & outcomes.keys()
    assert small.ask("/predict", QUESTION).status_code == 200
    assert not find_failures(outcomes, small.log), outcomes


def _drip(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        for _ in range(100):
            one.sendall(b"x")
            time.sleep(0.1)


def test_a_port_in_use_is_said_in_one_sentence_before_anything_is_loaded(
    small: Running, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["serve", str(tmp_path / "no such folder"), "--port", str(small.port)])
    out, said = capsys.readouterr()
    assert (end.value.code, out) == (2, "")
    assert said == (
        f"countertrain: --port must be free; 127.0.0.1:{small.port} is in use by another program; "
        "choose another one, or 0 for any free one\n"
    )


@pytest.fixture(scope="module")
def guarded(folders: Path) -> Iterator[Running]:
    """Two workers with tokens, rates and an audit, whose folder can be exchanged."""
    (folders / "now").symlink_to(folders / "one")
    args = ("--workers", "2", "--token-env", "TOKENS", "--admin-token-env", "ADMIN", "--rate", "150", "--log", "json")
    audit = ("--audit", str(folders / "audit.jsonl"), "--audit-key-env", "KEY")
    secrets = {"TOKENS": f"{TOKEN} {OTHER}", "ADMIN": ADMIN, "KEY": "a key that is long enough"}
    with serving(folders / "now", *args, *audit, log=folders / "guarded.log", **secrets) as running:
        yield running


def bearer(token: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {token}"}}


def test_the_token_is_looked_at_before_the_body(guarded: Running) -> None:
    with guarded.connect(HEAD + b"content-length: 900000\r\n\r\n{{{{") as one:
        status, headers, refusal = read_answer(one)
    assert status == 401
    assert refusal["detail"].startswith("this needs a token")
    assert headers["x-request-id"]


def test_another_model_takes_over_without_losing_a_request_and_the_way_back_is_open(
    guarded: Running, folders: Path
) -> None:
    first, second = (read_id(folders / name) for name in ("one", "two"))
    seen: Counter[str] = Counter()
    failed, stop = [], threading.Event()

    def keep_asking() -> None:
        with httpx.Client(base_url=guarded.address, timeout=PATIENCE) as client:
            while not stop.is_set():
                try:
                    seen.update(model["id"] for model in client.get("/healthz").raise_for_status().json()["models"])
                except httpx.HTTPError as error:
                    failed.append(error)

    askers = [threading.Thread(target=keep_asking) for _ in range(4)]
    for asker in askers:
        asker.start()
    try:
        await_models(guarded, first)
        assert guarded.ask("/admin/reload", {}, **bearer(TOKEN)).status_code == 401
        relink(folders / "now", folders / "nothing")
        refused = guarded.ask("/admin/reload", {}, **bearer(ADMIN))
        assert refused.status_code == 409
        assert f"main {first} stays, because the new one cannot be served: there is no folder" in refused.text
        assert set(seen) == {first}
        relink(folders / "now", folders / "two")
        assert guarded.ask("/admin/reload", {}, **bearer(ADMIN)).json()["models"][0]["id"] == second
        await_models(guarded, second)
        assert guarded.ask("/admin/back", {}, **bearer(ADMIN)).json()["models"][0]["id"] == first
        await_models(guarded, first)
        guarded.process.send_signal(signal.SIGHUP)
        await_models(guarded, second)
    finally:
        stop.set()
        for asker in askers:
            asker.join()
    assert not failed
    assert set(seen) == {first, second}
    assert "/no such" not in guarded.log


def read_id(folder: Path) -> str:
    from countertrain.runs.folder import read_run

    identity = read_run(folder).id
    assert identity is not None
    return identity


def relink(link: Path, folder: Path) -> None:
    link.unlink()
    link.symlink_to(folder)


def await_models(running: Running, identity: str) -> None:
    """Wait until both workers serve the model of this id."""
    until, alike = time.monotonic() + PATIENCE, 0
    while alike < 12:  # answers in a row, of whichever worker
        answered = running.ask("/healthz").json()["models"][0]["id"]
        alike = alike + 1 if answered == identity else 0
        assert time.monotonic() < until, f"{answered} is still served instead of {identity}"
        time.sleep(0.05)


def test_workers_are_counted_together_and_one_that_dies_is_replaced(guarded: Running) -> None:
    for _ in range(12):
        assert guarded.ask("/predict", QUESTION, **bearer(TOKEN)).status_code == 200
    before = await_count(guarded, 12)
    time.sleep(1.5)  # what a worker has counted in its last second is lost with it
    children = Path(f"/proc/{guarded.process.pid}/task/{guarded.process.pid}/children").read_text().split()
    assert len(children) == 2
    os.kill(int(children[0]), signal.SIGKILL)
    until = time.monotonic() + PATIENCE
    while "has ended unasked; another one takes its place" not in guarded.log:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert await_count(guarded, before) >= before  # nothing that was counted is lost


def await_count(running: Running, least: float) -> float:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            found = read_metrics(running.ask("/metrics", **bearer(OTHER)).text)
            count = found.get('countertrain_requests_total{route="/predict",status="200"}', 0)
        except httpx.TransportError:  # the worker that was killed
            count = 0
        if count >= least:
            return count
        assert time.monotonic() < until, f"{count} of {least} requests are counted"
        time.sleep(0.5)


def test_a_token_that_asks_too_often_is_told_when_to_come_again_and_others_are_not(guarded: Running) -> None:
    statuses = []
    for _ in range(310):  # twice as many as a minute has, should one begin meanwhile
        answer = guarded.ask("/schema", **bearer(TOKEN))
        statuses.append(answer.status_code)
        if answer.status_code == 429:
            break
    assert statuses[-1] == 429
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert content(answer)["detail"].startswith("a token may make 150 requests a minute; try again in")
    assert guarded.ask("/schema", **bearer(OTHER)).status_code == 200


def test_the_log_has_a_line_of_json_per_request_and_nothing_of_anybody(guarded: Running) -> None:
    headers = bearer(OTHER)["headers"] | {"X-Request-ID": "mine-8"}
    guarded.ask("/predict", QUESTION, headers=headers)
    guarded.ask("/healthz?name=Alice", headers={"X-Request-ID": "mine-7"})
    until, lines = time.monotonic() + PATIENCE, []
    while not {"mine-7", "mine-8"} <= {line.get("id") for line in lines}:  # a line is written after its answer
        assert time.monotonic() < until
        lines = [json.loads(line) for line in guarded.log.split("\n")[:-1]]
    mine, asked = (next(line for line in lines if line.get("id") == name) for name in ("mine-7", "mine-8"))
    assert (mine["route"], mine["status"], mine["method"]) == ("/healthz", 200, "GET")
    assert (asked["rows"], asked["token"]) == (1, 2)
    said = [value for line in lines for name, value in line.items() if name not in ("id", "time")]  # not made of digits
    assert 21000 not in said
    for personal in ("Alice", "21000", "credit income", "smith"):
        assert not any(personal in text for text in said if isinstance(text, str))


def test_the_audit_of_several_workers_is_one_whole_chain(
    guarded: Running, folders: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "a key that is long enough")
    with pytest.raises(SystemExit) as end:
        cli.main(["audit", str(folders / "audit.jsonl"), "--key-env", "KEY"])
    assert end.value.code == 0
    assert "is as it was written: 13 entries" in capsys.readouterr().out
    assert "21000" not in (folders / "audit.jsonl").read_text()


def test_it_stops_in_time_under_load_and_answers_what_it_has_begun(guarded: Running) -> None:
    answered: list[int | str] = []

    def ask() -> None:
        try:
            answered.append(guarded.ask("/explain", {"rows": [PERSON] * 20}, **bearer(OTHER)).status_code)
        except httpx.TransportError as error:
            answered.append(type(error).__name__)

    askers = [threading.Thread(target=ask) for _ in range(4)]
    for asker in askers:
        asker.start()
    time.sleep(0.3)
    slow = guarded.connect(HEAD)
    assert guarded.stop() < 5
    assert guarded.process.returncode == 0
    for asker in askers:
        asker.join()
    slow.close()
    assert answered


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
def test_several_models_are_served_by_name_and_over_tls(folders: Path) -> None:
    certificate, key = folders / "cert.pem", folders / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*made, *files], check=True, capture_output=True)
    models = (f"loans={folders / 'one'}", f"cards={folders / 'two'}")
    tls = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with serving(Path(), *models, *tls, log=folders / "tls.log") as running:
        assert running.address.startswith("https://")
        marks = {one["name"]: one["id"] for one in running.ask("/models").json()}
        assert marks == {"loans": read_id(folders / "one"), "cards": read_id(folders / "two")}
        assert [one["name"] for one in running.ask("/healthz").json()["models"]] == ["loans", "cards"]
        for name, identity in marks.items():
            answer = running.ask(f"/models/{name}/predict", QUESTION)
            assert answer.json()["model"]["id"] == identity
            assert running.ask(f"/models/{name}/").text.startswith("<!doctype html>")
            assert f"models/{name}/" in running.ask("/").text
        assert running.ask("/predict", QUESTION).status_code == 404
        assert running.ask("/models/other/predict", QUESTION).status_code == 404
        found = read_metrics(running.ask("/metrics").text)
        assert found['countertrain_requests_total{route="/models/loans/predict",status="200"}'] == 1
        assert found['countertrain_rows_total{model="cards",work="predict"}'] == 1
        assert running.stop() < 5
