"""Tables in files: CSV with any separator, found by itself, and Parquet; read as a whole or part by part."""

import csv
import gzip
import importlib
import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from countertrain.files import write_text
from countertrain.tables.encoder import Encoder

__all__ = ["is_table", "read_parts", "read_rows", "read_table", "short_name", "write_rows"]

_SEPARATORS = (",", ";", "\t", "|")
_SAMPLE = 2**16  # characters that are looked at to find out how a file is written
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_SUFFIXES = (".csv", ".tsv", ".txt", ".gz", ".parquet", ".pq")


def is_table(path: Path) -> bool:
    """Whether a path reads like that of a table."""
    return path.suffix.lower() in _SUFFIXES or path.is_file()


def short_name(path: Path) -> str:
    """The name of a table: that of its file without what says how it is written."""
    return Path(path.stem).stem if path.suffix.lower() == ".gz" else path.stem


def read_table(path: str | Path) -> pd.DataFrame:
    """The rows of a CSV file with a header (comma, semicolon, tab or bar; may be gzipped), or of a Parquet file."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {path}; check the path")
    with _refuse_damaged(path):
        if _is_parquet(path):
            return pd.DataFrame(_import_parquet().read_table(path).to_pandas())
        return pd.DataFrame(pd.read_csv(path, low_memory=False, **_find_dialect(path)))


def read_parts(path: Path, n_rows: int, texts: Collection[str] = ()) -> Iterator[pd.DataFrame]:
    """The rows of such a file, so many at a time; `texts` are columns of a CSV file to be read as texts."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}; check the path")
    with _refuse_damaged(path):
        if _is_parquet(path):
            with _import_parquet().ParquetFile(path) as file:
                for batch in file.iter_batches(n_rows):
                    yield batch.to_pandas()
        else:
            types: Any = dict.fromkeys(texts, str)
            dialect = _find_dialect(path)
            with pd.read_csv(path, chunksize=n_rows, dtype=types, low_memory=False, **dialect) as frames:
                yield from frames


def write_rows(path: Path, frame: pd.DataFrame) -> None:
    """Write rows in people's units, whole or not at all."""
    write_text(path, frame.to_csv(index=False))


def read_rows(path: Path, encoder: Encoder, label: str, classes: Sequence[Any]) -> pd.DataFrame:
    """The rows that `write_rows` wrote, in the types of their encoder: a file knows no types, and "1" is not 1."""
    dtypes = dict(zip(encoder.schema.names, encoder.dtypes, strict=True))
    levels = {column.name: getattr(column, "levels", ()) for column in encoder.schema.columns} | {label: classes}
    texts: Any = {name: str for name, known in levels.items() if known and all(isinstance(one, str) for one in known)}
    with _refuse_damaged(path):
        frame = pd.read_csv(path, dtype=texts, keep_default_na=False, na_values=[""], low_memory=False)
    for name in frame.columns.intersection(list(dtypes)):
        own: Any = dtypes[name]
        if frame[name].dtype == own or (frame[name].isna().any() and np.dtype(own).kind in "iub"):
            continue
        frame[name] = frame[name].astype(pd.CategoricalDtype(levels[name]) if own == "category" else own)
    return frame


@contextmanager
def _refuse_damaged(path: Path) -> Iterator[None]:
    """Whatever is wrong with a file is said in one sentence that names it."""
    try:
        yield
    except (OSError, EOFError, zlib.error, ValueError) as error:
        kind = "Parquet file" if _is_parquet(path) else "CSV file with a header"
        why = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"{path} cannot be read as a {kind}: {why}") from error


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


def _import_parquet() -> Any:
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ValueError("that needs pyarrow; pip install pyarrow, or bring a CSV file") from None


def _find_dialect(path: Path) -> dict[str, Any]:
    """How pandas is to read a CSV file: the separator that cuts most lines into the fields of the header."""
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as file:
        sample = str(file.read(_SAMPLE))
    lines = sample.splitlines()
    lines = lines[:-1] if len(sample) == _SAMPLE and len(lines) > 1 else lines  # the last one may be cut
    best, tables = ",", {separator: _cut(lines, separator) for separator in _SEPARATORS}
    if any(len(table[0]) > 1 for table in tables.values() if table):
        best = max(_SEPARATORS, key=lambda separator: _judge(tables[separator]))
    comma = best == ";" and any(_DECIMAL_COMMA.fullmatch(cell.strip()) for row in tables[";"][1:] for cell in row)
    return {"sep": best, "decimal": "," if comma else ".", "encoding": "utf-8-sig"}


def _cut(lines: Sequence[str], separator: str) -> list[list[str]]:
    try:
        return [row for row in csv.reader(lines, delimiter=separator) if row]
    except csv.Error:  # what is no text is refused by pandas
        return []


def _judge(table: list[list[str]]) -> tuple[float, int]:
    """The share of rows with as many fields as the header, and how many that are; nothing where it is only one."""
    width = len(table[0]) if table else 0
    return (sum(len(row) == width for row in table) / len(table), width) if width > 1 else (0.0, 0)
