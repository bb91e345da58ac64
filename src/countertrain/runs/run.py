"""A run directory: everything about one training run, written whole or not at all."""

import hashlib
import json
import platform
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from countertrain.files import CheckpointError, read_tensors, write_tensors, write_text
from countertrain.runs.compile_choice import choose_compiled
from countertrain.runs.measure import Scores, Training, measure
from countertrain.runs.registry import build_models, build_protocol, load_data
from countertrain.runs.settings import Settings, SettingsError, read_settings
from countertrain.tables import Dataset
from countertrain.training.history import EpochRecord, History
from countertrain.training.ranks import ALONE, Ranks
from countertrain.training.trainer import Callback

__all__ = ["Run", "RunError", "default_folder", "open_run", "train"]


class RunError(ValueError):
    """A run directory cannot be used as asked; the message says why and what to do."""


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run: its settings, its data and its trained models, one per seed."""

    folder: Path
    settings: Settings
    data: Dataset
    models: Sequence[nn.Module]

    def history(self) -> list[EpochRecord]:
        """The epochs of training."""
        lines = (self.folder / "history.jsonl").read_text(encoding="utf-8").splitlines()
        return [EpochRecord.from_json(json.loads(line)) for line in lines]

    def measure(
        self,
        *,
        rounds: int,
        individuals: int,
        tau: float | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Scores:
        """Measure every model on the test rows by the paper's protocol, and keep the records beside the weights."""
        protocol = build_protocol(self.settings, rounds=rounds, individuals=individuals, tau=tau)
        test = self.data.test
        scores = measure(self.models, self.settings, self.data, test, protocol, of_models=True, progress=progress)
        write_text(self.folder / "records.csv", scores.records.to_csv(index=False, float_format="%.6g"))
        return scores


def default_folder(settings: Settings) -> Path:
    """The same settings always give the same name, so a finished run is never repeated."""
    digest = hashlib.sha256(settings.to_toml().encode()).hexdigest()[:8]
    return Path("runs") / f"{Path(settings.data).stem}-{settings.objective}-{settings.generator}-{digest}"


def train(
    settings: Settings,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    compiled: bool | None = None,
    ranks: Ranks = ALONE,
    say: Callable[[str], None] = lambda text: None,
) -> Run:
    """Train the models of these settings into a folder; a finished run is only opened.

    `compiled` as in the trainer; None: as an unfinished run began, and a new one where that pays, of which `say` hears
    (`choose_compiled`).
    All ranks train together; the first one writes the files, and they are there when this returns on any.
    """
    data = load_data(settings)
    if resume and overwrite:
        raise RunError("a run is either resumed or overwritten; give one of --resume and --overwrite")
    finished, begun = (folder / "weights.safetensors").exists(), any(folder.glob("checkpoint*.safetensors"))
    if (finished or begun) and not overwrite:
        _check_same(folder, settings)
        if finished:
            return open_run(folder)
        if not resume:
            raise RunError(
                f"{folder} holds an unfinished run of these settings; add --resume to go on with it, or --overwrite "
                "to start anew"
            )
    afresh = not (resume and begun)
    if settings.early_stopping and not afresh:
        raise RunError(
            f"{folder} holds an unfinished run with early_stopping, whose best weights so far were not kept; "
            "add --overwrite to start anew"
        )
    if compiled is None and afresh:
        compiled = choose_compiled(settings, len(data.train.x), data.n_features, say)
    elif compiled is None:
        compiled = _began_compiled(folder)
    ranks.wait()  # nobody writes before all have read
    if ranks.first:
        _begin(folder, settings, ranks, afresh=afresh, compiled=compiled)
    ranks.wait()
    training = Training.begin([settings], data, checkpoint=folder / "checkpoint.safetensors")
    history = training.fit(resume=resume, callbacks=callbacks, compiled=compiled, ranks=ranks)
    if ranks.first:
        _finish(folder, settings, history, training.models)
    ranks.wait()
    return Run(folder, settings, data, training.models)


def open_run(folder: Path) -> Run:
    """A finished run from its folder."""
    settings = _read_settings(folder)
    if not (folder / "weights.safetensors").exists():
        raise RunError(f"{folder} holds an unfinished run; finish it with: countertrain train ... --resume")
    data = load_data(settings)
    models = build_models(settings, data)
    tensors, meta = read_tensors(folder / "weights.safetensors")
    if meta.get("seeds", list(settings.seeds)) != list(settings.seeds):
        raise CheckpointError(
            f"{folder / 'weights.safetensors'} is of seeds {meta['seeds']}, but {folder / 'settings.toml'} says "
            f"{list(settings.seeds)}; train again into a new folder"
        )
    for i, model in enumerate(models):
        state = {name: tensor[i] if len(models) > 1 else tensor for name, tensor in tensors.items()}
        mine = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        if mine != {name: tuple(tensor.shape) for name, tensor in state.items()}:
            raise CheckpointError(
                f"{folder / 'weights.safetensors'} is of another architecture than {folder / 'settings.toml'} says; "
                "train again into a new folder"
            )
        model.load_state_dict(state)
        model.eval()
    return Run(folder, settings, data, models)


def _began_compiled(folder: Path) -> bool:
    """How an unfinished run was computed so far; one of before this was written down had no choice to record."""
    path = folder / "environment.json"
    return path.exists() and bool(json.loads(path.read_text(encoding="utf-8")).get("compiled"))


def _begin(folder: Path, settings: Settings, ranks: Ranks, *, afresh: bool, compiled: bool) -> None:
    """Make the folder ready for a run, new or resumed."""
    _make_writable(folder)
    if afresh:  # only what a run itself writes: the folder may hold files of others
        written = ("weights.safetensors", "history.jsonl", "records.csv")
        for leftover in (*folder.glob("checkpoint*.safetensors"), *(folder / name for name in written)):
            leftover.unlink(missing_ok=True)
    write_text(folder / "settings.toml", settings.to_toml())
    environment = _environment() | {"ranks": ranks.size, "compiled": compiled}
    write_text(folder / "environment.json", json.dumps(environment, indent=2) + "\n")


def _finish(folder: Path, settings: Settings, history: History, models: Sequence[nn.Module]) -> None:
    """Write what a finished run leaves; the weights last but for the checkpoints, which they replace."""
    lines = "".join(json.dumps(record.as_json()) + "\n" for record in history.records)
    write_text(folder / "history.jsonl", lines)
    write_tensors(folder / "weights.safetensors", _pack(models), {"seeds": list(settings.seeds)})
    for leftover in folder.glob("checkpoint*.safetensors"):
        leftover.unlink()


def _pack(models: Sequence[nn.Module]) -> dict[str, Tensor]:
    """The plain state of one model; of several, their states stacked along a first axis."""
    states = [model.state_dict() for model in models]
    if len(states) == 1:
        return dict(states[0])
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


def _check_same(folder: Path, settings: Settings) -> None:
    theirs, mine = _read_settings(folder).model_dump(), settings.model_dump()
    for key, value in theirs.items():
        if value != mine[key]:
            raise RunError(
                f"{folder} holds a run with other settings ({key} is {value!r} there, {mine[key]!r} here); "
                "choose another --out, or add --overwrite"
            )


def _read_settings(folder: Path) -> Settings:
    path = folder / "settings.toml"
    if not path.is_file():
        raise RunError(f"{folder} is not a run directory: it has no settings.toml; make one with: countertrain train")
    try:
        return read_settings(path)
    except SettingsError as error:
        raise RunError(str(error)) from error


def _make_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise RunError(
            f"cannot write to the output folder {folder} ({error.strerror}); choose another with --out"
        ) from error


def _environment() -> dict[str, Any]:
    packages = ("countertrain", "torch", "numpy", "scikit-learn", "safetensors")
    return {
        "versions": {name: metadata.version(name) for name in packages},
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "commit": _commit(),
    }


def _commit() -> str | None:
    """The commit of the source tree that runs, if this file is under version control."""
    here = Path(__file__)
    try:
        for command in (["ls-files", "--error-unmatch", here.name], ["describe", "--always", "--dirty", "--abbrev=12"]):
            answer = subprocess.run(["git", *command], cwd=here.parent, capture_output=True, text=True, timeout=10)
            if answer.returncode:
                return None
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip()
