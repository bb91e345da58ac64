"""What the columns of a table mean: declared, or inferred from its rows; written down as JSON or TOML."""

import json
import tomllib
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pandas as pd
import tomli_w
from numpy.typing import NDArray
from pydantic import BaseModel, model_validator

from countertrain.constraints import Mutability
from countertrain.tables.columns import (
    EXACT,
    MISSING,
    MODEL,
    Boolean,
    Categorical,
    Column,
    Level,
    Numeric,
    Range,
)
from countertrain.tables.sentences import SchemaError, in_one_sentence
from countertrain.words import plain, suggest

__all__ = [
    "MISSING",
    "Boolean",
    "Categorical",
    "Column",
    "Level",
    "Numeric",
    "Range",
    "Schema",
    "SchemaError",
    "as_frame",
    "check_names",
]


class Schema(BaseModel):
    """The columns of a table, in the order in which a model sees them."""

    model_config = MODEL
    if not TYPE_CHECKING:
        __init__ = in_one_sentence

    columns: tuple[Column, ...]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.columns:
            raise SchemaError("a schema needs at least one column; got none")
        _check_distinct(self.names)
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    def __getitem__(self, name: str) -> Numeric | Categorical | Boolean:
        check_names([name], self.names)
        return self.columns[self.names.index(name)]

    def with_columns(self, /, **changes: Mapping[str, Any] | Numeric | Categorical | Boolean) -> Self:
        """A schema with some settings of some columns changed; one whose kind is given is declared anew."""
        columns: dict[str, Any] = dict(zip(self.names, self.columns, strict=True))
        for name, change in changes.items():
            old = self[name]
            if isinstance(change, Mapping):
                change = {"name": name, **change} if "kind" in change else {**old.model_dump(), **change}
            columns[name] = change
        return type(self)(columns=tuple(columns.values()))

    @classmethod
    def infer(
        cls,
        frame: pd.DataFrame | NDArray[Any],
        *,
        immutable: Sequence[str] = (),
        increase: Sequence[str] = (),
        decrease: Sequence[str] = (),
        max_levels: int = 50,
    ) -> Self:
        """What the rows of a table show: kinds, steps, levels, missing values; an array holds numbers and no more."""
        table = as_frame(frame)
        names = [str(name) for name in table.columns]
        ways: dict[str, Mutability] = dict.fromkeys(names, "both")
        lists: dict[Mutability, Sequence[str]] = {"none": immutable, "increase": increase, "decrease": decrease}
        for way, listed in lists.items():
            for name in check_names(listed, names):
                if ways[name] not in ("both", way):
                    raise SchemaError(f"column {name!r} is listed as {ways[name]!r} and as {way!r}; choose one")
                ways[name] = way
        if isinstance(frame, np.ndarray):
            return cls(columns=tuple(Numeric(name=name, mutability=way) for name, way in ways.items()))
        return cls(columns=tuple(_infer(table[name], max_levels, way) for name, way in ways.items()))

    def to_json(self) -> str:
        """The whole schema, to be read by people too."""
        return json.dumps(self.model_dump(exclude_none=True), indent=2, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The schema that `to_json` wrote."""
        try:
            return cls._of(json.loads(text))
        except json.JSONDecodeError as error:
            raise SchemaError(f"the schema is not valid JSON: {error}") from error

    def to_toml(self) -> str:
        """The whole schema, to be read and written by people too."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """The schema that `to_toml` wrote."""
        try:
            return cls._of(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise SchemaError(f"the schema is not valid TOML: {error}") from error

    @classmethod
    def _of(cls, values: Any) -> Self:
        if not isinstance(values, dict):
            raise SchemaError(f"a schema is written as a table with the key 'columns'; got {values!r}")
        return cls(**values)


def as_frame(rows: pd.DataFrame | NDArray[Any], names: Sequence[str] | None = None) -> pd.DataFrame:
    """Rows whose columns have texts as names; those of an array are `names`, or else x0, x1, ..."""
    if isinstance(rows, np.ndarray):
        if rows.ndim != 2 or (names is not None and rows.shape[1] != len(names)):
            wanted = "D" if names is None else len(names)
            raise ValueError(f"an array of rows must have shape (n, {wanted}); got {rows.shape}")
        return pd.DataFrame(rows, columns=[f"x{i}" for i in range(rows.shape[1])] if names is None else list(names))
    if not isinstance(rows, pd.DataFrame):
        raise TypeError(f"rows must be a DataFrame or a two-dimensional array; got {type(rows).__name__}")
    texts = [str(name) for name in rows.columns]
    _check_distinct(texts)
    return rows.set_axis(texts, axis=1)


def check_names(names: Sequence[str], known: Collection[str]) -> Sequence[str]:
    """These names of columns, refused where there is no such column."""
    if isinstance(names, str):
        raise TypeError(f"columns are named in a list; got the text {names!r}; write [{names!r}]")
    for name in names:
        if name not in known:
            raise SchemaError(f"there is no column {name!r}; {suggest(name, known)}")
    return names


def _check_distinct(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise SchemaError(f"two columns are called {twice!r}; rename one of them")


def _infer(values: "pd.Series[Any]", max_levels: int, mutability: Mutability) -> Numeric | Categorical | Boolean:
    """What the values of one column show."""
    name, kind = str(values.name), pd.api.types.infer_dtype(values, skipna=True)
    known = values.dropna()
    if known.empty:
        raise SchemaError(f"column {name!r} has no value at all; drop it")
    if kind in ("string", "categorical", "mixed", "mixed-integer"):
        return _infer_levels(values, max_levels, mutability)
    if kind not in ("boolean", "integer", "floating", "mixed-integer-float"):
        raise SchemaError(
            f"column {name!r} holds values of the kind {kind!r}, which a model cannot see; drop it, or turn it into "
            "numbers (such as days since a date) or texts"
        )
    distinct = known.unique()
    if len(distinct) == 1:
        raise SchemaError(_constant(name, distinct[0]))
    missing: Literal["fill", "refuse"] = "fill" if len(known) < len(values) else "refuse"
    if kind == "boolean" or set(distinct) == {0, 1}:
        pair = (False, True) if kind == "boolean" else (0, 1)
        return Boolean(name=name, values=pair, missing=missing, mutability=mutability)
    numbers = known.to_numpy()
    step = _step(name, numbers if numbers.dtype.kind == "f" else numbers.astype(np.float64))
    if kind == "integer" and step is None:
        raise SchemaError(f"column {name!r} holds integers that are too large to compute with; drop or shorten them")
    return Numeric(name=name, integer=step == 1, step=step, missing=missing, mutability=mutability)


def _infer_levels(values: "pd.Series[Any]", max_levels: int, mutability: Mutability) -> Categorical:
    """Levels in the order of a pandas category, or else sorted; only those that some row has."""
    name, known = values.name, values.dropna()
    category = isinstance(values.dtype, pd.CategoricalDtype)
    try:
        levels = list(known.cat.remove_unused_categories().cat.categories if category else known.unique())
    except TypeError:  # lists and the like, which cannot be compared
        levels = [known.iloc[0]]
    odd = [level for level in levels if not isinstance(plain(level), str | bool | int | float)]
    if odd:
        raise SchemaError(f"column {name!r} may hold texts, numbers and truth values; got {odd[0]!r}; drop it")
    if len(levels) > max_levels:
        raise SchemaError(
            f"column {name!r} has {len(levels)} different levels, more than {max_levels}; drop it, group its levels, "
            "or raise max_levels"
        )
    missing = len(known) < len(values)
    if len(levels) == 1 and not missing:
        raise SchemaError(_constant(name, levels[0]))
    return Categorical(
        name=str(name),
        levels=tuple(levels if category else sorted(levels, key=lambda level: (isinstance(level, str), level))),
        ordered=bool(category and values.cat.ordered),
        mutability=mutability,
        missing="level" if missing else "refuse",
    )


def _constant(name: object, value: object) -> str:
    return f"column {name!r} is {plain(value)!r} in every row, so that nothing can be learnt from it; drop it"


def _step(name: str, numbers: NDArray[np.floating[Any]]) -> float | None:
    """The largest of 1, 0.1, ... 1e-6 that all numbers are multiples of, in their decimals."""
    if not np.isfinite(numbers).all():
        raise SchemaError(f"column {name!r} holds infinite values; replace or drop them")
    for k in range(7):
        n_steps = np.rint(numbers.astype(np.float64) * 10**k)
        if (np.abs(n_steps) < EXACT).all() and ((n_steps / 10**k).astype(numbers.dtype) == numbers).all():
            return float(f"1e-{k}")
    return None
