"""A few rows of Python's own values, read without pandas, whose calls cost more than one person's row is worth."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from countertrain.tables.cells import numbers, to_series
from countertrain.tables.columns import Boolean, Categorical, Numeric, has_indicator, keeps_missing

if TYPE_CHECKING:
    from countertrain.tables.encoder import Encoder

__all__ = ["PlainReader"]

_FEW = 500  # rows: of more, pandas is faster
_NUMBERS = {int, float, bool, type(None)}
_PLAIN = _NUMBERS | {str}

Cells = NDArray[np.object_]
"""(n, C) the values of rows, in the order of the schema."""


class PlainReader:
    """Reads ordinary cells as `cells` does, and leaves all rows to it where anything is odd: there are the words."""

    def __init__(self, encoder: "Encoder") -> None:
        self._names, self._width = [*encoder.schema.names], len(encoder.features)
        self._columns, self._dtypes = encoder.schema.columns, encoder.dtypes
        self._written: dict[int, Cells] = {}
        columns = [*zip(encoder.schema.columns, encoder.slices, strict=True)]
        self._starts = [part.start for _, part in columns]
        places = [i for i, (column, _) in enumerate(columns) if isinstance(column, Numeric)]
        self._numbers = [(i, columns[i][1].start, encoder.scales[i]) for i in places]
        fills = [columns[i][0].fill for i in places]
        self._fills = np.array([np.nan if fill is None else fill for fill in fills])[:, None]  # (R, 1)
        self._indicators = [(r, columns[i][1].start + 1) for r, i in enumerate(places) if has_indicator(columns[i][0])]
        self._levels = [
            (i, part.start, isinstance(column, Categorical), _place_levels(column))
            for i, (column, part) in enumerate(columns)
            if not isinstance(column, Numeric)
        ]
        self._keeping = [(i, part, isinstance(c, Numeric)) for i, (c, part) in enumerate(columns) if keeps_missing(c)]

    @cached_property
    def index(self) -> pd.Index:
        """The names of the columns as an index of objects, which pandas reads and compares sooner than one of texts."""
        return pd.Index(self._names, dtype=object)

    def gather(self, people: Sequence[Mapping[str, Any]]) -> Cells:
        """The cells of people by the names of their columns, None where one is missing."""
        cells = np.empty((len(people), len(self._names)), dtype=object)
        for row, person in zip(cells, people, strict=True):
            row[:] = [person.get(name) for name in self._names]
        return cells

    def make_frame(self, cells: Cells, index: pd.Index | None = None) -> pd.DataFrame:
        """Cells as a table whose types nobody has settled."""
        return pd.DataFrame(cells, index, self.index, dtype=object)

    def take(self, rows: pd.DataFrame | NDArray[Any]) -> Cells | None:
        """The cells of a few rows whose types nobody has settled; None of any other table."""
        if len(rows) > _FEW:
            return None
        if isinstance(rows, np.ndarray):
            return rows if rows.dtype == object and rows.shape[1:] == (len(self._names),) else None
        known = isinstance(rows, pd.DataFrame) and (rows.columns is self.index or [*rows.columns] == self._names)
        return rows.to_numpy() if known and {*rows.dtypes} == {np.dtype(object)} else None

    def encode(self, cells: Cells) -> NDArray[np.float64] | None:
        """(n, D), what a model sees; None where a value is no number or level of its column, or must not be missing."""
        columns = cells.T.tolist()
        x = np.zeros((len(cells), self._width))
        read = _read_numbers([columns[i] for i, _, _ in self._numbers], len(cells))
        if read is None:
            return None
        missing = np.isnan(read)  # (R, n)
        read = np.where(missing, self._fills, read)
        if not np.isfinite(read).all():
            return None
        for values, (_, start, scale) in zip(read, self._numbers, strict=True):
            x[:, start] = scale.encode(values)
        for r, start in self._indicators:
            x[:, start] = missing[r]
        for i, start, one_hot, places in self._levels:
            for row, value in enumerate(columns[i]):
                place = places.get((type(value), value)) if type(value) in _PLAIN else None
                if place is None:
                    return None
                if one_hot:
                    x[row, start + place] = 1.0
                else:
                    x[row, start] = place
        return x

    def find_unknown(self, cells: Cells) -> NDArray[np.bool_] | None:
        """(n, D), features of cells that are missing and stay so; None where a value is odd."""
        unknown = np.zeros((len(cells), self._width), dtype=bool)
        for i, part, is_number in self._keeping:
            values = cells[:, i].tolist()
            if not {type(value) for value in values} <= (_NUMBERS if is_number else _PLAIN):
                return None
            unknown[:, part] = np.array([value is None or value != value for value in values])[:, None]
        return unknown

    def read_numbers(self, i: int, cells: Cells) -> NDArray[np.float64]:
        """(n,), the numbers of column i, filled in where they are missing."""
        column, found = self._columns[i], _read_numbers([cells[:, i].tolist()], len(cells))
        assert isinstance(column, Numeric)
        if found is None:
            return numbers(column, pd.Series(cells[:, i], dtype=object))
        return found[0] if column.fill is None else np.where(np.isnan(found[0]), column.fill, found[0])

    def write(self, i: int, places: NDArray[Any]) -> Cells:
        """Numbers of column i, or levels by their places, (n,) as cells of a table in its type."""
        column, dtype = self._columns[i], self._dtypes[i]
        if isinstance(column, Numeric):
            if dtype == "float64" or (dtype == "int64" and not np.isnan(places).any()):
                return places.astype(dtype).astype(object)
            return to_series(column, places, dtype).astype(object).to_numpy()
        if i not in self._written:
            self._written[i] = to_series(column, np.arange(len(column.labels)), dtype).astype(object).to_numpy()
        cells: Cells = self._written[i][places]
        return cells

    def find_moved(self, x: NDArray[Any], start: NDArray[Any]) -> list[int]:
        """The columns in which rows x (n, D) differ from their start anywhere."""
        differs = (x != start).any(0)
        return np.flatnonzero(np.logical_or.reduceat(differs, self._starts)).tolist()


def _read_numbers(columns: list[list[Any]], n: int) -> NDArray[np.float64] | None:
    """(R, n), NaN where there is none; None where anything else is no number, or too large a one."""
    if not all({*map(type, values)} <= _NUMBERS for values in columns):
        return None
    try:
        return np.array(columns, dtype=np.float64).reshape(len(columns), n)
    except OverflowError:
        return None


def _place_levels(column: Categorical | Boolean) -> dict[tuple[type, Any], int]:
    """The place of each level, by type and value, and of a missing one where it has a place."""
    places: dict[tuple[type, Any], int] = {(type(level), level): place for place, level in enumerate(column.levels)}
    if column.missing != "refuse":
        as_level = column.missing == "level" or column.fill is None
        places[type(None), None] = len(column.levels) if as_level else column.levels.index(column.fill)
    return places
