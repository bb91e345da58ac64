"""Requests that no client should send, over bare sockets to a service on this machine.

`python tests/serve/fuzzing.py` starts a service, sends it such requests for five minutes, and for five minutes others
that are made from its own description; what came back is written down.
"""

import argparse
import contextlib
import itertools
import json
import random
import re
import socket
import time
import warnings
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from office import PERSON, classifier
from running import Running, serving

_LINE = re.compile(rb"HTTP/1\.1 (\d{3}) ")
_METHODS = (b"GET", b"POST", b"PUT", b"HEAD", b"OPTIONS", b"TRACE", b"PRI", b"get", b"", b"G\x00T", b"A" * 300)
_PATHS = (b"/predict", b"/explain", b"/schema", b"/sample?n=-1", b"/metrics", b"/../../etc/passwd", b"/%00", b"/%ff%fe",
          b"//", b"*", b"http://elsewhere/", b"/models/x/predict", b"/admin/reload", b"/" + b"a" * 9000,
          b"/?" + b"&" * 999, b"\xff\xfe", b"")  # fmt: skip
_VERSIONS = (b"HTTP/1.1", b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/9.9", b"", b"HTTP/1.1 x")
_HEADERS = (b"content-length: 5", b"content-length: -1", b"content-length: 99999999999999", b"content-length: 1, 2",
            b"content-length: 0x10", b"transfer-encoding: chunked", b"transfer-encoding: gzip, chunked",
            b"transfer-encoding: identity", b"expect: 100-continue", b"connection: upgrade\r\nupgrade: websocket",
            b"connection: close", b"host: elsewhere", b"host:", b"x: " + b"y" * 20_000, b"no colon", b": empty",
            b" folded: yes", b"x-request-id: a\x01b", b"x-request-id: " + b"z" * 500, b"authorization: Bearer",
            b"content-type: text/plain", b"content-type: application/json; charset=utf-7", b"\x00: \x00",
            b"accept-encoding: " + b"gzip, " * 200)  # fmt: skip
_VALID = json.dumps({"rows": [PERSON]}).encode()
_BODIES = (b"", b"{}", b"null", b"[" * 5_000, b"\xff" * 100, b"0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n",
           b"ffffffffffffff\r\n", b"-5\r\nhello\r\n", b"5;x=" + b"y" * 5_000 + b"\r\nhello\r\n", _VALID, _VALID[:-3],
           _VALID.replace(b"40", b"1e999"),
           _VALID.replace(b"40", b"NaN"), _VALID * 2)  # fmt: skip


def make_request(rng: random.Random) -> bytes:
    """A request that is wrong in some ways, or in none."""
    headers = rng.sample(_HEADERS, rng.randint(0, 4))
    body = rng.choice(_BODIES)
    if rng.random() < 0.7:
        headers.append(b"host: localhost")
    if rng.random() < 0.4:
        headers += [b"content-length: %d" % len(body), b"content-type: application/json"]
    end = rng.choice((b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"\r\n\r\n"))
    first = b" ".join((rng.choice(_METHODS), rng.choice(_PATHS), rng.choice(_VERSIONS)))
    request = bytearray(end.join((first, *headers)) + end + end + body)
    for _ in range(rng.choice((0, 0, 0, 1, 5, 50))):  # bytes that are others, go or come
        place = rng.randrange(len(request) + 1)
        request[place : place + rng.randint(0, 2)] = rng.randbytes(rng.randint(0, 3))
    return bytes(request) * rng.choice((1, 1, 1, 2, 5))  # several in a row, too


def send(port: int, request: bytes, rng: random.Random, patience: float = 0.15) -> str:
    """What becomes of a request that may come in pieces: the statuses that it is answered by, silence, or garbage."""
    received = b""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as one:
        one.settimeout(patience)
        pieces = rng.choice((1, 1, 1, 2, 7))
        step = max(1, len(request) // pieces)
        for start in range(0, len(request), step):
            one.sendall(request[start : start + step])
        if rng.random() < 0.2:
            return "left"
        if rng.random() < 0.2:
            one.shutdown(socket.SHUT_WR)
        while more := one.recv(65536):
            received += more
    if not received:
        return "silence"
    statuses = _LINE.findall(received)
    return statuses[0].decode() if statuses and received.startswith(b"HTTP/1.1") else f"garbage {received[:80]!r}"


def fuzz(port: int, n: int, *, seed: int = 0, seconds: float = 60.0) -> Counter[str]:
    """What became of up to n requests, within so many seconds."""
    rng, outcomes, until = random.Random(seed), Counter[str](), time.monotonic() + seconds
    for _ in range(n):
        if time.monotonic() > until:
            break
        outcomes[send(port, make_request(rng), rng)] += 1
    return outcomes


def find_failures(outcomes: Counter[str], log: str) -> list[str]:
    """Whatever a service should not have answered, and what it should not have written down."""
    answers = [one for one in outcomes if one.startswith(("5", "garbage")) and one != "503"]
    return answers + [word for word in ("Traceback", "failed") if word in log]


def ask_for_a_while(service: Running, seconds: float) -> tuple[Counter[str], list[str]]:
    """What came of requests made from the description, kind after kind, until the time is up."""
    import schemathesis  # the tests that only send bytes can do without
    from describing import KINDS, ask_as_described

    description = schemathesis.openapi.from_url(f"{service.address}/openapi.json")
    outcomes, failures, until = Counter[str](), dict[str, None](), time.monotonic() + seconds
    for path, mode in itertools.cycle(KINDS):
        if time.monotonic() > until:
            break
        try:
            statuses = ask_as_described(description, path, mode, {}, 5, database=None, derandomize=False)
            outcomes.update({str(status): n for status, n in statuses.items()})
        except (Exception, BaseExceptionGroup) as error:  # whatever it is, it is what we look for
            failures[f"{path}, {mode.value}: {type(error).__name__}: {error}"[:500]] = None
    return outcomes, list(failures)


def main() -> None:
    """Fuzz a service both ways, and write down how often and what came of it."""
    parser = argparse.ArgumentParser(prog="python tests/serve/fuzzing.py", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="for each of both")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/reliability/fuzz.json"))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    record = json.loads(asked.out.read_text()) if asked.out.exists() else {}
    with TemporaryDirectory() as name:
        folder, log = Path(name) / "model", Path(name) / "log"
        classifier().save(folder)
        with serving(folder, "--header-seconds", "1.5", "--idle-seconds", "1", "--seconds", "60", log=log) as service:
            sent = fuzz(service.port, 10**9, seed=asked.seed, seconds=60 * asked.minutes)
            asked_for, failures = ask_for_a_while(service, 60 * asked.minutes)
            assert service.ask("/predict", {"rows": [PERSON]}).status_code == 200
            record["service"] = {
                "bytes over a bare socket": {"outcomes": sent, "found": find_failures(sent, service.log)},
                "requests made from its description": {"outcomes": asked_for, "found": failures},
            }
    asked.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
