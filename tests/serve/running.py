"""A service in a process of its own, as the command starts it, and raw sockets to ask it with."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

PATIENCE = 60.0  # seconds: the machine that runs the tests may be busy


class Running:
    """A started service."""

    def __init__(self, process: "subprocess.Popen[str]", address: str, log: Path) -> None:
        self.process, self.address, self._log = process, address, log
        self.port = int(address.rsplit(":", 1)[1])

    @property
    def log(self) -> str:
        """What it has written to standard error."""
        return self._log.read_text()

    def ask(self, path: str, body: Any = None, **more: Any) -> httpx.Response:
        """One request."""
        method = "GET" if body is None else "POST"
        return httpx.request(method, self.address + path, json=body, timeout=PATIENCE, verify=False, **more)

    def connect(self, sent: bytes = b"") -> socket.socket:
        """A bare connection, on which something may have been sent."""
        one = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        one.sendall(sent)
        return one

    def stop(self, number: int = signal.SIGTERM) -> float:
        """Tell it to stop, and how long it took."""
        start = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(PATIENCE)
        return time.monotonic() - start


@contextlib.contextmanager
def serving(folder: Path, *args: str, files: int | None = None, log: Path, **environment: str) -> Iterator[Running]:
    """The service of a folder, on a free port; `files` is the most that it may have open."""
    words = [] if str(folder) == "." else [str(folder)]
    command = [sys.executable, "-m", "countertrain", "serve", *words, "--port", "0", *args]
    if files is not None:
        command = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *command]
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, **environment}
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("http"), log.read_text()
            yield Running(process, line.split()[0], log)
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def read_metrics(text: str) -> dict[str, float]:
    """Metrics by name and labels, as they are written."""
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def read_answer(one: socket.socket) -> tuple[int, dict[str, str], Any]:
    """Status, headers and JSON of the next answer on a bare connection; status 0 where it was closed."""
    received = b""
    while b"\r\n\r\n" not in received:
        more = one.recv(65536)
        if not more:
            return 0, {}, None
        received += more
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += one.recv(65536)
    return int(first.split()[1]), headers, json.loads(body) if body.startswith(b"{") else body
