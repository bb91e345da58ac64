"""The page on reliability says what the records say."""

import shutil
from pathlib import Path

from tests.reliability import PAGE, RECORDS, render


def test_the_tables_of_the_page_are_those_of_the_records(tmp_path: Path) -> None:
    shutil.copytree(RECORDS, tmp_path / "records")
    shutil.copy(PAGE, tmp_path / "page.md")
    parts = ["kills", "moments", "limits", "loaders", "service", "mutants", "load"]
    assert render(tmp_path / "records", tmp_path / "page.md") == parts
    assert (tmp_path / "page.md").read_text() == PAGE.read_text()
