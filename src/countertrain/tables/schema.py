"""What the columns of a table mean: declared, or inferred from its rows; written down as JSON or TOML."""

import json
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
import tomli_w
from numpy.typing import NDArray
from pydantic import BaseModel, model_validator

from countertrain.tables import cells
from countertrain.tables.columns import (
    MISSING,
    MODEL,
    OTHER,
    Boolean,
    Categorical,
    Column,
    Level,
    Numeric,
    Range,
)
from countertrain.tables.rules.rulebook import Rulebook
from countertrain.tables.sentences import SchemaError, in_one_sentence, say_all
from countertrain.tables.summaries import MAX_LEVELS, Summary
from countertrain.words import suggest

__all__ = [
    "MISSING",
    "OTHER",
    "UNBELIEVED",
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


UNBELIEVED = 0.05
"""Of the rows: a rule that more of them break is not believed."""


class Schema(BaseModel):
    """The columns of a table, in the order in which a model sees them."""

    model_config = MODEL
    if not TYPE_CHECKING:
        __init__ = in_one_sentence

    columns: tuple[Column, ...]
    dropped: tuple[str, ...] | None = None
    """Columns of the table that the model does not see; any other that is not declared is not seen either."""
    rules: tuple[str, ...] | None = None
    """What holds between columns, such as `total = tenure * monthly` or `years_in_role <= years_at_company`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.columns:
            raise SchemaError("a schema needs at least one column; got none")
        _check_distinct(self.names)
        both = [name for name in self.dropped or () if name in self.names]
        if both:
            raise SchemaError(f"column {both[0]!r} is declared and dropped; leave it out of one of the two")
        _ = self.rulebook  # refuses what cannot be read or kept
        return self

    @cached_property
    def rulebook(self) -> Rulebook | None:
        """The rules, made out against the columns; None where there are none."""
        return Rulebook.of(self.rules, self.columns) if self.rules else None

    def check_rules(self, rows: pd.DataFrame) -> None:
        """Refuse rules that too many rows break to be believed, all at once."""
        broken = {} if self.rulebook is None else self.rulebook.find_broken(rows)
        wrong = {text: hit for text, hit in broken.items() if hit.mean() > UNBELIEVED}
        if wrong:
            said = [
                f"the rule {text!r} is broken by {100 * hit.mean():.1f} % of the rows, first by "
                f"{cells.name_row(rows, int(hit.argmax()))}; correct it, or leave it out"
                for text, hit in wrong.items()
            ]
            raise SchemaError(say_all(said))

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
        return type(self)(columns=tuple(columns.values()), dropped=self.dropped, rules=self.rules)

    @classmethod
    def infer(
        cls,
        frame: pd.DataFrame | NDArray[Any],
        *,
        immutable: Sequence[str] = (),
        increase: Sequence[str] = (),
        decrease: Sequence[str] = (),
        max_levels: int = MAX_LEVELS,
    ) -> Self:
        """What the rows of a table show: kinds, steps, levels, missing values; an array holds numbers and no more."""
        table = as_frame(frame)
        if isinstance(frame, np.ndarray):
            schema = cls(columns=tuple(Numeric(name=name) for name in table.columns))
        else:
            schema = cls.of(Summary.of(table[name], max_levels) for name in table.columns)
        return schema.restrict(immutable=immutable, increase=increase, decrease=decrease)

    @classmethod
    def of(cls, summaries: Iterable[Summary]) -> Self:
        """What the summaries of all columns show, whether their rows were read as a whole or part by part."""
        columns, refused = [], []
        for summary in summaries:
            try:
                columns.append(summary.infer())
            except SchemaError as error:
                refused.append(error)
        if len(refused) > 1:
            raise SchemaError(say_all([str(error) for error in refused]))
        if refused:
            raise refused[0]
        return cls(columns=tuple(columns))

    def restrict(
        self, *, immutable: Sequence[str] = (), increase: Sequence[str] = (), decrease: Sequence[str] = ()
    ) -> Self:
        """A schema in which these columns may not change, or only one way."""
        changes: dict[str, dict[str, str]] = {}
        for way, names in (("none", immutable), ("increase", increase), ("decrease", decrease)):
            for name in check_names(names, self.names):
                listed = changes.setdefault(name, {"mutability": way})["mutability"]
                if listed != way:
                    raise SchemaError(f"column {name!r} is listed as {listed!r} and as {way!r}; choose one")
        return self.with_columns(**changes)

    def with_rules(self, rules: Sequence[str]) -> Self:
        """A schema with rules of which nobody has said that they must hold: none, where they contradict one another."""
        try:
            return type(self)(columns=self.columns, dropped=self.dropped, rules=tuple(rules) or None)
        except SchemaError:
            return self

    def drop(self, names: Collection[str]) -> Self:
        """A schema without some of its columns."""
        kept = tuple(column for column in self.columns if column.name not in names)
        return type(self)(columns=kept, dropped=self.dropped, rules=self.rules)

    def _to_dict(self) -> dict[str, Any]:
        """What is written down: nothing that is open, and of what is rarely said only what is said."""
        written = self.model_dump(exclude_none=True)
        for column in written["columns"]:
            for name in ("fillable", "last_resort"):
                if not column[name]:
                    del column[name]
        return written

    def to_json(self) -> str:
        """The whole schema, to be read by people too."""
        return json.dumps(self._to_dict(), indent=2, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The schema that `to_json` wrote."""
        try:
            return cls._of(json.loads(text))
        except json.JSONDecodeError as error:
            raise SchemaError(f"the schema is not valid JSON: {error}") from error

    def to_toml(self) -> str:
        """The whole schema, to be read and written by people too."""
        return tomli_w.dumps(self._to_dict())

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
