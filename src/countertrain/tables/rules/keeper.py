"""The rules of a schema on encoded rows: decoded as far as rules look at them, put right, and encoded again."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from countertrain.tables.columns import Numeric
from countertrain.tables.encoder import Encoder
from countertrain.tables.rules.bound import Condition
from countertrain.tables.rules.conditions import Floats, LevelIn, Missing, Rows, Values
from countertrain.tables.rules.repair import Room, repair
from countertrain.tables.rules.rulebook import Rulebook

__all__ = ["RuleKeeper"]

_BLUR = 8 * float(np.finfo(np.float32).eps)  # relative, by which an encoded number in single precision may be off


@dataclass(frozen=True, eq=False)
class RuleKeeper:
    """The rules of an encoder's schema, for rows as a model sees them."""

    encoder: Encoder
    book: Rulebook
    digits: Mapping[str, int] = field(default_factory=dict)
    """Decimals to which numbers without a step are rounded when they are told."""

    @classmethod
    def of(cls, encoder: Encoder, digits: Mapping[str, int] | None = None) -> Self | None:
        """None where the schema has no rules."""
        book = encoder.schema.rulebook
        return None if book is None else cls(encoder, book, digits or {})

    @cached_property
    def places(self) -> dict[str, int]:
        """The places in the table of the columns that rules speak of."""
        return {name: self.encoder.schema.names.index(name) for name in self.book.columns}

    @cached_property
    def led(self) -> Tensor:
        """(D,) bool, the features of columns that follow from others: they are never advised by themselves."""
        names = self.encoder.schema.names
        return torch.tensor([names[i] in self.book.following for i in self.encoder.column_of])

    @cached_property
    def ends(self) -> tuple[Tensor, Tensor]:
        """(D,) each, the lowest and the highest value of each feature by the schema."""
        domain = self.encoder.constraints(rare=True)
        return domain.lower, domain.upper

    def find_beginning(self, names: Collection[str]) -> Tensor:
        """(D,) bool, features of columns whose change would have some unknown number begin."""
        rules = [rule for rule in self.book.rules if isinstance(rule, Condition)]
        causes = {
            name
            for rule in rules
            for test in rule.then
            if isinstance(test, Missing) and test.column in names
            for one in rule.when
            for name in one.columns
        }
        return torch.tensor([self.encoder.schema.names[i] in causes for i in self.encoder.column_of])

    def read(self, frame: pd.DataFrame) -> Tensor:
        """(n, T), people's own values of the T columns that rules speak of; NaN where none is known."""
        values = self.book.read(frame)
        return torch.from_numpy(np.stack([values[name] for name in self.places], axis=1))

    def mend(
        self, x: Tensor, origin: Tensor, low: Tensor, high: Tensor, own: Tensor, *, round_moved: bool = False
    ) -> Tensor:
        """Rows x (n, D) of people at `origin`, whose values are `own` (n, T), put right between `low` and `high`.

        A feature that no rule had to change keeps every bit, unless numbers that moved are to be rounded as rules see
        them; one that is put back is that of `origin`.
        """
        rows, started = (each.double().numpy() for each in (x, origin))
        mine = dict(zip(self.places, own.numpy().T, strict=True))
        told = self._read_rows(rows, started, mine)
        differ = [told[name] != mine[name] for name in told if told[name] is not mine[name]]
        moved = np.flatnonzero(np.logical_or.reduce(differ)) if differ else np.arange(0)
        if not len(moved):
            return x
        room = self._find_room(low.double().numpy()[moved], high.double().numpy()[moved], mine, moved)
        before = {name: each[moved] for name, each in told.items()}
        after = repair(self.book, before, room)
        return self._write(x, origin, moved, _Repair(before, after, room.own, round_moved))

    def mend_search(self, x: Tensor, origin: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """`mend` for rows (..., D) of a search in training, whose people are known by their encoded rows alone.

        Numbers that rules speak of are rounded to their steps, so that what follows is what it comes to.
        """
        rows, origin, low, high = (
            each.expand_as(x).reshape(-1, x.shape[-1]).detach().cpu() for each in (x, origin, low, high)
        )
        bottom, top = (end.to(low) for end in self.ends)
        low = torch.where(self.led, torch.minimum(bottom, origin), low)
        high = torch.where(self.led, torch.maximum(top, origin), high)
        started = origin.double().numpy()
        values = np.stack([self._read_own(name, started) for name in self.places], axis=1)
        own = torch.from_numpy(values)
        return self.mend(rows, origin, low, high, own, round_moved=True).view(x.shape).to(x.device)

    def find_following(self, x: Tensor, origin: Tensor) -> Tensor:
        """(n, C) bool, columns whose change follows from others, so that it is nobody's task and costs nothing.

        Those that are derived or linked; those that had to leave their level because of another column, and went to
        the first level that will do; and numbers that begin because of another column.
        """
        names = self.encoder.schema.names
        found = torch.tensor([name in self.book.following for name in names]).repeat(len(x), 1)
        forcing = [rule for rule in self.book.rules if isinstance(rule, Condition) and rule.when]
        if not forcing:
            return found
        rows, started = x.double().numpy(), origin.double().numpy()
        own = {name: self._read_column(name, started) for name in self.places}
        told = self._read_rows(rows, started, own)
        for rule in forcing:
            new = rule.applies(told) & ~rule.applies(own)
            for test in rule.then:
                if isinstance(test, Missing):
                    begun = new & test.holds(told) & ~test.holds(own)
                    found[:, self.places[test.column]] |= torch.from_numpy(begun)
                if isinstance(test, LevelIn):
                    forced = new & ~test.holds(own) & (told[test.column] == test.default)
                    found[:, self.places[test.column]] |= torch.from_numpy(forced)
        return found

    def _read_rows(self, rows: Floats, started: Floats, own: Mapping[str, Floats]) -> Values:
        """The values that rows would be told with: people's own where nothing moved."""
        values: Values = {}
        for name, i in self.places.items():
            part = self.encoder.slices[i]
            moved = np.flatnonzero((rows[:, part] != started[:, part]).any(1))
            values[name] = own[name]
            if len(moved):
                values[name] = own[name].copy()
                values[name][moved] = self._read_column(name, rows[moved])
        return values

    def _read_column(self, name: str, rows: Floats) -> Floats:
        found = self.encoder.read_column(self.places[name], rows).astype(np.float64)
        return np.round(found, self.digits[name]) if name in self.digits else found

    def _read_own(self, name: str, rows: Floats) -> Floats:
        """What people have, who may be beyond the bounds of what anybody is told, and between its steps."""
        i, column = self.places[name], self.book.columns[name]
        if not isinstance(column, Numeric):
            return self._read_column(name, rows)
        place, decode = rows[:, self.encoder.slices[i].start], self.encoder.scales[i].decode
        blur = _BLUR * (1 + np.abs(place))
        low, numbers, high = decode(place - blur), decode(place), decode(place + blur)
        rounded = column.model_copy(update={"lower": None, "upper": None}).round_to_step(numbers)
        own = np.where((low <= rounded) & (rounded <= high), rounded, numbers)
        return np.where(np.isnan(self.encoder.read_column(i, rows)), np.nan, own)

    def _find_room(self, low: Floats, high: Floats, own: Mapping[str, Floats], rows: Rows) -> Room:
        lowest: Values = {}
        highest: Values = {}
        levels: dict[str, NDArray[np.bool_]] = {}
        for name, i in self.places.items():
            part, column = self.encoder.slices[i], self.book.columns[name]
            if isinstance(column, Numeric):
                lowest[name], highest[name] = (
                    self.encoder.scales[i].decode(each[:, part.start]) for each in (low, high)
                )
            elif part.stop - part.start == 1:  # a truth value, or a category of one level
                levels[name] = np.stack([low[:, part.start] <= 0, high[:, part.start] >= 1], axis=1)
            else:
                levels[name] = high[:, part] >= 1
        return Room(
            {name: each[rows] for name, each in own.items()}, lowest, highest, levels, self.book.columns, self.digits
        )

    def _write(self, x: Tensor, origin: Tensor, rows: Rows, made: "_Repair") -> Tensor:
        """Rows with the values that were put right."""
        mended = x.clone()
        for name, i in self.places.items():
            part, after = self.encoder.slices[i], made.after[name]
            changed = made.find_changed(name, number=isinstance(self.book.columns[name], Numeric))
            back = (after == made.own[name]) | np.isnan(after)
            at = torch.from_numpy(rows[changed & back])
            mended[at, part] = origin[at, part]
            new = changed & ~back
            if new.any():
                code = torch.from_numpy(self.encoder.write_column(i, after[new]))
                mended[torch.from_numpy(rows[new]), part] = code.to(mended)
        return mended


@dataclass(frozen=True, eq=False)
class _Repair:
    """Values before and after they were put right, and as people had them."""

    before: Values
    after: Values
    own: Values
    round_moved: bool

    def find_changed(self, name: str, *, number: bool) -> NDArray[np.bool_]:
        """(n,), where a column is to be written anew."""
        before, after = self.before[name], self.after[name]
        changed = (after != before) & ~(np.isnan(after) & np.isnan(before))
        if number and self.round_moved:
            changed |= after != self.own[name]
        return np.asarray(changed)
