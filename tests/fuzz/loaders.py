"""Everything that reads a file or a text of others, with something that it can read, to be damaged."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from countertrain.cli.options import parse_seeds
from countertrain.files import Writer, read_tensors, write_tensors
from countertrain.runs.about import About
from countertrain.runs.registry import read_schema
from countertrain.runs.settings import Settings, parse_assignments, read_settings
from countertrain.runs.sweep import Sweep
from countertrain.runs.threshold_rules import read_rule
from countertrain.runs.tune import Bound
from countertrain.tables import inspect_source
from countertrain.tables.encoder import Encoder
from countertrain.tables.rules.parse import parse_rule
from countertrain.tables.schema import Schema
from countertrain.tables.sources.files import read_table

__all__ = ["LOADERS", "Loader", "try_loader"]

_FRAME = pd.DataFrame(
    {"age": [20, 30, 41], "income": [1.5, 2.5, 0.1], "job": ["a", "b", "a"], "member": [True, False, True]}
)
_SCHEMA = Schema.infer(_FRAME)
_SWEEP = """data = "moons"
seeds = [0, 1]
[fixed]
epochs = 3
[grid]
tau = [0.6, 0.8]
[evaluation]
rounds = 2
"""
_ABOUT = {
    "format": "countertrain folder, version 4", "name": "t", "title": "t.csv", "label": "y", "classes": ["no", "yes"],
    "protected": [], "own_code": {}, "environment": {}, "estimator": None, "threshold": None, "evidence": None,
}  # fmt: skip


@dataclass(frozen=True)
class Loader:
    """Reads what is in a file."""

    load: Callable[[Path], object]
    example: bytes
    """Something that it can read."""
    suffix: str = ".txt"


def _of_text(parse: Callable[[str], object]) -> Callable[[Path], object]:
    return lambda path: parse(path.read_text(encoding="utf-8"))


def _make_tensors() -> bytes:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        write_tensors(path, {"a": torch.arange(3.0), "b": torch.tensor([[1, 2]])}, {"epoch": 1})
        return path.read_bytes()


_CSV = _FRAME.assign(label=["x", "y", "x"]).to_csv(index=False).encode()
LOADERS = {
    "settings": Loader(read_settings, Settings.resolve("moons").to_toml().encode(), ".toml"),
    "schema": Loader(read_schema, _SCHEMA.to_toml().encode(), ".toml"),
    "encoder": Loader(_of_text(Encoder.from_json), Encoder.fit(_SCHEMA, _FRAME).to_json().encode(), ".json"),
    "about": Loader(_of_text(About.from_json), json.dumps(_ABOUT).encode(), ".json"),
    "sweep": Loader(_of_text(lambda text: Sweep.from_toml(text).runs()), _SWEEP.encode(), ".toml"),
    "tensors": Loader(read_tensors, _make_tensors(), ".safetensors"),
    "table": Loader(read_table, _CSV, ".csv"),
    "look at a table": Loader(inspect_source, _CSV * 4, ".csv"),
    "lock": Loader(lambda path: Writer.from_json(path.read_bytes()), Writer(1, "here", "now").to_json().encode()),
    "rule": Loader(_of_text(parse_rule), b"YearsAtCompany <= TotalWorkingYears <= Age - 18"),
    "bar": Loader(_of_text(Bound.parse), b"accuracy >= bl - 0.01"),
    "threshold": Loader(_of_text(read_rule), b"cost:5:1"),
    "seeds": Loader(_of_text(parse_seeds), b"0-3,7"),
    "assignment": Loader(_of_text(lambda text: parse_assignments([text])), b"seeds=[0, 1]"),
}


def try_loader(loader: Loader, content: bytes, folder: Path) -> str | None:
    """What a loader says of a file, if it refuses it; anything but a ValueError is somebody's mistake."""
    path = folder / f"damaged{loader.suffix}"
    path.write_bytes(content)
    try:
        loader.load(path)
    except ValueError as error:
        return str(error)
    return None
