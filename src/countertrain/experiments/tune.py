"""Tuning with Optuna: trials are asked and told in batches, and each batch trains as one population.

Only training and validation rows are ever looked at; the test rows stay unseen.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from countertrain.data import Dataset, load
from countertrain.evaluation.protocol import evaluate
from countertrain.experiments.build import VARYING, build_constraints, build_models, build_protocol, build_trainer
from countertrain.experiments.scores import predictive
from countertrain.experiments.settings import Settings

if TYPE_CHECKING:
    import optuna

__all__ = ["SPACE", "Bound", "Goal", "Space", "Tuned", "tune"]

METRICS = ("ip", "ip_star", "cost", "validity", "accuracy", "f1")
_SETTINGS, _METRICS, _SLACK = "settings", "metrics", "slack"  # what a trial carries along


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


@dataclass(frozen=True)
class Bound:
    """A bar that a trial must clear, such as `accuracy >= bl - 0.01`; `bl` is the conventional model's value."""

    metric: str
    at_least: bool
    relative: bool
    offset: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """`METRIC >= NUMBER`, or `METRIC >= bl - NUMBER`."""
        found = re.fullmatch(r"\s*(\w+)\s*(>=|<=)\s*(bl)?\s*([+-]?\s*[\d.]+)?\s*", text)
        if found is None or found[1] not in METRICS or not (found[3] or found[4]):
            raise ValueError(
                f"a constraint reads like 'accuracy >= bl - 0.01' or 'validity >= 0.9', with one of "
                f"{', '.join(METRICS)}; got {text!r}"
            )
        return cls(found[1], found[2] == ">=", bool(found[3]), float((found[4] or "0").replace(" ", "")))

    def slack(self, metrics: Mapping[str, float], baseline: Mapping[str, float]) -> float:
        """How far the bar is cleared; negative where it is not."""
        bar = self.offset + (baseline[self.metric] if self.relative else 0.0)
        return (metrics[self.metric] - bar) * (1 if self.at_least else -1)


@dataclass(frozen=True)
class Goal:
    """What to minimise, and what must hold."""

    minimise: tuple[str, ...] = ("ip", "cost")
    bounds: tuple[Bound, ...] = (Bound("accuracy", at_least=True, relative=True, offset=-0.01),)

    def __post_init__(self) -> None:
        unknown = [name for name in self.minimise if name not in METRICS]
        if unknown or not self.minimise:
            raise ValueError(f"minimise takes one or more of {', '.join(METRICS)}; got {', '.join(self.minimise)!r}")

    def loss(self, metrics: Mapping[str, float], baseline: Mapping[str, float]) -> float:
        """One number for choosing among good trials: the mean logarithm of the ratios to the conventional model."""
        return float(np.mean([np.log(max(metrics[m], 1e-12) / max(baseline[m], 1e-12)) for m in self.minimise]))


@dataclass(frozen=True, eq=False)
class Tuned:
    """What tuning found: one row a finished trial, and the settings chosen among those that clear every bar."""

    trials: pd.DataFrame
    """What varied, metrics, reductions in percent, and whether `feasible` and on the Pareto `front`."""
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
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Tuned:
    """Search the space for `trials` settings in all, those of an earlier call with the same storage included.

    Each trial trains one model for each seed of `settings`. With `cost_immutable`, cost is that of models trained and
    explained with these features immutable, as in the paper's Table 1, and all else that of models without.
    """
    goal = goal or Goal()
    study = _study(goal, storage, study_name)
    _check_same(study, settings, goal)
    # however the training search steps, all trials are explained alike
    settings = settings.model_copy(update={"test_step_size": settings.test_step_size or settings.step_size})
    data = load(settings.data, target=settings.target_column, data_seed=settings.data_seed)
    judge = _Judge(data, cost_immutable, rounds, individuals)
    rng = np.random.default_rng(len(study.trials))
    progress(len(_finished(study)), trials)
    while (left := trials - len(_finished(study))) > 0:
        choice = _next_choice(study, space, rng)
        asked, runs = _ask(study, settings, space, choice, min(batch, left))
        baseline = _baseline(study, judge, runs[0])
        for trial, run, metrics in zip(asked, runs, judge(runs), strict=True):
            trial.set_user_attr(_SETTINGS, run.model_dump(mode="json"))
            trial.set_user_attr(_METRICS, {**metrics, **{f"bl_{k}": v for k, v in baseline.items()}})
            slacks = [bound.slack(metrics, baseline) for bound in goal.bounds]
            trial.set_user_attr(_SLACK, slacks)
            for bound, slack in zip(goal.bounds, slacks, strict=True):
                trial.set_constraint(bound.metric, -slack)
            study.tell(trial, [metrics[name] for name in goal.minimise])
        progress(len(_finished(study)), trials)
    return _result(study, goal, space)


@dataclass(frozen=True)
class _Judge:
    """Trains runs as one population and measures them on validation rows."""

    data: Dataset
    cost_immutable: Sequence[str]
    rounds: int
    individuals: int

    def __call__(self, runs: Sequence[Settings]) -> list[dict[str, float]]:
        """Metrics of each run, averaged over its seeds."""
        metrics = self._measure(runs, tau=0.95)
        if self.cost_immutable:
            protected = [run.model_copy(update={"immutable": tuple(self.cost_immutable)}) for run in runs]
            metrics["cost"] = self._measure(protected, tau=0.5)["cost"]
        owner = [i for i, run in enumerate(runs) for _ in run.seeds]
        means = metrics.groupby(owner).mean()
        return [{str(k): float(v) for k, v in row.items()} for _, row in means.iterrows()]

    def _measure(self, runs: Sequence[Settings], tau: float) -> pd.DataFrame:
        data = self.data
        models = [model for run in runs for model in build_models(run, data)]
        build_trainer(runs, data).fit(models, data.train.x, data.train.y)
        protocol = build_protocol(runs[0], rounds=self.rounds, individuals=self.individuals, tau=tau)
        records = evaluate(
            models,
            data.validation.x,
            data.validation.y,
            n_classes=data.n_classes,
            constraints=build_constraints(runs[0], data, test_time=True),
            protocol=protocol,
        )
        outcomes = records.groupby("model")[["ip", "ip_star", "cost", "validity"]].mean().reset_index(drop=True)
        return outcomes.assign(**predictive(models, data.validation))


def _study(goal: Goal, storage: str | Path, name: str) -> "optuna.Study":
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise ValueError("tuning needs Optuna; install it with: pip install 'countertrain[tune]'") from error
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


def _finished(study: "optuna.Study") -> list["optuna.trial.FrozenTrial"]:
    import optuna

    return study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE])


def _feasible(trial: "optuna.trial.FrozenTrial") -> bool:
    return all(slack >= 0 for slack in trial.user_attrs[_SLACK])


def _next_choice(study: "optuna.Study", space: Space, rng: np.random.Generator) -> dict[str, Any]:
    """One value for each choice: at first at random, then mostly that of a trial on the front."""
    good = [trial for trial in study.best_trials if _feasible(trial)] if _finished(study) else []
    if good and rng.random() < 0.5:
        kept = good[int(rng.integers(len(good)))].user_attrs[_SETTINGS]
        return {name: kept[name] for name in space.choices}
    return {name: values[int(rng.integers(len(values)))] for name, values in space.choices.items()}


def _ask(
    study: "optuna.Study", settings: Settings, space: Space, choice: Mapping[str, Any], n: int
) -> tuple[list["optuna.Trial"], list[Settings]]:
    """The next n trials of one population, and their settings."""
    import optuna

    study.sampler = optuna.samplers.TPESampler(
        seed=len(study.trials),
        n_startup_trials=2 * n,
        multivariate=True,
        constant_liar=True,
    )
    asked = [study.ask() for _ in range(n)]
    runs = []
    for trial in asked:
        drawn = {
            name: trial.suggest_float(name, low, high, log=name != "tau") for name, (low, high) in space.ranges.items()
        }
        runs.append(Settings.model_validate({**settings.model_dump(), **choice, **drawn}))
    return asked, runs


def _baseline(study: "optuna.Study", judge: _Judge, run: Settings) -> dict[str, float]:
    """Metrics of conventional models of the same architecture, measured once for each."""
    key = f"bl {run.model} {run.hidden}"
    if key not in study.user_attrs:
        study.set_user_attr(key, judge([run.model_copy(update={"objective": "bl"})])[0])
    return dict(study.user_attrs[key])


def _result(study: "optuna.Study", goal: Goal, space: Space) -> Tuned:
    finished = _finished(study)
    front = {trial.number for trial in study.best_trials if _feasible(trial)}
    rows = []
    best: tuple[float, Settings | None] = (float("inf"), None)
    for trial in finished:
        metrics = trial.user_attrs[_METRICS]
        baseline = {name.removeprefix("bl_"): v for name, v in metrics.items() if name.startswith("bl_")}
        run = Settings.model_validate(trial.user_attrs[_SETTINGS])
        loss = goal.loss(metrics, baseline)
        if _feasible(trial) and loss < best[0]:
            best = loss, run
        rows.append(
            {
                "trial": trial.number,
                **{name: getattr(run, name) for name in (*space.ranges, *space.choices)},
                **{name: metrics[name] for name in METRICS},
                "bl_accuracy": baseline["accuracy"],
                **{f"{m} reduction": 100 * (1 - metrics[m] / baseline[m]) for m in goal.minimise},
                "feasible": _feasible(trial),
                "front": trial.number in front,
                "loss": loss,
            }
        )
    return Tuned(pd.DataFrame(rows), best[1])
