"""The decision that people want is said once, to `train`; every other command then speaks of it."""

import json
from pathlib import Path

import pandas as pd
import pytest

from countertrain.cli import main
from countertrain.estimator import CounterfactualClassifier
from countertrain.runs.folder import read_run
from countertrain.tables import propose_fixed
from loans import loans


def run(*args: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    return int(stop.value.code or 0)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("wanted") / "loans.csv"
    rows, decision = loans(300)
    rows.assign(decision=decision).to_csv(file, index=False)
    return file


@pytest.fixture(scope="module")
def model(file: Path) -> Path:
    folder = file.with_name("m")
    told = ["--label", "decision", "--target", "granted", "--immutable", "age", "--epochs", 4, "--twin"]
    assert run("train", file, *told, "--out", folder) == 0
    return folder


def read_people(model: Path) -> tuple[pd.DataFrame, pd.Series]:
    rows = read_run(model).test_rows()[0]
    return rows, pd.Series(CounterfactualClassifier.load(model).predict(rows))


def test_training_asks_no_more_for_what_it_was_told(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run("train", file, "--label", "decision", "--target", "granted", "--epochs", 1, "--out", file.parent / "n") == 0
    )
    out = " ".join(capsys.readouterr().out.split())
    assert f"next: countertrain explain {file.parent / 'n'} | countertrain report" in out
    assert "CLASS" not in out
    assert "advice keeps to the evidence: income +, debt -, job (some levels)" in out


def test_directions_of_the_model_are_told_as_they_are_spelt(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = ["train", file, "--label", "decision", "--target", "granted", "--epochs", 0, "--set", "profile=as-run"]
    assert run(*told, "--monotone", "income=+, debt=-", "--monotone", "age=0", "--out", file.parent / "mono") == 0
    assert "monotone by construction: income +, debt -\n" in capsys.readouterr().out
    assert read_run(file.parent / "mono").settings.monotone == (("income", "+"), ("debt", "-"), ("age", "0"))
    assert run(*told, "--monotone", "income") == 2
    assert "--monotone takes columns with + or -, such as income=+,debt=-; got 'income'" in capsys.readouterr().err


def test_only_those_are_explained_who_did_not_get_it_by_the_numbers_that_they_have(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("explain", model, "--out", tmp_path / "r.csv") == 0
    out = " ".join(capsys.readouterr().out.split())
    rows, decided = read_people(model)
    table = pd.read_csv(tmp_path / "r.csv")
    refused = decided.index[decided == "refused"].tolist()
    assert 5 < len(refused) < 55
    assert table["row"].unique().tolist() == refused
    assert set(table["target"]) == {"granted"}
    assert table.groupby("row")["age"].first().tolist() == rows["age"].iloc[refused].tolist()
    assert f"{60 - len(refused)} of 60 people are decided as 'granted' already; --everyone tells of them, too" in out


def test_who_has_it_is_told_of_when_asked_for_and_told_to_change_nothing(model: Path, tmp_path: Path) -> None:
    _, decided = read_people(model)
    content = int(decided.index[decided == "granted"][0])
    for asked, n in (("--everyone", 60), (f"--row={content}", 1)):
        assert run("explain", model, asked, "--out", tmp_path / "r.json") == 0
        told = json.loads((tmp_path / "r.json").read_text())
        assert len(told) == n
        (one,) = (one for one in told if one["row"] == content)
        assert one["target"] == "granted"
        assert [option["changes"] for option in one["options"]] == [[]]
        assert one["options"][0]["reason"] == "already 'granted'"


def test_another_wish_overrules_what_training_was_told(model: Path, tmp_path: Path) -> None:
    assert run("explain", model, "--target", "refused", "--out", tmp_path / "r.csv") == 0
    _, decided = read_people(model)
    table = pd.read_csv(tmp_path / "r.csv")
    assert table["row"].unique().tolist() == decided.index[decided == "granted"].tolist()
    assert set(table["target"]) == {"refused"}


def test_where_everybody_has_it_that_is_all_there_is_to_say(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, decided = read_people(model)
    rows[(decided == "granted").to_numpy()].to_csv(tmp_path / "happy.csv", index=False)
    assert run("explain", model, "--rows", tmp_path / "happy.csv", "--out", tmp_path / "r.json") == 0
    n = int((decided == "granted").sum())
    assert capsys.readouterr().out.startswith(f"{n} of {n} people are decided as 'granted' already")
    assert json.loads((tmp_path / "r.json").read_text()) == []


def test_judge_and_report_speak_of_it(model: Path, tmp_path: Path) -> None:
    assert run("judge", model, "--people", 10, "--out", tmp_path / "v.json") == 0
    assert json.loads((tmp_path / "v.json").read_text())["target"] == "granted"  # not the last class
    assert run("report", model, "--examples", 0, "--out", tmp_path / "r.html") == 0
    page = (tmp_path / "r.html").read_text()
    assert "do not get the decision “granted”" in " ".join(page.split())
    assert "Nobody said which decision" not in page


def test_certainty_needs_no_second_word(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", model, "--row", 0, "--certainty", 0.01) == 0
    assert "of the advice held for people who were held out" in capsys.readouterr().out


def test_a_label_that_is_no_class_is_refused_before_training(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for told in (["--target", "grantd"], ["--set", "target=grantd"]):
        assert run("train", file, "--label", "decision", *told, "--out", file.parent / "none") == 2
        said = "--target must be one of the classes 'granted', 'refused'; got 'grantd'; did you mean 'granted'?"
        assert said in capsys.readouterr().err
    assert not (file.parent / "none").exists()


def test_the_twin_and_the_folder_keep_it(model: Path) -> None:
    both = read_run(model)
    assert both.twin is not None
    assert both.decider.target == both.twin.decider.target == "granted"
    assert 'target = "granted"' in (model / "settings.toml").read_text()


def test_a_threshold_is_chosen_by_training_and_kept_as_a_number(
    file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = file.parent / "strict"
    told = ["--label", "decision", "--target", "granted", "--epochs", 4, "--set", "threshold=rate:0.2", "--twin"]
    assert run("train", file, *told, "--out", folder) == 0
    both = read_run(folder)
    assert both.threshold is not None
    assert both.twin is not None
    assert both.twin.threshold is not None
    assert both.twin.threshold != both.threshold  # each by its own probabilities
    out = " ".join(capsys.readouterr().out.split())
    assert f"'granted' needs probability {both.threshold.at:.3f}, which" in out
    assert run("train", file, *told, "--out", folder) == 0  # the same run, which is only opened
    _, decided = read_people(folder)
    assert 0.05 < (decided == "granted").mean() < 0.35
    assert run("explain", folder, "--out", tmp_path / "r.csv") == 0
    table = pd.read_csv(tmp_path / "r.csv")
    assert table["row"].unique().tolist() == decided.index[decided == "refused"].tolist()
    assert (table.loc[table["valid"], "probability"] >= both.threshold.at).all()


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (["--set", "threshold=0.4"], "a threshold is for the class that people want, and nobody said which"),
        (["--target", "granted", "--set", "threshold=40"], "setting 'threshold' is a probability between 0 and 1"),
    ],
)
def test_a_threshold_that_makes_no_sense_is_refused(
    file: Path, told: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", file, "--label", "decision", *told, "--out", file.parent / "none") == 2
    assert said in capsys.readouterr().err
    assert not (file.parent / "none").exists()


def test_advice_keeps_to_the_evidence_unless_told_otherwise(model: Path, tmp_path: Path) -> None:
    people = read_run(model).test_rows()[0]
    for told, kept in (([], True), (["--against-evidence"], False)):
        assert run("explain", model, "--target", "refused", "--options", 3, *told, "--out", tmp_path / "r.csv") == 0
        table = pd.read_csv(tmp_path / "r.csv")
        before = people.loc[table["row"]].reset_index(drop=True)
        lower = (table["income"] <= before["income"]) & ~(table["debt"] < before["debt"])
        assert len(table) > 20
        assert lower.all() or not kept
    assert run("train", model.with_name("loans.csv"), "--label", "decision", "--target", "granted", "--epochs", 1,
               "--against-evidence", "--out", tmp_path / "free") == 0  # fmt: skip
    assert read_run(tmp_path / "free").decider.evidence is None


def test_what_people_rarely_can_change_is_held_fixed_unless_told_otherwise(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = ["--label", "decision", "--epochs", 1]
    unnamed = tmp_path / "unnamed.csv"
    unnamed.write_text(
        "id," + file.read_text(encoding="utf-8").split("\n", 1)[0].replace("age", "") + "\n", encoding="utf-8"
    )
    assert propose_fixed(str(unnamed), "decision") == ["id", "Unnamed: 1"]
    assert run("train", file, *told, "--out", tmp_path / "m") == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "... held fixed, since hardly anybody can change it: age; --no-fix-proposed lets advice ask for it" in said
    assert "people can rarely change" not in said
    assert read_run(tmp_path / "m").settings.immutable == ("age",)
    assert run("train", file, *told, "--immutable", "job", "--increase", "age", "--out", tmp_path / "n") == 0
    assert "held fixed" not in capsys.readouterr().err  # its owner said something else of it
    assert read_run(tmp_path / "n").settings.mutability == {"job": "none", "age": "increase"}
    assert run("train", file, *told, "--no-fix-proposed", "--out", tmp_path / "o") == 0
    assert "people can rarely change age, and nothing says so" in " ".join(capsys.readouterr().err.split())
    assert not read_run(tmp_path / "o").settings.immutable
