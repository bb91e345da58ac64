"""Many people ask a running service at once: `python benchmarks/serve_load.py --seconds 60`.

A real server process with a model of 30 features is asked for recourse by 200 clients, each for one random person after
another, and prints how many were answered, how long it took, and the memory of the server before and after;
then the same without micro-batching.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from countertrain.estimator import CounterfactualClassifier

SERVER = """
import sys, torch
from countertrain.serve.app import run
from countertrain.serve.limits import Limits
torch.set_num_threads(1)
folder, port, batch_rows, window = sys.argv[1:]
run(folder, port=int(port), limits=Limits(seconds=300, batch_rows=int(batch_rows), window=float(window)))
"""
PATIENCE = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), 300.0)}
WAYS = (("micro-batching", 256, 0.01), ("one by one", 1, 0.0))


@dataclass
class LoadResult:
    """What the clients saw, and what became of the server's memory."""

    seconds: list[float]
    statuses: Counter[str]
    lasted: float
    memory: tuple[float, float]
    cpu: dict[str, float]
    """Seconds of the server and of the clients, which say something even where other programs are running."""

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.seconds) / self.lasted

    def line(self, name: str) -> str:
        """All in one line."""
        p50, p99 = np.percentile(self.seconds, [50, 99])
        errors = {status: n for status, n in self.statuses.items() if status != "200"}
        return (
            f"{name:16s} {self.rate:7.1f} answers/s   p50 {p50:6.3f} s   p99 {p99:6.3f} s   "
            f"max {max(self.seconds):6.3f} s   {errors or 'no'} errors of {len(self.seconds)}   "
            f"memory {self.memory[0]:.0f} -> {self.memory[1]:.0f} MB   CPU ms an answer: "
            + ", ".join(f"{who} {1000 * spent / len(self.seconds):.2f}" for who, spent in self.cpu.items())
        )


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
def server(folder: Path, port: int, batch_rows: int, window: float) -> Iterator[subprocess.Popen[bytes]]:
    """A service in a process of its own, ready to be asked."""
    arguments = [str(folder), str(port), str(batch_rows), str(window)]
    process = subprocess.Popen([sys.executable, "-c", SERVER, *arguments], stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{port}/healthz").raise_for_status()
                break
            except httpx.TransportError:
                if process.poll() is not None:
                    raise RuntimeError("the server did not start") from None
                time.sleep(0.2)
        yield process
    finally:
        process.terminate()
        process.wait()


async def client(
    http: httpx.AsyncHTTPTransport, rng: np.random.Generator, asked: list[httpx.Request], until: float, out: LoadResult
) -> None:
    """One person after another, each as soon as the one before is answered."""
    while time.perf_counter() < until:
        request = asked[rng.integers(len(asked))]
        start = time.perf_counter()
        try:
            answer = await http.handle_async_request(request)
            await answer.aread()
            status = str(answer.status_code)
        except httpx.HTTPError as error:
            status = type(error).__name__
        out.seconds.append(time.perf_counter() - start)
        out.statuses[status] += 1


async def load(port: int, pid: int, people: list[dict[str, Any]], n_clients: int, seconds: float) -> LoadResult:
    """So many clients at once, for so long; a few seconds before are not counted."""
    url = f"http://127.0.0.1:{port}/explain"
    async with AsyncExitStack() as stack:
        # The clients share the machine with the server: requests are made beforehand, and go the shortest way.
        asked = [httpx.Request("POST", url, json={"rows": [person]}, extensions=PATIENCE) for person in people]
        clients = [await stack.enter_async_context(httpx.AsyncHTTPTransport(verify=False)) for _ in range(n_clients)]
        for lasts in (min(3.0, seconds), seconds):
            start, before = time.perf_counter(), megabytes(pid)
            cpu = cpu_seconds(pid), time.process_time()
            result = LoadResult([], Counter(), 0.0, (before, 0.0), {})
            streams = np.random.default_rng(1).spawn(n_clients)
            until = start + lasts
            await asyncio.gather(*(client(*one, asked, until, result) for one in zip(clients, streams, strict=True)))
            result.lasted, result.memory = time.perf_counter() - start, (before, megabytes(pid))
            result.cpu = {"server": cpu_seconds(pid) - cpu[0], "client": time.process_time() - cpu[1]}
    return result


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def megabytes(pid: int) -> float:
    """Memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu_seconds(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Both ways, and how much faster one is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--only-batched", action="store_true")
    given = parser.parse_args()
    frame, y = table()
    people: list[dict[str, Any]] = json.loads(frame.to_json(orient="records"))
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        CounterfactualClassifier(immutable=["count_0"], epochs=20, random_state=0).fit(frame, y).save(model)
        outcomes = []
        for name, batch_rows, window in WAYS[: 1 if given.only_batched else 2]:
            port = free_port()
            with server(model, port, batch_rows, window) as process:
                outcomes.append(asyncio.run(load(port, process.pid, people, given.clients, given.seconds)))
            print(outcomes[-1].line(name), flush=True)
    if not given.only_batched:
        print(f"micro-batching answers {outcomes[0].rate / outcomes[1].rate:.1f} times as many")


if __name__ == "__main__":
    main()
