"""The service as a process: sockets, signals, and uvicorn with deadlines of our own."""

import asyncio
import errno
import logging
import signal
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

try:
    import resource
except ModuleNotFoundError:  # Windows
    resource = None  # type: ignore[assignment]

import uvicorn
from starlette.types import ASGIApp

from countertrain.serve.connections import Connection
from countertrain.serve.counters import Counters
from countertrain.serve.limits import Limits

__all__ = ["Server", "Tls", "bind", "check_tls", "name_address"]

_BACKLOG = 2048  # connections that the system keeps until they are accepted
_OWN_FILES = 48  # descriptors that the service keeps for itself
_QUIET = 10.0  # seconds between two complaints about the same thing
_WRONG = {
    errno.EADDRINUSE: "port must be free; {} is in use by another program; choose another one, or 0 for any free one",
    errno.EACCES: "port must be one that you may listen on; {} needs more rights; choose one above 1023",
    errno.EADDRNOTAVAIL: "host must be an address of this machine; got {}",
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tls:
    """Files in PEM format: the certificate with all that it rests on, and its key."""

    certificate: Path
    key: Path


def check_tls(tls: Tls) -> None:
    """Refuse files that cannot be used."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key)
    except OSError as error:
        said = (error.strerror or str(error)).split("(")[0].strip()
        raise ValueError(
            f"the certificate {tls.certificate} and its key {tls.key} must be files in PEM format that belong "
            f"together: {said}"
        ) from None


def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets at an address, on which nobody is heard yet; refused in one sentence where that cannot be."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise ValueError(f"host must be a name or address of this machine; got {host!r} ({error.strerror})") from None
    sockets: list[socket.socket] = []
    for family, kind, protocol, _, address in dict.fromkeys(found):
        taken = sockets[0].getsockname()[1] if sockets else port  # the same for all, where any would do
        try:
            sockets.append(_bind_one(socket.socket(family, kind, protocol), (address[0], taken, *address[2:])))
        except OSError as error:
            if sockets and error.errno == errno.EADDRNOTAVAIL:  # localhost without IPv6
                continue
            said = _WRONG.get(error.errno or 0, f"host and port must be usable; {{}} is not: {error.strerror}")
            raise ValueError(said.format(f"{host}:{port}")) from None
    return sockets


def _bind_one(one: socket.socket, address: Any) -> socket.socket:
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if one.family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(address)
    except OSError:
        one.close()
        raise
    return one


def name_address(host: str, sockets: Sequence[socket.socket], *, tls: bool) -> str:
    """Where the service is reached."""
    name = f"[{host}]" if ":" in host else host
    return f"http{'s' if tls else ''}://{name}:{sockets[0].getsockname()[1]}"


class Server(uvicorn.Server):
    """uvicorn with our connections, and signals that end it with exit code 0 or call for another model."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Limits,
        counters: Counters,
        tls: Tls | None = None,
        tick: Callable[[], Awaitable[None]],
        reload: Callable[[], None],
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=2 * int(limits.idle_seconds) + 1,  # ours comes first
                timeout_graceful_shutdown=limits.stop_seconds,  # type: ignore[arg-type]  # a part of a second, too
                ssl_certfile=None if tls is None else tls.certificate,
                ssl_keyfile=None if tls is None else tls.key,
            )
        )
        self._limits, self._counters, self._tick, self._reload, self._ready = limits, counters, tick, reload, ready
        self._told: dict[str, float] = {}
        self._called = False  # for another model
        self._reloading: asyncio.Task[Any] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; connections are accepted one by one, so that processes that share a socket share them out."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._tell)
        most = min(self._limits.connections, _count_descriptors())
        connect = partial(Connection, self.config, self.server_state, limits=self._limits, counters=self._counters)
        patience = self._limits.header_seconds if self.config.is_ssl else None
        self.servers = []
        for one in sockets or []:
            self.servers.append(
                await loop.create_server(
                    partial(connect, most=most),
                    sock=one,
                    ssl=self.config.ssl,
                    backlog=1,
                    ssl_handshake_timeout=patience,
                )
            )
            one.listen(_BACKLOG)
        self.started = True
        await self._tick()
        self._ready()

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second; what the service does regularly is done every second."""
        if counter % 10 == 0:
            self._counters.set("countertrain_connections", len(self.server_state.connections))
            await self._tick()
        if self._called:
            self._called = False
            self._reloading = asyncio.get_running_loop().create_task(self._call_reload())
        return await super().on_tick(counter)

    async def _call_reload(self) -> None:
        with suppress(ValueError):  # which has been told
            await asyncio.to_thread(self._reload)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End on SIGINT and SIGTERM, and reload on SIGHUP."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers: dict[int, Any] = {
            signal.SIGINT: lambda *_: setattr(self, "should_exit", True),
            signal.SIGTERM: lambda *_: setattr(self, "should_exit", True),
        }
        if hasattr(signal, "SIGHUP"):
            handlers[signal.SIGHUP] = lambda *_: setattr(self, "_called", True)
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _tell(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """One sentence for what goes wrong with connections, and not again for a while."""
        error = context.get("exception")
        kind = type(error).__name__ if error is not None else "trouble"
        if monotonic() < self._told.get(kind, 0.0):
            return
        self._told[kind] = monotonic() + _QUIET
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            _log.warning("no more connections are accepted for a moment: too many files are open")
        else:
            _log.warning("a connection went wrong (%s: %s)", kind, context.get("message", ""))


def _count_descriptors() -> int:
    """The connections for which the system lets this process have files; it is asked for as many as it may give."""
    if resource is None:
        return 2**20
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    room = hard if hard != resource.RLIM_INFINITY else 2**20
    return max(16, room - _OWN_FILES)
