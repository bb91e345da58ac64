"""A cell of the comparison of training methods: a method on a data set, tuned, trained with many seeds, and judged."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from benchmarks.contenders import BASELINE, COMMON, CONTENDERS
from benchmarks.referees import referees
from countertrain.evaluation.attribution import sensitivity
from countertrain.evaluation.metrics import ROBUST_EPSILON, Metric, known
from countertrain.evaluation.protocol import EvaluationProtocol, evaluate
from countertrain.evaluation.robustness import robust_accuracy
from countertrain.files import write_text
from countertrain.models.architectures import Ensemble
from countertrain.models.deciding import Committee, as_one
from countertrain.models.population import Models, Population
from countertrain.runs.grid import populations
from countertrain.runs.measure import Training, predictive
from countertrain.runs.registry import OwnCode, build_constraints, build_protocol, load_data
from countertrain.runs.settings import Settings
from countertrain.runs.training import describe_environment
from countertrain.runs.tune.goal import Bound, Goal
from countertrain.search.generator import Generator
from countertrain.tables import Dataset
from countertrain.tables.dataset import Split
from countertrain.training import methods
from countertrain.training.counternet import WritingSession
from countertrain.training.method import Method, Session, Task, Terms
from reproduction.cells import Effort as PaperEffort

__all__ = ["GOAL", "Cell", "Effort", "compute_cell", "is_stored"]

GOAL = Goal(
    bounds=(
        Bound("accuracy", at_least=True, relative=True, offset=-0.01),
        Bound("validity", at_least=True, relative=True, offset=-0.05),
    )
)
"""What settings are chosen by, on validation rows: IP and cost as shares of those of conventional training, at most a
point of accuracy and five points of validity below it."""
_TIMED = 3  # epochs by which training is timed
_CHOOSING = {"rounds": 2, "individuals": 100}


@dataclass(frozen=True)
class Effort:
    """How much is spent on each cell; part of its record."""

    seeds: int = 5
    rows: int = 3000
    """Most training rows, drawn from all."""
    epochs: int = 60
    rounds: int = 10
    """Of the paper's evaluation, for each energy weight."""
    individuals: int | None = None
    """In a round; None: as many as the paper."""

    def individuals_of(self, data: str) -> int:
        """Individuals of a data set."""
        return self.individuals or PaperEffort().individuals_of(data)


@dataclass(frozen=True)
class Cell:
    """A method on a data set, with or without its protected feature, and the folder of its records."""

    data: str
    method: str
    effort: Effort
    folder: Path
    protected: bool = False

    @property
    def name(self) -> str:
        """A name for files."""
        return f"{self.data}-{self.method}" + ("-protected" if self.protected else "")

    def file(self, seed: int) -> Path:
        """The record of a seed."""
        return self.folder / f"{self.name}-{seed}.json"

    @property
    def tuning(self) -> Path:
        """What the trials came to, and which of them was chosen."""
        return self.folder / "tuning" / f"{self.data}-{self.method}.json"

    def settings(self, trial: Mapping[str, Any]) -> Settings:
        """The settings of one trial, with all seeds."""
        contender, n = CONTENDERS[self.method], self.effort.seeds
        seeds = list(range(n * contender.members))
        spent = {"epochs": self.effort.epochs, "n_ce": self.effort.rows // 3, "seeds": seeds}
        told: dict[str, Any] = {**COMMON, **contender.settings, **trial, **spent}
        if self.protected:
            told["immutable"] = _load(self).protected
        return Settings.resolve(self.data, told)


@dataclass(frozen=True)
class _Watched:
    """A method whose session can be looked at after training."""

    method: Method
    sessions: list[Session] = field(default_factory=list)

    @property
    def terms(self) -> Terms:
        return self.method.terms

    def bind(self, task: Task) -> Session:
        self.sessions.append(self.method.bind(task))
        return self.sessions[-1]

    def member(self, i: int) -> Method:
        return self.method.member(i)


@dataclass(frozen=True)
class _Written:
    """A search that starts where a network has written the counterfactual, and is done."""

    session: WritingSession
    draws = False

    def __call__(self, factual: Tensor, target: Tensor, seed: Tensor) -> Tensor:
        with torch.no_grad():
            return self.session.write(factual, target)


@dataclass(frozen=True, eq=False)
class _Trained:
    """The models of one trial, what it took, and the search that it brings along, if any."""

    settings: Settings
    models: Sequence[nn.Module]
    cpu_seconds: float
    trial: Mapping[str, Any]
    """The settings in which it differs from other trials."""
    generator: Generator | None = None

    @property
    def flocks(self) -> list[Models]:
        """The models as they are run: all at once, or one ensemble after the other."""
        ensembles = [model for model in self.models if isinstance(model, Ensemble)]
        return [Committee([*each.models]) for each in ensembles] if ensembles else [Population(self.models)]


def is_stored(cell: Cell) -> bool:
    """Whether every seed of the cell has a record that as much was spent on."""
    files = [cell.file(seed) for seed in range(cell.effort.seeds)]
    return all(f.exists() and json.loads(f.read_text(encoding="utf-8"))["effort"] == asdict(cell.effort) for f in files)


def compute_cell(cell: Cell) -> None:
    """Tune, train and judge a cell, unless it is stored already; killed on the way, it is begun again."""
    if is_stored(cell):
        return
    baseline = replace(cell, method=BASELINE, protected=False)
    if cell.method != BASELINE and not is_stored(baseline):
        compute_cell(baseline)
    if cell.protected and not is_stored(replace(cell, protected=False)):
        compute_cell(replace(cell, protected=False))
    data = _load(cell)
    told = describe_environment()
    trained = _train_protected(cell, data) if cell.protected else _tune(cell, data)
    scores = _judge_protected(cell, data, trained) if cell.protected else _judge(cell, data, trained)
    cell.folder.mkdir(parents=True, exist_ok=True)
    for seed in range(cell.effort.seeds):
        record = {
            "data": cell.data,
            "method": cell.method,
            "seed": seed,
            "effort": asdict(cell.effort),
            "settings": trained.settings.model_dump(mode="json", exclude_defaults=True, exclude={"seeds"}),
            "trial": trained.trial,
            "environment": told,
            **_of_seed(scores, seed),
        }
        write_text(cell.file(seed), json.dumps(record) + "\n")


def _of_seed(scores: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The numbers of one seed, five digits of each; what was searched is a mapping of its own."""
    return {
        name: _of_seed(found, seed) if isinstance(found, Mapping) else float(f"{found[seed]:.5g}")
        for name, found in scores.items()
    }


def _load(cell: Cell) -> Dataset:
    """The data with no more training rows than are to be spent, which are the same for all methods and seeds."""
    data = load_data(Settings.resolve(cell.data))
    order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(0))
    some = order[: cell.effort.rows].sort().values
    return replace(data, train=Split(data.train.x[some], data.train.y[some]))


def _tune(cell: Cell, data: Dataset) -> _Trained:
    """All trials of a method with all seeds, and of them the one that validation rows choose."""
    trained = _train_trials(cell, data)
    found = [_measure_on_validation(data, each) for each in trained]
    baseline = found[0] if cell.method == BASELINE else _read_baseline(cell)
    chosen = GOAL.ranking(found, baseline)[0]
    rows = [
        {"settings": each.trial, "cpu_seconds": round(each.cpu_seconds, 2), "metrics": metrics}
        for each, metrics in zip(trained, found, strict=True)
    ]
    cell.tuning.parent.mkdir(parents=True, exist_ok=True)
    write_text(cell.tuning, json.dumps({"effort": asdict(cell.effort), "chosen": chosen, "trials": rows}) + "\n")
    return trained[chosen]


def _describe_trials(cell: Cell) -> list[dict[str, Any]]:
    contender = CONTENDERS[cell.method]
    own = [{name: values[i] for name, values in contender.writer.items()} for i in range(len(contender.trials))]
    return [{**trial, **mine} for trial, mine in zip(contender.trials, own, strict=True)]


def _read_baseline(cell: Cell) -> dict[str, float]:
    stored = json.loads(replace(cell, method=BASELINE).tuning.read_text(encoding="utf-8"))
    return dict(stored["trials"][0]["metrics"])


def _train_trials(cell: Cell, data: Dataset) -> list[_Trained]:
    """Trials that differ in nothing else than populations may are trained as one."""
    contender = CONTENDERS[cell.method]
    runs, told = [cell.settings(trial) for trial in contender.trials], _describe_trials(cell)
    if contender.writer:
        return [_train_writer(cell, run, data, own) for run, own in zip(runs, told, strict=True)]
    done: dict[str, _Trained] = {}
    for group in populations(runs) if contender.together else [[run] for run in runs]:
        started = time.process_time()
        training = Training.begin(group, data)
        training.fit(fail=False)
        share = (time.process_time() - started) / len(group)
        n = len(training.models) // len(group)
        for i, run in enumerate(group):
            models = _unite(cell, training.models[i * n : (i + 1) * n])
            done[run.to_toml()] = _Trained(run, models, share, told[runs.index(run)])
    return [done[run.to_toml()] for run in runs]


def _unite(cell: Cell, models: Sequence[nn.Module]) -> list[nn.Module]:
    """One model for each seed, of as many members as decide together."""
    n = CONTENDERS[cell.method].members
    return [as_one(models[i : i + n]) for i in range(0, len(models), n)]


def _train_writer(cell: Cell, run: Settings, data: Dataset, own: Mapping[str, Any]) -> _Trained:
    """A classifier beside a network that writes its counterfactuals."""
    watched = _Watched(methods.counternet(**own))
    started = time.process_time()
    training = Training.begin([run], data, own=OwnCode(objective=watched))
    training.fit(fail=False)
    (session,) = watched.sessions
    assert isinstance(session, WritingSession)
    search = Generator((), start=_Written(session), n_steps=0, tau=0.95)
    return _Trained(run, _unite(cell, training.models), time.process_time() - started, own, search)


def _train_protected(cell: Cell, data: Dataset) -> _Trained:
    """The settings that were chosen without protection, trained with it."""
    chosen = json.loads(cell.tuning.read_text(encoding="utf-8"))["chosen"]
    contender = CONTENDERS[cell.method]
    run = cell.settings(contender.trials[chosen])
    if contender.writer:
        return _train_writer(cell, run, data, _describe_trials(cell)[chosen])
    training = Training.begin([run], data)
    training.fit(fail=False)
    return _Trained(run, _unite(cell, training.models), 0.0, contender.trials[chosen])


def _search(
    trained: _Trained, data: Dataset, rows: Split, protocol: EvaluationProtocol, also: Sequence[Metric] = ()
) -> dict[str, list[float]]:
    """Every metric of counterfactuals, one number per model."""
    records = [
        evaluate(
            flock,
            rows.x,
            rows.y,
            n_classes=data.n_classes,
            constraints=build_constraints(trained.settings, data, test_time=True),
            protocol=protocol,
            generator=trained.generator,
            also=also,
        )
        for flock in trained.flocks
    ]
    table = pd.concat([each.groupby("model").mean(numeric_only=True) for each in records])
    names = [name for name, m in known().items() if m.of_counterfactuals] + [m.name for m in also]
    return {name: table[name].tolist() for name in names}


def _measure_on_validation(data: Dataset, trained: _Trained) -> dict[str, float]:
    """What a trial is chosen by: means over its seeds."""
    protocol = build_protocol(trained.settings, rounds=_CHOOSING["rounds"], individuals=_CHOOSING["individuals"])
    found = {**_search(trained, data, data.validation, protocol), **predictive(trained.models, data.validation)}
    return {name: float(f"{sum(values) / len(values):.5g}") for name, values in found.items()}


def _judge(cell: Cell, data: Dataset, trained: _Trained) -> dict[str, Any]:
    """All that is told of a cell on test rows, one number per model: under both searches, or that of its own."""
    test = data.test
    individuals = cell.effort.individuals_of(cell.data)
    eccco = build_protocol(trained.settings, rounds=cell.effort.rounds, individuals=individuals)
    generic = replace(eccco, lambda_egy=(0.0,))
    also = referees(load_data(Settings.resolve(cell.data)).train, test, data.n_classes)
    searches = {"own": generic} if trained.generator else {"eccco": eccco, "generic": generic}
    return {
        **predictive(trained.models, test),
        **_measure_models(trained, test),
        "epoch_cpu_seconds": _time_epoch(trained, data),
        **{name: _search(trained, data, test, protocol, also) for name, protocol in searches.items()},
    }


def _judge_protected(cell: Cell, data: Dataset, trained: _Trained) -> dict[str, Any]:
    """Sensitivity to what is protected, and the cost of just valid counterfactuals that leave it alone."""
    test, effort = data.test, cell.effort
    protocol = build_protocol(
        trained.settings, rounds=effort.rounds, individuals=effort.individuals_of(cell.data), tau=0.5
    )
    columns = data.columns(trained.settings.immutable)
    return {
        "sensitivity": [
            float(sensitivity(m, test.x, test.y, columns, rounds=effort.rounds).mean()) for m in trained.models
        ],
        "own" if trained.generator else "eccco": _search(trained, data, test, protocol),
    }


def _measure_models(trained: _Trained, rows: Split) -> dict[str, list[float]]:
    """Accuracy under attack, and the area under the ROC curve, of each class against the rest if there are several."""
    from sklearn.metrics import roc_auc_score

    found: dict[str, list[float]] = {"fgsm": [], "pgd": [], "auc": []}
    for flock in trained.flocks:
        for attack in ("fgsm", "pgd"):
            under = robust_accuracy(flock, rows.x, rows.y, epsilons=[ROBUST_EPSILON], attack=attack)
            found[attack] += under[:, 0].tolist()
        with torch.no_grad(), flock.evaluating():
            p = flock(rows.x.expand(len(flock), *rows.x.shape)).double().softmax(-1)  # (P, n, K)
        scores = p[..., 1] if p.shape[-1] == 2 else p
        found["auc"] += [float(roc_auc_score(rows.y.numpy(), one.numpy(), multi_class="ovr")) for one in scores]
    return found


def _time_epoch(trained: _Trained, data: Dataset) -> list[float]:
    """CPU seconds of one epoch for each model, where those of all seeds train as one population."""
    training = Training.begin([trained.settings.change(epochs=_TIMED, early_stopping=False)], data)
    started = time.process_time()
    training.fit(fail=False)
    n = len(trained.models)
    return [(time.process_time() - started) / _TIMED / n] * n
