"""The values of one column as numbers or places of levels, refused in one sentence where they are neither."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Real
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import infer_dtype, is_bool_dtype, is_float_dtype, is_integer_dtype

from countertrain.tables.columns import MISSING, OTHER, Boolean, Categorical, Column, Numeric
from countertrain.words import list_names, list_phrases, plain

__all__ = [
    "UnseenLevelWarning", "are_missing", "as_declared", "bound", "choose_dtype", "codes", "count_as", "fit", "keep",
    "name_row", "naming_rows", "numbers", "read_texts", "restore", "store", "to_series",
]  # fmt: skip

_RARE = 1e-3  # of the training rows: a level that fewer have is not advised
_TOLD = 3  # levels that a warning names
_row_name: ContextVar[Callable[[int], str]] = ContextVar("row_name", default="row {}".format)


class UnseenLevelWarning(UserWarning):
    """Rows hold levels that no training row had."""


@contextmanager
def naming_rows(name: Callable[[int], str]) -> Iterator[None]:
    """Rows are called as they stand in a file, by a function of their place in its table."""
    token = _row_name.set(name)
    try:
        yield
    finally:
        _row_name.reset(token)


def name_row(values: "pd.Series[Any] | pd.DataFrame", place: int) -> str:
    """What people call a row: by its place in the table that these values were taken from, or by its line."""
    whole = is_integer_dtype(values.index.dtype) and values.index.is_unique
    return _row_name.get()(int(values.index[place]) if whole else place)


@contextmanager
def as_declared() -> Iterator[None]:
    """Nothing is said of levels that are not listed: among training rows, they were left out on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnseenLevelWarning)
        yield


def numbers(column: Numeric, values: "pd.Series[Any]") -> NDArray[np.float64]:
    """(n,), with missing values filled in or refused."""
    found = _as_floats(column, values)
    missing = np.isnan(found)
    if missing.any():
        if column.fill is None:
            _refuse(column.name, values, missing, "not be missing", "give a number, or declare missing='level'")
        found[missing] = column.fill
    return found


def codes(column: Categorical | Boolean, values: "pd.Series[Any]", *, quiet: bool = False) -> NDArray[np.intp]:
    """(n,), the place of each value among the levels, with missing and unseen ones as the column declares.

    Levels that were never seen are warned of, unless `quiet`.
    """
    levels, found = column.levels, _places(column, values)
    if (found >= 0).all():
        return found
    fill = -1 if column.fill is None else levels.index(column.fill)
    missing = values.isna().to_numpy()
    if missing.any():
        if column.missing == "refuse":
            _refuse(column.name, values, missing, "not be missing", "give a value, or declare missing='fill'")
        found[missing] = len(levels) if column.missing == "level" else fill
    unseen = found < 0
    if unseen.any():
        if isinstance(column, Boolean) or column.unseen == "refuse":
            declare = "" if isinstance(column, Boolean) else ", or declare unseen='other'"
            _refuse(column.name, values, unseen, f"be one of {list_names(levels)}", f"correct it{declare}")
        if not quiet:
            _warn_unseen(column, values[unseen])
        found[unseen] = len(column.labels) - 1 if column.unseen == "other" else fill
    return found


def count_as(column: Column, value: Any) -> Any:
    """The level that a value never seen counts as; None where the value is missing, or one that the column knows."""
    if not isinstance(column, Categorical) or value in (None, OTHER) or column.unseen in ("refuse", None):
        return None
    known = _places(column, pd.Series([value]))[0] >= 0
    return None if known else OTHER if column.unseen == "other" else column.fill


def are_missing(column: Column, values: "pd.Series[Any]") -> NDArray[np.bool_]:
    """(n,), which cells of a column hold no value."""
    if isinstance(column, Numeric):
        return np.isnan(_as_floats(column, values))
    return values.isna().to_numpy()


def _warn_unseen(column: Categorical, unseen: "pd.Series[Any]") -> None:
    first = unseen[unseen != OTHER].drop_duplicates()
    if first.empty:
        return
    odd = [f"{plain(value)!r} ({name_row(first, i)})" for i, value in enumerate(first[:_TOLD])]
    more = f" and {len(first) - _TOLD:,} more" if len(first) > _TOLD else ""
    others = column.unseen == "other"
    counted = repr(OTHER) if others else f"{plain(column.fill)!r}, the value that stands for what is not known"
    warnings.warn(
        f"column {column.name!r} holds {list_phrases(odd, _TOLD)}{more}, not among its levels; counted as {counted}",
        UnseenLevelWarning,
        stacklevel=2,
    )


def bound(column: Column, values: "pd.Series[Any]") -> Column:
    """The column with the bounds that it leaves open, and whether any level counts as other, taken from all rows."""
    if isinstance(column, Categorical) and column.unseen is None:
        unlisted = (_places(column, values) < 0) & values.notna().to_numpy()
        column = column.model_copy(update={"unseen": "other" if unlisted.any() else "fill"})
        _warn_unseen(column, values[unlisted])
        return column
    if not isinstance(column, Numeric) or None not in (column.lower, column.upper):
        return column
    found = _as_floats(column, values)
    return column.bound(found[~np.isnan(found)])


def fit(column: Numeric | Categorical | Boolean, values: "pd.Series[Any]") -> Numeric | Categorical | Boolean:
    """The column with what it leaves open taken from the training rows."""
    if isinstance(column, Numeric):
        known = _as_floats(column, values)
        return column.fit(known[~np.isnan(known)])
    column = bound(column, values)
    if isinstance(column, Numeric) or column.is_complete:
        return column
    places = _places(column, values)
    counts = np.bincount(places[places >= 0], minlength=len(column.levels))
    if isinstance(column, Categorical) and column.rare is None:
        rare = tuple(column.labels[place] for place in np.flatnonzero(counts < _RARE * len(values)))
        column = column.model_copy(update={"rare": rare})
    return column if column.is_complete else column.model_copy(update={"fill": column.levels[int(counts.argmax())]})


def choose_dtype(column: Numeric | Categorical | Boolean, own: Any) -> str:
    """The type of the training rows, or another one where that cannot hold all that the column may become."""
    if isinstance(column, Numeric):
        other = "int64" if column.integer else "float64"
        most: list[Any] = column.ends().astype(other).tolist()
        whole = is_integer_dtype(own) or is_bool_dtype(own)
        if column.missing == "level" and isinstance(own, np.dtype) and own.kind in "iub":
            return "float64"  # of which one may be missing
        if isinstance(own, pd.CategoricalDtype) or (whole and not column.integer):
            return other
    else:
        other, most = "object", [*column.levels, *([OTHER] if OTHER in column.labels else [])]
    try:
        held = pd.Series(most).astype(own)
    except (TypeError, ValueError, OverflowError):
        return other
    return str(own) if is_float_dtype(own) or held.tolist() == most else other


def to_series(column: Numeric | Categorical | Boolean, places: NDArray[Any], dtype: str) -> "pd.Series[Any]":
    """Numbers, or levels by their places, as a column of a table; what lies behind the last level is missing."""
    own: Any = dtype
    if isinstance(column, Numeric):
        return pd.Series(places if np.isnan(places).any() or not column.integer else places.astype(np.int64)).astype(
            own
        )
    known = [*column.levels, *(None if one == MISSING else one for one in column.labels[len(column.levels) :])]
    if dtype == "category":
        kept = [level for level in known if level is not None]
        own = pd.CategoricalDtype(kept, isinstance(column, Categorical) and column.ordered)
    elif known[-1] is None:  # what lies behind the last level is missing in any type
        known = known[:-1]
    levels: pd.Series[Any] = pd.Series(known, dtype=own)
    return levels.reindex(places).reset_index(drop=True)


def keep(changed: "pd.Series[Any]", origin: "pd.Series[Any]", stays: NDArray[np.bool_]) -> "pd.Series[Any]":
    """The changed column with the cells that stay as in `origin`, in a type that holds both."""
    own: Any = origin.dtype
    if own == np.dtype(object):  # as below, but many times faster
        return pd.Series(np.where(stays, origin.to_numpy(), changed.astype(object).to_numpy()), dtype=object)
    if isinstance(own, pd.CategoricalDtype) and set(changed.dropna()) <= set(own.categories):
        changed = changed.astype(own)
    n = len(origin)
    return pd.concat([origin, changed], ignore_index=True).take(np.arange(n) + n * ~stays).reset_index(drop=True)


def store(column: Numeric | Categorical | Boolean, values: "pd.Series[Any]") -> NDArray[np.float64]:
    """(n,), numbers as they are and levels by their places, NaN where there is neither: all that `fit` looks at."""
    if isinstance(column, Numeric):
        return _as_floats(column, values)
    places = _places(column, values)
    return np.where(places < 0, np.nan, places)


def restore(column: Numeric | Categorical | Boolean, stored: NDArray[np.float64]) -> "pd.Series[Any]":
    """The values that `store` saw, with missing ones for whatever was neither a number nor a level."""
    if isinstance(column, Numeric):
        return pd.Series(stored)
    levels = np.array([*column.levels, None], dtype=object)
    return pd.Series(levels[np.nan_to_num(stored, nan=-1).astype(np.intp)], dtype=object)


def read_texts(column: Numeric, values: "pd.Series[Any]") -> "pd.Series[Any]":
    """Numbers that came as texts as numbers, and texts that stand for a missing value as missing."""
    if column.blank is None or pd.api.types.is_numeric_dtype(values.dtype):
        return values
    texts = values.astype(object).map(lambda value: value.strip() if isinstance(value, str) else value)
    empty = texts.isin(["", *column.blank]) | texts.isna()
    read = pd.to_numeric(texts.mask(empty), errors="coerce")
    return texts.where(read.isna() & ~empty, read).infer_objects()


def _as_floats(column: Numeric, values: "pd.Series[Any]") -> NDArray[np.float64]:
    """(n,), NaN where a value is missing."""
    name, values = column.name, read_texts(column, values)
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(object)
    if infer_dtype(values, skipna=True) not in ("integer", "floating", "mixed-integer-float", "boolean", "empty"):
        wrong = values.notna().to_numpy() & [not isinstance(value, Real) for value in values]
        if wrong.any():
            _refuse(name, values, wrong, "be a number", "correct it, or declare the column as categorical")
    try:
        found = values.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    except OverflowError as error:
        raise ValueError(f"column {name!r} holds an integer that is too large to compute with; correct it") from error
    if np.isinf(found).any():
        _refuse(name, values, np.isinf(found), "be finite", "replace it, or drop the row")
    return found


def _places(column: Categorical | Boolean, values: "pd.Series[Any]") -> NDArray[np.intp]:
    """(n,), the place of each value among the levels; -1 where it is none of them."""
    try:
        return pd.Index(column.levels, dtype=object).get_indexer(pd.Index(values, dtype=object))
    except TypeError as error:  # lists and the like
        raise ValueError(f"column {column.name!r} may hold texts, numbers and truth values only: {error}") from error


def _refuse(name: str, values: "pd.Series[Any]", wrong: NDArray[np.bool_], must: str, way_out: str) -> NoReturn:
    """One sentence about the first wrong value of a column."""
    row = int(np.flatnonzero(wrong)[0])
    said = f"column {name!r}, {name_row(values, row)}, must {must}; got {plain(values.iloc[row])!r}; {way_out}"
    raise ValueError(said)
