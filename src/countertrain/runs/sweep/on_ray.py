"""Workers that are Ray tasks, on a cluster that runs already or on one of this machine."""

import importlib
import importlib.util
import itertools
import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch

from countertrain.runs.settings import Settings
from countertrain.runs.sweep.job import Answer, Job, Trouble, attempt
from countertrain.runs.sweep.store import SweepError
from countertrain.tables import catalogue

__all__ = ["RayTasks"]

_CONNECT, _ANSWER = 10.0, 60.0  # seconds for a cluster to take a call, and to answer as one
_HERE = ("", "local")
_CLIENT = "ray://"


class RayTasks:
    """Ray tasks of one CPU each; a lost worker or node is a `Trouble`, so the driver decides what to try again."""

    def __init__(self, address: str | None = None, *, cpus: int = 2) -> None:
        """A cluster by its address (ray://host:10001, host:6379, auto), or a new one of so many CPUs here."""
        try:
            self._ray: Any = importlib.import_module("ray")
        except ModuleNotFoundError as error:
            raise ValueError("--backend ray needs Ray; install it with: pip install 'countertrain[ray]'") from error
        self._address = address or os.environ.get("RAY_ADDRESS", "")
        if self._address.startswith(_CLIENT) and importlib.util.find_spec("grpc") is None:
            raise ValueError(f"{_CLIENT} addresses need Ray's client; install it with: pip install 'countertrain[ray]'")
        self._cpus = cpus
        self._jobs: dict[Any, tuple[int, Job]] = {}
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        self._borrowed = self._ray.is_initialized()
        if not self._borrowed:
            self._connect()
        # retries are the driver's: Ray would try a population that is too large for the memory again as it is
        self._task = self._ray.remote(num_cpus=1, max_retries=0)(_task)
        self._shares = self._ray.remote(num_cpus=0, max_restarts=-1)(_Shares).remote()
        return self

    def __exit__(self, *error: object) -> None:
        if not self._borrowed:
            self._ray.shutdown()
            return
        for ref in self._jobs:
            self._ray.cancel(ref, force=True)
        self._ray.kill(self._shares)

    @property
    def n(self) -> int:
        """How many CPUs the cluster has now."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def submit(self, job: Job) -> None:
        """Start a task for the job, with a number under which it reports."""
        number, sent = next(self._numbers), replace(job, runs=tuple(map(_from_anywhere, job.runs)))
        self._jobs[self._task.remote(sent, number, self._shares)] = number, job

    def news(self) -> Iterator[tuple[Job, float | Answer]]:
        """Answers as they come; while none does, how far the jobs are."""
        done, _ = self._ray.wait(list(self._jobs), timeout=1)
        for ref in done:
            yield self._jobs.pop(ref)[1], self._answer(ref)
        if not done:
            shares: dict[int, float] = {}
            with suppress(self._ray.exceptions.RayError):  # the node that counted is lost, and counts anew elsewhere
                shares = self._ray.get(self._shares.all.remote(), timeout=5)
            yield from [(job, shares[number]) for number, job in self._jobs.values() if number in shares]

    def _answer(self, ref: Any) -> Answer:
        ray = self._ray.exceptions
        try:
            answer: Answer = self._ray.get(ref)
        except (ray.NodeDiedError, ray.ObjectLostError):
            return Trouble("lost its node", innocent=True)
        except (ray.WorkerCrashedError, ray.OutOfMemoryError):
            return Trouble("lost its worker, perhaps for want of memory")
        except ray.RayError as error:  # of what the cluster lacks, such as this package
            return Trouble(f"failed: {str(error).strip().splitlines()[-1]}", lost=False)
        return answer

    def _connect(self) -> None:
        options: dict[str, Any] = {"address": self._address}
        if self._address in _HERE:
            options = {"address": "local", "num_cpus": self._cpus, "include_dashboard": False}
        elif self._address != "auto":
            _knock(self._address)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of Ray's own affairs
                self._ray.init(**options, log_to_driver=False, logging_level="ERROR")
        except Exception as error:  # whatever Ray raises, even plain ones
            if self._address in _HERE:
                raise SweepError(f"Ray cannot be started on this machine ({error})") from error
            raise _unreachable(self._address, error) from error


class _Shares:
    """An actor that knows which share of each job is done."""

    def __init__(self) -> None:
        self._shares: dict[int, float] = {}

    def tell(self, job: int, share: float) -> None:
        self._shares[job] = share

    def all(self) -> dict[int, float]:
        return self._shares


def _task(job: Job, number: int, shares: Any) -> Answer:
    torch.set_num_threads(1)
    return attempt(job, report=lambda share: shares.tell.remote(number, share))


def _from_anywhere(run: Settings) -> Settings:
    """Tasks run in folders of their own: the path of data that are not of the catalogue becomes absolute."""
    return run if run.data in catalogue() else run.model_copy(update={"data": str(Path(run.data).resolve())})


def _knock(address: str) -> None:
    """Make sure that Ray is there; it would try for minutes by itself."""
    host, _, port = address.removeprefix(_CLIENT).rpartition(":")
    if not host or not port.isdecimal():
        raise SweepError(f"--address is given as HOST:PORT or ray://HOST:PORT; got {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT).close()
        if not address.startswith(_CLIENT):  # whose client has a limit of its own
            ask = [sys.executable, "-m", "ray.scripts.scripts", "status", "--address", address]
            subprocess.run(ask, check=True, capture_output=True, text=True, timeout=_ANSWER)
    except subprocess.TimeoutExpired as error:
        raise _unreachable(address, "what answers there is not Ray") from error
    except subprocess.CalledProcessError as error:  # such as a token that is missing: Ray says how to give it
        raise _unreachable(address, error.stderr.strip().splitlines()[-1][:300]) from error
    except (OSError, OverflowError) as error:
        raise _unreachable(address, error) from error


def _unreachable(address: str, why: object) -> SweepError:
    return SweepError(
        f"no Ray cluster answers at {address} ({why}); start one with `ray start --head`, or leave --address out"
    )
