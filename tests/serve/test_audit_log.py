"""The audit by itself: what it holds, and that whatever is changed in it is found."""

import json
import threading
from pathlib import Path

import pytest

from countertrain.serve.audit import Audit, AuditError, verify

KEY = "a key that is long enough"
ROW, ANSWER = {"name": "Alice", "age": 40}, {"decision": "refused", "probability": 0.25, "factual": {"name": "Alice"}}


def write(path: Path, n: int = 5, **settings: str) -> Audit:
    audit = Audit(path, **{"inputs": "hashed", "key": KEY, **settings})  # type: ignore[arg-type]
    for i in range(n):
        audit.write([{"request": str(i), **audit.describe(ROW, ANSWER)}])
    return audit


def test_a_chain_is_whole_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    write(path)
    write(path, 3)
    found = verify(path, KEY)
    assert found.entries == 8
    assert verify(path, KEY, last=found.hash) == found
    assert [json.loads(line)["n"] for line in path.read_text().splitlines()] == [*range(9)]


def test_hashed_people_cannot_be_read_or_told_to_be_the_same_and_whole_ones_can(tmp_path: Path) -> None:
    write(tmp_path / "hashed")
    write(tmp_path / "whole", inputs="whole")
    hashed = [json.loads(line) for line in (tmp_path / "hashed").read_text().splitlines()[1:]]
    assert "Alice" not in (tmp_path / "hashed").read_text()
    assert len({line["input_hash"] for line in hashed}) == len({line["salt"] for line in hashed}) == 5
    assert {line["answer"]["decision"] for line in hashed} == {"refused"}
    assert json.loads((tmp_path / "whole").read_text().splitlines()[1])["input"] == ROW


@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        (lambda lines: [*lines[:2], lines[2].replace("refused", "granted"), *lines[3:]], "line 3 .* was changed"),
        (lambda lines: [*lines[:2], *lines[3:]], "line 3 .* does not follow"),
        (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], "line 3 .* does not follow"),
        (lambda lines: [*lines[:3], lines[2], *lines[3:]], "line 4 .* does not follow"),
        (lambda lines: [*lines[:4], "{}\n", *lines[4:]], "line 5 .* is no line of an audit"),
        (lambda lines: [*lines[:-1], lines[-1][:-5]], "line 6 .* is no line of an audit, or cut off"),
        (lambda lines: lines[:-1], "its end was cut off"),
        (lambda lines: lines[1:], "written without a key"),
        (lambda lines: [], "is empty"),
    ],
)
def test_whatever_is_changed_is_found_with_its_line(tmp_path: Path, tamper: object, said: str) -> None:
    path = tmp_path / "audit"
    write(path)
    last = verify(path, KEY).hash
    path.write_text("".join(tamper(path.read_text().splitlines(keepends=True))))  # type: ignore[operator]
    with pytest.raises(AuditError, match=said):
        verify(path, KEY, last=last)


def test_a_chain_cannot_be_forged_without_its_key(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    write(path)
    with pytest.raises(AuditError, match=r"line 1 .* was changed .* or the key is another one"):
        verify(path, "another key of enough letters")
    with pytest.raises(AuditError, match="is no audit with this key"):
        write(path, key="another key of enough letters")
    with pytest.raises(AuditError, match="was written with a key"):
        verify(path)


def test_writers_at_the_same_time_make_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    writers = [threading.Thread(target=write, args=(path, 10)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert verify(path, KEY).entries == 40


def test_half_a_line_of_a_killed_writer_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    write(path)
    with path.open("a") as file:
        file.write('{"n": 6, "time": ')
    write(path, 1)
    assert verify(path, KEY).entries == 6


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"key": None}, "needs a key"), ({"key": "short"}, "must have at least 16 characters")],
)
def test_an_audit_that_anybody_could_forge_is_refused(tmp_path: Path, settings: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Audit(tmp_path / "audit", **settings)  # type: ignore[arg-type]


def test_a_file_that_is_something_else_or_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("these are my notes\n")
    with pytest.raises(AuditError, match="is no line of an audit"):
        write(tmp_path / "notes")
    assert (tmp_path / "notes").read_text() == "these are my notes\n"
    with pytest.raises(AuditError, match="cannot be written"):
        write(tmp_path / "no folder" / "audit")
