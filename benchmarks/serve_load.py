"""Many people ask a running service at once: `python benchmarks/serve_load.py --seconds 60`.

A real server with a model of 30 features, in processes of its own, is asked for recourse by clients that each keep one
connection and ask for one random person after another: one client alone; 100 and 200 of one worker and 200 of two, as
fast as they can; and 200 that look at an answer for a while before they ask again, with slow and broken clients among
them. Clients share the cores with the server, and the more of them a worker has, the less an answer costs it.
Told are how many were answered, how long it took, and the memory of the server. `--unbatched` adds the same without
micro-batching.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from countertrain.estimator import CounterfactualClassifier

SERVER = """
import sys, torch
from countertrain.serve.app import run
from countertrain.serve.limits import Limits
torch.set_num_threads(1)
folder, port, workers, batch_rows, window = sys.argv[1:]
limits = Limits(seconds=300, batch_rows=int(batch_rows), window=float(window), header_seconds=5, idle_seconds=30)
run(folder, port=int(port), workers=int(workers), limits=limits, ready=lambda address: print(address, flush=True))
"""
BATCHED, ONE_BY_ONE = (256, 0.01), (1, 0.0)
PATIENCE = 300.0


@dataclass
class LoadResult:
    """What the good clients saw, and what became of the server's memory."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    lasted: float = 0.0
    memory: list[float] = field(default_factory=list)
    """Megabytes of all processes of the server, every second."""
    cpu: dict[str, float] = field(default_factory=dict)
    """Seconds of the server and of the clients, which say something even where other programs are running."""
    others: list[float] = field(default_factory=list)
    """Processes of the machine that ran or waited for a core, less the two of clients and server, every second."""
    bad: Counter[str] = field(default_factory=Counter)
    """What the bad clients did."""

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.seconds) / self.lasted

    def tell(self, who: str, out: Path | None = None) -> None:
        """All on the screen, and into a record, if there is one: docs/reliability.md shows it."""
        p50, p99 = np.percentile(self.seconds, [50, 99])
        third = max(1, len(self.memory) // 3)
        row = {
            "who asks": who,
            "answers": len(self.seconds),
            "errors": sum(n for status, n in self.statuses.items() if status != "200"),
            "answers a second": round(self.rate, 1),
            "p50, ms": round(1000 * p50),
            "p99, ms": round(1000 * p99),
            "CPU of the service, ms an answer": round(1000 * self.cpu["server"] / len(self.seconds), 1),
            "CPU of the clients, ms": round(1000 * self.cpu["client"] / len(self.seconds), 1),
            "memory in the second and in the last third, MB": (
                f"{np.mean(self.memory[third : 2 * third]):.0f}, {np.mean(self.memory[-third:]):.0f}"
            ),
            "programs that wanted a core beside it": round(np.mean(self.others), 1),
        }
        print(row, dict(self.statuses), dict(self.bad) or "", flush=True)
        if out is not None:
            record = json.loads(out.read_text()) if out.exists() else {}
            out.write_text(json.dumps(record | {who: row}, indent=1) + "\n")


def table(n: int = 3000) -> tuple[pd.DataFrame, NDArray[np.str_]]:
    """People with 30 features of all kinds, and decisions that depend on all of them."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {f"amount_{i}": rng.normal(50, 10, n).round(2) for i in range(16)}
        | {f"count_{i}": rng.integers(0, 100, n) for i in range(6)}
        | {f"kind_{i}": rng.choice(["a", "b", "c", "d"], n) for i in range(5)}
        | {f"flag_{i}": rng.random(n) < 0.5 for i in range(3)}
    )
    codes = frame.apply(lambda values: pd.factorize(values, sort=True)[0]).to_numpy()
    merit = ((codes - codes.mean(0)) / codes.std(0)) @ rng.normal(size=frame.shape[1])
    return frame, np.where(merit + rng.normal(size=n) > 0, "granted", "refused")


@contextmanager
def server(folder: Path, workers: int, way: tuple[int, float]) -> Iterator[tuple[int, int]]:
    """A service in processes of its own, ready to be asked: its port and the id of its process."""
    arguments = [str(folder), "0", str(workers), *map(str, way)]
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", SERVER, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline()
        if not address:
            raise RuntimeError("the server did not start")
        took, cpu = time.perf_counter() - start, cpu_seconds(process.pid)
        print(f"{workers} workers, ready after {took:.1f} s, {cpu:.1f} s of them at work", flush=True)
        yield int(address.rsplit(":", 1)[1]), process.pid
    finally:
        start = time.perf_counter()
        process.terminate()
        process.wait()
        print(f"stopped within {time.perf_counter() - start:.1f} s, exit code {process.returncode}", flush=True)


async def ask(port: int, requests: list[bytes], until: float, pause: float, out: LoadResult, seed: int) -> None:
    """One person after another on one connection, each when the answer before was looked at."""
    rng, streams = random.Random(seed), None
    if pause:
        await asyncio.sleep(rng.uniform(0, pause))
    while time.perf_counter() < until:
        start = time.perf_counter()
        try:
            streams = streams or await asyncio.open_connection("127.0.0.1", port)
            status = await asyncio.wait_for(exchange(*streams, rng.choice(requests)), PATIENCE)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            status, streams = type(error).__name__, None
        out.seconds.append(time.perf_counter() - start)
        out.statuses[status] += 1
        if pause:
            await asyncio.sleep(rng.uniform(0, 2 * pause))
    if streams:
        streams[1].close()


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> str:
    """Send a request, and read the whole answer: its status."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    await reader.readexactly(length)
    return head.split(b" ", 2)[1].decode()


async def misbehave(port: int, requests: list[bytes], until: float, out: LoadResult, seed: int) -> None:
    """A client that is slow, leaves, or sends what nobody can read, again and again."""
    rng = random.Random(seed)
    while time.perf_counter() < until:
        way = ("drips", "half a body", "garbage", "leaves", "does not read", "nonsense")[rng.randrange(6)]
        out.bad[way] += 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            request = rng.choice(requests)
            if way == "drips":
                for byte in request[:20]:
                    if writer.is_closing():  # sent away
                        break
                    writer.write(bytes([byte]))
                    await asyncio.sleep(0.5)
            elif way == "half a body":
                writer.write(request[:-50])
                await asyncio.sleep(3)
            elif way == "garbage":
                writer.write(rng.randbytes(2000))
                await asyncio.wait_for(reader.read(), 3)
            elif way == "leaves":
                writer.write(request)
                await asyncio.sleep(0.01)
            elif way == "does not read":
                writer.write(request * 20)
                await asyncio.sleep(2)
            else:
                await asyncio.wait_for(exchange(reader, writer, request.replace(b'"rows": [{', b'"rows": [{{', 1)), 3)
            writer.close()
        await asyncio.sleep(rng.uniform(0, 0.3))


def write_requests(people: list[dict[str, Any]]) -> list[bytes]:
    """Requests for recourse, made beforehand: the clients share the machine with the server."""
    requests = []
    for person in people:
        body = json.dumps({"rows": [person]}).encode()
        head = b"POST /explain HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        requests.append(head + b"content-length: %d\r\n\r\n" % len(body) + body)
    return requests


async def load(
    address: tuple[int, int], requests: list[bytes], n: int, seconds: float, *, pause: float = 0.0, n_bad: int = 0
) -> LoadResult:
    """So many clients at once, for so long; a few seconds before are not counted."""
    port, pid = address
    for lasts in (min(3.0, seconds), seconds):
        result, start, cpu = LoadResult(), time.perf_counter(), (cpu_seconds(pid), time.process_time())
        until = start + lasts
        watch = asyncio.ensure_future(watch_memory(pid, result))
        good = [ask(port, requests, until, pause, result, i) for i in range(n)]
        await asyncio.gather(*good, *(misbehave(port, requests, until, result, n + i) for i in range(n_bad)))
        watch.cancel()
        result.lasted = time.perf_counter() - start
        result.cpu = {"server": cpu_seconds(pid) - cpu[0], "client": time.process_time() - cpu[1]}
    return result


async def watch_memory(pid: int, out: LoadResult) -> None:
    """Note the memory of the server every second."""
    while True:
        out.memory.append(sum(map(megabytes, family(pid))))
        out.others.append(max(0, int(Path("/proc/loadavg").read_text().split()[3].split("/")[0]) - 2))
        await asyncio.sleep(1)


def family(pid: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


def megabytes(pid: int) -> float:
    """Memory of a process; what it shares with others is counted in parts."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1000
    return 0.0


def cpu_seconds(pid: int) -> float:
    """What a process and its children have used so far."""
    total = 0.0
    for one in family(pid):
        fields = Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def fit(folder: Path) -> list[bytes]:
    """Train the model, if it is not there, and the requests for its people."""
    frame, y = table()
    if not folder.exists():
        CounterfactualClassifier(immutable=["count_0"], epochs=20, random_state=0).fit(frame, y).save(folder)
    return write_requests(json.loads(frame.to_json(orient="records")))


def main() -> None:
    """All ways, and how much faster two workers are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--bad", type=int, default=40, help="slow and broken clients among them")
    parser.add_argument("--pause", type=float, default=2.0, help="seconds that a client looks at an answer")
    parser.add_argument("--only-mixed", action="store_true")
    parser.add_argument("--unbatched", action="store_true")
    parser.add_argument("--out", type=Path, help="record of docs/reliability.md: results/reliability/load.json")
    parser.add_argument("--model", type=Path, help="folder to keep the model in")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = given.model or Path(folder) / "model"
        requests, rates = fit(model), dict[tuple[int, int], float]()
        if not given.only_mixed:
            for workers in (1, 2):
                with server(model, workers, BATCHED) as address:
                    if workers == 1:
                        asyncio.run(load(address, requests, 1, min(10.0, given.seconds))).tell("one alone", given.out)
                    for clients in (given.clients // 2, given.clients) if workers == 1 else (given.clients,):
                        result = asyncio.run(load(address, requests, clients, given.seconds / 3))
                        result.tell(f"{clients} as fast as they can, {workers} workers", given.out)
                        rates[workers, clients] = result.rate
            two, all_of_one, half_of_one = (
                rates[key] for key in ((2, given.clients), (1, given.clients), (1, given.clients // 2))
            )
            print(
                f"two workers answer {two / half_of_one:.2f} times as many as one with as many clients each, and "
                f"{two / all_of_one:.2f} times as many as one with all of them"
            )
        with server(model, 2, BATCHED) as address:
            mixed = load(address, requests, given.clients, given.seconds, pause=given.pause, n_bad=given.bad)
            asyncio.run(mixed).tell(f"{given.clients} and {given.bad} bad ones, 2 workers", given.out)
        if given.unbatched:
            with server(model, 1, ONE_BY_ONE) as address:
                result = asyncio.run(load(address, requests, given.clients, given.seconds / 3))
            result.tell("one by one")
            together = rates.get((1, given.clients))
            print(f"micro-batching answers {together / result.rate:.1f} times as many" if together else "")


if __name__ == "__main__":
    main()
