"""Downloads are counted as they come, whole or not at all."""

import threading
import urllib.request
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from countertrain.tables.sources.downloads import DataFileError, fetch, watch_downloads

SIZE = 300_000


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "rows.bin").write_bytes(bytes(SIZE))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "www")) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def test_the_bytes_of_a_download_are_reported_as_they_come(server: str) -> None:
    seen: list[tuple[str, int, int | None]] = []
    with watch_downloads(lambda *report: seen.append(report)):
        path = fetch("rows.bin", "here", lambda p: urllib.request.urlretrieve(f"{server}/rows.bin", p) and None)
    assert path.stat().st_size == SIZE
    assert seen[-1] == ("rows.bin", SIZE, SIZE)
    assert len(seen) > 10
    counts = [done for _, done, _ in seen]
    assert counts == sorted(counts)
    before = len(seen)
    urllib.request.urlopen(f"{server}/rows.bin").read()  # nobody else's downloads are counted
    assert len(seen) == before


def test_a_download_that_fails_leaves_nothing_and_says_what_to_do(server: str, tmp_path: Path) -> None:
    def broken(path: Path) -> None:
        urllib.request.urlretrieve(f"{server}/rows.bin", path)
        urllib.request.urlopen(f"{server}/missing")

    with (
        watch_downloads(lambda *report: None),
        pytest.raises(DataFileError, match=r"rows.bin is neither in the folder named by .* COUNTERTRAIN_DATA .*404"),
    ):
        fetch("rows.bin", "here", broken)
    assert list((tmp_path / "cache" / "countertrain").iterdir()) == []
