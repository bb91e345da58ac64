"""Reasons and letters by the commands that people type."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from countertrain.cli import main
from loans import loans, quick


def run(*args: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    return int(stop.value.code or 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("letters")
    quick(immutable=["age"]).fit(*loans(300)).save(folder / "m")
    rows, _ = loans(12, seed=5)
    rows.assign(case=[f"case-{i}" for i in range(12)]).to_csv(folder / "people.csv", index=False)
    (folder / "codes.toml").write_text('[income]\ncode = "A1"\nlow = "Income too low"\n')
    (folder / "owner.toml").write_text('name = "Bank"\n[labels]\nincome = "yearly income"\n')
    return folder


def test_explain_prints_reasons_in_the_words_of_columns_or_of_a_code_table(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["explain", folder / "m", "--rows", folder / "people.csv", "--target", "granted"]
    assert run(*asked, "--reasons") == 0  # at the end, and before another option
    assert "reason 1: " in capsys.readouterr().out
    assert run(*asked, "--reasons", folder / "codes.toml", "--everyone", "--out", tmp_path / "r.json") == 0
    capsys.readouterr()
    answers = json.loads((tmp_path / "r.json").read_text())
    codes = {reason["code"] for answer in answers for reason in answer["reasons"]["reasons"]}
    assert "A1" in codes
    assert any(code.startswith("debt.") for code in codes)
    assert run(*asked, "--reasons", "--row", 3, "--row", 1, "--out", tmp_path / "r.csv") == 0
    table = pd.read_csv(tmp_path / "r.csv", keep_default_na=False)
    assert table["row"].tolist() == [3, 1]
    whole = {answer["row"]: [r["column"] for r in answer["reasons"]["reasons"]] for answer in answers}
    for row, said in zip(table["row"], table["reasons"], strict=True):
        assert [part.rsplit("[", 1)[1].split(".")[0] for part in said.split("; ") if part] == whole[row]


def test_letters_are_written_by_id_in_several_formats_and_never_twice(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["letters", folder / "m", "--rows", folder / "people.csv", "--target", "granted", "--out", tmp_path / "out"]
    more = ["--owner", folder / "owner.toml", "--reasons", folder / "codes.toml", "--format", "html,text"]
    assert run(*asked, *more, "--id-column", "case") == 0
    said = capsys.readouterr().out
    assert "the decision is granted already: no letter" in said
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert {Path(name).suffix for name in written} == {".html", ".txt", ".json"}
    assert all(name.startswith("letter-case-") for name in written)
    texts = [path.read_text() for path in (tmp_path / "out").glob("*.txt")]
    assert all(text.startswith("Bank\n") for text in texts)
    assert any("Income too low. (A1)" in text for text in texts)
    assert run(*asked, *more, "--id-column", "case") == 2
    assert "already; choose another folder, or say overwrite" in capsys.readouterr().err
    assert run(*asked, *more, "--id-column", "case", "--overwrite") == 0


def test_mistakes_are_told_in_the_words_of_the_command(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["letters", folder / "m", "--rows", folder / "people.csv", "--out", tmp_path / "out"]
    for wrong, said in (
        ([], "letters need --target"),
        (["--target", "granted", "--format", "doc"], "--format must be among html, text, pdf; got 'doc'"),
        (["--target", "granted", "--id-column", "cas"], "--id-column names 'cas', .* did you mean 'case'"),
        (["--target", "grant"], "--target must be one of the classes"),
        (["--target", "granted", "--reasons", tmp_path / "none.toml"], "none.toml"),
    ):
        assert run(*asked, *wrong) == 2
        err = capsys.readouterr().err
        assert re.search(said, err), err
    assert not (tmp_path / "out").exists()
