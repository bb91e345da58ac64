"""Whoever trained a model, and on whatever table: its folder does for every job."""

import asyncio
import shutil
import subprocess
import sys
import time
from pathlib import Path

import httpx
import numpy as np
import onnxruntime
import pandas as pd
import pytest

import countertrain
from countertrain.cli import main
from countertrain.estimator import CounterfactualClassifier
from countertrain.files import InUseError
from countertrain.runs.folder import UNFINISHED, is_finished, read_run
from countertrain.runs.settings import read_settings
from countertrain.serve.app import create_app
from loans import loans, quick

pytestmark = pytest.mark.filterwarnings("ignore:only .* counterfactuals reached")  # which is beside the point here
QUICK = ["--set", "epochs=3", "--set", "n_ce=60", "--set", "n_steps=10", "--set", "hidden=[8]"]
SMALL = ["--rounds", "2", "--individuals", "5"]
N_MODELS = {"named": 1, "table": 2, "ensemble": 3, "python": 2}
KINDS = list(N_MODELS)


def run(*args: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    return int(stop.value.code or 0)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of each kind; the table has missing values, levels and semicolons."""
    place = tmp_path_factory.mktemp("models")
    rows, decision = loans(200)
    assert rows["debt"].isna().any()
    rows.assign(decision=decision).to_csv(place / "loans.csv", sep=";", index=False)
    table = [place / "loans.csv", "--label", "decision", "--immutable", "age"]
    assert run("train", "moons", *QUICK, "--out", place / "named") == 0
    assert run("train", *table, *QUICK, "--out", place / "table") == 0
    assert run("train", *table, *QUICK, "--seeds", "0-2", "--twin", "--out", place / "ensemble") == 0
    quick(epochs=3, immutable=["age"]).fit(rows, decision).save(place / "python")
    rows, decision = loans(60, seed=3)
    rows.assign(decision=decision).to_csv(place / "new.csv", index=False)
    return place


def judged_by(place: Path, kind: str) -> list[object]:
    """What was fitted in Python has no test rows of its own."""
    return ["--rows", place / "new.csv"] if kind == "python" else []


def people(place: Path, kind: str) -> pd.DataFrame:
    return loans(60, seed=3)[0] if kind == "python" else read_run(place / kind).test_rows()[0]


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_evaluated(place: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("evaluate", place / kind, *SMALL, *judged_by(place, kind)) == 0
    out = capsys.readouterr().out
    assert "validity of counterfactuals" in out
    assert ("Reduction against the baseline" in out) == (kind == "ensemble")
    records = pd.read_csv(place / kind / "records.csv")
    assert records["model"].nunique() == N_MODELS[kind]
    countertrain.load(place / kind)  # with records beside it, it is as whole as before


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_explained(place: Path, kind: str, tmp_path: Path) -> None:
    assert run("explain", place / kind, "--out", tmp_path / "found.csv", *judged_by(place, kind)) == 0
    found, rows = pd.read_csv(tmp_path / "found.csv"), people(place, kind)
    assert found["row"].nunique() == len(rows)
    assert found["valid"].any()
    reached = found[found["valid"]]
    classifier = countertrain.load(place / kind)
    assert classifier.predict(reached[list(rows.columns)]).astype(str).tolist() == reached["target"].map(str).tolist()
    if "age" in rows:
        assert found["age"].tolist() == rows["age"].iloc[found["row"]].tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_reported(place: Path, kind: str) -> None:
    assert run("report", place / kind, *judged_by(place, kind)) == 0
    assert "<html" in (place / kind / "report.html").read_text()
    countertrain.load(place / kind)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_served(place: Path, kind: str) -> None:
    whole = read_run(place / kind)
    classifier = CounterfactualClassifier.of(whole)
    app = create_app(whole.decider, baseline=None if whole.twin is None else whole.twin.decider)
    rows = people(place, kind)[list(classifier.encoder_.schema.names)].head(3)
    asked = [{k: None if pd.isna(v) else v for k, v in row.items()} for row in rows.to_dict("records")]

    async def ask(path: str) -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.post(path, json={"rows": asked})

    answer = asyncio.run(ask("/predict"))
    assert answer.status_code == 200, answer.text
    decisions = [one["decision"] for one in answer.json()["decisions"]]
    assert decisions == classifier.predict(rows).tolist()
    explained = asyncio.run(ask("/explain"))
    assert explained.status_code == 200, explained.text
    assert len(explained.json()["explanations"]) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_tuned_from_and_what_is_chosen_is_trained(place: Path, kind: str, tmp_path: Path) -> None:
    data = "moons" if kind == "named" else place / "loans.csv"
    label = ["--label", "decision"] if kind == "python" else []  # a DataFrame has no label among its columns
    trials = ["--trials", 2, "--batch", 2, "--seeds", 1, "--set", "epochs=2", "--constraint", "accuracy >= 0.1"]
    settings = place / kind / "settings.toml"
    assert run("tune", data, *label, "--settings", settings, *trials, "--out", tmp_path / "tuned") == 0
    assert len(pd.read_csv(tmp_path / "tuned" / "trials.csv")) == 2
    chosen = read_settings(tmp_path / "tuned" / "chosen.toml")
    assert chosen.immutable == read_settings(settings).immutable
    assert chosen.n_ce == read_settings(settings).n_ce
    assert run("train", data, "--settings", tmp_path / "tuned" / "chosen.toml", "--out", tmp_path / "m") == 0
    assert read_run(tmp_path / "m").settings == chosen


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_exported(place: Path, kind: str) -> None:
    assert run("export", place / kind) == 0
    classifier, rows = countertrain.load(place / kind), people(place, kind)
    session = onnxruntime.InferenceSession(place / kind / "model.onnx")
    label, probabilities = session.run(None, {"rows": classifier.onnx_rows(rows)})
    np.testing.assert_allclose(probabilities, classifier.predict_proba(rows), atol=1e-5)
    assert classifier.classes_[label].tolist() == classifier.predict(rows).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_a_baseline(place: Path, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(place / kind, tmp_path / "copy")
    against = ["--baseline", place / kind, *judged_by(place, kind)]
    assert run("evaluate", tmp_path / "copy", *against, *SMALL) == 0
    assert "Reduction against the baseline" in capsys.readouterr().out
    assert run("report", tmp_path / "copy", *against) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_loaded_in_python_saved_and_fitted_again(place: Path, kind: str, tmp_path: Path) -> None:
    classifier, rows = countertrain.load(place / kind), people(place, kind)
    assert isinstance(classifier, countertrain.CounterfactualClassifier)
    before = read_run(place / kind)
    assert classifier.run_.id == before.id is not None
    assert len(classifier.models_) == N_MODELS[kind]
    assert len(classifier.history_.records) == 3
    probabilities = classifier.predict_proba(rows)
    assert probabilities == pytest.approx(before.model(before.data.encoder.tensor(rows)).softmax(-1).detach().numpy())
    classifier.save(tmp_path / "again")
    again = countertrain.load(tmp_path / "again")
    assert again.run_.id == before.id
    assert (again.run_.twin is None) == (kind != "ensemble")
    assert np.array_equal(again.predict_proba(rows), probabilities)
    if kind != "named":
        again.fit(*loans(100))
        assert again.encoder_.schema["age"].mutability == "none"
        assert len(again.models_) == len(classifier.models_)


def test_models_that_differ_in_more_than_their_training_are_not_compared_in_encoded_units(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = ["--rows", place / "new.csv"]
    rows, decision = loans(200)
    quick(epochs=3, immutable=["age"], objective="bl").fit(rows, decision).save(tmp_path / "twin")
    assert run("evaluate", place / "python", "--baseline", tmp_path / "twin", *new, *SMALL) == 0
    quick(epochs=3, immutable=["age"]).fit(rows[:150], decision[:150]).save(tmp_path / "fewer")
    for other, said in (
        ("table", "must be trained on the same rows"),
        (tmp_path / "fewer", "must be trained on the same rows"),
    ):
        capsys.readouterr()
        assert run("evaluate", place / "python", "--baseline", place / other, *new, *SMALL) == 2
        assert said in capsys.readouterr().err
        assert run("report", place / "python", "--baseline", place / other, *new) == 2
        assert "fit both to the same rows" in capsys.readouterr().err


def test_two_trainings_into_one_folder_at_once_are_not_mixed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "m"
    asked = ["train", "moons", *QUICK, "--objective", "bl", "--out", folder]
    command = [sys.executable, "-m", "countertrain", *map(str, asked), "--seed", "1", "--set", "epochs=100000"]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(3000):
            if (folder / UNFINISHED / "checkpoint.safetensors").exists() or first.poll() is not None:
                break
            time.sleep(0.02)
        begun = (folder / UNFINISHED / "settings.toml").read_text()
        for more in (["--seed", "2", "--overwrite"], ["--seed", "1", "--set", "epochs=100000", "--resume"]):
            capsys.readouterr()
            assert run(*asked, *more) == 2
            err = capsys.readouterr().err
            assert err.startswith(f"countertrain: {folder} is in use by process {first.pid} on ")
            assert "; wait for it, choose another --out, or delete " in err
            assert err.count("\n") == 1
        with pytest.raises(InUseError, match="in use by process"):
            countertrain.load(_saved(tmp_path)).save(folder, overwrite=True)
        assert first.poll() is None  # it was not disturbed
        assert (folder / UNFINISHED / "settings.toml").read_text() == begun
        assert not is_finished(folder)
    finally:
        first.kill()
        first.wait()
    assert run(*asked, "--seed", "2", "--overwrite") == 0  # what was killed locks nobody out
    whole = read_run(folder)
    assert (whole.settings.seeds, len(whole.history.records)) == ((2,), 3)
    assert not (folder / UNFINISHED).exists()
    assert not (folder / ".lock").exists()


def _saved(folder: Path) -> Path:
    quick(epochs=0).fit(*loans(40)).save(folder / "saved")
    return folder / "saved"
