"""The one folder: whatever was trained, as JSON, TOML, CSV and safetensors with their checksums; no pickle, no code.

settings.toml         all that decided what was trained
schema.toml           what the columns mean, for people
encoder.json          how rows become numbers and back
about.json            label, classes, versions; what a classifier in Python remembers
weights.safetensors   of all models, `0.<name>`, `1.<name>`, ...
history.json          the epochs of training
rows.safetensors      encoded test, validation and reference rows, and the domain of the search
test.csv              test rows in people's units, if there are any
checksums.json        of every file above, and of the checksums of the twin; written last
twin/                 the conventional twin, a folder of the same kind
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from countertrain.files import (
    LOCK,
    CheckpointError,
    is_left_over,
    locked,
    new_folder,
    one_sentence,
    read_tensors,
    recover_folder,
    write_tensors,
)
from countertrain.recourse.evidence import Evidence
from countertrain.runs.about import About, check_labels
from countertrain.runs.modules import Module
from countertrain.runs.registry import OwnCode, build_constraints, build_models
from countertrain.runs.run import Run, keep_reference
from countertrain.runs.settings import Settings
from countertrain.runs.wanted import make_threshold
from countertrain.tables import Dataset
from countertrain.tables.dataset import Split
from countertrain.tables.encoder import Encoder
from countertrain.tables.sources.files import read_rows, write_rows
from countertrain.training.history import EpochRecord, History

__all__ = ["UNFINISHED", "is_finished", "put_in_place", "read_run", "recover_run", "refuse_foreign", "write_run"]

UNFINISHED = "unfinished"
"""The folder inside in which a run lives until it is finished: its checkpoints and settings."""
_CHECKSUMS, _TWIN, _TEST = "checksums.json", "twin", "test.csv"
_OF_TWIN = f"{_TWIN}/{_CHECKSUMS}"
_FILES = {
    "settings.toml", "schema.toml", "encoder.json", "about.json", "weights.safetensors", "history.json",
    "rows.safetensors",
}  # fmt: skip
_LOGS = "tensorboard"
_BESIDE = {LOCK, UNFINISHED, _LOGS, "records.csv", "report.html", "model.onnx"}
"""What may lie beside them: it is of the model, and goes with it."""
_BEGUN = ("settings.toml", "environment.json", "checkpoint", "done", "twin", ".")  # how names in UNFINISHED begin
_MAKING_UP = ("settings.toml", "encoder.json", "weights.safetensors", "rows.safetensors")  # of the id
_SPLITS = ("test", "validation", "reference")
_ROWS, _DOMAIN = {f"{name}.{part}" for name in _SPLITS for part in "xy"}, {"domain.lower", "domain.upper"}
_AGAIN = "copy the folder again, or train again"
Content = TypeVar("Content")


def is_finished(path: Path) -> bool:
    """Whether a folder holds a whole run."""
    return (path / _CHECKSUMS).is_file()


def recover_run(path: Path) -> None:
    """Put a run back in its place whose writer was killed in the instant in which it replaced the old one."""
    recover_folder(path, is_finished)


def write_run(run: Run, path: Path, *, rows: bool = True, overwrite: bool = False) -> Run:
    """Write a run into a folder, whole or not at all; `rows=False` leaves out the rows of people.

    Nothing but another run is ever overwritten, and only one process at a time writes into a folder.
    """
    path = path.resolve()
    if path.is_file():
        raise FileExistsError(f"{path} is a file; choose another folder")
    recover_run(path)
    refuse_foreign(path)
    if is_finished(path) and not overwrite:
        raise FileExistsError(f"{path} holds a trained model already; choose another folder, or give overwrite=True")
    check_labels(run.data.classes)
    with locked(path), new_folder(path) as folder:
        identity = _fill_both(run, folder, rows=rows)
    return replace(run, folder=path, id=identity)


def put_in_place(run: Run, path: Path) -> Run:
    """Replace whatever the folder holds by the run that was trained there, by the process that has it locked.

    The logs of the training stay.
    """
    path = path.resolve()
    refuse_foreign(path)
    check_labels(run.data.classes)
    with new_folder(path) as folder:
        identity = _fill_both(run, folder, rows=True)
        if (path / _LOGS).is_dir():
            (path / _LOGS).rename(folder / _LOGS)
    return replace(run, folder=path, id=identity)


def read_run(path: Path, *, module: Module | None = None) -> Run:
    """The run in a folder; nothing in it is ever run, so a network of one's own is given again as `module`."""
    checksums = _check_files(path)
    about = _read(path / "about.json", About.from_json)
    settings = _read(path / "settings.toml", Settings.from_toml)
    encoder = _read(path / "encoder.json", Encoder.from_json)
    _check_module(path, about.own_code, module)
    with one_sentence(path / "about.json", _AGAIN):
        data = _read_data(path, about, encoder)
    way_out = "give the module that it was saved with" if module is not None else _AGAIN
    with one_sentence(path / "settings.toml", way_out):
        models = build_models(settings, data, OwnCode(module=module))
    _put_weights(models, path / "weights.safetensors")
    return Run(
        settings=settings,
        data=data,
        models=tuple(models),
        history=_read(path / "history.json", _parse_history),
        twin=read_run(path / _TWIN, module=module) if (path / _TWIN).is_dir() else None,
        own_code=about.own_code,
        estimator=None if about.estimator is None else about.estimator.model_dump(),
        threshold=make_threshold(settings, data, about.threshold),
        evidence=None if about.evidence is None else Evidence.from_list(about.evidence),
        taus=about.taus,
        environment=about.environment,
        folder=path,
        id=_identify(checksums),
    )


def refuse_foreign(path: Path) -> None:
    """Refuse a folder that holds anything but a run, finished or not, and what belongs to one."""
    found = {file.name for file in path.iterdir()} if path.is_dir() else set()
    ours = {*_FILES, _TEST, _TWIN, _CHECKSUMS, *_BESIDE} if _is_ours(path) else {LOCK, UNFINISHED, _LOGS}
    foreign = sorted(name for name in found - ours if not is_left_over(name, ours))
    if (path / UNFINISHED).is_file():
        foreign.append(UNFINISHED)
    elif UNFINISHED in found:
        begun = sorted(file.name for file in (path / UNFINISHED).iterdir())
        foreign += [f"{UNFINISHED}/{name}" for name in begun if not name.startswith(_BEGUN)]
    if foreign and _is_of_old_version(path):
        raise FileExistsError(_say_what_it_is(path))
    if foreign:
        raise FileExistsError(f"{path} holds {foreign[0]}, which is no part of a trained model; choose another folder")


def _is_ours(path: Path) -> bool:
    """Whether a folder holds a run, be it damaged: all of its files, or the list of them."""
    if all((path / name).is_file() for name in _FILES):
        return True
    try:
        return bool(_parse_checksums((path / _CHECKSUMS).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return False


def _fill_both(run: Run, folder: Path, *, rows: bool) -> str:
    """Write a run, and before it its twin, if it has one, so that it can say which that is; returns its id."""
    if run.twin is not None:
        (folder / _TWIN).mkdir()
        _fill(run.twin, folder / _TWIN, rows=rows)
    return _fill(run, folder, rows=rows)


def _fill(run: Run, folder: Path, *, rows: bool) -> str:
    """Write all files of a run, the checksums last; returns its id."""
    data = run.data
    texts = {
        "settings.toml": run.settings.to_toml(),
        "schema.toml": data.schema.to_toml(),
        "encoder.json": data.encoder.to_json(),
        "about.json": About.of(run).to_json(),
        "history.json": _history_to_json(run.history),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    write_tensors(folder / "weights.safetensors", _weights(run.models), {})
    write_tensors(folder / "rows.safetensors", _rows(run, people=rows), {})
    if rows and data.test_frame is not None and len(data.test_frame):
        write_rows(folder / _TEST, data.test_frame)
    checksums = {file.name: _checksum(file) for file in sorted(folder.iterdir()) if file.is_file()}
    if run.twin is not None:
        checksums[_OF_TWIN] = _checksum(folder / _OF_TWIN)
    (folder / _CHECKSUMS).write_text(json.dumps(checksums, indent=2), encoding="utf-8")
    return _identify(checksums)


def _rows(run: Run, *, people: bool) -> dict[str, Tensor]:
    """The rows that a run keeps, and the domain of its search, where it was inferred from rows that are not kept."""
    data = run.data
    nobody = Split(data.train.x[:0], data.train.y[:0])
    kept = {
        "test": data.test if people else nobody,
        "validation": keep_reference(data.validation) if people else nobody,
        "reference": keep_reference(data.train) if people else nobody,
    }
    tensors = {f"{name}.{part}": getattr(rows, part) for name, rows in kept.items() for part in "xy"}
    if data.domain is not None or run.settings.domain == "inferred":
        limits = build_constraints(run.settings, data)
        tensors |= {"domain.lower": limits.lower, "domain.upper": limits.upper}
    return tensors


def _read_rows(file: Path, n_features: int, n_classes: int) -> dict[str, Tensor]:
    """Test, validation and reference rows and the domain, if they are for such a model, and numbers."""
    saved, _ = read_tensors(file)
    fine = _ROWS <= saved.keys() <= _ROWS | _DOMAIN and len(_DOMAIN & saved.keys()) != 1
    for name in _SPLITS if fine else ():
        x, y = saved[f"{name}.x"], saved[f"{name}.y"]
        fine &= x.shape == (len(y), n_features) and (x.dtype, y.dtype) == (torch.float32, torch.int64)
        fine &= bool(x.isfinite().all() and (y >= 0).all() and (y < n_classes).all())
    for name in _DOMAIN & saved.keys():
        fine &= saved[name].shape == (n_features,) and saved[name].is_floating_point() and not saved[name].isnan().any()
    if not fine:
        raise CheckpointError(f"{file} does not hold rows of this model; {_AGAIN}")
    return saved


def _read_data(path: Path, about: About, encoder: Encoder) -> Dataset:
    classes = tuple(about.classes)
    saved = _read_rows(path / "rows.safetensors", len(encoder.features), len(classes))
    splits = {name: Split(saved[f"{name}.x"], saved[f"{name}.y"]) for name in _SPLITS}
    test = path / _TEST
    return Dataset(
        name=about.name,
        title=about.title,
        encoder=encoder,
        label=about.label,
        classes=classes,
        train=splits["reference"],
        validation=splits["validation"],
        test=splits["test"],
        test_frame=read_rows(test, encoder, about.label, classes) if test.exists() else None,
        domain=(saved["domain.lower"], saved["domain.upper"]) if "domain.lower" in saved else None,
        protected=tuple(about.protected),
    )


def _check_files(path: Path) -> dict[str, str]:
    """Refuse a folder unless all files are there, and as they were written; their checksums."""
    recover_run(path)
    if not path.is_dir():
        near = get_close_matches(path.name, [one.parent.name for one in path.parent.glob(f"*/{_CHECKSUMS}")], n=1)
        way_out = f"did you mean {path.parent / near[0]}?" if near else "give the folder of a trained model"
        raise CheckpointError(f"there is no folder {path}; {way_out}")
    if not is_finished(path) or _is_of_old_version(path):
        raise CheckpointError(_say_what_it_is(path))
    checksums = _read(path / _CHECKSUMS, _parse_checksums)
    for name, checksum in checksums.items():
        if not (path / name).is_file():
            raise CheckpointError(f"{path / name} is missing; {_AGAIN}")
        if _checksum(path / name) != checksum:
            raise CheckpointError(f"{path / name} is not as {_CHECKSUMS} says, but truncated or changed; {_AGAIN}")
    return checksums


def _say_what_it_is(path: Path) -> str:
    if _is_of_old_version(path):
        return f"{path} was written by countertrain 0.1, which this version cannot read; train again into a new folder"
    if (path / UNFINISHED).is_dir():
        return f"{path} holds an unfinished run; finish it with: countertrain train ... --resume --out {path}"
    return f"{path} holds no trained model: it has no {_CHECKSUMS}; give one that `save` or `countertrain train` wrote"


def _is_of_old_version(path: Path) -> bool:
    """Whether `train`, `fit` or `save` of version 0.1 wrote the folder."""
    bare = (path / "weights.safetensors").is_file() and not any((path / n).exists() for n in ("about.json", _CHECKSUMS))
    return bare or any((path / name).is_file() for name in ("settings.json", "project.json"))


def _check_module(path: Path, own_code: Mapping[str, str], module: Module | None) -> None:
    if "module" in own_code and module is None:
        raise CheckpointError(
            f"the model in {path} has a module of its own, {own_code['module']}, which no file can hold; "
            "give it again: load(path, module=...)"
        )
    if module is not None and "module" not in own_code:
        raise ValueError(f"the model in {path} has no module of its own; load it without module=")


def _weights(models: Sequence[nn.Module]) -> dict[str, Tensor]:
    return {f"{i}.{name}": value for i, model in enumerate(models) for name, value in model.state_dict().items()}


def _put_weights(models: Sequence[nn.Module], file: Path) -> None:
    """Fill the models with the weights in the file, if they are for these, and numbers."""
    saved, _ = read_tensors(file)
    mine, theirs = ({n: (tuple(t.shape), t.dtype) for n, t in ts.items()} for ts in (_weights(models), saved))
    if mine != theirs:
        odd = sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))[0]
        there, here = (_say_shape(tensors.get(odd)) for tensors in (theirs, mine))
        raise CheckpointError(
            f"{file} is for another network: {odd} has {there} there and {here} here; "
            "load it with the module that it was saved with"
        )
    broken = [name for name, tensor in saved.items() if tensor.is_floating_point() and not tensor.isfinite().all()]
    if broken:
        raise CheckpointError(f"{file} holds weights that are not finite numbers, in {broken[0]}; {_AGAIN}")
    for i, model in enumerate(models):
        model.load_state_dict({name: saved[f"{i}.{name}"] for name in model.state_dict()})
        model.eval()


def _say_shape(kind: tuple[tuple[int, ...], torch.dtype] | None) -> str:
    return "no values" if kind is None else f"shape {kind[0]} of {kind[1]}"


def _checksum(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _identify(checksums: Mapping[str, str]) -> str:
    """Of what decides: the same settings, encoder, weights and rows have the same id."""
    return hashlib.sha256("".join(checksums[name] for name in _MAKING_UP).encode()).hexdigest()[:16]


def _parse_checksums(text: str) -> dict[str, str]:
    checksums = json.loads(text)
    if not isinstance(checksums, dict) or not _FILES <= set(checksums) <= {*_FILES, _TEST, _OF_TWIN}:
        raise ValueError("it lists other files")
    return checksums


def _history_to_json(history: History) -> str:
    records = [record.as_json() for record in history.records]
    return json.dumps({"records": records, "failures": history.failures, "one_by_one": history.one_by_one})


def _parse_history(text: str) -> History:
    saved = json.loads(text)
    failures = {int(i): why for i, why in saved["failures"].items()}
    return History([EpochRecord.from_json(line) for line in saved["records"]], failures, saved["one_by_one"])


def _read(file: Path, parse: Callable[[str], Content]) -> Content:
    """What a file of text holds."""
    with one_sentence(file, _AGAIN):
        return parse(file.read_text(encoding="utf-8"))
