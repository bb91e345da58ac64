"""Tuning with Optuna: trials are asked and told in batches, and each batch trains as one population.

Only training and validation rows are ever looked at; the test rows stay unseen.
"""

import json
import math
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from countertrain.files import Writer, locked
from countertrain.runs.registry import VARYING, load_data
from countertrain.runs.settings import Settings
from countertrain.runs.tune.goal import Goal, tunable
from countertrain.runs.tune.judge import PREFIX, Judge, Measured

if TYPE_CHECKING:
    import optuna

__all__ = ["SPACE", "Space", "Tuned", "check_optuna", "tune"]

_SETTINGS, _METRICS, _SLACK, _EPOCH = "settings", "metrics", "slack", "epoch"  # what a trial carries along
_OWNER = "owner"  # and who computes it
_MEASURED = "measured"  # what a study carries along: the trials of a batch of which all is known, and some may be told
_RUNGS = (0.25, 0.5)  # shares of the epochs with a search after which the worse half is left behind
_LONG = 20  # epochs from which pruning is worth its measurements


@dataclass(frozen=True)
class Space:
    """What may vary: ranges within a population, and choices between populations."""

    ranges: Mapping[str, tuple[float, float]]
    """Lowest and highest value, drawn evenly on a logarithmic scale (tau on a plain one)."""
    choices: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Settings in which the models of one population cannot differ: one combination is drawn for each batch."""

    def __post_init__(self) -> None:
        for name in self.ranges:
            if name not in VARYING:
                raise ValueError(f"{name} cannot vary within a population; make it one of the choices")

    def narrow(self, ranges: Mapping[str, tuple[float, float]], fixed: Collection[str] = ()) -> Self:
        """The space with some ranges of one's own, and without what is fixed for all trials."""
        return type(self)(
            {name: ends for name, ends in {**self.ranges, **ranges}.items() if name not in fixed},
            {name: values for name, values in self.choices.items() if name not in fixed},
        )


SPACE = Space(
    ranges={
        "tau": (0.5, 0.95),
        "lambda_div": (0.02, 2.0),
        "lambda_reg": (0.01, 1.0),
        "lambda_adv": (0.02, 2.0),
    },
    choices={
        "n_steps": (30, 50),
        "step_size": (0.1, 0.3),
        "n_neighbours": (1, 16),
        "hidden": ((32,), (128,)),
    },
)


@dataclass(frozen=True, eq=False)
class Tuned:
    """What tuning found: one row per trial, and the settings chosen among those that clear every bar."""

    trials: pd.DataFrame
    """What varied, metrics and reductions in percent after `epoch`, and whether `pruned`, `feasible`, on the `front`.

    A trial that was pruned is neither feasible nor on the front; its metrics are rough, and those of its last rung.
    """
    chosen: Settings | None
    """None: no trial cleared every bar."""


def tune(
    settings: Settings,
    *,
    goal: Goal | None = None,
    space: Space = SPACE,
    trials: int = 64,
    batch: int = 16,
    cost_immutable: Sequence[str] = (),
    storage: str | Path = "tune.db",
    study_name: str = "tune",
    rounds: int = 5,
    individuals: int = 100,
    prune: bool | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Tuned:
    """Search the space for `trials` settings in all, those of an earlier call with the same storage included.

    Each trial trains one model for each seed of `settings`. With `cost_immutable`, cost is that of models trained and
    explained with these features immutable, as in the paper's Table 1, and all else that of models without.

    With `prune`, the worse half of a batch is left behind after a quarter of the epochs, and again after half of them;
    these trials count, too. None: from 20 epochs on.

    Killed at any moment, it chooses in the end what it would have chosen anyway. One process at a time tunes in a
    folder; at a URL several do, which share out the trials.
    """
    goal = goal or Goal()
    rungs = _place_rungs(settings, prune)
    with _alone(storage) as folder:
        study = _open_study(goal, storage, study_name)
        _check_same(study, settings, goal)
        _clear_away(study, goal, alone=folder is not None)
        # however the training search steps, all trials are explained alike
        settings = settings.model_copy(update={"test_step_size": settings.test_step_size or settings.step_size})
        judge = Judge(load_data(settings), cost_immutable, rounds, individuals, folder)
        progress(len(_list_past_trials(study)), trials)
        while (left := trials - len(_list_past_trials(study)) - len(_list_running(study))) > 0:
            asked, runs = _ask(study, settings, space, min(batch, left))
            kept = len(asked) - _give_back(study, asked, trials)
            _try_batch(study, goal, judge, rungs, asked[:kept], runs[:kept])
            progress(len(_list_past_trials(study)), trials)
        return _summarise(study, goal, space)


def _try_batch(
    study: "optuna.Study",
    goal: Goal,
    judge: Judge,
    rungs: Sequence[int],
    asked: Sequence["optuna.Trial"],
    runs: Sequence[Settings],
) -> None:
    """Train the trials of a batch as one population, measure them, and tell them when all are known."""
    if not asked:
        return
    baseline = _measure_baseline(study, judge, runs[0], rungs)

    def choose_half(rung: int, metrics: Sequence[dict[str, float]]) -> Sequence[int]:
        return goal.ranking(metrics, baseline[rung])[: math.ceil(len(metrics) / 2)]

    for trial, run, measured in zip(asked, runs, judge(runs, rungs, choose_half), strict=True):
        _note(goal, trial, run, measured, baseline)
    study.set_user_attr(_MEASURED, [trial.number for trial in asked])
    for trial in asked:
        _tell(study, goal, trial.number)


@contextmanager
def _alone(storage: str | Path) -> Iterator[Path | None]:
    """Be the only one to tune in the folder of a file, which is given; others may share what is at a URL."""
    folder = Path(storage).resolve().parent
    if "://" in str(storage) or not folder.is_dir():
        yield None
        return
    with locked(folder):
        for left_over in folder.glob(f"{PREFIX}*"):  # by a tuning that was killed
            shutil.rmtree(left_over, ignore_errors=True)
        yield folder


def _give_back(study: "optuna.Study", asked: Sequence["optuna.Trial"], trials: int) -> int:
    """Forget those that were asked for last where others have asked at the same time; how many.

    Numbers of trials are given out by the database, one after the other, so that all agree on who came too late.
    """
    import optuna

    counted = sorted(trial.number for trial in (*_list_past_trials(study), *_list_running(study)))
    late = [trial for trial in asked if trial.number in counted[trials:]]
    for trial in late:
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    return len(late)


def _clear_away(study: "optuna.Study", goal: Goal, *, alone: bool) -> None:
    """Tell what a killed tuning had measured as a whole; what it had only begun is forgotten, and begun again."""
    import optuna

    for trial in _list_running(study):
        owner = Writer.from_json(trial.user_attrs.get(_OWNER, ""))
        if not alone and (owner is None or not owner.has_ended):  # somebody computes it
            continue
        if trial.number in study.user_attrs.get(_MEASURED, ()):
            _tell(study, goal, trial.number)
        else:
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)


def _place_rungs(settings: Settings, prune: bool | None) -> tuple[int, ...]:
    """After how many epochs the worse half is left behind; never, if there is no pruning."""
    one_by_one = settings.on_nonfinite == "skip"
    if prune and one_by_one:
        raise ValueError("pruning takes models that train as one population; leave out on_nonfinite=skip, or --prune")
    if prune and settings.early_stopping:
        raise ValueError(
            "pruned trials go on from the last weights, not from the best; leave out early_stopping or --prune"
        )
    if prune is None:
        prune = settings.epochs >= _LONG and not one_by_one and not settings.early_stopping
    first = round(settings.burn_in * settings.epochs)  # before the first search there is nothing to compare
    rungs = {first + int(share * (settings.epochs - first)) for share in _RUNGS}
    return tuple(sorted(rung for rung in rungs if prune and first < rung < settings.epochs))


def check_optuna() -> None:
    """Refuse to tune without Optuna, in one sentence that says how to get it."""
    if find_spec("optuna") is None:
        raise ValueError("tuning needs Optuna; install it with: pip install 'countertrain[tune]'")


def _open_study(goal: Goal, storage: str | Path, name: str) -> "optuna.Study":
    check_optuna()
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    url = str(storage) if "://" in str(storage) else f"sqlite:///{storage}"
    try:
        return optuna.create_study(
            storage=url, study_name=name, directions=["minimize"] * len(goal.minimise), load_if_exists=True
        )
    except Exception as error:  # whatever the database driver raises
        raise ValueError(f"the study cannot be opened at {url}: {str(error).splitlines()[0]}") from error


def _check_same(study: "optuna.Study", settings: Settings, goal: Goal) -> None:
    """A study goes on only with the settings and the goal that it began with."""
    mine = json.dumps([settings.model_dump(mode="json"), goal.minimise, [str(b) for b in goal.bounds]])
    begun = study.user_attrs.get("of")
    if begun is None:
        study.set_user_attr("of", mine)
    elif begun != mine:
        raise ValueError(
            f"the study {study.study_name!r} was begun with other settings or another goal; choose another --out or "
            "another storage"
        )


def _note(goal: Goal, trial: "optuna.Trial", run: Settings, measured: Measured, baseline: Measured) -> None:
    """What a trial came to: its metrics at the end, or at the rung where it was left behind."""
    epoch, metrics = max(measured.items())
    slacks = [bound.slack(metrics, baseline[epoch]) for bound in goal.bounds]
    trial.set_user_attr(_SETTINGS, run.model_dump(mode="json"))
    trial.set_user_attr(_METRICS, {**metrics, **{f"bl_{k}": v for k, v in baseline[epoch].items()}})
    trial.set_user_attr(_SLACK, slacks)
    trial.set_user_attr(_EPOCH, epoch)
    for bound, slack in zip(goal.bounds, slacks, strict=True):
        trial.set_constraint(bound.metric, -slack)


def _tell(study: "optuna.Study", goal: Goal, number: int) -> None:
    """Close a trial of which all is noted."""
    import optuna

    noted = study.trials[number].user_attrs
    values = [noted[_METRICS][name] for name in goal.minimise]
    if noted[_EPOCH] == noted[_SETTINGS]["epochs"] and np.isfinite(values).all():
        study.tell(number, values)
    else:  # Optuna takes no value of an unfinished trial of several objectives, but learns that it is none of the best
        study.tell(number, state=optuna.trial.TrialState.PRUNED)


def _list_past_trials(study: "optuna.Study") -> list["optuna.trial.FrozenTrial"]:
    """Trials that are over, finished or pruned."""
    import optuna

    states = [optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED]
    return study.get_trials(deepcopy=False, states=states)


def _list_running(study: "optuna.Study") -> list["optuna.trial.FrozenTrial"]:
    """Trials that were asked for and not told of."""
    import optuna

    return study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.RUNNING])


def _is_feasible(trial: "optuna.trial.FrozenTrial") -> bool:
    """Whether a trial was finished and cleared every bar."""
    return trial.values is not None and all(slack >= 0 for slack in trial.user_attrs[_SLACK])


def _next_choice(study: "optuna.Study", space: Space, rng: np.random.Generator) -> dict[str, Any]:
    """One value for each choice: at first at random, then mostly that of a trial on the front."""
    good = [trial for trial in study.best_trials if _is_feasible(trial)]
    if good and rng.random() < 0.5:
        kept = good[int(rng.integers(len(good)))].user_attrs[_SETTINGS]
        return {name: kept[name] for name in space.choices}
    return {name: values[int(rng.integers(len(values)))] for name, values in space.choices.items()}


def _ask(
    study: "optuna.Study", settings: Settings, space: Space, n: int
) -> tuple[list["optuna.Trial"], list[Settings]]:
    """The next n trials of one population, and their settings.

    They depend on the trials told before, and on nothing that a kill would change.
    """
    import optuna

    n_past = len(_list_past_trials(study))
    choice = _next_choice(study, space, np.random.default_rng(n_past))
    study.sampler = optuna.samplers.TPESampler(
        seed=n_past,
        n_startup_trials=2 * n,
        multivariate=True,
        constant_liar=True,
    )
    asked = [study.ask() for _ in range(n)]
    runs = []
    for trial in asked:
        trial.set_user_attr(_OWNER, Writer.here().to_json())
        drawn = {
            name: trial.suggest_float(name, low, high, log=name != "tau") for name, (low, high) in space.ranges.items()
        }
        runs.append(Settings.model_validate({**settings.model_dump(), **choice, **drawn}))
    return asked, runs


def _measure_baseline(study: "optuna.Study", judge: Judge, run: Settings, rungs: Sequence[int]) -> Measured:
    """Metrics of conventional models of the same architecture, at the rungs and at the end, measured once for each."""
    name = f"bl {run.model} {run.hidden}"
    keys = {run.epochs: name, **{rung: f"{name} after {rung}" for rung in rungs}}
    if any(key not in study.user_attrs for key in keys.values()):
        (measured,) = judge([run.model_copy(update={"objective": "bl"})], rungs)
        for epoch, metrics in measured.items():
            study.set_user_attr(keys[epoch], metrics)
    return {epoch: dict(study.user_attrs[key]) for epoch, key in keys.items()}


def _summarise(study: "optuna.Study", goal: Goal, space: Space) -> Tuned:
    front = {trial.number for trial in study.best_trials if _is_feasible(trial)}
    rows = []
    best: tuple[float, Settings | None] = (float("inf"), None)
    for place, trial in enumerate(_list_past_trials(study)):
        metrics = trial.user_attrs[_METRICS]
        baseline = {name.removeprefix("bl_"): v for name, v in metrics.items() if name.startswith("bl_")}
        run = Settings.model_validate(trial.user_attrs[_SETTINGS])
        loss = goal.loss(metrics, baseline)
        if _is_feasible(trial) and loss < best[0]:
            best = loss, run
        rows.append(
            {
                "trial": place,  # without those that were begun and forgotten
                **{name: getattr(run, name) for name in (*space.ranges, *space.choices)},
                **{name: metrics.get(name) for name in tunable()},
                "bl_accuracy": baseline["accuracy"],
                **{f"{m} reduction": 100 * (1 - metrics[m] / baseline[m]) for m in goal.minimise},
                "epoch": trial.user_attrs.get(_EPOCH, run.epochs),  # studies of before had no rungs
                "pruned": trial.values is None,
                "feasible": _is_feasible(trial),
                "front": trial.number in front,
                "loss": loss,
            }
        )
    return Tuned(pd.DataFrame(rows), best[1])
