"""`countertrain check`: a look at a table, a schema to edit, and training with what was proposed."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest
from fastapi import FastAPI

from countertrain.cli import main
from countertrain.runs.folder import read_run
from countertrain.serve.app import create_app
from countertrain.tables.schema import Schema
from loans import loans

FOLDER = Path(os.environ.get("COUNTERTRAIN_DATA", Path(__file__).parents[3] / "shared" / "data"))
EPOCHS = ["--set", "epochs=1"]
pytestmark = pytest.mark.filterwarnings("ignore:only .* counterfactuals reached")  # which is beside the point here


def run(*args: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    return int(stop.value.code or 0)


@pytest.fixture
def ugly(tmp_path: Path) -> Path:
    """Loans with much that training refuses, and more that would spoil it."""
    rows, decision = loans(300)
    rng = np.random.default_rng(1)
    frame = rows.assign(
        id=[f"A-{i:05}" for i in range(300)],
        constant=1,
        note=[f"the client number {i} wants a loan" for i in range(300)],
        since=pd.date_range("2020-01-01", periods=300).strftime("%Y-%m-%d"),
        employer=[f"employer {i}" if i % 3 == 0 else "state" if i % 3 == 1 else "self" for i in range(300)],
        tenure=np.where(rng.random(300) < 0.1, "?", rng.integers(0, 70, 300).astype(str)),
        outcome=np.where(decision == "granted", "paid", "closed"),
        decision=decision.where(decision.index % 40 != 3),
    )
    frame.to_csv(tmp_path / "ugly.csv", sep=";", index=False, encoding="cp1252")
    return tmp_path / "ugly.csv"


@pytest.mark.filterwarnings("default:column 'employer' holds")
def test_from_an_ugly_file_to_a_model_with_one_look(
    ugly: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("countertrain.cli.console.console._width", 200)
    schema, model = ugly.with_name("schema.toml"), ugly.with_name("m")
    assert run("check", ugly, "--label", "decision", "--schema-out", schema) == 2
    shown = capsys.readouterr().out
    for name in ("id", "constant", "note", "since", "employer", "tenure", "outcome", "age", "debt"):
        assert f"│ {name} " in shown
    assert "training would refuse ugly.csv as it is, for 6 reasons (✗)" in shown
    assert run("train", ugly, "--label", "decision", "--out", model) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "ugly.csv cannot be trained on: 6 things are in the way: (1) column 'id'" in said
    assert said.endswith(f"check {ugly} --label decision --schema-out schema.toml proposes what to do\n")
    assert not model.exists()
    assert run("check", ugly, "--label", "decision", "--schema", schema) == 0
    assert "training would go through" in capsys.readouterr().out
    assert run("train", ugly, "--label", "decision", "--schema", schema, *EPOCHS, "--out", model) == 0
    capsys.readouterr()
    trained = read_run(model)
    proposed = Schema.from_toml(schema.read_text(encoding="utf-8"))
    assert proposed.dropped == ("id", "constant", "note", "since", "outcome")
    assert trained.data.schema.names == proposed.names
    assert "employer=any other" in trained.data.features
    assert trained.data.schema["age"].mutability == "none"
    assert run("explain", model, "--target", "granted", "--out", ugly.with_name("r.csv")) == 0
    assert "countertrain: warning: column 'employer' holds 'employer" in capsys.readouterr().err
    told = pd.read_csv(ugly.with_name("r.csv"))
    people = trained.test_rows()[0].loc[told["row"]].reset_index(drop=True)
    moved = told["employer"] != people["employer"]
    assert set(told.loc[moved, "employer"]) <= {"state", "self"}
    assert (told["age"] == people["age"]).all()
    asked = json.loads(people[[*proposed.names]].head(2).to_json(orient="records"))
    answered, page = asyncio.run(_ask(create_app(trained.decider, target="granted"), {"rows": asked}))
    assert (answered.status_code, page.status_code) == (200, 200)
    assert [one["factual"]["employer"] for one in answered.json()["explanations"]] == [*people["employer"].head(2)]


async def _ask(app: FastAPI, question: dict[str, Any]) -> tuple[httpx.Response, httpx.Response]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        return await client.post("/explain", json=question), await client.get("/")


def test_a_line_of_the_proposal_can_be_refused(ugly: Path) -> None:
    schema = ugly.with_name("schema.toml")
    run("check", ugly, "--label", "decision", "--schema-out", schema)
    text = schema.read_text(encoding="utf-8")
    fixed = [line for line in text.splitlines() if line.startswith('mutability = "none"')]
    assert len(fixed) == 2  # age, and tenure, which only time changes
    assert fixed[0].endswith('write "both" to let it change')
    schema.write_text(text.replace(fixed[0], 'mutability = "both"'), encoding="utf-8")
    assert Schema.from_toml(schema.read_text(encoding="utf-8"))["age"].mutability == "both"


def test_training_says_what_nobody_declared_and_would_spoil_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, decision = loans(300)
    frame = rows.assign(number=range(300), sex=np.where(rows.index % 2, "m", "f"), decision=decision)
    path = tmp_path / "loans.csv"
    frame.to_csv(path, index=False)
    assert run("train", path, "--label", "decision", *EPOCHS, "--out", tmp_path / "m") == 0
    said = capsys.readouterr().err
    assert "... held fixed, since hardly anybody can change it: age, sex; --no-fix-proposed lets advice ask for" in said
    assert "... column 'number': numbers the rows, 0 to 299; learnt from like any other number; drop it" in said
    assert "missing values" not in said  # they are a state of their own, which the model is told of
    declared = ["--immutable", "age,sex", "--drop", "number"]
    assert run("train", path, "--label", "decision", *declared, *EPOCHS, "--out", tmp_path / "n") == 0
    said = capsys.readouterr().err
    assert "people can rarely change" not in said
    assert "check" not in said
    assert run("train", path, "--label", "decision", *declared, *EPOCHS, "--out", tmp_path / "n") == 0
    assert capsys.readouterr().err == ""


def test_a_plain_table_and_a_named_one_go_through(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, decision = loans(200)
    rows.drop(columns=["age", "debt"]).assign(decision=decision).to_csv(tmp_path / "plain.csv", index=False)
    assert run("check", tmp_path / "plain.csv") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("training would go through\n")
    assert f"next: countertrain train {tmp_path / 'plain.csv'} --label decision" in shown
    assert run("check", "loans") == 0
    assert "age" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["check", "none.csv"], "there is no file none.csv; check the path"),
        (["check", "moons"], "'moons' is not the name of a table"),
        (["check", "{}/plain.csv", "--label", "decisio"], "did you mean 'decision'?"),
        (["check", "{}/plain.csv", "--drop", "jobb"], "there is no column 'jobb'; did you mean 'job'?"),
        (["check", "{}"], "is a folder of converted rows; check the file that it was converted from"),
    ],
)
def test_mistakes_are_answered_in_one_line(
    tmp_path: Path, args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, decision = loans(60)
    rows.assign(decision=decision).to_csv(tmp_path / "plain.csv", index=False)
    assert run(*(arg.format(tmp_path) for arg in args)) == 2
    out, said = capsys.readouterr()
    assert (out, said.count("\n")) == ("", 1)
    assert message in said


def test_whatever_else_training_refuses_is_found_by_trying(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("countertrain.cli.console.console._width", 250)
    rows, decision = loans(100)
    rows.loc[3, "income"] = 1e300
    rows.assign(decision=decision).to_csv(tmp_path / "large.csv", index=False)
    assert run("check", tmp_path / "large.csv") == 2
    assert "is too large a number" in " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert run("train", tmp_path / "large.csv", *EPOCHS, "--out", tmp_path / "m") == 2


REAL = {
    "adult": (
        "income",
        {"fixed", "rare", "blank", "rule", "spike", "hours"},
        {
            "age",
            "marital-status",
            "relationship",
            "race",
            "sex",
            "native-country",
            "education",
            "education-num",
            "fnlwgt",
        },
    ),
    "attrition": (
        "Attrition",
        {"fixed", "rule", "grades"},
        {
            "Age",
            "Gender",
            "MaritalStatus",
            "Education",
            "EducationField",
            "NumCompaniesWorked",
            "TotalWorkingYears",
            "YearsAtCompany",
            "YearsInCurrentRole",
            "YearsSinceLastPromotion",
            "YearsWithCurrManager",
        },
    ),
    "churn": ("churn", {"fixed", "missing", "rule"}, {"female", "senior_citizen", "partner", "dependents", "tenure"}),
    "credit_default": (
        "default.payment.next.month",
        {"id", "code", "fixed"},
        {"SEX", "MARRIAGE", "AGE", "EDUCATION", "LIMIT_BAL", *(f"BILL_AMT{i}" for i in range(1, 7))},
    ),
    "give_me_some_credit": (
        "SeriousDlqin2yrs",
        {"id", "fixed", "missing", "spike", "past"},
        {"age", "NumberOfDependents"},
    ),
    "california_housing_balanced": ("target", {"fixed"}, {"HouseAge", "Population", "Latitude", "Longitude"}),
}


@pytest.mark.parametrize("name", REAL)
def test_on_real_tables_nothing_is_seen_that_is_not_there(name: str) -> None:
    path = FOLDER / f"{name}.csv.gz"
    if not path.is_file():
        pytest.skip(f"{path.name} is not in {FOLDER}")
    from countertrain.tables import inspect_source

    label, kinds, fixed = REAL[name]
    look = inspect_source(path, label)
    assert not look.refused
    assert {one.kind for one in look.findings} == kinds
    assert set(look.fixed) == fixed
    assert Schema.from_toml(look.to_toml()) == look.schema
    assert set(look.schema.dropped or ()) <= {"ID", "Unnamed: 0"}
