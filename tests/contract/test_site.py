"""The documentation is built without a warning, and needs nothing from another host."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[2]
MISSING = [name for name in ("mkdocs", "material", "mkdocstrings") if find_spec(name) is None]
FETCHED = {"src", "srcset", "poster", "data"}  # attributes whose address a browser fetches by itself

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed: pip install -e '.[docs]'")


class Page(HTMLParser):
    """Collects what a browser fetches to show a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "link" and given.get("rel") not in ("prev", "next", "canonical"):
            self.fetched.append(given.get("href", ""))
        self.fetched += [value for name, value in given.items() if name in FETCHED]
        self.fetched += _of_styles(given.get("style", ""))

    def handle_data(self, data: str) -> None:
        self.fetched += _of_styles(data) if self.cdata_elem == "style" else []


def _of_styles(css: str) -> list[str]:
    return [a or b for a, b in re.findall(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""", css)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


def test_every_document_is_a_page_of_the_site(site: Path) -> None:
    for document in (ROOT / "docs").glob("*.md"):
        assert (site / f"{document.stem}.html").is_file()


def test_nothing_that_a_page_needs_comes_from_another_host(site: Path) -> None:
    needed = {page: Page(page.read_text(encoding="utf-8")).fetched for page in site.rglob("*.html")}
    needed |= {sheet: _of_styles(sheet.read_text(encoding="utf-8")) for sheet in site.rglob("*.css")}
    assert any(address.endswith(".png") for addresses in needed.values() for address in addresses)
    for page, addresses in needed.items():
        for address in addresses:
            parts = urlsplit(address)
            assert parts.scheme == "data" or not (parts.scheme or parts.netloc), f"{page.name} needs {address}"
            if parts.path and parts.scheme != "data" and page.name != "404.html":
                assert (page.parent / parts.path).exists(), f"{page.name} needs {address}, which is not there"


def test_no_page_has_a_diagram_whose_script_would_be_fetched(site: Path) -> None:
    assert not [page.name for page in site.rglob("*.html") if 'class="mermaid"' in page.read_text(encoding="utf-8")]


def test_the_design_quotes_algorithm_1_from_the_source(site: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (site / "design.html").read_text(encoding="utf-8"))
    assert "def _descend" in text
    assert "def _search" in text
    assert "8&lt;" not in text
