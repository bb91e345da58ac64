"""Where a sweep leaves its results: a folder, or an fsspec URL; one small file per run, whole or not at all."""

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from fsspec.core import url_to_fs  # type: ignore[import-untyped]
from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]

from countertrain.files import LOCK, Writer, in_use, locked, write_text

__all__ = ["Store", "SweepError"]


class SweepError(ValueError):
    """A sweep cannot begin or go on; the message says why, and what is finished is kept."""


class Store:
    """The files of one sweep, at a folder or a URL such as s3://bucket/sweep."""

    def __init__(self, url: str | Path) -> None:
        self.url = str(url)
        try:
            self._fs, self._root = url_to_fs(self.url)
        except (ValueError, ImportError) as error:  # an unknown protocol, or a plug-in that is not installed
            raise SweepError(f"results cannot be kept at {self.url}: {error}") from error

    @property
    def folder(self) -> Path | None:
        """The folder, if it is one of this machine."""
        return Path(self._root) if isinstance(self._fs, LocalFileSystem) else None

    def write(self, name: str, content: str) -> None:
        """Write a file under a temporary name and rename it; object stores show none before it is whole."""
        with self._explained():
            if self.folder is None:
                self._fs.pipe_file(self._path(name), content.encode())
            else:
                path = self.folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                write_text(path, content)

    def write_run(self, key: str, kept: dict[str, Any]) -> None:
        """Keep what a run gave."""
        self.write(f"runs/{key}.json", json.dumps(kept, allow_nan=False) + "\n")

    def read_runs(self, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
        """What was kept of those runs that are finished."""
        self._fs.invalidate_cache()
        try:
            there = {Path(path).name for path in self._fs.ls(self._path("runs"), detail=False)}
        except FileNotFoundError:
            return {}
        paths = {key: self._path(f"runs/{key}.json") for key in keys if f"{key}.json" in there}
        contents = self._fs.cat(list(paths.values())) if paths else {}
        runs = {}
        for key, path in paths.items():
            try:
                runs[key] = dict(json.loads(contents[path]))
            except ValueError as error:
                raise SweepError(
                    f"{path} is not the result of a run ({error}); delete it, and it is computed again"
                ) from error
        return runs

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only driver of this sweep; the lock of a driver that has died on this machine is taken over.

        Should two take over at a URL in the same instant, runs are computed twice but none is written half or lost.
        """
        if self.folder is not None:
            with ExitStack() as stack:
                with self._explained():
                    stack.enter_context(locked(self.folder))
                yield
            return
        path, mine = self._path(LOCK), Writer.here().to_json().encode()
        with self._explained():
            try:
                self._fs.pipe_file(path, mine, mode="create")
            except FileExistsError:
                writer = Writer.from_json(self._fs.cat_file(path))
                if writer is None or not writer.has_ended:
                    raise in_use(self.url, writer, path) from None
                self._fs.pipe_file(path, mine)
        try:
            yield
        finally:
            with suppress(OSError):
                self._fs.rm_file(path)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """A disk that is full or may not be written to is said in one sentence."""
        try:
            yield
        except OSError as error:
            raise SweepError(
                f"cannot write to {self.url} ({error.strerror or error}); finished runs are kept, go on with the same "
                "command when that is mended, or choose another --out"
            ) from error
