"""Rows that break rules, put right within reach of the people whose they are; all rows at once, in people's units."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from countertrain.tables.columns import Numeric
from countertrain.tables.rules.binding import AnyColumn
from countertrain.tables.rules.bound import Condition, Exclusion, Formula, find_moved
from countertrain.tables.rules.conditions import Equal, Floats, LevelIn, Missing, NotAbove, Rows, Test, Values
from countertrain.tables.rules.rulebook import Rulebook

__all__ = ["Room", "repair"]

_PASSES = 4  # over all rules, since putting one right may break another
_SHARES = (1.0, 0.5, 0.25)  # of the way that is tried for numbers whose rules cannot be kept so far out
_HAIR = 1e-9  # relative, by which encoding and decoding may move a bound


@dataclass(frozen=True, eq=False)
class Room:
    """Where n people start, and where each can go: numbers between two ends, levels that are open."""

    own: Values
    low: Values
    high: Values
    open: Mapping[str, NDArray[np.bool_]]  # (n, L) each
    columns: Mapping[str, AnyColumn]
    digits: Mapping[str, int] = field(default_factory=dict)
    """Decimals of numbers without a step, where they are rounded at all."""

    def __getitem__(self, rows: Rows) -> Self:
        """The room of some of the people."""
        own, low, high = (_take(part, rows) for part in (self.own, self.low, self.high))
        levels = {name: each[rows] for name, each in self.open.items()}
        return replace(self, own=own, low=low, high=high, open=levels)

    def round(self, name: str, values: Floats) -> Floats:
        """Numbers as they can be told; levels by their places as they are."""
        column = self.columns[name]
        if not isinstance(column, Numeric):
            return np.rint(values)
        rounded = column.round_to_step(values)
        return np.round(rounded, self.digits[name]) if name in self.digits else rounded

    def round_towards(self, name: str, values: Floats, goal: Floats) -> Floats:
        """The next values that can be told towards a goal, or the goal where there is none before it."""
        column = self.columns[name]
        step = column.step if isinstance(column, Numeric) else 1.0
        step = 10.0 ** -self.digits[name] if step is None and name in self.digits else step
        if step is None:
            return values
        multiple = values / step
        multiple = np.where(values > goal, np.floor(multiple + _HAIR), np.ceil(multiple - _HAIR))
        rounded = self.round(name, multiple * step)
        return np.where((rounded - goal) * (values - goal) > 0, rounded, goal)

    def find_lowest(self, name: str) -> float | None:
        """Where a number that becomes known begins: nobody is told to have more of it than anybody has."""
        column = self.columns[name]
        return None if not isinstance(column, Numeric) or column.lower is None else float(column.ends()[0])

    def allows(self, name: str, values: Floats) -> NDArray[np.bool_]:
        """(n,), whether people can have such values, or have them already."""
        unknown = np.isnan(self.own[name])
        stays = (values == self.own[name]) | (unknown & (np.isnan(values) | (values == self.find_lowest(name))))
        with np.errstate(invalid="ignore"):
            if name in self.open:
                n = self.open[name].shape[1]
                place = np.nan_to_num(values, nan=-1.0)
                fits = (place >= 0) & (place < n) & (place == np.rint(place))
                at = place.clip(0, n - 1).astype(np.intp)
                return np.asarray(stays | (fits & self.open[name][np.arange(len(values)), at]))
            low, high = self.low[name], self.high[name]
            slack = _HAIR * (1 + np.abs(values) + np.abs(low) + np.abs(high))
            return np.asarray(stays | ((values >= low - slack) & (values <= high + slack)))


def repair(book: Rulebook, values: Values, room: Room) -> Values:
    """Rows in which every rule holds that any change speaks of; what cannot be put right is as it was.

    What somebody changed is kept as far as possible; what must follow follows. Where numbers went too far for their
    rules, half the way and a quarter are tried; after that, all columns that rules tie together are put back.
    """
    best = {name: each.copy() for name, each in values.items()}
    for columns in book.components:
        wrong = np.flatnonzero(find_moved(values, room.own, columns))
        for share in _SHARES:
            if not len(wrong):
                break
            start, mine = _take(values, wrong), room[wrong]
            tried = _pass_over(book, _shorten(book, start, mine, columns, share), mine, columns)
            bad = _find_bad(book, tried, mine, columns)
            for name in columns:
                best[name][wrong[~bad]] = tried[name][~bad]
            wrong = wrong[bad]
        for name in columns:
            best[name][wrong] = room.own[name][wrong]
    return best


def _shorten(book: Rulebook, values: Values, room: Room, columns: tuple[str, ...], share: float) -> Values:
    """Numbers that go only a part of the way."""
    if share == 1.0:
        return values
    shorter = dict(values)
    for name in columns:
        if isinstance(book.columns[name], Numeric) and name not in book.following:
            own = room.own[name]
            part = room.round_towards(name, own + share * (values[name] - own), own)
            shorter[name] = np.where(np.isnan(own), values[name], part)
    return shorter


def _pass_over(book: Rulebook, values: Values, room: Room, columns: tuple[str, ...]) -> Values:
    values = {name: each.copy() for name, each in values.items()}
    fixer = _Fixer(book, values, room)
    rules = [rule for rule in book.rules if rule.columns[0] in columns]
    followers = [follower for follower in book.followers if follower.column in columns]
    for _ in range(_PASSES):
        for rule in rules:
            fixer.fix(rule)
        for follower in followers:
            values[follower.column] = fixer.follow(follower.column, follower.follow(values, room.own))
        if not any((rule.is_broken(values) & find_moved(values, room.own, rule.columns)).any() for rule in rules):
            break
    return values


def _find_bad(book: Rulebook, values: Values, room: Room, columns: tuple[str, ...]) -> NDArray[np.bool_]:
    """(n,), rows in which a change breaks a rule, or is out of reach."""
    bad = ~np.logical_and.reduce([room.allows(name, values[name]) for name in columns])
    for rule in book.rules:
        if rule.columns[0] in columns:
            bad |= rule.is_broken(values) & find_moved(values, room.own, rule.columns)
    for follower in book.followers:
        if follower.column in columns:
            due = follower.follow(values, room.own)
            moved = find_moved(values, room.own, (follower.column, *follower.causes))
            own, told = room.own[follower.column], values[follower.column]
            unit = _find_unit(book.columns[follower.column], room.digits.get(follower.column))
            with np.errstate(invalid="ignore"):  # where it comes to no number, or to one beyond its bounds
                kept = np.abs(told - due) <= (0.5 + _HAIR) * unit + _HAIR * np.abs(due)
            bad |= moved & ~kept & (due != own) & ~np.isnan(own)
            if isinstance(follower, Formula) and follower.about:
                bad |= moved & follower.is_broken(values) & ~follower.is_broken(room.own)
    return np.asarray(bad)


@dataclass(frozen=True, eq=False)
class _Fixer:
    """Values that are put right in place."""

    book: Rulebook
    values: Values
    room: Room

    def follow(self, name: str, due: Floats) -> Floats:
        """What a column comes to, rounded as it can be told; its own where that is what it comes to."""
        own = self.room.own[name]
        finite = np.where(np.isfinite(due), due, own)
        told = self.room.round(name, np.where(np.isnan(finite), 0.0, finite))
        same = np.abs(told - own) <= _HAIR * np.abs(own)  # 0.57, where the person's own is 0.5700000000000001
        return np.where((due == own) | same | np.isnan(own), own, told)

    def fix(self, rule: Condition | Exclusion) -> None:
        """Put right what breaks a rule since something changed."""
        moved = find_moved(self.values, self.room.own, rule.columns)
        rows = np.flatnonzero(rule.is_broken(self.values) & moved)
        if not len(rows):
            return
        if isinstance(rule, Exclusion):
            self._exclude(rule, rows)
            return
        for test in rule.then:
            self._fix_test(rule, test, rows[~test.holds(_take(self.values, rows))])

    def _fix_test(self, rule: Condition, test: Test, rows: Rows) -> None:
        """Have a conclusion hold; where only it was changed, or it is out of reach, the change is taken back."""
        when = tuple(name for one in rule.when for name in one.columns)
        if when:
            asked = find_moved(_take(self.values, rows), _take(self.room.own, rows), when)
            if not isinstance(test, NotAbove):
                self._put_back(test.columns, rows[~asked])
                rows = rows[asked]
        left = self._make_hold(test, rows)
        self._put_back(when, left)

    def _make_hold(self, test: Test, rows: Rows) -> Rows:
        """Change the columns of a test so that it holds; the rows for which that cannot be."""
        if isinstance(test, LevelIn):
            return self._choose_level(test, rows)
        if isinstance(test, Missing):
            return self._begin(test, rows)
        if isinstance(test, Equal):
            return rows if test.other else self._set(test.column, np.full(len(rows), test.number), rows)
        self._take_back(test, rows)
        rows = rows[~test.holds(_take(self.values, rows))]
        if len(test.factors) > 1 or not len(rows):
            return rows
        ((name, factor),) = test.factors
        column = self.book.columns[name]
        unit = _find_unit(column, self.room.digits.get(name)) if test.strict else 0.0
        bound = np.full(len(rows), -test.constant / factor - np.sign(factor) * unit)
        inside = bound - np.sign(factor) * 1e150  # towards where it holds
        return self._set(name, self.room[rows].round_towards(name, bound, inside), rows)

    def _begin(self, test: Missing, rows: Rows) -> Rows:
        """Have a number begin at the lowest that there is; the rows where it would have to become unknown."""
        lowest = self.room.find_lowest(test.column)
        if not test.known or lowest is None:
            return rows
        self.values[test.column][rows] = lowest
        return rows[:0]

    def _choose_level(self, test: LevelIn, rows: Rows) -> Rows:
        """The first level that will do and is open."""
        for place in sorted(test.places, key=lambda one: one not in test.advised):
            rows = self._set(test.column, np.full(len(rows), float(place)), rows)
        return rows

    def _set(self, name: str, to: Floats, rows: Rows) -> Rows:
        """Give a column other values where people can have them; the rows where they cannot."""
        if name in self.book.following:
            return rows
        can = self.room[rows].allows(name, to)
        self.values[name][rows[can]] = to[can]
        return rows[~can]

    def _take_back(self, test: NotAbove, rows: Rows) -> None:
        """Take back the changes that make a sum too large, each by the same share, as far as it must be."""
        mine, own = _take(self.values, rows), _take(self.room.own, rows)
        pushes = {
            name: np.nan_to_num(factor * (mine[name] - own[name])).clip(min=0.0)
            for name, factor in test.factors
            if name not in self.book.following
        }
        total = np.sum([np.zeros(len(rows)), *pushes.values()], axis=0)
        units = [_find_unit(self.book.columns[name], self.room.digits.get(name)) for name in pushes]
        excess = test.excess(mine) + (min(units, default=0.0) if test.strict else 0.0)
        share = (1 - excess / np.where(total > 0, total, 1.0)).clip(0.0, 1.0)
        for name, push in pushes.items():
            back = self.room[rows].round_towards(name, own[name] + share * (mine[name] - own[name]), own[name])
            self.values[name][rows] = np.where(push > 0, back, mine[name])

    def _exclude(self, rule: Exclusion, rows: Rows) -> None:
        """Keep the condition that somebody made hold, or else the first, and undo the others."""
        mine, own = _take(self.values, rows), _take(self.room.own, rows)
        holds = np.stack([test.holds(mine) for test in rule.of])  # (k, n)
        new = holds & ~np.stack([test.holds(own) for test in rule.of])
        kept = np.where(new.any(0), new.argmax(0), holds.argmax(0))
        for i, test in enumerate(rule.of):
            others = rows[holds[i] & (kept != i)]
            stuck = self._choose_level(test.negate(), others)
            for k, wanted in enumerate(rule.of):
                self._put_back(wanted.columns, stuck[kept[np.searchsorted(rows, stuck)] == k])

    def _put_back(self, names: tuple[str, ...], rows: Rows) -> None:
        for name in names:
            self.values[name][rows] = self.room.own[name][rows]


def _find_unit(column: AnyColumn, digits: int | None) -> float:
    """The least by which a column can differ."""
    if not isinstance(column, Numeric):
        return 1.0
    return column.step or (1e-6 if digits is None else 10.0**-digits)


def _take(values: Values, rows: Rows) -> Values:
    return {name: each[rows] for name, each in values.items()}
