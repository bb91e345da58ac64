"""Tuning asks in batches, trains each batch as one population, and never sees a test row."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from countertrain.cli import main
from countertrain.experiments import tune as module
from countertrain.experiments.settings import Settings
from countertrain.experiments.tune import Bound, Goal, Space, Tuned, tune

SMALL = {"epochs": 3, "n_ce": 100, "batch_size": 500, "seeds": [0, 1]}
BAR = 0.06
GOAL = Goal(bounds=(Bound.parse(f"accuracy >= bl - {BAR}"),))
SPACE = Space({"tau": (0.5, 0.9), "lambda_div": (0.05, 1.0)}, {"hidden": ((8,), (16,))})


def tuned(folder: Path, **changes: object) -> Tuned:
    settings = Settings.resolve("moons", {**SMALL, **changes.pop("settings", {})})  # type: ignore[dict-item]
    options = {
        "goal": GOAL,
        "space": SPACE,
        "trials": 6,
        "batch": 3,
        "rounds": 2,
        "individuals": 20,
        "storage": folder / "s.db",
    }
    return tune(settings, **{**options, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tuned, Path]:
    folder = tmp_path_factory.mktemp("tune")
    return tuned(folder), folder


def test_every_trial_is_measured_and_the_chosen_one_is_the_best_that_clears_every_bar(
    first: tuple[Tuned, Path],
) -> None:
    trials = first[0].trials
    assert list(trials["trial"]) == list(range(6))
    assert trials["tau"].between(0.5, 0.9).all()
    assert trials["tau"].nunique() == 6
    assert (trials["feasible"] == (trials["accuracy"] >= trials["bl_accuracy"] - BAR)).all()
    assert trials["feasible"].any()
    good = trials[trials["feasible"]]
    chosen = first[0].chosen
    assert chosen is not None
    assert chosen.tau == pytest.approx(good.sort_values("loss")["tau"].iloc[0])
    assert trials.loc[trials["front"], "feasible"].all()
    assert trials["front"].any()


def test_the_front_holds_exactly_the_feasible_trials_that_none_beats(first: tuple[Tuned, Path]) -> None:
    good = first[0].trials[first[0].trials["feasible"]]
    values = good[["ip", "cost"]].to_numpy()
    beaten = [bool(((values <= v).all(1) & (values < v).any(1)).any()) for v in values]
    assert list(good["front"]) == [not b for b in beaten]


def test_a_tuning_goes_on_where_it_stopped(first: tuple[Tuned, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []
    judge = module._Judge.__call__
    monkeypatch.setattr(module._Judge, "__call__", lambda self, runs: measured.append(len(runs)) or judge(self, runs))
    again = tuned(first[1])
    assert measured == []
    assert again.trials.equals(first[0].trials)
    more = tuned(first[1], trials=8)
    assert sum(n for n in measured if n > 1) == 2
    assert len(more.trials) == 8
    assert np.allclose(more.trials["ip"][:6], first[0].trials["ip"])


def test_a_study_of_something_else_is_refused(first: tuple[Tuned, Path]) -> None:
    with pytest.raises(ValueError, match="was begun with other settings or another goal"):
        tuned(first[1], settings={"n_steps": 7})
    with pytest.raises(ValueError, match="was begun with other settings or another goal"):
        tuned(first[1], goal=Goal(("ip", "ip_star")))


def test_test_rows_are_never_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = module.load

    def without_test(*args: object, **kwargs: object) -> object:
        data = real(*args, **kwargs)  # type: ignore[arg-type]
        nothing = replace(data.test, x=torch.full_like(data.test.x, torch.nan))
        return replace(data, test=nothing)

    plain = tuned(tmp_path, trials=3)
    monkeypatch.setattr(module, "load", without_test)
    (tmp_path / "other").mkdir()
    blind = tuned(tmp_path / "other", trials=3)
    assert blind.trials.equals(plain.trials)


def test_cost_can_be_that_of_models_with_an_immutable_feature(tmp_path: Path) -> None:
    both = {}
    for name, immutable in (("free", ()), ("protected", ("x1",))):
        (tmp_path / name).mkdir()
        both[name] = tuned(tmp_path / name, trials=2, cost_immutable=immutable).trials
    assert np.allclose(both["free"]["ip"], both["protected"]["ip"])
    assert not np.allclose(both["free"]["cost"], both["protected"]["cost"])


@pytest.mark.parametrize(
    ("text", "slack"),
    [("accuracy >= bl - 0.01", 0.02), ("accuracy >= 0.95", -0.04), ("ip <= bl", 0.5), ("ip<=1.2", -0.3)],
)
def test_a_bar_is_cleared_by_so_much(text: str, slack: float) -> None:
    bound = Bound.parse(text)
    assert bound.slack({"accuracy": 0.91, "ip": 1.5}, {"accuracy": 0.9, "ip": 2.0}) == pytest.approx(slack)


@pytest.mark.parametrize("text", ["accuracy", "speed >= 1", "accuracy > 0.5", "accuracy >=", "accuracy >= bl * 2"])
def test_a_bar_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a constraint reads like"):
        Bound.parse(text)


def test_mistakes_are_answered_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="minimise takes one or more of ip, ip_star, cost"):
        Goal(("speed",))
    with pytest.raises(ValueError, match="n_steps cannot vary within a population; make it one of the choices"):
        Space({"n_steps": (5, 50)})
    with pytest.raises(ValueError, match="the study cannot be opened at sqlite:///"):
        tuned(tmp_path / "nowhere" / "else")


def test_the_command_writes_front_trials_and_chosen_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sets = [part for name, value in SMALL.items() if name != "seeds" for part in ("--set", f"{name}={value}")]
    args = ["tune", "moons", "--minimise", "ip", "cost", "--trials", "3", "--seeds", "1", "--batch", "3", *sets]
    with pytest.raises(SystemExit) as stop:
        main([*args, "--constraint", "accuracy >= 0.1", "--out", "t"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert "Pareto front on validation rows" in out
    assert {path.name for path in Path("t").iterdir()} == {
        "chosen.toml",
        "front.png",
        "front.svg",
        "study.db",
        "trials.csv",
    }
    assert Settings.from_toml(Path("t/chosen.toml").read_text()).objective == "ct"
