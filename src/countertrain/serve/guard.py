"""What stands before every request: who it comes from, how large it may be, how long it may take."""

import asyncio
import json
import logging
import re
import uuid
from collections.abc import Mapping, MutableMapping
from time import perf_counter
from typing import Any

import h11
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from countertrain.serve.access import Access, Rates, is_loopback
from countertrain.serve.counters import Counters
from countertrain.serve.limits import Limits

__all__ = ["NOTE", "OPEN", "Guard"]

NOTE = "countertrain"
"""The key under which the scope of a request holds what is known of it: its id, and what its answer came from."""
OPEN = frozenset({"/", "/page.css", "/page.js", "/icon.svg", "/healthz"})
"""What needs no token: the page, which asks for one, and whether the service is alive; of each model, too."""

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
_GOOD_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_MODEL = re.compile(r"^/models/[^/]+(?=/)")
_log = logging.getLogger(__name__)
_requests = logging.getLogger("countertrain.serve.requests")


class _RefusedError(Exception):
    """A request that is not let through, with its status, one sentence, and a header if it needs one."""

    def __init__(self, status: int, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers


class _GoneError(Exception):
    """Whoever asked is no longer waiting for the answer."""


class Guard:
    """ASGI middleware: refuses what is too large, too slow or from elsewhere, drops whoever left, and counts all."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Limits,
        counters: Counters,
        access: Access | None = None,
        rates: Rates | None = None,
    ) -> None:
        self._app, self._limits, self._counters = app, limits, counters
        self._access = access or Access()
        self._rates = rates or Rates(limits.rate, len(self._access.tokens))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, start = Headers(scope=scope), perf_counter()
        note = scope[NOTE] = {"id": _choose_id(headers)}
        answer = _Answer(send, note["id"])
        try:
            self._check_host(headers)
            self._check_token(scope, headers)
            body = await self._read_body(headers, receive)
            await self._answer(scope, body, receive, answer)
        except _RefusedError as refused:
            await answer.refuse(refused.status, refused.detail, refused.headers)
        except _GoneError:
            answer.status = 499
        except Exception:
            _log.exception("a request failed", extra={"facts": {**note, "route": _name_route(scope)}})
            await answer.refuse(500, "the service failed on this request; its log says why")
        finally:
            self._count(scope, answer.status, perf_counter() - start)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request, and write a line about it."""
        route = _name_route(scope)
        self._counters.count_request(route, status, seconds)
        facts = {"method": scope["method"], "route": route, "status": status, "ms": round(1000 * seconds, 1)}
        _requests.info("request", extra={"facts": facts | scope[NOTE]})

    def _check_token(self, scope: Scope, headers: Mapping[str, str]) -> None:
        """Refuse whoever has no token, or asks too often, before anything of the body is read."""
        path = _MODEL.sub("", scope["path"])
        if path in OPEN and scope["method"] in ("GET", "HEAD"):
            return
        if path.startswith("/admin/"):
            if not self._access.is_admin(headers):
                raise _RefusedError(401, "this needs the token of the administrator", **{"www-authenticate": "Bearer"})
            return
        token = self._access.find_token(headers)
        if token is None:
            given = "authorization" in headers
            said = "the token is wrong" if given else "this needs a token: send the header Authorization: Bearer ..."
            raise _RefusedError(401, said, **{"www-authenticate": "Bearer"})
        scope[NOTE]["token"] = token
        if wait := self._rates.take(token):
            self._counters.add("countertrain_refused_total", cause="rate")
            said = f"a token may make {self._limits.rate:,} requests a minute; try again in {wait} s"
            raise _RefusedError(429, said, **{"retry-after": str(wait)})

    def _check_host(self, headers: Mapping[str, str]) -> None:
        """Without a token, no page from elsewhere may ask through a name that leads here."""
        host = headers.get("host", "").rsplit("]", 1)
        name = host[0] + "]" if len(host) == 2 else host[0].split(":")[0]
        if self._access.is_local and not is_loopback(name):
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
    """Sends an answer with the id of its request, and headers that keep browsers from guessing and asking elsewhere."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send, self.status, self._started = send, 500, False
        self._headers = [*_SECURE, (b"x-request-id", request_id.encode())]

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        """Pass a message of the app on."""
        if message["type"] == "http.response.start":
            self.status, self._started = message["status"], True
            message["headers"] = [*message.get("headers", []), *self._headers]
        try:
            await self._send(message)
        except h11.ProtocolError:  # the client has broken the protocol meanwhile, and can be told nothing any more
            raise _GoneError from None

    async def refuse(self, status: int, detail: str, more: Mapping[str, str] | None = None) -> None:
        """Answer with one sentence, if nothing has been answered yet."""
        if self._started:
            return
        body = json.dumps({"detail": detail, "errors": []}).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), **(more or {})}
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self({"type": "http.response.start", "status": status, "headers": encoded})
        await self({"type": "http.response.body", "body": body})


def _choose_id(headers: Mapping[str, str]) -> str:
    """The id that a request came with, if it is a plain one; else a new one."""
    given = headers.get("x-request-id", "")
    return given if _GOOD_ID.fullmatch(given) else uuid.uuid4().hex


def _name_route(scope: Scope) -> str:
    route = getattr(scope.get("route"), "path", None)
    return "other" if route is None else scope.get("root_path", "") + route
