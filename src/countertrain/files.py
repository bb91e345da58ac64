"""Files and folders written whole or not at all, tensors without pickle, and one writer at a time per folder."""

import errno
import hashlib
import itertools
import json
import os
import re
import shutil
import socket
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from torch import Tensor

try:
    import fcntl
except ModuleNotFoundError:  # Windows, where a file can vanish with the process that has opened it
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "LOCK",
    "CheckpointError",
    "InUseError",
    "Writer",
    "check_writable",
    "in_use",
    "is_left_over",
    "locked",
    "new_file",
    "new_folder",
    "one_sentence",
    "read_tensors",
    "recover_folder",
    "write_bytes",
    "write_tensors",
    "write_text",
]

LOCK = ".lock"
"""The file in a folder that says who writes there."""
_CHECKSUM = "sha256"
_WITHOUT_FLOCK: int = 0 if fcntl else os.O_EXCL | getattr(os, "O_TEMPORARY", 0)


class CheckpointError(ValueError):
    """A file of weights or of training state cannot be used; the message says why."""


class InUseError(ValueError):
    """Another process writes into the folder; the message says which, since when, and what to do."""


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """The name of a temporary file to write, which takes the place of `path` once all is written.

    What a killed writer of `path` left beside it is written over, so that nothing heaps up.
    """
    replaced, temporary, handle = False, path, -1
    try:
        temporary, handle = _reserve(path)
        yield temporary
        temporary.replace(path)
        replaced = True
    except OSError as error:  # a full disk names no file, others the temporary one
        if error.errno is not None and (error.filename is None or is_left_over(Path(error.filename).name, {path.name})):
            error.filename = str(path)
        raise
    finally:
        if not replaced and temporary != path:
            temporary.unlink(missing_ok=True)
        if handle >= 0:
            os.close(handle)


def check_writable(path: Path) -> None:
    """Refuse a file that could not be written once the work for it is done; nothing of the attempt is left."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    with suppress(_EnoughError), new_file(path):
        raise _EnoughError


class _EnoughError(Exception):
    """A file could be begun, and that was all there was to know."""


def _reserve(path: Path) -> tuple[Path, int]:
    """A name beside `path` that no living writer uses, and what keeps others off it: a lock on the open file."""
    for i in itertools.count():
        temporary = path.with_name(f".{path.name}.{i}")
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT, 0o666) if fcntl else -1
        held = _flock(handle)
        if held and _is_open_at(handle, temporary):  # else its writer has just put it in place
            os.ftruncate(handle, 0)
            return temporary, handle
        if fcntl:
            os.close(handle)
        if held is None:  # system or disk know no locks
            temporary.unlink(missing_ok=True)
            return _beside(path), -1
    raise AssertionError  # there is always another number


def is_left_over(name: str, of: Collection[str]) -> bool:
    """Whether a name is a temporary one, of a file or folder of these names."""
    found = re.fullmatch(r"\.(.+)\.(\d+|[0-9a-f]{32})", name)
    return found is not None and found[1] in of


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    with new_file(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    write_bytes(path, text.encode())


def write_tensors(path: Path, tensors: Mapping[str, "Tensor"], meta: Mapping[str, Any]) -> None:
    """Write tensors and JSON-able metadata with their checksum, whole or not at all."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    separate = _separate(tensors)
    # one note: of several, safetensors writes now this one first and now that one, and the same would not be the same
    notes = {"json": json.dumps({**meta, _CHECKSUM: _sum_up(separate, json.dumps(meta))})}
    with new_file(path) as temporary:
        try:
            save_file(separate, temporary, notes)
        except SafetensorError as error:
            code = re.search(r"os error (\d+)", str(error))
            if code is None:
                raise OSError(f"{path} cannot be written: {error}") from error
            raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from error


def _sum_up(tensors: Mapping[str, "Tensor"], text: str) -> str:
    """A checksum of names, types, shapes and numbers of contiguous tensors, and of what was noted with them."""
    import torch

    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _separate(tensors: Mapping[str, "Tensor"]) -> dict[str, "Tensor"]:
    """The tensors on the CPU, none of which shares its memory with another; only those that would are copied."""
    separate: dict[str, Tensor] = {}
    taken: set[int] = set()
    for name, given in tensors.items():
        tensor = given.detach().cpu().contiguous()
        memory = tensor.untyped_storage()
        if memory.data_ptr() in taken or memory.nbytes() != tensor.nbytes:
            tensor = tensor.clone()
        taken.add(memory.data_ptr())
        separate[name] = tensor
    return separate


def read_tensors(path: Path) -> tuple[dict[str, "Tensor"], dict[str, Any]]:
    """Tensors and metadata as `write_tensors` wrote them; no code in the file is ever run."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise CheckpointError(f"there is no file {path}; check the folder, or train first")
    try:
        with safe_open(path, framework="pt") as file:
            notes = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dict
        meta = dict(json.loads(notes.get("json", "{}")))
        said = meta.pop(_CHECKSUM, None)
        if said is not None and said != _sum_up(tensors, json.dumps(meta)):  # other programs write none
            raise CheckpointError(f"{path} is not as it was written, by its checksum; delete it and train again")
        return tensors, meta
    except CheckpointError:
        raise
    except (SafetensorError, ValueError, TypeError, OSError) as error:
        raise CheckpointError(
            f"{path} is truncated or not a safetensors file ({error}); delete it and train again"
        ) from error


@contextmanager
def one_sentence(file: Path, way_out: str) -> Iterator[None]:
    """Whatever is wrong with the content of a file is said in one sentence."""
    try:
        yield
    except CheckpointError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, RuntimeError) as error:
        from importlib.metadata import version  # as much to import as all else here

        said = str(error).split("\n")[0]
        if callable(details := getattr(error, "errors", None)):  # of pydantic
            first = details()[0]
            said = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise CheckpointError(
            f"{file} is not for countertrain {version('countertrain')} to read ({said}); {way_out}"
        ) from error


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """An empty folder to fill, which takes the place of `path` once all is written; else `path` stays as it was.

    Whoever asks has `path` locked, if others might write there, too: what killed writers left beside it is removed.
    """
    path = path.resolve()
    if path.exists() and not path.is_dir():
        raise FileExistsError(f"{path} is a file; choose another folder")
    _remove(_find_beside(path))  # of writers that were killed
    fresh, old = _beside(path), _beside(path)
    fresh.mkdir(parents=True)
    replaced = False
    try:
        yield fresh
        _flush(fresh)
        if path.exists():
            path.rename(old)
        fresh.rename(path)
        replaced = True
    finally:
        if old.exists() and not replaced:
            shutil.rmtree(path, ignore_errors=True)  # which another process may have made in this instant
            old.rename(path)
        _remove((fresh, old))


def _flush(folder: Path) -> None:
    """Have the disk write what a folder holds, so that a power cut after the rename finds it whole."""
    if os.name == "nt":
        return
    for entry in (*folder.rglob("*"), folder):
        handle = os.open(entry, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _find_beside(path: Path) -> list[Path]:
    """Folders under the hidden names that `new_folder` gives while it replaces `path`."""
    if not path.parent.is_dir():
        return []
    return [one for one in path.parent.iterdir() if is_left_over(one.name, {path.name}) and one.is_dir()]


def recover_folder(path: Path, is_whole: Callable[[Path], bool]) -> None:
    """Put the newest whole folder in place where a writer was killed between the two renames of `new_folder`.

    That it was killed is known by the lock file in the folder that it had moved away, which nobody holds any more.
    Where it was killed after them, the old folder is removed.
    """
    path = path.resolve()
    beside = _find_beside(path)
    if path.exists():
        if beside and is_whole(path):
            with suppress(InUseError, OSError), locked(path):  # else somebody writes, or nobody may
                _remove(beside)
        return
    moved_away = [folder for folder in beside if (folder / LOCK).is_file()]
    if not moved_away:
        return
    with suppress(InUseError), locked(moved_away[0]):  # else its writer is about to put the new one in place
        whole = [folder for folder in beside if is_whole(folder)]
        if whole and not path.exists():
            max(whole, key=lambda folder: (folder not in moved_away, folder.stat().st_mtime)).rename(path)
            _remove(beside)


def _remove(folders: Iterable[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Writer:
    """The process that writes into a folder, as its lock file says."""

    pid: int
    host: str
    since: str

    @classmethod
    def here(cls) -> Self:
        """The process that asks."""
        return cls(os.getpid(), socket.gethostname(), datetime.now(UTC).isoformat(timespec="seconds"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self | None:
        """The writer that a lock file names; None while nobody has put a name into it."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None

    def to_json(self) -> str:
        """What a lock file holds."""
        return json.dumps(asdict(self))

    @property
    def is_local(self) -> bool:
        """Whether it is, or was, a process of this machine."""
        return self.host == socket.gethostname()

    @property
    def has_ended(self) -> bool:
        """Whether it is known to run no longer; of another machine, and on Windows, nothing is known."""
        if not self.is_local or os.name == "nt":
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:  # it is somebody else's
            return False
        return False


def in_use(place: object, writer: Writer | None, lock: object) -> InUseError:
    """The sentence for whoever comes second."""
    who = f"process {writer.pid} on {writer.host} since {writer.since}" if writer else "one that has only just begun"
    return InUseError(
        f"{place} is in use by {who}; wait for it, choose another folder, or delete {lock} if it no longer runs"
    )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the only one to write into a folder, which is made if need be; whoever comes second gets `InUseError`.

    The kernel holds the lock for as long as the process lives, so that what a killed one leaves behind can be taken
    over at once, and by one only. The lock file of another machine is never taken over.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / LOCK
    handle = _take(folder, file)
    try:
        yield
    finally:
        with suppress(OSError):
            if _is_open_at(handle, file):  # else the folder has been replaced meanwhile
                file.unlink()
        os.close(handle)


def _take(folder: Path, file: Path) -> int:
    """The open lock file, in which this process has put its name."""
    while True:
        try:
            handle = os.open(file, os.O_RDWR | os.O_CREAT | _WITHOUT_FLOCK, 0o644)
        except FileExistsError as error:  # without flock
            raise in_use(folder, None, file) from error
        try:
            by_kernel = _flock(handle)
            writer = Writer.from_json(os.read(handle, 1000))
            if by_kernel is False or (writer and not (writer.is_local if by_kernel else writer.has_ended)):
                raise in_use(folder, writer, file)
            if _is_open_at(handle, file):
                _sign(handle, file)
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # whoever had it has finished in this instant, and removed it: once more


def _sign(handle: int, file: Path) -> None:
    """Put the name of this process into the open lock file, or leave none where there is no room for it."""
    try:
        os.ftruncate(handle, 0)
        os.lseek(handle, 0, os.SEEK_SET)
        os.write(handle, Writer.here().to_json().encode())
    except OSError as error:
        file.unlink(missing_ok=True)
        error.filename = str(file)
        raise


def _flock(handle: int) -> bool | None:
    """Whether the kernel gives this process the lock; None where system or disk know no such locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_open_at(handle: int, file: Path) -> bool:
    """Whether the open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(handle), file.stat())
    except FileNotFoundError:
        return False


def _beside(path: Path) -> Path:
    """A name that nobody else uses, on the same disk."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}")
