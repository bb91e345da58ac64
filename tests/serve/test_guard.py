"""What stands before every request: size, time, origin, and whoever does not wait."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import h11
import httpx
import pytest
from fastapi import FastAPI
from office import PATIENT, PERSON, ask, classifier, content, run, together
from starlette.types import Receive, Scope, Send

from countertrain.serve.app import create_app
from countertrain.serve.counters import Counters
from countertrain.serve.desk import Desk
from countertrain.serve.guard import Guard


class SlowDesk:
    """Puts a gate before the answers of every desk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate, self.asked = threading.Event(), 0
        answers = Desk.predict

        def predict(desk: Desk, questions: Sequence[Any]) -> Any:
            self.asked += len(questions)
            assert self.gate.wait(20)
            return answers(desk, questions)

        monkeypatch.setattr(Desk, "predict", predict)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowDesk:
    return SlowDesk(monkeypatch)


def post(content: Any) -> dict[str, Any]:
    return {
        "method": "POST",
        "url": "/predict",
        "content": content,
        "headers": {"content-type": "application/json"},
    }


async def chunks(n: int, pause: float = 0.0) -> AsyncIterator[bytes]:
    for _ in range(n):
        await asyncio.sleep(pause)
        yield b" " * 1000


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_that_is_too_large_is_refused_whether_or_not_it_says_so(declared: bool) -> None:
    app = create_app(classifier().decider, limits=replace(PATIENT, body_bytes=5_000))
    allowed, refused = together(app, *(post(b" " * 1000 * n if declared else chunks(n)) for n in (5, 6)))
    assert allowed.status_code == 422
    assert refused.status_code == 413
    assert content(refused)["detail"] == "the body of a request may have at most 5,000 bytes; ask for fewer rows"


def test_a_body_that_arrives_too_slowly_is_refused() -> None:
    app = create_app(classifier().decider, limits=replace(PATIENT, seconds=0.05))
    response = together(app, post(chunks(100, pause=0.01)))[0]
    assert response.status_code == 408
    assert content(response)["detail"] == "the request took longer than 0.05 s to arrive"


def test_an_answer_that_takes_too_long_is_given_up(slow: SlowDesk) -> None:
    app = create_app(classifier().decider, limits=replace(PATIENT, seconds=0.3))
    late = ask(app, "/predict", {"rows": [PERSON]})
    slow.gate.set()
    assert late.status_code == 504
    assert content(late)["detail"].startswith("no answer within 0.3 s; ask for fewer people")


def test_whoever_comes_when_too_many_wait_is_asked_to_try_again(slow: SlowDesk) -> None:
    app = create_app(classifier().decider, limits=replace(PATIENT, waiting_rows=2))

    async def main() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            first = asyncio.ensure_future(client.post("/predict", json={"rows": [PERSON] * 2}))
            while not slow.asked:
                await asyncio.sleep(0.01)
            second = await client.post("/predict", json={"rows": [PERSON]})
            alive = await client.get("/healthz")
            slow.gate.set()
            return [await first, second, alive]

    first, second, alive = run(main())
    assert (first.status_code, second.status_code, alive.status_code) == (200, 503, 200)
    assert second.headers["retry-after"] == "1"
    assert content(second)["detail"] == "too many people are waiting for an answer; try again in a moment"


def test_the_work_for_an_asker_who_has_gone_is_stopped() -> None:
    counters, events = Counters(), []
    messages = [{"type": "http.request", "body": b"{}"}, {"type": "http.disconnect"}]

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["body"] == b"{}"
        events.append("started")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            events.append("stopped")
            raise

    async def receive() -> Any:
        await asyncio.sleep(0.02)
        return messages.pop(0)

    async def send(message: Any) -> None:
        events.append("sent")

    scope = {"type": "http", "method": "POST", "path": "/predict", "headers": [(b"host", b"localhost:8000")]}
    run(Guard(endless, limits=PATIENT, counters=counters)(scope, receive, send))
    assert events == ["started", "stopped"]
    assert 'status="499"} 1' in counters.render()


def test_a_client_that_breaks_the_protocol_before_it_is_answered_counts_as_gone() -> None:
    counters = Counters()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        raise h11.LocalProtocolError("the state of this connection is ERROR")

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")]}
    run(Guard(answer, limits=PATIENT, counters=counters)(scope, receive, send))
    assert 'status="499"} 1' in counters.render()


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost", 200), ("127.0.0.1:8000", 200), ("[::1]:8000", 200), ("evil.example", 421), ("10.0.0.7:80", 421)],
)
def test_without_a_token_only_a_local_name_is_answered_to(app: FastAPI, host: str, status: int) -> None:
    assert ask(app, "/healthz", headers={"host": host}).status_code == status
    guarded = create_app(classifier().decider, token="correct-horse-battery")
    assert ask(guarded, "/healthz", headers={"host": host}).status_code == 200


def test_every_answer_tells_browsers_to_load_nothing_from_elsewhere_and_to_guess_nothing(app: FastAPI) -> None:
    answers = [ask(app, path) for path in ("/", "/page.js", "/schema", "/nowhere")]
    answers += [ask(app, "/predict", {}), ask(app, "/predict", {}, headers={"content-length": "9" * 9})]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 404, 422, 413]
    for answer in answers:
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src")
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    kinds = [answer.headers["content-type"] for answer in answers[:3]]
    assert kinds == ["text/html; charset=utf-8", "text/javascript; charset=utf-8", "application/json"]
