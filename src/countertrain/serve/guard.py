"""What stands before every request: who it comes from, how large it may be, how long it may take."""

import asyncio
import json
import logging
from collections.abc import Mapping, MutableMapping
from time import perf_counter
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from countertrain.serve.counters import Counters
from countertrain.serve.limits import Limits, is_loopback

__all__ = ["Guard"]

_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_SECURE = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
_log = logging.getLogger(__name__)


class _RefusedError(Exception):
    """A request that is not let through, with its status and one sentence."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class _GoneError(Exception):
    """Whoever asked is no longer waiting for the answer."""


class Guard:
    """ASGI middleware: refuses what is too large, too slow or from elsewhere, drops whoever left, and counts all."""

    def __init__(self, app: ASGIApp, *, limits: Limits, counters: Counters, local: bool) -> None:
        self._app, self._limits, self._counters, self._local = app, limits, counters, local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer, start = _Answer(send), perf_counter()
        try:
            self._check_host(scope)
            body = await self._read_body(Headers(scope=scope), receive)
            await self._answer(scope, body, receive, answer)
        except _RefusedError as refused:
            await answer.refuse(refused.status, refused.detail)
        except _GoneError:
            answer.status = 499
        except Exception:
            _log.exception("%s %s failed", scope["method"], scope["path"])
            await answer.refuse(500, "the service failed on this request; its log says why")
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._counters.count_request(route, answer.status, perf_counter() - start)

    def _check_host(self, scope: Scope) -> None:
        """Without a token, no page from elsewhere may ask through a name that leads here."""
        host = Headers(scope=scope).get("host", "").rsplit("]", 1)
        name = host[0] + "]" if len(host) == 2 else host[0].split(":")[0]
        if self._local and not is_loopback(name):
            raise _RefusedError(421, f"without a token the service is asked as localhost; got the host {name!r}")

    async def _read_body(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        """The whole body, unless it is too large; its declared size is not relied upon."""
        most = self._limits.body_bytes
        declared = headers.get("content-length", "0")
        too_large = _RefusedError(413, f"the body of a request may have at most {most:,} bytes; ask for fewer rows")
        if declared.isdigit() and int(declared) > most:
            raise too_large
        body, more = bytearray(), True
        try:
            async with asyncio.timeout(self._limits.seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _GoneError
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > most:
                        raise too_large
        except TimeoutError:
            raise _RefusedError(408, f"the request took longer than {self._limits.seconds:g} s to arrive") from None
        return bytes(body)

    async def _answer(self, scope: Scope, body: bytes, receive: Receive, answer: "_Answer") -> None:
        """Let the app answer, as long as time is left and somebody waits."""
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return messages.pop() if messages else await asyncio.Future()

        work = asyncio.ensure_future(self._app(scope, replay, answer))
        gone = asyncio.ensure_future(receive())
        try:
            await asyncio.wait((work, gone), timeout=self._limits.seconds, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            if gone.done():
                raise _GoneError
            raise _RefusedError(
                504, f"no answer within {self._limits.seconds:g} s; ask for fewer people or options, or try again later"
            )
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)


class _Answer:
    """Sends an answer with the headers that keep browsers from guessing and from asking elsewhere."""

    def __init__(self, send: Send) -> None:
        self._send, self.status, self._started = send, 500, False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        """Pass a message of the app on."""
        if message["type"] == "http.response.start":
            self.status, self._started = message["status"], True
            message["headers"] = [*message.get("headers", []), *_SECURE]
        await self._send(message)

    async def refuse(self, status: int, detail: str) -> None:
        """Answer with one sentence, if nothing has been answered yet."""
        if self._started:
            return
        body = json.dumps({"detail": detail, "errors": []}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await self({"type": "http.response.start", "status": status, "headers": headers})
        await self({"type": "http.response.body", "body": body})
