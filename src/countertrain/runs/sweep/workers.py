"""Who computes the jobs of a sweep: the contract, and the processes of one machine."""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol, Self

from countertrain.runs.sweep.job import Answer, Job, Trouble, attempt
from countertrain.runs.sweep.store import SweepError
from countertrain.runs.work import set_up_worker

__all__ = ["Processes", "Workers"]


class Workers(Protocol):
    """Whoever computes jobs, while the context lasts; what is unfinished at its end is given up."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...

    @property
    def n(self) -> int:
        """How many jobs are computed at a time."""

    def submit(self, job: Job) -> None:
        """Take on a job; those that come first are begun first."""

    def news(self) -> Iterator[tuple[Job, float | Answer]]:
        """Wait for news of the jobs: which share of one is done, or its answer."""


class _Process:
    """A process of one thread that computes the jobs which it is sent."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, os.getpid()), daemon=True)
        self.process.start()
        theirs.close()  # so that the death of the process closes the pipe

    def kill(self) -> int | None:
        """Make sure that it has ended; how it did."""
        self.process.kill()
        self.process.join()
        return self.process.exitcode


def _serve(pipe: "Connection[Any, Any]", driver: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's affair
    set_up_worker(driver)
    with suppress(EOFError, OSError):  # the driver has gone
        while True:
            pipe.send(attempt(pipe.recv(), report=pipe.send))


class Processes:
    """So many processes of this machine, of one thread each."""

    def __init__(self, n: int = 2) -> None:
        if n < 1:
            raise ValueError(f"a sweep needs at least one worker; got {n}")
        self._n = n
        self._waiting: deque[Job] = deque()
        self._idle: list[_Process] = []
        self._busy: dict[object, tuple[_Process, Job]] = {}

    def __enter__(self) -> Self:
        self._idle = [_Process() for _ in range(self._n)]
        return self

    def __exit__(self, *error: object) -> None:
        for worker in (*self._idle, *(worker for worker, _ in self._busy.values())):
            worker.kill()

    @property
    def n(self) -> int:
        """How many processes there are."""
        return self._n

    def submit(self, job: Job) -> None:
        """Give the job to an idle process, now or later."""
        self._waiting.append(job)
        self._feed()

    def news(self) -> Iterator[tuple[Job, float | Answer]]:
        """What the processes say; one that was killed is replaced."""
        for pipe in wait([worker.pipe for worker, _ in self._busy.values()]):
            worker, job = self._busy[pipe]
            try:
                said = worker.pipe.recv()
            except (EOFError, OSError):
                said, worker = _post_mortem(worker), _Process()
            if not isinstance(said, float):
                del self._busy[pipe]
                self._idle.append(worker)
                self._feed()
            yield job, said

    def _feed(self) -> None:
        while self._waiting and self._idle:
            worker, job = self._idle.pop(), self._waiting.popleft()
            self._busy[worker.pipe] = worker, job
            with suppress(OSError):  # one that died meanwhile is found out when it is listened to
                worker.pipe.send(job)


def _post_mortem(worker: _Process) -> Trouble:
    worker.process.join()
    code = worker.process.exitcode or 0
    if code >= 0:  # it ended by itself, before it could take a job
        raise SweepError(
            f"the worker processes cannot be started (exit code {code}); a script that calls `sweep` must do so under "
            'if __name__ == "__main__":'
        )
    return Trouble(f"lost its worker process ({signal.Signals(-code).name}, perhaps for want of memory)")
