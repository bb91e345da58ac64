"""One connection of a client: how long each of its stages may take, and who goes when there are too many."""

import asyncio
from typing import Any

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from countertrain.serve.counters import Counters
from countertrain.serve.limits import Limits

__all__ = ["Connection"]

_LINGER = 2.0  # seconds in which a client may take what was written to it, or send what nobody will read
_BODY = b'{"detail": "too many connections are open; try again in a moment", "errors": []}'
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)
_WAITING = ("header", "idle")  # stages in which nobody would lose an answer


class Connection(H11Protocol):
    """uvicorn's protocol with a deadline for whatever stage it is in.

    header: the head of a request is awaited; answer: its body or our answer is; linger: a body that is not wanted
    still comes; idle: between two requests; closing: the last bytes are on their way. When too many connections are
    open, the one that has longest been without a whole request makes room, half a head before an idle one.
    """

    def __init__(
        self, config: Config, state: ServerState, *, limits: Limits, counters: Counters, most: int, **more: Any
    ) -> None:
        super().__init__(config, state, {}, **more)
        self._limits, self._counters, self._most = limits, counters, most
        self._stage: tuple[str, object] = ("", None)
        self._timer: asyncio.TimerHandle | None = None
        self._since = self.loop.time()
        self._served = False

    @property
    def stage(self) -> str:
        """What the connection is waiting for."""
        return self._stage[0]

    def connection_made(self, transport: Any) -> None:
        """Begin, or send the client away."""
        super().connection_made(transport)
        if len(self.connections) > self._most and not self._make_room():
            self._counters.add("countertrain_refused_total", cause="connections")
            transport.write(_BUSY)
            transport.close()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came, unless the connection is about to end."""
        if self.transport.is_closing():
            return
        try:
            super().data_received(data)
        except (h11.ProtocolError, RuntimeError):  # what came breaks the protocol where nothing can be answered
            self._end("broken")
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._served = True
        super().on_response_complete()
        self._watch()

    def shutdown(self) -> None:
        """End as soon as what is being answered is answered."""
        try:
            super().shutdown()
        except h11.ProtocolError:
            self.transport.abort()
        self._watch()

    def _watch(self) -> None:
        """Set the deadline of the stage that the connection has come to, if it is another one than before."""
        stage, seconds = self._find_stage()
        key = (stage, self.cycle)
        if key == self._stage:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._stage, self._since = key, self.loop.time()
        self._timer = self.loop.call_later(seconds, self._expire)

    def _find_stage(self) -> tuple[str, float]:
        """The stage, and the seconds that it may take."""
        ours, theirs = self.conn.our_state, self.conn.their_state
        if self.transport.is_closing() or h11.ERROR in (ours, theirs):
            return "closing", _LINGER
        if theirs is h11.IDLE:
            begun = not self._served or self.conn.trailing_data[0]
            return ("header", self._limits.header_seconds) if begun else ("idle", self._limits.idle_seconds)
        if theirs is h11.SEND_BODY and ours in (h11.DONE, h11.MUST_CLOSE):
            return "linger", _LINGER
        return "answer", 2 * self._limits.seconds + _LINGER  # the guard gives up before that, and says so

    def _expire(self) -> None:
        """Nothing more is waited for."""
        self._end(self.stage)

    def _make_room(self) -> bool:
        """End the connection that has been without a whole request for longest, if there is any."""
        others: list[Connection] = [one for one in self.connections if isinstance(one, Connection) and one is not self]
        waiting = [one for one in others if one.stage in _WAITING]
        if not waiting:
            return False
        min(waiting, key=lambda one: (_WAITING.index(one.stage), one._since))._end("full")
        return True

    def _end(self, reason: str) -> None:
        self._counters.add("countertrain_connections_closed_total", reason=reason)
        self.connections.discard(self)
        self.transport.abort()
