"""Epochs shown to a tracker that people may have already: TensorBoard or MLflow."""

import hashlib
import importlib
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from countertrain.runs.settings import Settings
from countertrain.training.history import EpochRecord
from countertrain.training.trainer import Callback

__all__ = ["Log", "Tracker", "find_tracker", "show_finished", "tracking"]

Log = Callable[[Mapping[str, float], int], None]
"""Takes the metrics of one model, and the epoch that they are of."""
Tracker = Callable[[Path, str, Settings], AbstractContextManager[Log]]
"""Opens the log of one model of a folder, by name; the same model again goes on with the same log."""


def find_tracker(name: str | None) -> Tracker | None:
    """The tracker called tensorboard or mlflow, looked for at once; None: none."""
    if name is None:
        return None
    if name == "tensorboard":
        return _tensorboard(_first_of("torch.utils.tensorboard", "tensorboardX", install="'countertrain[track]'"))
    if name == "mlflow":
        return _mlflow(_first_of("mlflow", install="mlflow"))
    raise ValueError(f"--track takes tensorboard or mlflow; got {name!r}")


@contextmanager
def tracking(tracker: Tracker | None, folder: Path, runs: Mapping[str, Settings]) -> Iterator[Callback]:
    """A callback that shows the epochs of models, in the order of their names, to a tracker.

    Nothing is opened before the first epoch. A tracker that fails is given up with a warning, and training goes on.
    """
    with ExitStack() as stack:
        shown = None if tracker is None else _Logs(tracker, folder, runs, stack)

        def show(record: EpochRecord) -> None:
            nonlocal shown
            try:
                if shown is not None:
                    shown(record)
            except Exception as error:  # whatever a tracker raises
                shown = None
                warnings.warn(f"the tracker is given up: {error}", RuntimeWarning, stacklevel=2)

        yield show


def show_finished(
    tracker: Tracker | None,
    folder: Path,
    name: str,
    run: Settings,
    outcomes: Mapping[str, float],
    records: Sequence[EpochRecord] = (),
) -> None:
    """Show a run of one model that is finished: its epochs, and its outcomes as those of the last one."""
    with tracking(tracker, folder, {name: run}) as show:
        for record in (*records, EpochRecord(run.epochs, run.epochs, 0.0, {k: [v] for k, v in outcomes.items()})):
            show(record)


class _Logs:
    """The logs of some models, and which of them is meant where models are trained one by one."""

    def __init__(self, tracker: Tracker, folder: Path, runs: Mapping[str, Settings], stack: ExitStack) -> None:
        self._opening = (stack.enter_context(tracker(folder, name, run)) for name, run in runs.items())
        self._logs: list[Log] = []
        self._first, self._epoch = 0, 0

    def __call__(self, record: EpochRecord) -> None:
        self._logs.extend(self._opening)  # at the first epoch; then there are none left
        size = min(len(values) for values in record.metrics.values())
        if size < len(self._logs) and record.epoch <= self._epoch:  # one by one, and the next one begins
            self._first += 1
        self._epoch = record.epoch
        for i, log in enumerate(self._logs[self._first : self._first + size]):
            log({name: values[i] for name, values in record.metrics.items()}, record.epoch)


def _tensorboard(tensorboard: Any) -> Tracker:
    @contextmanager
    def open_log(folder: Path, name: str, settings: Settings) -> Iterator[Log]:
        writer = tensorboard.SummaryWriter(str(folder / "tensorboard" / name))
        writer.add_text("settings", f"```\n{settings.to_toml()}```")

        def log(metrics: Mapping[str, float], epoch: int) -> None:
            for metric, value in metrics.items():
                writer.add_scalar(metric, value, epoch)

        try:
            yield log
        finally:
            writer.close()

    return open_log


def _mlflow(mlflow: Any) -> Tracker:
    """Where the environment says (MLFLOW_TRACKING_URI), in the experiment `countertrain`."""
    client = mlflow.MlflowClient()

    def run_of(name: str, settings: Settings) -> str:
        known = client.get_experiment_by_name("countertrain")
        experiment = known.experiment_id if known else client.create_experiment("countertrain")
        digest = hashlib.sha256((name + settings.to_toml()).encode()).hexdigest()[:16]
        found = client.search_runs([experiment], f"tags.countertrain = '{digest}'", max_results=1)
        run = found[0] if found else client.create_run(experiment, run_name=name, tags={"countertrain": digest})
        return str(run.info.run_id)

    @contextmanager
    def open_log(folder: Path, name: str, settings: Settings) -> Iterator[Log]:
        run = run_of(f"{folder.name}/{name}", settings)
        params = [mlflow.entities.Param(key, str(value)) for key, value in settings.model_dump(mode="json").items()]
        client.log_batch(run, params=params)

        def log(metrics: Mapping[str, float], epoch: int) -> None:
            now = int(time.time() * 1000)
            client.log_batch(run, metrics=[mlflow.entities.Metric(k, v, now, epoch) for k, v in metrics.items()])

        try:
            yield log
        except BaseException:
            client.set_terminated(run, "FAILED")
            raise
        client.set_terminated(run)

    return open_log


def _first_of(*modules: str, install: str) -> Any:
    for module in modules:
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError:
            continue
    raise ValueError(f"there is no tracker to show the epochs to; install it with: pip install {install}")
