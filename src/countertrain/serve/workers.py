"""Several processes that share one address: a parent that has loaded the models, and workers that it forks."""

import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Workers", "can_fork"]

_PAUSE = 0.05  # seconds between two looks at the workers
_AGAIN = 1.0  # seconds before a worker that has ended is started again
_log = logging.getLogger(__name__)


def can_fork() -> bool:
    """Whether this system can make a process out of another one."""
    return hasattr(os, "fork")


@dataclass
class Workers:
    """Processes that are started again where they end, and are all stopped in time."""

    n: int
    work: Callable[[int], None]
    """What a worker does, given its number, until it is told to stop."""
    stop_seconds: float
    """After which a worker that is told to stop is killed."""
    reload: Callable[[], None] = lambda: None
    """What the parent does on SIGHUP."""
    tick: Callable[[], None] = lambda: None
    """What it does every second."""
    all_ready: Callable[[], bool] = lambda: True
    ready: Callable[[], None] = lambda: None
    """What it does once all are ready."""
    _pids: dict[int, int] = field(default_factory=dict)
    """By number of the worker."""
    _due: dict[int, float] = field(default_factory=dict)
    _stop: bool = False
    _reload: bool = False

    def run(self) -> None:
        """Start all of them, and look after them until told to stop."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: setattr(self, "_stop", True))
        signal.signal(signal.SIGHUP, lambda *_: setattr(self, "_reload", True))
        for worker in range(self.n):
            self._fork(worker)
        ticked, told = time.monotonic(), False
        while not self._stop:
            time.sleep(_PAUSE)
            self._look()
            if not told and self.all_ready():
                told = True
                self.ready()
            if self._reload:
                self._reload = False
                self.reload()
            if time.monotonic() > ticked + 1:
                ticked = time.monotonic()
                self.tick()
        self._end()

    def _fork(self, number: int) -> None:
        pid = os.fork()
        if pid:
            self._pids[number] = pid
            return
        status = 1
        try:
            for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(one, signal.SIG_DFL)
            self.work(number)
            status = 0
        except BaseException:
            _log.exception("worker %d failed", number)
        finally:
            os._exit(status)  # what is still being searched for would hold the process up

    def _look(self) -> None:
        """Start again whoever has ended."""
        for number, pid in [*self._pids.items()]:
            if os.waitpid(pid, os.WNOHANG)[0]:
                del self._pids[number]
                self._due[number] = time.monotonic() + _AGAIN
                _log.error("worker %d has ended unasked; another one takes its place", number)
        for number, due in [*self._due.items()]:
            if time.monotonic() > due:
                del self._due[number]
                self._fork(number)

    def _end(self) -> None:
        """Tell all to stop, and kill who does not."""
        for pid in self._pids.values():
            os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + self.stop_seconds
        while self._pids and time.monotonic() < until:
            self._pids = {number: pid for number, pid in self._pids.items() if not os.waitpid(pid, os.WNOHANG)[0]}
            time.sleep(_PAUSE / 5)
        for pid in self._pids.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
