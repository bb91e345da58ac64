"""Rows of a table as numbers that a model can see, and back: a schema fitted to training rows."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from countertrain.constraints import Constraints, Mutability
from countertrain.tables import cells
from countertrain.tables.columns import MISSING, has_indicator, keeps_missing
from countertrain.tables.plain import PlainReader
from countertrain.tables.scales import UNSCALED, FeatureScales, Ranks, Scale, Standard, scale_from_dict
from countertrain.tables.schema import Boolean, Categorical, Column, Numeric, Range, Schema, as_frame, check_names

__all__ = ["Encoder", "FitEncoder", "Range"]

Floats = NDArray[np.float64]
FitEncoder = Callable[["Schema", pd.DataFrame | NDArray[Any]], "Encoder"]
"""What makes an encoder of a schema and the rows to fit it to: `Encoder.fit`, or a choice of scales of one's own."""
FitScale = Callable[[Floats], Scale]
"""What makes the scale of a column of its numbers in the training rows."""


@dataclass(frozen=True, eq=False)
class Encoder:
    """A schema that leaves nothing open, with the scales of its numbers and the types of its columns.

    Numbers are scaled, levels one-hot coded, truth values 0 or 1. Beside a number whose being missing is a state of its
    own there is an indicator, 1 where it is missing.
    """

    schema: Schema
    scales: tuple[Scale, ...]
    """One per column of the table; that of levels and truth values is never used."""
    dtypes: tuple[str, ...]
    """The pandas type in which each column is given back."""

    def __post_init__(self) -> None:
        n = len(self.schema.columns)
        if not len(self.scales) == len(self.dtypes) == n:
            raise ValueError(f"an encoder needs a scale and a type for each of its {n} columns")
        unknown = [column.name for column in self.schema.columns if not column.is_complete]
        if unknown:
            raise ValueError(
                f"column {unknown[0]!r} leaves bounds, a fill or rare levels open; use Encoder.fit with training rows"
            )

    @classmethod
    def fit(cls, schema: Schema, frame: pd.DataFrame | NDArray[Any], *, fit_scale: FitScale = Standard.fit) -> Self:
        """Take from the training rows what the schema leaves open, and the scale of each column of numbers."""
        table = _table(schema, frame)
        if not len(table):
            raise ValueError("an encoder is fitted to at least one row; got none")
        schema.check_rules(table)
        columns = [table[name] for name in schema.names]
        return cls.fit_columns(schema, columns, [values.dtype for values in columns], fit_scale=fit_scale)

    @classmethod
    def fit_columns(
        cls,
        schema: Schema,
        columns: Iterable["pd.Series[Any]"],
        dtypes: Sequence[Any],
        *,
        fit_scale: FitScale = Standard.fit,
    ) -> Self:
        """`fit` for columns that come one by one, in the order of the schema, with the types they have in the table."""
        settled: list[Column] = []
        scales: list[Scale] = []
        for column, values in zip(schema.columns, columns, strict=True):
            fit = cells.fit(column, values)
            settled.append(fit)
            scales.append(fit_scale(cells.numbers(fit, values)) if isinstance(fit, Numeric) else UNSCALED)
        kept = tuple(cells.choose_dtype(column, dtype) for column, dtype in zip(settled, dtypes, strict=True))
        return cls(Schema(columns=tuple(settled), rules=schema.rules), tuple(scales), kept)

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """The encoded columns of each column of the table."""
        widths = [len(c.labels) if isinstance(c, Categorical) else 1 + has_indicator(c) for c in self.schema.columns]
        return tuple(slice(a, b) for a, b in pairwise(accumulate(widths, initial=0)))

    @cached_property
    def features(self) -> tuple[str, ...]:
        """The D encoded columns by name: `age`, `job=clerk`, `job=smith`."""
        names: list[str] = []
        for column in self.schema.columns:
            names += [] if isinstance(column, Categorical) else [column.name]
            labels = column.labels if isinstance(column, Categorical) else [MISSING] * has_indicator(column)
            names += [f"{column.name}={label}" for label in labels]
        return tuple(names)

    @cached_property
    def categories(self) -> tuple[slice, ...]:
        """The one-hot groups among the encoded columns; a truth value is a group of one, as an indicator is."""
        columns = zip(self.schema.columns, self.slices, strict=True)
        parts = [slice(p.start + 1, p.stop) if isinstance(column, Numeric) else p for column, p in columns]
        return tuple(part for part in parts if part.start < part.stop)

    @cached_property
    def column_of(self) -> tuple[int, ...]:
        """(D,), for each encoded column the place of its column in the table."""
        return tuple(i for i, part in enumerate(self.slices) for _ in range(part.start, part.stop))

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """The places of the encoded columns that are numbers."""
        columns = zip(self.schema.columns, self.slices, strict=True)
        return tuple(part.start for column, part in columns if isinstance(column, Numeric))

    @cached_property
    def indicators(self) -> tuple[int, ...]:
        """The places of the encoded columns that say whether the number before them is missing."""
        columns = zip(self.schema.columns, self.slices, strict=True)
        return tuple(part.start + 1 for column, part in columns if has_indicator(column))

    @cached_property
    def feature_scales(self) -> FeatureScales:
        """The scales of the D encoded columns, for tensors."""
        numbers = set(self.numbers)
        return FeatureScales.of([self.scales[c] if i in numbers else UNSCALED for i, c in enumerate(self.column_of)])

    @cached_property
    def plain(self) -> PlainReader:
        """What reads a few rows of Python's own values."""
        return PlainReader(self)

    @property
    def ranks(self) -> dict[str, Ranks]:
        """The columns whose numbers are places among people."""
        columns = zip(self.schema.names, self.scales, strict=True)
        return {name: scale for name, scale in columns if isinstance(scale, Ranks)}

    @property
    def units(self) -> tuple[tuple[str, ...], tuple[Scale, ...]]:
        """What a number in an encoded row means: the name and the scale of its column."""
        return self.features, self.scales

    def encode(self, frame: pd.DataFrame | NDArray[Any], *, quiet: bool = False) -> Floats:
        """Rows as numbers (n, D); their columns may come in any order, and others are ignored.

        Levels that were never seen are warned of, unless `quiet`.
        """
        plain = self.plain.take(frame)
        if plain is not None and (read := self.plain.encode(plain)) is not None:
            return read
        table = _table(self.schema, frame)
        x = np.zeros((len(table), len(self.features)))  # (n, D)
        for i, (column, part) in enumerate(zip(self.schema.columns, self.slices, strict=True)):
            values = table[column.name]
            if isinstance(column, Numeric):
                x[:, part.start] = self.scales[i].encode(cells.numbers(column, values))
                if has_indicator(column):
                    x[:, part.start + 1] = cells.are_missing(column, values)
            elif isinstance(column, Boolean):
                x[:, part.start] = cells.codes(column, values, quiet=quiet)
            else:
                x[np.arange(len(x)), part.start + cells.codes(column, values, quiet=quiet)] = 1.0
        return x

    def find_unknown(self, frame: pd.DataFrame | NDArray[Any]) -> NDArray[np.bool_]:
        """(n, D), features of cells that are missing in rows, and that nobody can be told to fill in."""
        plain = self.plain.take(frame)
        if plain is not None and (read := self.plain.find_unknown(plain)) is not None:
            return read
        table = _table(self.schema, frame)
        unknown = np.zeros((len(table), len(self.features)), dtype=bool)
        for column, part in zip(self.schema.columns, self.slices, strict=True):
            if keeps_missing(column):
                unknown[:, part] = cells.are_missing(column, table[column.name])[:, None]
        return unknown

    def decode(self, x: NDArray[Any], origin: pd.DataFrame | NDArray[Any] | None = None) -> pd.DataFrame:
        """Rows (n, D) in a person's own units and types: numbers rounded to their step within their bounds.

        With `origin`, the rows that the search started at, every cell that did not change is the one in there, and
        rounding takes no number from there the way that it may not go.
        """
        x = np.asarray(x)
        if x.ndim != 2 or x.shape[1] != len(self.features):
            raise ValueError(f"x must have shape (n, {len(self.features)}), one column a feature; got {x.shape}")
        if not np.isfinite(x).all():
            row, column = np.argwhere(~np.isfinite(x))[0]
            raise ValueError(f"x must be finite; row {row}, feature {self.features[column]!r} is {x[row, column]}")
        places = [self.read_column(i, x) for i in range(len(self.schema.columns))]
        decoded = {
            column.name: cells.to_series(column, place, dtype)
            for column, place, dtype in zip(self.schema.columns, places, self.dtypes, strict=True)
        }
        if origin is None:
            return pd.DataFrame(decoded)
        table = _table(self.schema, origin)
        if len(table) != len(x):
            raise ValueError(f"origin must have one row for each row of x, {len(x)}; got {len(table)}")
        start = self.encode(table, quiet=True).astype(x.dtype)  # (n, D), as precise as x
        for i, (column, place) in enumerate(zip(self.schema.columns, places, strict=True)):
            values = table[column.name]
            before = cells.numbers(column, values) if isinstance(column, Numeric) else None
            decoded[column.name] = cells.keep(decoded[column.name], values, self._stays(i, place, x, start, before))
        return pd.DataFrame(decoded).set_axis(table.index)

    def decode_moved(self, x: Floats, origin: NDArray[np.object_], digits: Mapping[str, int]) -> NDArray[np.object_]:
        """`decode` for a few people with cells `origin` (n, C): only columns in which somebody moved are looked at.

        Numbers of columns in `digits` are rounded to so many decimals.
        """
        start, told = self.encode(origin, quiet=True), origin.copy()
        for i in self.plain.find_moved(x, start):
            column, place = self.schema.columns[i], self.read_column(i, x)
            before = self.plain.read_numbers(i, origin) if isinstance(column, Numeric) else None
            changed = self.plain.write(i, place)
            if column.name in digits:
                numbers = changed.astype(np.float64)
                changed = np.where(numbers == before, numbers, np.round(numbers, digits[column.name])).astype(object)
            told[:, i] = np.where(self._stays(i, place, x, start, before), origin[:, i], changed)
        return told

    def read_column(self, i: int, x: NDArray[Any]) -> NDArray[Any]:
        """(n,), the rounded number that stands in column i of rows (n, D), NaN for none, or the place of its level."""
        column, block = self.schema.columns[i], x[:, self.slices[i]]
        if isinstance(column, Numeric):
            numbers = column.read_rounded(self.scales[i].decode(block[:, 0].astype(np.float64)))
            return np.where(block[:, 1] > 0.5, np.nan, numbers) if has_indicator(column) else numbers
        return block.argmax(1) if isinstance(column, Categorical) else (block[:, 0] > 0.5).astype(np.intp)

    def write_column(self, i: int, places: NDArray[Any]) -> Floats:
        """(n, width), numbers of column i, none of them missing, or places of its levels, as a model sees them."""
        column, part = self.schema.columns[i], self.slices[i]
        if isinstance(column, Numeric):
            return np.pad(self.scales[i].encode(places)[:, None], ((0, 0), (0, part.stop - part.start - 1)))
        if isinstance(column, Boolean):
            return places[:, None]
        return np.eye(part.stop - part.start)[places.astype(np.intp)]

    def tensor(self, frame: pd.DataFrame | NDArray[Any]) -> Tensor:
        """Rows as a network takes them, (n, D) in float32."""
        x = torch.from_numpy(self.encode(frame)).float()
        if not torch.isfinite(x).all():
            row, feature = (~torch.isfinite(x)).nonzero()[0].tolist()
            name = self.schema.names[self.column_of[feature]]
            where = f"row {row}" if not isinstance(frame, pd.DataFrame) else cells.name_row(frame, row)
            raise ValueError(f"column {name!r}, {where}, is too large a number for a network; correct it")
        return x

    def unscale(self, x: Tensor) -> Tensor:
        """Rows (n, D) with numbers in a person's own units, neither rounded nor bounded; levels stay one-hot coded."""
        return self.feature_scales.decode(x.double()).to(x)

    def drop(self, names: Sequence[str]) -> Self:
        """The encoder without some columns."""
        check_names(names, self.schema.names)
        kept = [i for i, name in enumerate(self.schema.names) if name not in names]
        schema = Schema(columns=tuple(self.schema.columns[i] for i in kept), rules=self.schema.rules)
        return type(self)(schema, tuple(self.scales[i] for i in kept), tuple(self.dtypes[i] for i in kept))

    def restrict(self, *, immutable: Sequence[str] = (), ranges: Mapping[str, Range] | None = None) -> Self:
        """The encoder of the same numbers under whose schema less may change: what people ask for in one case."""
        narrowed = {name: self.schema[name].within(limits) for name, limits in (ranges or {}).items()}
        pinned = {name: {"mutability": "none"} for name in check_names(immutable, self.schema.names)}
        return replace(self, schema=self.schema.with_columns(**narrowed).with_columns(**pinned))

    def constraints(
        self, *, immutable: Sequence[str] = (), ranges: Mapping[str, Range] | None = None, rare: bool = False
    ) -> Constraints:
        """What may change, in the model's units; a level may always be kept, also where a range closes it.

        `rare` opens the levels that few rows have.
        """
        columns = self.restrict(immutable=immutable, ranges=ranges).schema.columns
        if rare:
            columns = tuple(c.model_copy(update={"rare": ()}) if isinstance(c, Categorical) else c for c in columns)
        ways: list[Mutability] = ["both"] * len(self.features)
        lower, upper = np.zeros(len(ways)), np.ones(len(ways))  # (D,)
        transitions: dict[int, Tensor] = {}
        for i, (column, part) in enumerate(zip(columns, self.slices, strict=True)):
            width = part.stop - part.start
            if isinstance(column, Numeric):
                lower[part.start], upper[part.start] = self.scales[i].encode(column.ends())
            if has_indicator(column):  # nobody is told to lose a number
                ways[part.start + 1] = "decrease" if column.fillable and column.mutability != "none" else "none"
            if not isinstance(column, Categorical):
                ways[part.start] = column.mutability
            elif column.mutability == "none" or width == 1:
                ways[part] = ["none"] * width
            elif not (moves := column.moves()).all():
                transitions[self.categories.index(part)] = torch.from_numpy(moves)
        domain = {"lower": torch.from_numpy(lower), "upper": torch.from_numpy(upper)}
        free = Constraints.of(len(ways), mutability=ways, categories=self.categories, **domain)
        held = tuple((i - 1, i) for i in self.indicators if keeps_missing(columns[self.column_of[i]]))
        return replace(free, transitions=transitions, held=held)

    def to_json(self) -> str:
        """All that it takes to encode and decode, to be read by people too."""
        schema = self.schema.model_dump(exclude_none=True)
        scales = [scale.to_dict() for scale in self.scales]
        return json.dumps({"schema": schema, "scales": scales, "dtypes": self.dtypes}, indent=2, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The encoder that `to_json` wrote."""
        try:
            saved = json.loads(text)
            return cls(
                schema=Schema(**saved["schema"]),
                scales=tuple(scale_from_dict(scale) for scale in saved["scales"]),
                dtypes=tuple(str(pd.api.types.pandas_dtype(name)) for name in saved["dtypes"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is not an encoder as `to_json` writes it: {error}") from error

    def _stays(
        self, i: int, place: NDArray[Any], x: NDArray[Any], start: NDArray[Any], before: Floats | None
    ) -> NDArray[np.bool_]:
        """(n,), which cells of column i are those of the start, or would be rounded to the wrong side of them.

        `before` are its numbers there, not what single precision has made of them.
        """
        column = self.schema.columns[i]
        if before is None or not isinstance(column, Numeric):
            return np.asarray(place == self.read_column(i, start))
        wrong = {"increase": place < before, "decrease": place > before}.get(column.mutability, False)
        return np.asarray((x[:, self.slices[i]] == start[:, self.slices[i]]).all(1) | wrong)


def _table(schema: Schema, frame: pd.DataFrame | NDArray[Any]) -> pd.DataFrame:
    table = as_frame(frame, schema.names)
    check_names(schema.names, table.columns)
    return table
