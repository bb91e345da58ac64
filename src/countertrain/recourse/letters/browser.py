"""HTML printed as PDF by a browser that is installed anyway."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Printer", "open_printer"]

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_SECONDS = 60
_FLAGS = (
    "--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-extensions", "--disable-javascript", "--no-pdf-header-footer",
)  # fmt: skip


@dataclass(frozen=True)
class Printer:
    """A browser with an empty profile and a folder of its own."""

    program: str
    folder: Path

    def print(self, html: str) -> bytes:
        """The page as PDF."""
        page, pdf = self.folder / "letter.html", self.folder / "letter.pdf"
        page.write_text(html, encoding="utf-8")
        pdf.unlink(missing_ok=True)
        root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []  # it refuses to start else
        profile = f"--user-data-dir={self.folder / 'profile'}"
        command = [self.program, *_FLAGS, *root, profile, f"--print-to-pdf={pdf}", page.as_uri()]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise OSError(f"{self.program} did not print a letter within {_SECONDS} seconds; ask for html") from error
        if done.returncode or not pdf.is_file():
            said = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
            raise OSError(f"{self.program} could not print a letter ({said}); ask for html, and print it yourself")
        return pdf.read_bytes()


@contextmanager
def open_printer() -> Iterator[Printer]:
    """A browser to print with; refused in a sentence where there is none."""
    program = next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    if program is None:
        raise ValueError(
            "PDF letters are printed by a browser, and neither chromium nor google-chrome is installed; "
            "install chromium, or ask for html and print that"
        )
    with tempfile.TemporaryDirectory(prefix="countertrain-letters-") as folder:
        yield Printer(program, Path(folder))
