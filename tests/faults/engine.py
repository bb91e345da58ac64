"""Work in processes that are killed, run out of disk or lose their folder, at random or at each change of a file.

Python tells of every file that it opens, renames or removes before it does so (`sys.addaudithook`). So a process can be
disturbed at each of these moments in turn, and nothing in the product has to know of it.
"""

import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Act", "Ended", "count_moments", "full_disk", "kill", "remove", "work_apart"]

Work = Callable[[], None]
Act = Callable[[Path], None]
"""What happens at a moment to the process that works in a folder."""
_CHANGES = {"os.rename": 2, "os.remove": 1, "os.mkdir": 1, "os.rmdir": 1, "os.truncate": 1}  # and their paths
_UNEXPECTED = 70


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it said."""

    code: int
    """Negative: the signal that killed it."""
    said: str
    moments: int
    seconds: float

    @property
    def killed(self) -> bool:
        """Whether it had no chance to tidy up."""
        return self.code == -signal.SIGKILL


def kill(folder: Path) -> None:
    """The process ends here and now."""
    os.kill(os.getpid(), signal.SIGKILL)


def full_disk(folder: Path) -> None:
    """What is about to be written does not fit any more."""
    raise OSError(28, "No space left on device")


def remove(folder: Path) -> None:
    """Somebody takes the folder away."""
    shutil.rmtree(folder, ignore_errors=True)


def work_apart(
    work: Work, folder: Path, *, at: int | None = None, act: Act = kill, after: float | None = None, limit: Work = int
) -> Ended:
    """Do some work in a forked process, in which `act` happens at the `at`-th change of a file in the folder.

    Or it is killed `after` so many seconds. `limit` is called first; it may lower what the process is allowed.
    """
    screen, theirs = os.pipe()  # and no file, of which there may be too many or too large ones
    os.set_blocking(screen, False)
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _be_child(work, folder, theirs, at, act, limit)
    os.close(theirs)
    heard = b""
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        heard += _read(screen)
        if after is not None and time.monotonic() - started > after:
            os.kill(pid, signal.SIGKILL)
            after = None
        time.sleep(0.002)
    seconds, said = time.monotonic() - started, (heard + _read(screen)).decode(errors="replace")
    os.close(screen)
    *lines, last = said.rsplit("\n", 1)
    moments = int(last.removeprefix("moments ")) if last.startswith("moments ") else 0
    return Ended(os.waitstatus_to_exitcode(ended[1]), lines[0] if moments else said, moments, seconds)


def count_moments(work: Work, folder: Path) -> Ended:
    """Do the work undisturbed; the result says how many changes of files there were."""
    ended = work_apart(work, folder)
    assert ended.code == 0, ended.said
    return ended


def _read(pipe: int) -> bytes:
    """Whatever there is to read just now."""
    with suppress(BlockingIOError):
        return os.read(pipe, 2**16)
    return b""


def _be_child(work: Work, folder: Path, screen: int, at: int | None, act: Act, limit: Work) -> None:
    """What a forked process does; it never returns."""
    code, seen = _UNEXPECTED, list[str]()
    try:
        for stream in (1, 2):
            os.dup2(screen, stream)
        sys.stdout, sys.stderr = (os.fdopen(stream, "w", buffering=1, closefd=False) for stream in (1, 2))
        seen = _disturb(folder, at, act)
        limit()
        work()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0
    except BaseException:  # whatever it is, it must not reach what the parent does after the fork
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        if code == 0:
            os.write(2, f"\nmoments {len(seen)}".encode())
        os._exit(code)


def _disturb(folder: Path, at: int | None, act: Act) -> list[str]:
    """Let `act` happen before the `at`-th change of a file below the folder; a list that grows by each of them."""
    inside, seen, acting = str(folder), list[str](), list[bool]()

    def hear(event: str, args: tuple[object, ...]) -> None:
        if event == "open":
            writes = (isinstance(args[1], str) and set(args[1]) & set("wax+")) or (
                isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
            )
            paths = args[:1] if writes else ()
        else:
            paths = args[: _CHANGES.get(event, 0)]
        if acting or not any(str(path).startswith(inside) or _is_beside(str(path), folder) for path in paths):
            return
        seen.append(event)
        if len(seen) == at:
            acting.append(True)  # what happens now is no work of the process
            try:
                act(folder)
            finally:
                acting.clear()

    sys.addaudithook(hear)
    return seen


def _is_beside(path: str, folder: Path) -> bool:
    """Whether it is the folder under one of the names that it has while it is replaced."""
    return path.startswith(f"{folder.parent}/.{folder.name}.")
