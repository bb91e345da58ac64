"""A fitted classifier on disk: a folder of JSON, TOML and safetensors, written whole or not at all; no pickle."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor, nn

from countertrain.files import CheckpointError, new_folder, read_tensors, write_tensors
from countertrain.models.deciding import as_one
from countertrain.runs.registry import OwnCode, make_models
from countertrain.runs.settings import Settings, settings_to_mapping
from countertrain.tables.encoder import Encoder
from countertrain.tables.schema import Schema
from countertrain.training.history import EpochRecord, History
from countertrain.words import plain

if TYPE_CHECKING:
    from countertrain.estimator import CounterfactualClassifier

__all__ = ["load", "save"]

Classifier = TypeVar("Classifier", bound="CounterfactualClassifier")
Content = TypeVar("Content")
Label = str | bool | int | float

_CHECKSUMS = "checksums.json"
_FILES = {"settings.json", "schema.toml", "encoder.json", "history.json", "weights.safetensors"}
_ROWS = "rows.safetensors"  # may be left out
_KINDS = "biufUO"  # types of labels: truth values, integers, floats, texts, and objects that are one of these
_LOST = "own code"  # no name that a fit would take for one of ours
_AGAIN = "copy the folder again, or save the classifier again"


class _Settings(BaseModel):
    """What settings.json holds."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: Literal["countertrain classifier, version 2"] = "countertrain classifier, version 2"
    written_with: dict[str, str]
    settings: Settings
    """Those of the training, fully resolved."""
    parameters: dict[str, Any]
    """Of the constructor, but for those that are the user's own code."""
    own_code: dict[str, str]
    """Those parameters, and what they were."""
    classes: list[Label]
    classes_dtype: str
    n_features_in: int
    feature_names_in: list[str] | None


def save(classifier: "CounterfactualClassifier", path: Path, *, rows: bool, overwrite: bool) -> None:
    """Write a fitted classifier into the folder `path`."""
    texts = {
        "settings.json": _settings_of(classifier).model_dump_json(indent=2),
        "schema.toml": classifier.encoder_.schema.to_toml(),  # for people; encoder.json has it too
        "encoder.json": classifier.encoder_.to_json(),
        "history.json": _history_to_json(classifier.history_),
    }
    _check_place(path, overwrite=overwrite)
    with new_folder(path) as folder:
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        write_tensors(folder / "weights.safetensors", _weights(classifier.models_), {})
        x, y = classifier.reference_x_, classifier.reference_y_
        if rows and x is not None and y is not None:
            write_tensors(folder / _ROWS, {"x": x, "y": y}, {})
        checksums = {file.name: _checksum(file) for file in sorted(folder.iterdir())}
        (folder / _CHECKSUMS).write_text(json.dumps(checksums, indent=2), encoding="utf-8")


def load(cls: type[Classifier], path: Path, **own_code: Any) -> Classifier:
    """Read the classifier in the folder `path`; its own code, where it had any, is given again."""
    _check_files(path)
    settings = _read(path / "settings.json", _Settings.model_validate_json)
    encoder = _read(path / "encoder.json", Encoder.from_json)
    own_code = _check_own_code(path, settings.own_code, own_code)
    way_out = "give the module that it was saved with" if "module" in own_code else _AGAIN
    with _one_sentence(path / "settings.json", way_out):
        classes = _classes(settings)
        classifier = cls(**{name: _restored(name, value) for name, value in settings.parameters.items()}, **own_code)
        sizes = len(encoder.features), len(classes)
        models = make_models(settings.settings, sizes, OwnCode(module=classifier.module))
    _put_weights(models, path / "weights.safetensors")
    classifier.settings_, classifier.encoder_, classifier.classes_ = settings.settings, encoder, classes
    classifier.models_, classifier.ensemble_ = models, as_one(models)
    classifier.history_ = _read(path / "history.json", _history_from_json)
    classifier.reference_x_, classifier.reference_y_ = _read_rows(path / _ROWS, *sizes)
    classifier.n_features_in_ = settings.n_features_in
    if settings.feature_names_in is not None:
        classifier.feature_names_in_ = np.array(settings.feature_names_in, dtype=object)
    return classifier


def _settings_of(classifier: "CounterfactualClassifier") -> _Settings:
    parameters = classifier.get_params(deep=False)
    own_code = {
        name: getattr(parameters[name], "__name__", type(parameters[name]).__name__)
        for name in ("module", "objective", "generator")
        if not isinstance(parameters[name], str | None)
    }
    classes, dtype = classifier.classes_.tolist(), classifier.classes_.dtype
    if dtype.kind not in _KINDS or not all(isinstance(label, Label) for label in classes):
        raise TypeError(f"labels of the type {dtype} such as {classes[0]!r} cannot be saved; use texts or numbers")
    return _Settings(
        written_with={name: version(name) for name in ("countertrain", "torch", "scikit-learn", "numpy", "pandas")},
        settings=classifier.settings_,
        parameters={name: _as_json(name, value) for name, value in parameters.items() if name not in own_code},
        own_code=own_code,
        classes=classes,
        classes_dtype=dtype.str,
        n_features_in=classifier.n_features_in_,
        feature_names_in=getattr(classifier, "feature_names_in_", np.array(None)).tolist(),
    )


def _as_json(name: str, value: Any) -> Any:
    """A parameter as JSON can hold it; a stream of random numbers is not kept."""
    if name == "settings" and value is not None:  # of a file, what it says
        return settings_to_mapping(value)
    if isinstance(value, Schema):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, Mapping):  # class weights: labels need not be texts
        return [[plain(label), plain(weight)] for label, weight in value.items()]
    if isinstance(value, np.random.RandomState):
        return None
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [plain(entry) for entry in value]
    return plain(value)


def _restored(name: str, value: Any) -> Any:
    """The parameter that `_as_json` wrote."""
    if name == "schema" and value is not None:
        return Schema(**value)
    if name == "class_weight" and isinstance(value, list):
        return dict(value)
    return tuple(value) if isinstance(value, list) else value


def _classes(settings: _Settings) -> NDArray[Any]:
    dtype = np.dtype(settings.classes_dtype)
    classes = np.array(settings.classes, dtype=dtype)
    if dtype.kind not in _KINDS or classes.tolist() != settings.classes or len(set(settings.classes)) < 2:
        raise ValueError(f"{settings.classes} are no classes of the type {settings.classes_dtype}")
    return classes


def _history_to_json(history: History) -> str:
    records = [record.as_json() for record in history.records]
    return json.dumps({"records": records, "failures": history.failures, "one_by_one": history.one_by_one})


def _history_from_json(text: str) -> History:
    saved = json.loads(text)
    failures = {int(i): why for i, why in saved["failures"].items()}
    return History([EpochRecord.from_json(line) for line in saved["records"]], failures, saved["one_by_one"])


def _check_own_code(path: Path, wanted: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, Any]:
    """What the user gives again, for each parameter that was code; what is needed to fit again only may be left out."""
    for name, value in given.items():
        if value is not None and name not in wanted:
            raise ValueError(f"the classifier in {path} has no {name} of its own; load it without {name}=")
    if "module" in wanted and given["module"] is None:
        raise CheckpointError(
            f"the classifier in {path} has a module of its own, {wanted['module']}, which no file can hold; "
            "give it again: load(path, module=...)"
        )
    return {name: _LOST if given[name] is None else given[name] for name in wanted}


def _weights(models: Sequence[nn.Module]) -> dict[str, Tensor]:
    return {f"{i}.{name}": value for i, model in enumerate(models) for name, value in model.state_dict().items()}


def _put_weights(models: Sequence[nn.Module], file: Path) -> None:
    """Fill the models with the weights in the file, if they are for these."""
    saved, _ = read_tensors(file)
    mine, theirs = ({name: tuple(t.shape) for name, t in tensors.items()} for tensors in (_weights(models), saved))
    if mine != theirs:
        odd = sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))[0]
        raise CheckpointError(
            f"{file} is for another network: {odd} has shape {theirs.get(odd)} there and {mine.get(odd)} here; "
            "load it with the module that it was saved with"
        )
    for i, model in enumerate(models):
        model.load_state_dict({name: saved[f"{i}.{name}"] for name in model.state_dict()})


def _read_rows(file: Path, n_features: int, n_classes: int) -> tuple[Tensor | None, Tensor | None]:
    """Reference rows (m, D) and their classes (m,), unless they were left out."""
    if not file.exists():
        return None, None
    saved, _ = read_tensors(file)
    x, y = saved.get("x"), saved.get("y")
    if (
        x is None
        or y is None
        or x.shape != (len(y), n_features)
        or (x.dtype, y.dtype) != (torch.float32, torch.int64)
        or not ((y >= 0) & (y < n_classes)).all()
    ):
        raise CheckpointError(f"{file} does not hold rows of this classifier; {_AGAIN}")
    return x, y


def _check_files(path: Path) -> None:
    """Refuse a folder unless all files are there, and as they were written."""
    if not path.is_dir():
        raise CheckpointError(f"there is no folder {path}; give the folder that `save` wrote")
    if not (path / _CHECKSUMS).is_file():
        raise CheckpointError(
            f"{path} holds no saved classifier: it has no {_CHECKSUMS}; give the folder that `save` wrote"
        )
    checksums = _read(path / _CHECKSUMS, _checksums_from_json)
    for name, checksum in checksums.items():
        if not (path / name).is_file():
            raise CheckpointError(f"{path / name} is missing; {_AGAIN}")
        if _checksum(path / name) != checksum:
            raise CheckpointError(f"{path / name} is not as it was saved, but truncated or changed; {_AGAIN}")


def _checksum(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _checksums_from_json(text: str) -> dict[str, str]:
    checksums = json.loads(text)
    if not isinstance(checksums, dict) or not _FILES <= set(checksums) <= {*_FILES, _ROWS}:
        raise ValueError("it lists other files")
    return checksums


def _read(file: Path, parse: Callable[[str], Content]) -> Content:
    """What a file of text holds."""
    with _one_sentence(file, _AGAIN):
        return parse(file.read_text(encoding="utf-8"))


@contextmanager
def _one_sentence(file: Path, way_out: str) -> Iterator[None]:
    """Whatever is wrong with the content of a file is said in one sentence."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, RuntimeError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else None
        said = f"{'.'.join(map(str, first['loc']))}: {first['msg']}" if first else str(error).split("\n")[0]
        raise CheckpointError(
            f"{file} is not for countertrain {version('countertrain')} to read ({said}); {way_out}"
        ) from error


def _check_place(path: Path, *, overwrite: bool) -> None:
    """Refuse to write over anything but a classifier, and over one unless told to."""
    found = {file.name for file in path.iterdir()} if path.is_dir() else set()
    foreign = sorted(found - {*_FILES, _ROWS, _CHECKSUMS})
    if foreign:
        raise FileExistsError(
            f"{path} holds {foreign[0]}, which is no part of a saved classifier; choose another folder"
        )
    if found and not overwrite:
        raise FileExistsError(f"{path} holds a saved classifier already; save with overwrite=True to replace it")
