"""From settings to a folder: one run at a time, resumable, beside what the folder held before."""

import hashlib
import json
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import torch

from countertrain.files import locked, one_sentence, write_text
from countertrain.runs.compile_choice import choose_compiled
from countertrain.runs.folder import (
    UNFINISHED,
    is_finished,
    put_in_place,
    read_run,
    recover_run,
    refuse_foreign,
    write_run,
)
from countertrain.runs.looking import describe_look, refuse_table
from countertrain.runs.measure import Training
from countertrain.runs.registry import declare_mutability, load_data
from countertrain.runs.run import Run
from countertrain.runs.settings import Settings, SettingsError, read_settings
from countertrain.runs.wanted import choose_threshold, gather_evidence
from countertrain.tables import Dataset, Inspection, catalogue
from countertrain.training.ranks import ALONE, Ranks
from countertrain.training.trainer import Callback

__all__ = ["RunError", "default_folder", "describe_environment", "holds_finished", "train"]

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
    twin_callbacks: Sequence[Callback] = (),
    compiled: bool | None = None,
    ranks: Ranks = ALONE,
    say: Say = lambda text: None,
) -> Run:
    """Train the models of these settings into a folder; a finished run is only opened.

    With `twin`, the same is trained conventionally, too, of which `twin_callbacks` hear. `compiled` as in
    the trainer; None: as an unfinished run began, and a new one where that pays, of which `say` hears
    (`choose_compiled`). Until all is finished, the folder keeps what it held before. All ranks train together; the
    first one writes the files, and they are there at the end.
    """
    if resume and overwrite:
        raise RunError("a run is either resumed or overwritten; give one of resume=True and overwrite=True")
    if ranks.first:
        recover_run(folder)
        refuse_foreign(folder)
    ranks.wait()
    data = _load(settings, opening=not overwrite and holds_finished(folder), say=say)
    if data is None or (not overwrite and holds_finished(folder)):
        return _open_finished(folder, settings, data, twin=twin)
    how = _How(callbacks, compiled, ranks, say)
    with ExitStack() as stack:
        if ranks.first:
            _make_writable(folder)
            stack.enter_context(locked(folder))
        ranks.wait()
        if not overwrite and holds_finished(folder):  # by another process, just now
            return _open_finished(folder, settings, data, twin=twin)
        if not overwrite:
            _check_begun(folder, settings, data, resume=resume)
        ranks.wait()  # nobody writes before all have read
        stack.enter_context(_disk_explained(folder))
        if ranks.first:
            _begin(folder / UNFINISHED, settings, anew=overwrite)
        ranks.wait()
        run = _train_one(settings, data, folder / UNFINISHED, how)
        if twin and settings.objective != "bl":
            say("a conventional twin, to compare with")
            work = folder / UNFINISHED / "twin"
            heard = replace(how, callbacks=twin_callbacks)
            run = replace(run, twin=_train_one(settings.change(objective="bl"), data, work, heard))
        if ranks.first:
            run = put_in_place(run, folder)
        ranks.wait()
    return replace(run, folder=folder)


@contextmanager
def _disk_explained(folder: Path) -> Iterator[None]:
    """A disk that is full, or a folder that was taken away while a run is on its way, is said in one sentence."""
    try:
        yield
    except OSError as error:
        if error.filename is None or folder.resolve() not in Path(error.filename).resolve().parents:
            raise
        if not (folder / UNFINISHED).is_dir():
            raise RunError(f"{folder} was removed while the run was on its way; start it again") from error
        raise RunError(
            f"{error.filename} cannot be written ({error.strerror}); the epochs before are kept: when that is mended, "
            "go on with resume=True"
        ) from error


def _is_begun(work: Path) -> bool:
    """Whether something was trained there, so that there is something to go on with."""
    return is_finished(work / "done") or any(work.glob("checkpoint*.safetensors"))


def holds_finished(folder: Path) -> bool:
    """Whether a folder holds a finished run, and none that is on its way to replace it."""
    return is_finished(folder) and not _is_begun(folder / UNFINISHED)


def _load(settings: Settings, *, opening: bool, say: Say) -> Dataset | None:
    """The data; None where their file is gone, which does not matter for `opening` a finished run."""
    files = [settings.schema_file, None if settings.data in catalogue() else settings.data]
    gone = [file for file in files if file is not None and not Path(file).exists()]
    if opening and gone:
        say(f"there is no file {gone[0]} any more, so that nothing is compared with it; the finished run is opened")
        return None
    looks: list[Inspection] = []

    def hear(look: Inspection) -> None:
        refuse_table(look, settings)
        looks.append(look)

    data = declare_mutability(settings, load_data(settings, None if opening else hear))
    for look in looks:
        for sentence in describe_look(look, settings):
            say(sentence)
    return data


def _check_begun(folder: Path, settings: Settings, data: Dataset, *, resume: bool) -> None:
    """Refuse to go on with an unfinished run of other settings or data, or without being told to."""
    if not _is_begun(folder / UNFINISHED):
        return
    _check_same(folder / UNFINISHED / "settings.toml", folder, settings)
    _check_same_data(_read_environment(folder / UNFINISHED), folder, data)
    if not resume:
        raise RunError(
            f"{folder} holds an unfinished run of these settings; give resume=True to go on with it, or "
            "overwrite=True to start anew"
        )


def _begin(work: Path, settings: Settings, *, anew: bool) -> None:
    if anew or not _is_begun(work):
        shutil.rmtree(work, ignore_errors=True)
    work.mkdir(exist_ok=True)
    write_text(work / "settings.toml", settings.to_toml())


def _train_one(settings: Settings, data: Dataset, work: Path, how: _How) -> Run:
    """One run in its own corner of the work folder; once finished it is kept there, so that it is trained only once."""
    done, checkpoint = work / "done", work / "checkpoint.safetensors"
    if how.ranks.first:
        recover_run(done)  # whose writer may have been killed just before its last rename
    how.ranks.wait()
    if is_finished(done):
        return replace(read_run(done), data=data)
    begun = any(work.glob("checkpoint*.safetensors"))
    compiled = how.compiled
    if compiled is None:
        compiled = (
            bool(_read_environment(work).get("compiled"))
            if begun
            else choose_compiled(settings, len(data.train.x), data.n_features, how.say)
        )
    how.ranks.wait()  # nobody writes before all have read
    environment = describe_environment() | {
        "ranks": how.ranks.size,
        "compiled": compiled,
        "data": data.fingerprint,
    }
    if how.ranks.first:
        work.mkdir(exist_ok=True)
        write_text(work / "environment.json", json.dumps(environment, indent=2) + "\n")
    training = Training.begin([settings], data, checkpoint=checkpoint)
    history = training.fit(resume=True, callbacks=how.callbacks, compiled=compiled, ranks=how.ranks)
    threshold = choose_threshold(settings, data, training.models)
    evidence = gather_evidence(settings, data)
    run = Run(
        settings,
        data,
        training.models,
        history,
        threshold=threshold,
        evidence=evidence,
        environment=environment,
    ).learn_taus()
    if how.ranks.first:
        write_run(run, done, rows=False)
        for leftover in work.glob("checkpoint*.safetensors"):
            leftover.unlink()
    return run


def _open_finished(folder: Path, settings: Settings, data: Dataset | None, *, twin: bool) -> Run:
    """The run in a folder, if it is of these settings, and of these data, where they are still there."""
    _check_same(folder / "settings.toml", folder, settings)
    run = read_run(folder)
    if data is not None:
        _check_same_data(run.environment, folder, data)
    if twin and run.twin is None and settings.objective != "bl":
        raise RunError(f"{folder} holds this run without a twin; choose another folder, or give overwrite=True")
    return run


def _check_same(file: Path, folder: Path, settings: Settings) -> None:
    try:
        theirs, mine = read_settings(file).model_dump(), settings.model_dump()
    except SettingsError as error:
        raise RunError(str(error)) from error
    for key, value in theirs.items():
        if value != mine[key]:
            raise RunError(
                f"{folder} holds a run with other settings ({key} is {value!r} in its {file.name}, {mine[key]!r} here)"
                "; choose another folder, or give overwrite=True"
            )


def _check_same_data(environment: Mapping[str, Any], folder: Path, data: Dataset) -> None:
    """Refuse a run of other rows, unless it does not say of which it is."""
    if environment.get("data", data.fingerprint) != data.fingerprint:
        raise RunError(
            f"{folder} holds a run of other rows ({data.title} has changed since it began); "
            "choose another folder, or give overwrite=True"
        )


def _read_environment(work: Path) -> dict[str, Any]:
    """How an unfinished run was computed so far, and on what."""
    path = work / "environment.json"
    with one_sentence(path, "start anew with overwrite=True"):
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def _make_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise RunError(
            f"cannot write to the output folder {folder} ({error.strerror}); choose another folder"
        ) from error


def describe_environment() -> dict[str, Any]:
    """Versions, machine and commit that a training was done with."""
    packages = ("countertrain", "torch", "numpy", "pandas", "scikit-learn", "safetensors")
    return {
        "versions": {name: _find_version(name) for name in packages},
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "commit": _find_commit(),
    }


@cache  # milliseconds each, which short trainings would feel; a process runs the code with which it began
def _find_version(package: str) -> str:
    return metadata.version(package)


@cache
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
