"""All rules of a schema: which columns they tie together, what follows from what, and which rows break them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from countertrain.tables import cells
from countertrain.tables.rules.binding import AnyColumn, bind_rule
from countertrain.tables.rules.bound import Follower, Formula, LinkedMoves, Moves, Rule
from countertrain.tables.rules.conditions import Values
from countertrain.tables.rules.contradictions import order_followers, refuse_contradictions
from countertrain.tables.rules.parse import parse_rule
from countertrain.tables.sentences import SchemaError, say_all

__all__ = ["Rulebook"]


@dataclass(frozen=True, eq=False)
class Rulebook:
    """The rules of a schema, made out against its columns."""

    columns: Mapping[str, AnyColumn]
    """Those that rules speak of."""
    rules: tuple[Rule, ...]
    followers: tuple[Follower, ...]
    """Columns that follow from others, each after those that it follows."""

    @classmethod
    def of(cls, texts: Sequence[str], columns: Sequence[AnyColumn]) -> Self:
        """Read rules; all that cannot be read are refused at once, then those that contradict each other."""
        known = {column.name: column for column in columns}
        rules: list[Rule] = []
        formulas: list[Formula] = []
        moves: list[tuple[str, Moves]] = []
        refused: list[str] = []
        for text in texts:
            try:
                conditions, derived, linked = bind_rule(text, parse_rule(text), known)
            except SchemaError as error:
                refused.append(str(error))
                continue
            rules, formulas, moves = rules + conditions, formulas + derived, moves + linked
        if refused:
            raise SchemaError(say_all(refused))
        links = [
            LinkedMoves(name, tuple(move for target, move in moves if target == name))
            for name in dict.fromkeys(name for name, _ in moves)
        ]
        followers = order_followers([*formulas, *links])
        refuse_contradictions(rules, known)
        named = [*(c for rule in rules for c in rule.columns), *(c for f in followers for c in (f.column, *f.causes))]
        return cls({name: known[name] for name in dict.fromkeys(named)}, tuple(rules), followers)

    @cached_property
    def following(self) -> frozenset[str]:
        """The columns that are never advised by themselves."""
        return frozenset(follower.column for follower in self.followers)

    @cached_property
    def components(self) -> tuple[tuple[str, ...], ...]:
        """Columns in groups that no rule ties to one another."""
        ties = [{*rule.columns} for rule in self.rules] + [{f.column, *f.causes} for f in self.followers]
        groups: list[set[str]] = []
        for tie in ties:
            met = [group for group in groups if group & tie]
            groups = [group for group in groups if not group & tie] + [tie.union(*met)]
        return tuple(tuple(name for name in self.columns if name in group) for group in groups)

    def read(self, frame: pd.DataFrame) -> Values:
        """The columns of rows that rules speak of, as numbers; NaN where none is known."""
        return {name: cells.store(column, frame[name]) for name, column in self.columns.items()}

    def find_broken(self, frame: pd.DataFrame) -> dict[str, NDArray[np.bool_]]:
        """By rule, as it is written: (n,), which rows of a table break it; a derived column may be rounded to its step.

        How far somebody moved cannot be seen in a table, so that links are left out.
        """
        values = self.read(frame)
        broken: dict[str, NDArray[np.bool_]] = {}
        formulas = [follower for follower in self.followers if isinstance(follower, Formula)]
        for rule in (*self.rules, *formulas):
            broken[rule.text] = broken.get(rule.text, False) | rule.is_broken(values)
        return broken
