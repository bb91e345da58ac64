"""Takes the pictures of the tutorial on credit default from what its own code makes: `python docs/pictures.py`.

Needs chromium, playwright (`pip install -e .[dev]`) and the Credit table (COUNTERTRAIN_DATA, or a download).
"""

import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from playwright.sync_api import Browser, sync_playwright

from countertrain.serve.app import create_app

HERE = Path(__file__).parent
IMAGES = HERE / "images"
PARTS = ("The table", "What happens if you say nothing", "What people cannot change", "Two models", "The report")
PERSON = "6"  # of the examples on the page
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")


def run_tutorial() -> dict[str, Any]:
    """The names that the Python of some parts of the tutorial defines; it writes into the working folder."""
    names: dict[str, Any] = {}
    for part in re.split(r"^## ", (HERE / "tutorial-credit.md").read_text(encoding="utf-8"), flags=re.MULTILINE):
        if part.startswith(PARTS):
            for code in re.findall(r"^```python\n(.*?)^```", part, re.MULTILINE | re.DOTALL):
                exec(code, names)
    return names


@contextmanager
def serve(app: Any) -> Iterator[str]:
    """The address of an app that listens in a thread."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.05)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def picture_page(browser: Browser, address: str) -> None:
    """A person and a decision, and then the options."""
    page = browser.new_page(viewport={"width": 1200, "height": 760})
    page.goto(address)
    page.select_option("#example", PERSON)
    page.wait_for_selector("#decision:text-is('default')")
    page.wait_for_timeout(500)  # bars grow
    page.screenshot(path=IMAGES / "page.png")
    page.click("#ask")
    page.wait_for_selector("#results:not(.old) .option", timeout=120_000)
    page.wait_for_selector("#picture svg")
    page.wait_for_timeout(1000)  # the page scrolls
    page.locator("#results").screenshot(path=IMAGES / "page-options.png")
    page.close()


def picture_report(browser: Browser, path: Path) -> None:
    """What a report begins with, up to its contents."""
    page = browser.new_page(viewport={"width": 960, "height": 960})
    page.goto(path.as_uri())
    page.screenshot(path=IMAGES / "report.png")
    page.close()


def main() -> None:
    """Run the tutorial, and take the pictures."""
    chromium = shutil.which("chromium")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        made = run_tutorial()
        app = create_app(made["ct"].decider, baseline=made["conventional"].decider)
        with serve(app) as address, sync_playwright() as running:
            browser = running.chromium.launch(executable_path=chromium, args=FLAGS)
            picture_page(browser, address)
            picture_report(browser, Path(made["path"]).resolve())
            browser.close()
        os.chdir(HERE)


if __name__ == "__main__":
    main()
