"""Whatever happens to a process, nothing is lost: a few disturbances of each kind; `make reliability` does them all."""

import json
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, object]]]:
    """What came of them; in a process of its own, which can be forked without the threads of others."""
    record = tmp_path_factory.mktemp("faults") / "faults.json"
    subprocess.run([sys.executable, "-m", "tests.faults", "--quick", "--out", str(record)], check=True)
    return dict(json.loads(record.read_text()))


@pytest.mark.parametrize(
    ("part", "least"), [("random", 3), ("moments", 8), ("disk", 4), ("removed", 2), ("limits", 14)]
)
def test_killed_without_disk_folder_or_memory_nothing_is_lost_and_all_is_said(
    found: dict[str, list[dict[str, object]]], part: str, least: int
) -> None:
    """Resumed, a job ends with the very result of one that nobody disturbed, and with the same files."""
    assert [trouble for tally in found[part] for trouble in tally["wrong"]] == []  # type: ignore[attr-defined]
    assert sum(int(str(tally["disturbed"])) for tally in found[part]) >= least
