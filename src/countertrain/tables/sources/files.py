"""Tables in files: CSV with any separator and encoding, found by itself, Excel and Parquet; whole or part by part."""

import importlib
import zipfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from countertrain.files import write_text
from countertrain.tables.encoder import Encoder
from countertrain.tables.sources.dialects import find_dialect

__all__ = ["is_csv", "is_excel", "is_table", "read_parts", "read_rows", "read_table", "short_name", "write_rows"]

_EXCEL = (".xlsx", ".xlsm")
_SUFFIXES = (".csv", ".tsv", ".txt", ".gz", ".parquet", ".pq", *_EXCEL)


def is_table(path: Path) -> bool:
    """Whether a path reads like that of a table."""
    return path.suffix.lower() in _SUFFIXES or path.is_file()


def is_csv(path: Path) -> bool:
    """Whether a path is not that of an Excel or Parquet file, so that its rows stand on lines."""
    return not is_excel(path) and not _is_parquet(path)


def is_excel(path: Path) -> bool:
    """Whether a path reads like that of an Excel file."""
    return path.suffix.lower() in _EXCEL


def short_name(path: Path) -> str:
    """The name of a table: that of its file without what says how it is written."""
    return Path(path.stem).stem if path.suffix.lower() == ".gz" else path.stem


def read_table(path: str | Path) -> pd.DataFrame:
    """The rows of a CSV file with a header (any separator and encoding, maybe gzipped), or of an Excel or Parquet file.

    Of an Excel file, the first sheet is read.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {path}; check the path")
    with _refuse_damaged(path):
        if _is_parquet(path):
            return pd.DataFrame(_import_parquet().read_table(path).to_pandas())
        if is_excel(path):
            return _read_excel(path)
        return pd.DataFrame(pd.read_csv(path, low_memory=False, **find_dialect(path)))


def read_parts(path: Path, n_rows: int, texts: Collection[str] = ()) -> Iterator[pd.DataFrame]:
    """The rows of such a file, so many at a time; `texts` are columns of a CSV file to be read as texts."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}; check the path")
    if is_excel(path):
        raise ValueError(f"{path} is an Excel file, which is read as a whole; save it as CSV or Parquet")
    with _refuse_damaged(path):
        if _is_parquet(path):
            with _import_parquet().ParquetFile(path) as file:
                for batch in file.iter_batches(n_rows):
                    yield batch.to_pandas()
        else:
            types: Any = dict.fromkeys(texts, str)
            dialect = find_dialect(path)
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
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, ValueError) as error:
        kind = "a CSV file with a header" if is_csv(path) else "an Excel file" if is_excel(path) else "a Parquet file"
        why = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"{path} cannot be read as {kind}: {why}") from error


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


def _import_parquet() -> Any:
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ValueError("that needs pyarrow; pip install 'countertrain[parquet]', or bring a CSV file") from None


def _read_excel(path: Path) -> pd.DataFrame:
    try:
        importlib.import_module("openpyxl")
    except ImportError:
        raise ValueError("that needs openpyxl; pip install 'countertrain[excel]', or bring a CSV file") from None
    return pd.DataFrame(pd.read_excel(path, engine="openpyxl"))
