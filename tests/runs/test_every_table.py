"""Whatever table can be trained on can be tuned, swept and given to the classifier, with the same settings."""

from pathlib import Path

import pytest

from countertrain.estimator import CounterfactualClassifier
from countertrain.runs.folder import read_run
from countertrain.runs.registry import build_constraints, load_data
from countertrain.runs.settings import Settings, read_settings
from countertrain.runs.sweep import Sweep
from countertrain.runs.sweep.job import Job, attempt
from countertrain.runs.training import train
from countertrain.runs.tune import Bound, Goal, Space, tune
from countertrain.tables.schema import Schema
from loans import loans

X, Y = loans()
pytestmark = pytest.mark.filterwarnings("ignore:only .* counterfactuals reached")  # which is beside the point here
QUICK = {"epochs": 2, "n_ce": 60, "n_steps": 5, "seeds": [0], "label": "decision"}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A file with missing values, levels, truth values, and the label in the middle."""
    path = tmp_path / "people.csv"
    frame = X.copy()
    frame.insert(2, "decision", Y)
    frame.insert(0, "id", range(len(frame)))
    assert frame["debt"].isna().any()
    frame.to_csv(path, index=False)
    return path


def test_a_table_with_missing_values_is_trained_tuned_and_swept_and_the_choice_given_on(
    table: Path, tmp_path: Path
) -> None:
    shared = {**QUICK, "drop": ["id"], "immutable": ["age"], "increase": ["income"], "class_weight": "balanced"}
    settings = Settings.resolve(str(table), shared)
    assert settings.profile == "table"
    run = train(settings, tmp_path / "run")
    jobs = ("job=clerk", "job=none", "job=smith")
    assert run.data.features == ("age", "income", *jobs, "member", "debt", "debt=missing")
    assert read_run(tmp_path / "run").settings == settings
    (answer,) = attempt(Job((settings,), 2, 10), lambda share: None)  # type: ignore[misc]
    assert answer.outcomes["failure"] is None
    spec = Sweep(data=[str(table)], fixed={k: v for k, v in shared.items() if k != "seeds"}, grid={"tau": [0.5, 0.6]})
    assert {run.tau for run in spec.runs().values()} == {0.5, 0.6}
    tuned = tune(
        settings,
        goal=Goal(bounds=(Bound.parse("accuracy >= 0.1"),)),
        space=Space({"tau": (0.5, 0.6)}),
        trials=2,
        batch=2,
        storage=tmp_path / "s.db",
        rounds=2,
        individuals=10,
    )
    assert len(tuned.trials) == 2
    chosen = settings.change(tau=float(tuned.trials["tau"][0]))  # trials so short may clear no bar
    (tmp_path / "chosen.toml").write_text(chosen.to_toml())
    again = train(read_settings(tmp_path / "chosen.toml"), tmp_path / "again")
    classifier = CounterfactualClassifier(settings=tmp_path / "chosen.toml").fit(X, Y)
    assert classifier.settings_ == chosen.change(data="frame")
    assert classifier.encoder_.features == again.data.features
    assert classifier.encoder_.schema["age"].mutability == "none"


def test_a_schema_of_ones_own_is_a_setting(table: Path, tmp_path: Path) -> None:
    schema = Schema.infer(X).with_columns(age={"lower": 0, "upper": 200}, job={"mutability": "none"})
    (tmp_path / "schema.toml").write_text(schema.to_toml())
    given = {**QUICK, "drop": ["id"], "schema_file": str(tmp_path / "schema.toml")}
    settings = Settings.resolve(str(table), given)
    data = load_data(settings)
    assert data.schema["age"].upper == 200
    constraints = build_constraints(settings, data)
    assert data.original(constraints.upper[None].float())[0, 0] == pytest.approx(200)
    assert not constraints.may_increase[2:5].any()
    classifier = CounterfactualClassifier(settings=given).fit(X, Y)
    assert classifier.encoder_.schema["age"].upper == 200
    with pytest.raises(ValueError, match=r"there is no file .*none.toml; a schema_file says in TOML what the columns"):
        load_data(settings.change(schema_file="none.toml"))
