"""From a CSV file to models, recourse and a report in people's units, by the commands that people type."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import countertrain.runs.run
from countertrain.cli import main
from countertrain.estimator import CounterfactualClassifier
from countertrain.models.deciding import logits_of
from countertrain.runs.folder import read_run
from loans import loans


def run(*args: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    return int(stop.value.code or 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("people")
    rows, decision = loans(300)
    rows.assign(decision=decision).to_csv(folder / "loans.csv", index=False)
    options = ["--label", "decision", "--immutable", "age", "--set", "epochs=5", "--twin", "--out", folder / "m"]
    assert run("train", folder / "loans.csv", *options) == 0
    return folder


def test_a_fifth_of_the_rows_is_held_out_and_both_models_come_back_from_the_folder(folder: Path) -> None:
    both = read_run(folder / "m")
    rows, labels = both.test_rows()
    assert len(rows) == 60
    known = pd.read_csv(folder / "loans.csv")
    assert len(known.merge(rows.assign(decision=labels))) == 60  # rows of the table, to the last digit
    assert both.twin is not None
    assert (both.settings.objective, both.twin.settings.objective) == ("taught", "bl")
    assert both.twin.settings == both.settings.change(objective="bl")
    classifier, twin = CounterfactualClassifier.of(both), CounterfactualClassifier.of(both.twin)
    assert classifier.encoder_.schema["age"].mutability == "none"
    for model in (classifier, twin):
        assert set(model.predict(rows)) <= {"granted", "refused"}
        assert model.score(rows, labels) > 0.5
    assert (classifier.predict_proba(rows) != twin.predict_proba(rows)).all()
    pd.testing.assert_frame_equal(rows, both.twin.test_rows()[0])


def test_recourse_goes_into_a_file_and_its_beginning_onto_the_screen(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("r.csv", "r.json"):
        assert run("explain", folder / "m", "--target", "granted", "--everyone", "--out", tmp_path / name) == 0
    assert "60 people" in capsys.readouterr().out
    table = pd.read_csv(tmp_path / "r.csv")
    assert list(table["row"].unique()) == list(range(60))
    assert set(table["target"]) == {"granted"}
    assert table["valid"].mean() > 0.9
    people = read_run(folder / "m").test_rows()[0]
    assert list(table.groupby("row")["age"].first()) == list(people["age"])
    assert len(json.loads((tmp_path / "r.json").read_text())) == 60


def test_what_is_asked_of_people_is_in_their_own_units_and_power(folder: Path, tmp_path: Path) -> None:
    chosen = ["--target", "granted", "--options", 2, "--immutable", "job,member", "--out", tmp_path / "r.csv"]
    assert run("explain", folder / "m", *chosen) == 0
    table = pd.read_csv(tmp_path / "r.csv")
    people = read_run(folder / "m").test_rows()[0]
    before = people.loc[table["row"]].reset_index(drop=True)
    for column in ("age", "job", "member"):
        assert (table[column] == before[column]).all()
    assert (table["option"] == 2).any()
    asked = table[(table["income"] != before["income"]) & table["valid"]]
    assert len(asked) > 5
    known = pd.read_csv(folder / "loans.csv")["income"]
    assert asked["income"].between(known.min(), known.max()).all()
    model = CounterfactualClassifier.load(folder / "m")
    reached = model.predict(table.loc[table["valid"], list(people.columns)])
    assert set(reached) == {"granted"}


def test_people_of_another_file_are_explained_and_judged(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, decision = loans(40, seed=5)
    rows.to_csv(tmp_path / "new.csv", sep=";", index=False)
    assert run("explain", folder / "m", "--rows", tmp_path / "new.csv", "--out", tmp_path / "r.csv") == 0
    assert pd.read_csv(tmp_path / "r.csv")["row"].nunique() == 40
    rows.assign(decision=decision).to_csv(tmp_path / "judged.csv", index=False)
    capsys.readouterr()
    small = ["--rounds", 2, "--individuals", 5]
    assert run("evaluate", folder / "m", "--rows", tmp_path / "judged.csv", *small) == 0
    clf = CounterfactualClassifier.load(folder / "m")
    each = [clf.classes_[logits_of(model, clf.encoder_.tensor(rows)).argmax(1).numpy()] for model in clf.models_]
    hits = np.mean([decided == decision for decided in each])  # of the models one by one
    assert f"{hits:.4g}" in capsys.readouterr().out
    assert run("evaluate", folder / "m", "--rows", tmp_path / "new.csv", *small) == 2
    assert "decision" in capsys.readouterr().err


def test_people_of_a_file_are_called_by_their_lines_too_as_warnings_call_them(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    people = pd.read_csv(folder / "loans.csv").drop(columns="decision").head(4)
    people.to_csv(tmp_path / "new.csv", index=False)
    asked = ["explain", folder / "m", "--target", "granted", "--everyone"]
    assert run(*asked, "--rows", tmp_path / "new.csv") == 0
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("row ")]
    assert [line.partition(":")[0] for line in told] == [f"row {i} (line {i + 2})" for i in range(4)]
    assert run(*asked, "--row", 1) == 0  # of the test rows, which stand on no line
    assert capsys.readouterr().out.startswith("row 1: ")


def test_advice_is_judged_by_a_panel_on_the_screen_and_in_a_file(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("judge", folder / "m", "--target", "granted", "--people", 20, "--out", tmp_path / "verdict.json") == 0
    shown = " ".join(capsys.readouterr().out.split())
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    assert f"{verdict['holds']:.0%} of the advice holds" in shown
    assert "whole panel accepts" in shown
    assert {"boosting", "forest", "logistic", "next version 2"} <= verdict["ceiling"].keys()


def test_advice_can_be_asked_for_by_how_certainly_it_holds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["explain", folder / "m", "--row", 0, "--certainty", 0.01]
    assert run(*asked, "--target", "granted") == 0
    assert "1% of the advice held for people who were held out at tau = 0.5" in capsys.readouterr().out
    for wrong, said in (
        (["--target", "granted", "--tau", 0.7], "give either --tau or --certainty, not both"),
        ([], "--certainty needs --target"),
    ):
        assert run(*asked, *wrong) == 2
        assert said in capsys.readouterr().err


def test_records_that_cannot_be_written_are_refused_before_the_work(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folder / "m", tmp_path / "m")
    (tmp_path / "m" / "records.csv").unlink(missing_ok=True)
    (tmp_path / "m" / "records.csv").mkdir()
    monkeypatch.setattr(countertrain.runs.run, "measure", lambda *args, **named: pytest.fail("it began all the same"))
    assert run("evaluate", tmp_path / "m") == 2
    assert "records.csv" in capsys.readouterr().err


def test_the_report_is_one_page(folder: Path, tmp_path: Path) -> None:
    assert run("report", folder / "m", "--groups", "job", "--target", "granted", "--out", tmp_path / "r.html") == 0
    text = (tmp_path / "r.html").read_text()
    assert "<html" in text
    assert "job" in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "--examples 0" in text
    assert "n_examples" not in text
    assert run("report", folder / "m", "--examples", 0, "--out", tmp_path / "none.html") == 0
    text = (tmp_path / "none.html").read_text()
    assert "<h3>Examples</h3>" not in text
    assert "--target …" in text
    assert "--groups …" in text


def test_that_nothing_matures_is_said_in_one_plain_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--label", "decision", "--objective", "ct", "--set", "epochs=1", "--set", "tau=0.999"]
    options += ["--out", str(tmp_path / "m")]
    assert run("train", folder / "loans.csv", *options) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "counterfactuals reached" in line]
    assert len(said) == 1
    assert said[0].startswith("countertrain: warning: only 0.0% of the last epoch's")
    assert said[0].endswith("raise n_steps or epochs")
    assert run("train", folder / "loans.csv", *options) == 0
    assert capsys.readouterr().err == ""  # it was said when it was trained


def test_what_to_do_next_names_the_decisions_that_people_may_want(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--label", "decision", "--immutable", "age", "--set", "epochs=5", "--twin", "--out", folder / "m"]
    assert run("train", folder / "loans.csv", *options) == 0
    out = capsys.readouterr().out
    assert f"next: countertrain explain {folder / 'm'} --target CLASS" in out
    assert "CLASS is the decision that people want, one of 'granted', 'refused'" in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["train", "{}/loans.csv", "--label", "decisio", "--out", "{}/n"], "did you mean 'decision'?"),
        (["train", "{}/nowhere.csv", "--label", "y", "--out", "{}/n"], "there is no file"),
        (
            ["train", "{}/loans.csv", "--label", "decision", "--out", "{}/m"],
            "holds a run with other settings (epochs is 5 in its settings.toml, 40 here)",
        ),
        (["train", "{}/loans.csv", "--label", "income", "--out", "{}/n"], "group them, or predict another column"),
        (
            ["train", "{}/loans.csv", "--immutable", "agee", "--out", "{}/n"],
            "--immutable names 'agee', which is no column of loans.csv; did you mean 'age'?",
        ),
        (
            ["report", "{}/m", "--target", "grantd"],
            "--target must be one of the classes 'granted', 'refused'; got 'grantd'; did you mean 'granted'?",
        ),
        (
            ["report", "{}"],
            "holds no trained model: it has no checksums.json; give one that `save` or `countertrain train` wrote",
        ),
        (
            ["explain", "{}/m", "--target", "maybe"],
            "--target must be one of the classes 'granted', 'refused'; got 'maybe'",
        ),
        (["serve", "{}/m", "--token-env", "NO_SUCH_TOKEN"], "NO_SUCH_TOKEN, which is not set"),
        (["serve", "{}/m", "--host", "0.0.0.0"], "token"),
        (["serve", "{}/m", "--people", "k-anonymous"], "--people k-anonymous and --identifying, the columns by which"),
        (["serve", "{}/m", "--people", "k-anonymous", "--identifying", "age", "--k", "1"], "--k must be at least 2"),
        (["explain", "{}/m", "--target", "granted", "--out", "{}/nowhere/r.csv"], "nowhere/r.csv"),
        (["judge", "{}/m", "--target", "granted", "--out", "{}"], "s a directory"),
        (["report", "{}/m", "--target", "granted", "--out", "{}/loans.csv/r.html"], "loans.csv"),
        (
            ["serve", "{}"],
            "holds no trained model: it has no checksums.json; give one that `save` or `countertrain train` wrote",
        ),
    ],
)
def test_mistakes_are_answered_in_one_line(
    folder: Path, args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*(arg.format(folder) for arg in args)) == 2
    out, said = capsys.readouterr()
    assert out == ""
    assert message in said
    assert said.count("\n") == 1
    assert not (folder / "n").exists()
