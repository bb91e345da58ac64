"""From a CSV file to models, recourse and a report, by the commands that people type."""

import json
from pathlib import Path

import pandas as pd
import pytest
from countertrain.project import Project

from countertrain.cli import main
from loans import loans


def run(*args: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    return int(stop.value.code or 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    rows, decision = loans(300)
    rows.assign(decision=decision).to_csv(folder / "loans.csv", index=False)
    options = ["--label", "decision", "--immutable", "age", "--epochs", 5, "--out", folder / "m"]
    assert run("fit", folder / "loans.csv", *options) == 0
    return folder


def test_a_fifth_of_the_rows_is_held_out_and_both_models_come_back_from_the_folder(folder: Path) -> None:
    project = Project.open(folder / "m")
    assert len(project.test) == 60
    assert project.classifier.encoder_.schema["age"].mutability == "none"
    assert project.baseline.settings_.objective == "bl"
    assert project.classifier.settings_.objective == "ct"
    both = [model.predict(project.rows) for model in (project.classifier, project.baseline)]
    assert set(both[0]) <= {"granted", "refused"}
    assert project.classifier.score(project.rows, project.test["decision"]) > 0.5


def test_recourse_goes_into_a_file_and_its_beginning_onto_the_screen(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("r.csv", "r.json"):
        assert run("recourse", folder / "m", "--target", "granted", "--out", tmp_path / name) == 0
    assert "60 people" in capsys.readouterr().out
    table = pd.read_csv(tmp_path / "r.csv")
    assert list(table["row"].unique()) == list(range(60))
    assert set(table["target"]) == {"granted"}
    assert table["valid"].mean() > 0.9
    people = Project.open(folder / "m").rows
    assert list(table.groupby("row")["age"].first()) == list(people["age"])
    assert len(json.loads((tmp_path / "r.json").read_text())) == 60


def test_the_report_is_one_page(folder: Path, tmp_path: Path) -> None:
    assert run("report", folder / "m", "--groups", "job", "--target", "granted", "--out", tmp_path / "r.html") == 0
    text = (tmp_path / "r.html").read_text()
    assert "<html" in text
    assert "job" in text
    assert "http://" not in text.replace("http://www.w3.org", "")


def test_that_nothing_matures_is_said_in_one_plain_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--label", "decision", "--epochs", 1, "--tau", 0.999, "--out", tmp_path / "m"]
    assert run("fit", folder / "loans.csv", *options) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "counterfactuals reached" in line]
    assert len(said) == 1
    assert said[0].startswith("countertrain: warning: only 0.0% of the last epoch's")
    assert said[0].endswith("raise n_steps or epochs")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["fit", "{}/loans.csv", "--label", "decisio", "--out", "{}/n"], "did you mean 'decision'?"),
        (["fit", "{}/loans.csv", "--out", "{}/n"], "--label must name the column of"),
        (["fit", "{}/nowhere.csv", "--label", "y", "--out", "{}/n"], "there is no file"),
        (["fit", "{}/loans.csv", "--label", "decision", "--out", "{}/m"], "holds models already"),
        (["fit", "{}/loans.csv", "--label", "income", "--out", "{}/n"], "at least two classes with two rows each"),
        (["report", "{}"], "is not a folder that `countertrain fit` wrote"),
        (["recourse", "{}/m", "--target", "maybe"], "--target must be one of granted, refused; got 'maybe'"),
        (["serve", "{}/m", "--token-env", "NO_SUCH_TOKEN"], "NO_SUCH_TOKEN, which is not set"),
        (["serve", "{}/m", "--host", "0.0.0.0"], "token"),
    ],
)
def test_mistakes_are_answered_in_one_line(
    folder: Path, args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*(arg.format(folder) for arg in args)) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
