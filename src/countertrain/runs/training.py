"""From settings to a folder: one run at a time, resumable, beside what the folder held before."""

import hashlib
import json
import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from countertrain.files import locked, write_text
from countertrain.runs.compile_choice import choose_compiled
from countertrain.runs.folder import UNFINISHED, check_place, is_finished, read_run, write_run
from countertrain.runs.measure import Training
from countertrain.runs.registry import load_data
from countertrain.runs.run import Run
from countertrain.runs.settings import Settings, SettingsError, read_settings
from countertrain.tables import Dataset
from countertrain.training.ranks import ALONE, Ranks
from countertrain.training.trainer import Callback

__all__ = ["RunError", "default_folder", "describe_environment", "train"]

Say = Callable[[str], None]


class RunError(ValueError):
    """A folder cannot be used as asked; the message says why and what to do."""


def default_folder(settings: Settings) -> Path:
    """The same settings always give the same name, so a finished run is never repeated."""
    digest = hashlib.sha256(settings.to_toml().encode()).hexdigest()[:8]
    return Path("runs") / f"{Path(settings.data).stem}-{settings.objective}-{settings.generator}-{digest}"


@dataclass(frozen=True)
class _How:
    """How a run is computed, which does not change what it computes."""

    callbacks: Sequence[Callback]
    compiled: bool | None
    ranks: Ranks
    say: Say


def train(
    settings: Settings,
    folder: Path,
    *,
    twin: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    compiled: bool | None = None,
    ranks: Ranks = ALONE,
    say: Say = lambda text: None,
) -> Run:
    """Train the models of these settings into a folder; a finished run is only opened.

    With `twin`, the same is trained conventionally, too. `compiled` as in the trainer; None: as an unfinished run
    began, and a new one where that pays, of which `say` hears (`choose_compiled`). Until all is finished, the folder
    keeps what it held before. All ranks train together; the first one writes the files, and they are there at the end.
    """
    if resume and overwrite:
        raise RunError("a run is either resumed or overwritten; give one of --resume and --overwrite")
    check_place(folder, overwrite=True)
    data = load_data(settings)
    work = folder / UNFINISHED
    if is_finished(folder) and not overwrite and not work.exists():
        return _open_finished(folder, settings, twin=twin)
    begun = (work / "settings.toml").is_file()
    if begun and not overwrite:
        _check_same(work / "settings.toml", folder, settings)
        if not resume:
            raise RunError(
                f"{folder} holds an unfinished run of these settings; add --resume to go on with it, or --overwrite "
                "to start anew"
            )
    _make_writable(folder)
    with ExitStack() as stack:
        if ranks.first:
            stack.enter_context(locked(folder))
            if overwrite:
                shutil.rmtree(work, ignore_errors=True)
            work.mkdir(exist_ok=True)
            write_text(work / "settings.toml", settings.to_toml())
        ranks.wait()
        how = _How(callbacks, compiled, ranks, say)
        run = _train_one(settings, data, work, how)
        if twin and settings.objective != "bl":
            say("a conventional twin, to compare with")
            run = replace(run, twin=_train_one(settings.change(objective="bl"), data, work / "twin", how))
        if ranks.first:
            run = write_run(run, folder, overwrite=True, lock=False)
        ranks.wait()
    return replace(run, folder=folder)


def _train_one(settings: Settings, data: Dataset, work: Path, how: _How) -> Run:
    """One run in its own corner of the work folder; once finished it is kept there, so that it is trained only once."""
    done, checkpoint = work / "done", work / "checkpoint.safetensors"
    if is_finished(done):
        return replace(read_run(done), data=data)
    begun = any(work.glob("checkpoint*.safetensors"))
    if settings.early_stopping and begun:
        raise RunError(
            f"{work.parent} holds an unfinished run with early_stopping, whose best weights so far were not kept; "
            "add --overwrite to start anew"
        )
    compiled = how.compiled
    if compiled is None:
        compiled = (
            _began_compiled(work) if begun else choose_compiled(settings, len(data.train.x), data.n_features, how.say)
        )
    how.ranks.wait()  # nobody writes before all have read
    environment = describe_environment() | {"ranks": how.ranks.size, "compiled": compiled}
    if how.ranks.first:
        work.mkdir(exist_ok=True)
        write_text(work / "environment.json", json.dumps(environment, indent=2) + "\n")
    training = Training.begin([settings], data, checkpoint=checkpoint)
    history = training.fit(resume=True, callbacks=how.callbacks, compiled=compiled, ranks=how.ranks)
    run = Run(settings, data, training.models, history, environment=environment)
    if how.ranks.first:
        write_run(run, done, rows=False)
        for leftover in work.glob("checkpoint*.safetensors"):
            leftover.unlink()
    return run


def _open_finished(folder: Path, settings: Settings, *, twin: bool) -> Run:
    _check_same(folder / "settings.toml", folder, settings)
    run = read_run(folder)
    if twin and run.twin is None and settings.objective != "bl":
        raise RunError(f"{folder} holds this run without a twin; choose another --out, or add --overwrite")
    return run


def _check_same(file: Path, folder: Path, settings: Settings) -> None:
    try:
        theirs, mine = read_settings(file).model_dump(), settings.model_dump()
    except SettingsError as error:
        raise RunError(str(error)) from error
    for key, value in theirs.items():
        if value != mine[key]:
            raise RunError(
                f"{folder} holds a run with other settings ({key} is {value!r} there, {mine[key]!r} here); "
                "choose another --out, or add --overwrite"
            )


def _began_compiled(work: Path) -> bool:
    """How an unfinished run was computed so far."""
    path = work / "environment.json"
    return path.exists() and bool(json.loads(path.read_text(encoding="utf-8")).get("compiled"))


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


def describe_environment() -> dict[str, Any]:
    """Versions, machine and commit that a training was done with."""
    packages = ("countertrain", "torch", "numpy", "pandas", "scikit-learn", "safetensors")
    return {
        "versions": {name: metadata.version(name) for name in packages},
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "commit": _find_commit(),
    }


def _find_commit() -> str | None:
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
