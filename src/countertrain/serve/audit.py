"""A file of all decisions and advice, to which is only ever added: each line vouches for the one before."""

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["INPUTS", "Audit", "AuditError", "Inputs", "Verified", "verify"]

Inputs = Literal["hashed", "whole"]
INPUTS: tuple[Inputs, ...] = get_args(Inputs)
_FORMAT = "countertrain audit 1"
_TAIL = 2**16  # bytes in which the end of the file is looked for at first
_KEY = 16  # characters of a key, at least


class AuditError(ValueError):
    """A file of an audit cannot be used or is not as it was written; the message says where."""


@dataclass(frozen=True)
class Audit:
    """Where decisions are written down, and what of the people: a hash that only the key can check, or all."""

    path: Path
    inputs: Inputs = "hashed"
    key: str | None = None

    def __post_init__(self) -> None:
        if fcntl is None:
            raise ValueError("an audit needs locks of files, which this system does not have; serve without one")
        if self.inputs == "hashed" and self.key is None:
            raise ValueError("an audit with hashed inputs needs a key; name an environment variable that holds one")
        if self.key is not None and len(self.key) < _KEY:
            raise ValueError(
                f"the key of an audit must have at least {_KEY} characters; `openssl rand -hex 32` makes one"
            )

    def check(self) -> None:
        """Begin the file, or refuse one that is not an audit with this key."""
        self.write([])

    def write(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Add entries, all or none; several processes may do so in turn."""
        try:
            with self._locked() as file:
                last = self._read_last(file)
                lines = [] if last else [self._begin()]
                for entry in entries:
                    before = lines[-1] if lines else last
                    lines.append(self._chain(entry, before))
                _append(file, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())
        except OSError as error:
            raise AuditError(f"the audit {self.path} cannot be written ({error.strerror})") from error

    def describe(self, row: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
        """A person and the answer, whole, or as hashes with what is not personal of the answer."""
        if self.inputs == "whole":
            return {"input": dict(row), "answer": dict(answer)}
        salt = secrets.token_hex(8)
        kept = {name: answer[name] for name in ("decision", "target", "probability", "existence") if name in answer}
        if "options" in answer:
            kept["options"] = [
                {"valid": one["valid"], "changed": [change["column"] for change in one["changes"]]}
                for one in answer["options"]
            ]
        hashes = {"input": self._digest([salt, dict(row)]), "answer": self._digest([salt, dict(answer)])}
        return {"salt": salt, **{f"{name}_hash": one for name, one in hashes.items()}, "answer": kept}

    @contextmanager
    def _locked(self) -> Iterator[int]:
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)

    def _read_last(self, file: int) -> dict[str, Any]:
        """The last whole line; half of one, of a writer that was killed before it could answer, is taken back."""
        size = os.fstat(file).st_size
        if not size:
            return {}
        reach = _TAIL
        while True:
            start = max(0, size - reach)
            tail = os.pread(file, size - start, start)
            whole = tail[: tail.rfind(b"\n") + 1]
            if start == 0 or whole[:-1].count(b"\n"):
                break
            reach *= 4
        if len(whole) < len(tail):
            os.ftruncate(file, start + len(whole))
        line = whole[whole[:-1].rfind(b"\n") + 1 :]
        if not line:
            return {}
        last = _parse(line, "the last line of " + str(self.path))
        if last["hash"] != self._digest({name: value for name, value in last.items() if name != "hash"}):
            raise AuditError(f"{self.path} is no audit with this key, or its last line was changed; begin another file")
        return last

    def _begin(self) -> dict[str, Any]:
        return self._chain({"format": _FORMAT, "inputs": self.inputs, "keyed": self.key is not None}, {})

    def _chain(self, entry: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
        """An entry with its number, its time, and a hash of it all and of the line before."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"n": before.get("n", -1) + 1, "time": now, **entry, "previous": before.get("hash", "")}
        return line | {"hash": self._digest(line)}

    def _digest(self, content: Any) -> str:
        text = json.dumps(content, sort_keys=True, ensure_ascii=False).encode()
        if self.key is None:
            return hashlib.sha256(text).hexdigest()
        return hmac.new(self.key.encode(), text, hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class Verified:
    """What a whole audit holds."""

    entries: int
    first: str
    last: str
    """When the first and the last line were written."""
    hash: str
    """Of the last line: whoever has noted it knows later that nothing was cut off."""


def verify(path: Path, key: str | None = None, *, last: str | None = None) -> Verified:
    """Whether each line is as it was written, and none is missing; `last` is a hash that must still be there."""
    audit = Audit(path, "whole", key)
    before: dict[str, Any] = {}
    first, seen = "", last is None
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            where = f"line {number} of {path}"
            line = _parse(text, where)
            if number == 1 and bool(line.get("keyed")) != (key is not None):
                raise AuditError(f"{path} was written {'with' if line.get('keyed') else 'without'} a key; verify it so")
            if line["hash"] != audit._digest({name: value for name, value in line.items() if name != "hash"}):
                wrong = " or the key is another one" if number == 1 else ""
                raise AuditError(f"{where} was changed after it was written{wrong}")
            if line["previous"] != before.get("hash", "") or line["n"] != number - 1:
                raise AuditError(f"{where} does not follow the line before it: lines were taken out, added or moved")
            before, first, seen = line, first or line["time"], seen or line["hash"] == last
    if not before:
        raise AuditError(f"{path} is empty")
    if not seen:
        raise AuditError(f"{path} does not hold the line with hash {last}: its end was cut off, or it is another audit")
    return Verified(before["n"], first, before["time"], before["hash"])


def _parse(text: bytes, where: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except ValueError:
        line = None
    if not isinstance(line, dict) or not {"n", "time", "previous", "hash"} <= line.keys() or text[-1:] != b"\n":
        raise AuditError(f"{where} is no line of an audit, or cut off")
    return line


def _append(file: int, content: bytes) -> None:
    """Write all of it to the disk, or nothing."""
    size = os.fstat(file).st_size
    try:
        while content:
            content = content[os.write(file, content) :]
        os.fsync(file)
    except OSError:
        os.ftruncate(file, size)
        raise
