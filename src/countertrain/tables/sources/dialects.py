"""How a CSV file is written: its encoding, its separator, its header, and on which line each of its rows begins."""

import codecs
import csv
import gzip
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["find_dialect", "find_lines", "read_header"]

_SEPARATORS = (",", ";", "\t", "|", "^", "~")
_SAMPLE = 2**16  # characters that are looked at to find out how a file is written
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def find_dialect(path: Path) -> dict[str, Any]:
    """How pandas is to read a CSV file: the separator that cuts most lines into the fields of the header."""
    encoding = _find_encoding(path)
    with _open_text(path, encoding) as file:
        sample = str(file.read(_SAMPLE))
    lines = sample.splitlines()
    lines = lines[:-1] if len(sample) == _SAMPLE and len(lines) > 1 else lines  # the last one may be cut
    best, tables = ",", {separator: _cut(lines, separator) for separator in _SEPARATORS}
    if any(len(table[0]) > 1 for table in tables.values() if table):
        best = max(_SEPARATORS, key=lambda separator: _judge(tables[separator]))
    comma = best == ";" and any(_DECIMAL_COMMA.fullmatch(cell.strip()) for row in tables[";"][1:] for cell in row)
    return {"sep": best, "decimal": "," if comma else ".", "encoding": encoding}


def read_header(path: Path) -> list[str]:
    """The names of the columns as they stand in the file, also where two are the same or one is empty."""
    try:
        return next((row for _, row in _read_records(path)), [])
    except csv.Error:  # a cell too long to be a name
        return []


def find_lines(path: Path, n_rows: int) -> NDArray[np.int64] | None:
    """(n,), the line on which each row begins; None where the file has another number of rows."""
    try:
        lines = [line for line, _ in _read_records(path)][1:]
    except csv.Error:  # a cell as long as a book
        return None
    return np.array(lines, dtype=np.int64) if len(lines) == n_rows else None


def _read_records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The header and the rows, each with the line on which it begins; empty lines are none."""
    dialect = find_dialect(path)
    with _open_text(path, dialect["encoding"]) as file:
        reader, line = csv.reader(file, delimiter=dialect["sep"]), 1
        for row in reader:
            if len(row) > 1 or (row and row[0].strip()):
                yield line, row
            line = reader.line_num + 1


def _find_encoding(path: Path) -> str:
    """UTF-8, unless some byte says otherwise: then UTF-16, which says so itself, or what Windows writes."""
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    decoder = codecs.getincrementaldecoder("utf-8")()
    with opened(path, "rb") as file:
        part = file.read(_SAMPLE)
        if part.startswith(_UTF16) and "\n" in part[: len(part) // 2 * 2].decode("utf-16", errors="replace"):
            return "utf-16"
        text = b"\x00" not in part
        try:
            while part:
                decoder.decode(part)
                part = file.read(2**20)
        except UnicodeDecodeError:
            return "cp1252" if text and _is_windows(file) else "latin-1" if text else "utf-8-sig"
    return "utf-8-sig"


def _is_windows(file: Any) -> bool:
    """Whether every byte of a file is a character of Windows-1252."""
    file.seek(0)
    try:
        while part := file.read(2**20):
            part.decode("cp1252")
    except UnicodeDecodeError:
        return False
    return True


def _open_text(path: Path, encoding: str) -> IO[str]:
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    file: IO[str] = opened(path, "rt", encoding=encoding, errors="replace", newline="")
    return file


def _cut(lines: Sequence[str], separator: str) -> list[list[str]]:
    try:
        return [row for row in csv.reader(lines, delimiter=separator) if row]
    except csv.Error:  # what is no text is refused by pandas
        return []


def _judge(table: list[list[str]]) -> tuple[float, int]:
    """The share of rows with as many fields as the header, and how many that are; nothing where it is only one."""
    width = len(table[0]) if table else 0
    return (sum(len(row) == width for row in table) / len(table), width) if width > 1 else (0.0, 0)
