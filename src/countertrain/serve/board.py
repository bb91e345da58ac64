"""Memory that the processes of a service share: each has a page of its own to write, and all read all."""

import json
import mmap
import struct
from collections.abc import Mapping
from typing import Any
from zlib import crc32

__all__ = ["Board"]

_PAGE = 2**20  # bytes, of which the system lends only those that are written
_HEAD = struct.Struct("<II")  # length and checksum


class Board:
    """One page per worker, and one that says which models are wanted.

    A page that is read while it is written does not match its checksum; then what was read last still holds.
    """

    def __init__(self, n_workers: int = 1) -> None:
        self.n_workers, self.worker = n_workers, 0
        self._memory = mmap.mmap(-1, _PAGE * (n_workers + 1))
        self._last: dict[int, dict[str, Any]] = {}

    def write(self, content: Mapping[str, Any]) -> None:
        """Write the page of this worker."""
        self._write(self.worker, content)

    def read_others(self) -> list[dict[str, Any]]:
        """What all other workers have written."""
        return [page for i in range(self.n_workers) if i != self.worker and (page := self._read(i))]

    def count_written(self) -> int:
        """How many workers have written their page."""
        return sum(bool(self._read(i)) for i in range(self.n_workers))

    def read_own(self) -> dict[str, Any]:
        """What this worker, or one in its place before it, has written last."""
        return self._read(self.worker)

    @property
    def wanted(self) -> dict[str, Any]:
        """Which models are to be served, if that has changed since the start."""
        return self._read(self.n_workers)

    @wanted.setter
    def wanted(self, content: Mapping[str, Any]) -> None:
        self._write(self.n_workers, content)

    def _write(self, page: int, content: Mapping[str, Any]) -> None:
        text, start = json.dumps(content).encode(), page * _PAGE
        if len(text) > _PAGE - _HEAD.size:
            raise ValueError(f"a page of the board holds {_PAGE:,} bytes; got {len(text):,}")
        self._memory[start + _HEAD.size : start + _HEAD.size + len(text)] = text
        self._memory[start : start + _HEAD.size] = _HEAD.pack(len(text), crc32(text))

    def _read(self, page: int) -> dict[str, Any]:
        start = page * _PAGE
        length, checksum = _HEAD.unpack_from(self._memory, start)
        text = self._memory[start + _HEAD.size : start + _HEAD.size + length]
        if length and crc32(text) == checksum:
            self._last[page] = json.loads(text)
        return self._last.get(page, {})
