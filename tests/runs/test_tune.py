"""Tuning asks in batches, trains each batch as one population, and never sees a test row."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pytest
import torch

from countertrain.cli import main
from countertrain.files import InUseError, locked
from countertrain.runs import registry
from countertrain.runs.measure import Training, predictive
from countertrain.runs.registry import build_models, build_trainer
from countertrain.runs.settings import Settings, read_settings
from countertrain.runs.tune import Bound, Goal, Space, Tuned, judge, tune
from countertrain.runs.tune import study as module
from countertrain.search.vae import VAE, fit_vae
from countertrain.tables import load
from countertrain.training.history import History

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


@pytest.mark.parametrize(
    ("slacks", "feasible"), [([], True), ([0.0, 0.2], True), ([-0.01], False), ([0.3, -1e-9], False)]
)
def test_a_trial_that_misses_any_bar_is_not_feasible(slacks: list[float], feasible: bool) -> None:
    trial = optuna.trial.create_trial(values=[1.0, 2.0], user_attrs={"slack": slacks})
    assert module._is_feasible(trial) is feasible


def test_the_front_holds_exactly_the_feasible_trials_that_none_beats(first: tuple[Tuned, Path]) -> None:
    good = first[0].trials[first[0].trials["feasible"]]
    values = good[["ip", "cost"]].to_numpy()
    beaten = [bool(((values <= v).all(1) & (values < v).any(1)).any()) for v in values]
    assert list(good["front"]) == [not b for b in beaten]


def test_a_tuning_goes_on_where_it_stopped(first: tuple[Tuned, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []
    real = judge.Judge.__call__
    monkeypatch.setattr(
        judge.Judge, "__call__", lambda self, runs, *more: measured.append(len(runs)) or real(self, runs, *more)
    )
    again = tuned(first[1])
    assert measured == []
    assert again.trials.equals(first[0].trials)
    more = tuned(first[1], trials=8)
    assert sum(n for n in measured if n > 1) == 2
    assert len(more.trials) == 8
    assert np.allclose(more.trials["ip"][:6], first[0].trials["ip"])


@pytest.mark.parametrize(
    ("place", "name", "at"),
    [(judge.Judge, "__call__", 1), (judge.Judge, "__call__", 3), (module, "_note", 5), (module, "_tell", 5)],
    ids=["at first", "in a batch", "before a batch is told", "while it is told"],
)
def test_a_killed_tuning_chooses_what_it_would_have_chosen_anyway(
    first: tuple[Tuned, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Any, name: str, at: int
) -> None:
    real, calls = getattr(place, name), []

    def die(*args: Any) -> Any:
        calls.append(name)
        if len(calls) == at:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(place, name, die)
    with pytest.raises(KeyboardInterrupt):
        tuned(tmp_path)
    again = tuned(tmp_path)
    assert again.chosen == first[0].chosen
    pd.testing.assert_frame_equal(again.trials, first[0].trials)
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]


def test_a_second_tuning_in_a_folder_is_turned_away(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(InUseError, match="is in use by process"):
        tuned(tmp_path)


def test_those_who_tune_together_share_out_the_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a URL several may: who asks while another one has asked for nearly all gets what is left, and no more."""
    real, asked = module._ask, []

    def ask_together(*args: Any) -> Any:
        found = real(*args)
        asked.append(len(found[0]))
        if len(asked) == 1:  # before anything is measured, somebody else asks for as many
            both.append(tuned(tmp_path, trials=4, batch=3, storage=url))
        return found

    url, both = f"sqlite:///{tmp_path / 's.db'}", list[Tuned]()
    monkeypatch.setattr(module, "_ask", ask_together)
    mine = tuned(tmp_path, trials=4, batch=3, storage=url)
    assert asked == [3, 1]
    assert (len(both[0].trials), len(mine.trials)) == (1, 4)
    study = optuna.load_study(storage=url, study_name="tune")
    late = [study.ask() for _ in range(3)]  # as if all had looked in the same instant, when one was left
    assert module._give_back(study, late, trials=5) == 2
    assert [trial.number for trial in module._list_running(study)] == [late[0].number]


def test_a_study_of_something_else_is_refused(first: tuple[Tuned, Path]) -> None:
    with pytest.raises(ValueError, match="was begun with other settings or another goal"):
        tuned(first[1], settings={"n_steps": 7})
    with pytest.raises(ValueError, match="was begun with other settings or another goal"):
        tuned(first[1], goal=Goal(("ip", "ip_star")))


def test_test_rows_are_never_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = module.load_data

    def without_test(*args: object, **kwargs: object) -> object:
        data = real(*args, **kwargs)  # type: ignore[arg-type]
        nothing = replace(data.test, x=torch.full_like(data.test.x, torch.nan))
        return replace(data, test=nothing)

    plain = tuned(tmp_path, trials=3)
    monkeypatch.setattr(module, "load_data", without_test)
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


@pytest.fixture(scope="module")
def halved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tuned, list[tuple[int, int]], Path]:
    """Two batches of four, of which two and then one go on; and how many models each training had, and until when."""
    folder, fits = tmp_path_factory.mktemp("halved"), []
    real = Training.fit

    def fit(self: Training, *, until: int, **options: Any) -> History:
        fits.append((len(self.models), until))
        return real(self, until=until, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Training, "fit", fit)
        return tuned(folder, settings={"epochs": 4}, trials=8, batch=4, prune=True), fits, folder


def test_the_worse_half_of_a_batch_is_left_behind_at_each_rung_and_counts_as_trials(
    halved: tuple[Tuned, list[tuple[int, int]], Path],
) -> None:
    trials, fits = halved[0].trials, halved[1]
    assert list(trials["trial"]) == list(range(8))
    for batch in (trials[:4], trials[4:]):
        assert sorted(batch["epoch"]) == [1, 1, 2, 4]
    assert (trials["pruned"] == (trials["epoch"] < 4)).all()
    assert not trials.loc[trials["pruned"], ["feasible", "front"]].any(axis=None)
    assert fits.count((8, 1)) == fits.count((4, 2)) == 2  # two seeds a trial
    assert fits.count((2, 4)) == 2 + fits.count((2, 1))  # and conventional models, which nobody leaves behind
    chosen = halved[0].chosen
    assert chosen is not None
    assert chosen.tau in set(trials.loc[~trials["pruned"], "tau"])


def test_a_pruned_tuning_goes_on_where_it_stopped_pruned_trials_included(
    halved: tuple[Tuned, list[tuple[int, int]], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge.Judge, "__call__", None)  # nothing is computed
    again = tuned(halved[2], settings={"epochs": 4}, trials=8, batch=4, prune=True)
    assert again.trials.equals(halved[0].trials)


def test_a_trial_that_survives_ends_with_the_metrics_that_it_would_have_had_anyway(
    halved: tuple[Tuned, list[tuple[int, int]], Path],
) -> None:
    data = load("moons")
    trials = halved[0].trials.set_index("trial")
    batch = range(4)
    runs = [
        Settings.resolve("moons", {**SMALL, "epochs": 4, **trials.loc[i, ["tau", "lambda_div", "hidden"]].to_dict()})
        for i in batch
    ]
    models = [model for run in runs for model in build_models(run, data)]
    build_trainer(runs, data).fit(models, data.train.x, data.train.y)
    (survivor,) = (i for i in batch if not trials.loc[i, "pruned"])
    accuracy = predictive(models[2 * survivor : 2 * survivor + 2], data.validation)["accuracy"]
    assert trials.loc[survivor, "accuracy"] == pytest.approx(np.mean(accuracy), abs=2e-3)


def test_trials_that_clear_every_bar_come_first_and_those_that_miss_by_most_come_last() -> None:
    baseline = {"accuracy": 0.9, "ip": 1.0, "cost": 1.0}
    nan = float("nan")
    metrics = [
        {"accuracy": 0.7, "ip": 0.1, "cost": 0.1},
        {"accuracy": 0.9, "ip": 0.9, "cost": 0.9},
        {"accuracy": 0.8, "ip": 0.2, "cost": 0.2},
        {"accuracy": 0.95, "ip": 0.5, "cost": 0.5},
        {"accuracy": 0.95, "ip": nan, "cost": 0.5},
    ]
    assert GOAL.ranking(metrics, baseline) == [3, 1, 4, 2, 0]


def test_short_trainings_and_models_that_train_one_by_one_are_not_pruned() -> None:
    def rungs(prune: bool | None, **settings: object) -> tuple[int, ...]:
        return module._place_rungs(Settings.resolve("moons", settings), prune)

    assert rungs(None, epochs=19) == ()
    assert rungs(None, epochs=20) == rungs(True, epochs=20) == (5, 10)
    assert rungs(False, epochs=100) == ()
    assert rungs(True, epochs=100, burn_in=0.5) == (62, 75)
    assert rungs(True, epochs=1) == ()
    assert rungs(None, epochs=100, on_nonfinite="skip") == ()
    assert rungs(None, epochs=100, early_stopping=True) == ()
    with pytest.raises(ValueError, match="not from the best; leave out early_stopping or --prune"):
        rungs(True, epochs=100, early_stopping=True)
    with pytest.raises(ValueError, match="leave out on_nonfinite=skip, or --prune"):
        rungs(True, epochs=100, on_nonfinite="skip")


@pytest.mark.parametrize(
    ("text", "slack"),
    [("accuracy >= bl - 0.01", 0.02), ("accuracy >= 0.95", -0.04), ("ip <= bl", 0.5), ("ip<=1.2", -0.3)],
)
def test_a_bar_is_cleared_by_so_much(text: str, slack: float) -> None:
    bound = Bound.parse(text)
    assert bound.slack({"accuracy": 0.91, "ip": 1.5}, {"accuracy": 0.9, "ip": 2.0}) == pytest.approx(slack)


def test_what_could_not_be_measured_clears_no_bar() -> None:
    assert Bound.parse("ip <= 2").slack({"ip": float("nan")}, {}) == -float("inf")


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
    own = ["--range", "tau=0.6:0.65", "--set", "hidden=[4]", "--set", "lambda_div=0.3"]
    with pytest.raises(SystemExit) as stop:
        main([*args, "--constraint", "accuracy >= 0.1", "--out", "t", *own])
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
    chosen = Settings.from_toml(Path("t/chosen.toml").read_text())
    assert (chosen.objective, chosen.hidden, chosen.lambda_div) == ("ct", (4,), 0.3)
    trials = pd.read_csv("t/trials.csv")
    assert trials["tau"].between(0.6, 0.65).all()
    assert "hidden" not in trials
    assert "lambda_div" not in trials


def test_the_command_tunes_a_search_in_latent_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[int] = []

    def fit_quickly(x: torch.Tensor, *, seed: int) -> VAE:
        fits.append(len(x))
        return fit_vae(x, seed=seed, epochs=2)

    monkeypatch.setattr(registry, "fit_vae", fit_quickly)
    sets = [part for name, value in SMALL.items() if name != "seeds" for part in ("--set", f"{name}={value}")]
    args = ["--trials", "2", "--batch", "2", "--seeds", "1", "--constraint", "accuracy >= 0.1", "--prune", *sets]
    with pytest.raises(SystemExit) as stop:
        main(["tune", "moons", "--set", "generator=revise", "--set", "epochs=4", "--out", str(tmp_path / "t"), *args])
    assert stop.value.code == 0
    assert len(fits) == 1  # for all rungs of all populations
    chosen = read_settings(tmp_path / "t" / "chosen.toml")
    assert chosen.generator == "revise"


@pytest.mark.parametrize("text", ["tau", "tau=0.5", "tau=0.9:0.5", "tau=a:b", "hidden=1:2", "lambda_div=0:1"])
def test_a_range_that_makes_no_sense_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["tune", "moons", "--range", text])
    assert stop.value.code == 2
    assert f"got '{text}'" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--range", "tau=0.8:1.5"], "setting 'tau' must be less than 1; got 1.5"),
        (["--range", "tau=0.8:0.9", "--set", "tau=0.5"], "tau is either set for all trials or searched"),
    ],
)
def test_a_range_that_settings_cannot_have_is_refused_before_any_trial(
    args: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["tune", "moons", "--out", str(tmp_path / "t"), *args])
    assert stop.value.code == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "t").exists()
