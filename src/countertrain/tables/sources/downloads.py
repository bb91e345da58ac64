"""Where data files lie: the folder named by COUNTERTRAIN_DATA, else the user's cache, else their public source."""

import gzip
import os
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from http.client import HTTPResponse
from pathlib import Path

from countertrain.files import new_file

__all__ = ["DataFileError", "cache_folder", "fetch", "find", "unzip", "watch_downloads"]

Report = Callable[[str, int, int | None], None]
"""Told the name of a file, how many bytes of it have come, and how many there are if that is known."""

_VARIABLE = "COUNTERTRAIN_DATA"
_REPORT: ContextVar[Report | None] = ContextVar("report", default=None)


class DataFileError(ValueError):
    """A data file is missing, damaged or not what it should be; the message says which and what to do."""


def cache_folder() -> Path:
    """Where downloaded files are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "countertrain"


def find(name: str) -> Path | None:
    """The file of this name in the folder named by COUNTERTRAIN_DATA, or in the cache."""
    named = os.environ.get(_VARIABLE)
    if named and not Path(named).is_dir():
        raise DataFileError(f"{_VARIABLE} names {named}, which is not a folder; correct or unset it")
    folders = [Path(named)] if named else []
    for folder in (*folders, cache_folder()):
        if (folder / name).is_file():
            return folder / name
    return None


def unzip(path: Path) -> bytes:
    """The uncompressed content of a gzip file."""
    try:
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataFileError(f"{path} is not a whole gzip file ({error}); delete it, and get it again") from error


def fetch(name: str, source: str, download: Callable[[Path], None], wanted: str | None = None) -> Path:
    """The file from its public source into the cache; an interrupted download leaves nothing behind.

    `wanted` is the name of the file that a user would have to bring instead, if that is another one.
    """
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with _count_bytes(name), new_file(folder / name) as temporary:
            download(temporary)
    except Exception as error:  # whatever the network, a proxy or the source may do
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise DataFileError(
            f"{wanted or name} is neither in the folder named by the environment variable {_VARIABLE} nor in {folder}, "
            f"and could not be downloaded from {source} ({why}); put the file into a folder and set {_VARIABLE} to it, "
            "or try again with a network"
        ) from error
    return folder / name


@contextmanager
def watch_downloads(report: Report) -> Iterator[None]:
    """Whatever is downloaded inside is reported as it comes."""
    token = _REPORT.set(report)
    try:
        yield
    finally:
        _REPORT.reset(token)


@contextmanager
def _count_bytes(name: str) -> Iterator[None]:
    """Report the bytes that urllib reads inside, which is what scikit-learn downloads with."""
    report = _REPORT.get()
    if report is None:
        yield
        return
    urllib.request.install_opener(urllib.request.build_opener(_Counter(name, report)))
    try:
        yield
    finally:
        urllib.request.install_opener(None)  # the next call builds urllib's own again


class _Counter(urllib.request.BaseHandler):
    def __init__(self, name: str, report: Report) -> None:
        self._name, self._report = name, report

    def http_response(self, request: urllib.request.Request, response: HTTPResponse) -> HTTPResponse:
        total = response.headers.get("Content-Length")
        read, done = response.read, 0

        def count(amt: int | None = None) -> bytes:
            nonlocal done
            part = read(amt)
            done += len(part)
            self._report(self._name, done, int(total) if total else None)
            return part

        response.read = count  # type: ignore[method-assign]
        return response

    https_response = http_response
