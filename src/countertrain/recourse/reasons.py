"""Why an option is not what was asked for; the column that blocks is found by freeing each one in turn."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from countertrain.recourse.answer import OptionTable
from countertrain.recourse.ladder import Ladder
from countertrain.recourse.reach import AnswerGrid, Reach
from countertrain.recourse.rendering import as_text, name_places
from countertrain.tables.schema import Column, Numeric
from countertrain.words import list_phrases, plain

__all__ = ["find_blocking", "find_limiting", "give_reasons", "note_shortages"]

_NAMED = 3  # columns named in a sentence, at most


def give_reasons(
    options: OptionTable,
    labels: NDArray[Any],
    blocked: Mapping[int, str | None],
    limited: Mapping[int, str | None],
    ladder: Ladder,
    none: NDArray[np.bool_],
) -> NDArray[np.object_]:
    """Why each option (m,) is not valid, short of tau or without a change; None where it is as asked.

    `none` says for whom (n,) there is proof that no valid one exists.
    """
    reasons = np.full(len(options.row), None, dtype=object)
    for i in np.flatnonzero(~options.mature | ~options.costs.any(1)):
        row, p = int(options.row[i]), options.probability[i]
        if options.valid[i] and not options.costs[i].any():
            reasons[i] = f"already {plain(labels[row])!r}"
        elif options.valid[i]:
            first = options.number[i] == 1  # what held back the first option need not hold back another one
            how = (
                f"held back by {limited[row]}"
                if first and limited.get(row)
                else f"stopped after {ladder.n_steps} steps"
            )
            reasons[i] = f"{how} at probability {p:.3f}, short of {ladder.tau:g}"
        else:
            missed = (
                "no counterfactual exists" if none[row] else f"no counterfactual found within {ladder.n_steps} steps"
            )
            cause = blocked.get(row) or missed
            unasked = "" if row in blocked else f" (which constraint blocks was tried for {len(blocked)} others only)"
            reasons[i] = f"{cause}{unasked}; this is the closest attempt"
    return reasons


def note_shortages(options: OptionTable, asked: NDArray[np.int64]) -> NDArray[np.object_]:
    """For each row (n,) a remark where it has valid options, but fewer than were asked for."""
    counts = np.bincount(options.row[options.valid & options.costs.any(1)], minlength=len(asked))
    remarks = np.full(len(asked), None, dtype=object)
    for row in np.flatnonzero((counts > 0) & (counts < asked)):
        remarks[row] = f"{counts[row]} of {asked[row]} options: no other way worth telling was found"
    return remarks


def find_blocking(
    ladder: Ladder, reach: Reach, allowed: Reach, target: Tensor, columns: Sequence[Column], held: Mapping[str, str]
) -> list[str | None]:
    """For each person a sentence on the columns that block, if their release makes a counterfactual possible.

    Columns that the call restricts beyond what the schema has `allowed` come first: people can change their minds about
    them. Where their release is not enough, every column is tried with its whole domain. Those that may move, but not
    enough, are named before those that may not, which people know about.
    """
    if not len(target):
        return []
    grid = ladder.grid
    immovable = grid.sum_by_column((reach.low < reach.high).double()) == 0  # (n, C)
    everything = allowed.widen(torch.ones_like(allowed.low, dtype=torch.bool), grid.lower, grid.upper)
    sentences: list[str | None] = [None] * len(target)
    for free in (allowed, everything):
        rows = [i for i, sentence in enumerate(sentences) if sentence is None]
        if not rows:
            break
        alone, together = _try_releases(ladder, reach[rows], free[rows], target[rows])
        for i, costs, jointly in zip(rows, alone, together, strict=True):
            n_helpful = int(costs.isfinite().sum())
            blocking = costs.argsort()[:n_helpful] if n_helpful else jointly.nonzero()[:, 0]
            places = sorted(blocking.tolist(), key=immovable[i].tolist().__getitem__)
            listed = [_describe_limit(grid, reach, allowed, i, place, columns, held) for place in places]
            sentences[i] = _say_blocked(listed, together=not n_helpful) if listed else None
    return sentences


def find_limiting(
    ladder: Ladder, reach: Reach, allowed: Reach, target: Tensor, columns: Sequence[Column], held: Mapping[str, str]
) -> list[str | None]:
    """For each person the columns that the call restricts, and that would have to move more to reach tau."""
    restricted = _find_restricted(ladder.grid, reach, allowed)  # (n, C)
    asked = restricted.any(1).nonzero()[:, 0]
    if not len(asked):
        return [None] * len(target)
    found = replace(ladder, sparse=True, typical=False).climb(allowed[asked], target[asked])
    moved = (ladder.grid.costs(found.x, reach.origin[asked]) > 0) & ladder.reaches_tau(found).unsqueeze(1)
    restricted[asked] &= moved
    causes: list[str | None] = [None] * len(target)
    for i in asked.tolist():
        places = restricted[i].nonzero()[:, 0].tolist()
        listed = [_describe_limit(ladder.grid, reach, allowed, i, place, columns, held) for place in places]
        causes[i] = list_phrases(listed, _NAMED) if listed else None
    return causes


def _find_restricted(grid: AnswerGrid, reach: Reach, free: Reach) -> Tensor:
    """(n, C), which columns have less room than in `free`."""
    return grid.sum_by_column(((reach.low > free.low) | (reach.high < free.high)).double()) > 0


def _try_releases(ladder: Ladder, reach: Reach, free: Reach, target: Tensor) -> tuple[Tensor, Tensor]:
    """What each counterfactual costs (n, C) that a column makes possible when freed, and which do so together.

    A free column has the room that it has in `free`. One search tries each restricted column, and all at once.
    """
    grid = ladder.grid
    restricted = _find_restricted(grid, reach, free)
    person, column = restricted.nonzero().unbind(1)
    several = (restricted.sum(1) > 1).nonzero()[:, 0]
    who = torch.cat([person, several])
    freed = torch.cat([torch.eye(grid.n_columns, dtype=torch.bool)[column], restricted[several]])  # (v, C)
    wider = reach[who].widen(freed[:, grid.column_of], free.low[who], free.high[who])
    found = replace(ladder, sparse=True, typical=False).climb(wider, target[who])
    costs = grid.costs(found.x, wider.origin)  # (v, C)
    alone = torch.full_like(reach.low[:, : grid.n_columns], torch.inf)
    alone[person, column] = costs.sum(1).masked_fill(~found.valid, torch.inf)[: len(person)]
    together = torch.zeros_like(restricted)
    together[several] = (freed & (costs > 0) & found.valid.unsqueeze(1))[len(person) :]
    return alone, together


def _describe_limit(
    grid: AnswerGrid,
    reach: Reach,
    allowed: Reach,
    person: int,
    place: int,
    columns: Sequence[Column],
    held: Mapping[str, str],
) -> str:
    """A column by its place, and in a few words how it is limited for a person; `held`: by what, if not declared."""
    features, column = grid.column_of == place, columns[place]
    own, low, high = (value[person, features] for value in (reach.origin, reach.low, reach.high))
    if torch.equal(low, allowed.low[person, features]) and torch.equal(high, allowed.high[person, features]):
        how = {"none": "immutable", "both": "limited"}.get(column.mutability, f"may only {column.mutability}")
        how += f", {held[column.name]}" if column.name in held else ""
    elif torch.equal(low, own) and torch.equal(high, own):
        how = "immutable"
    elif isinstance(column, Numeric):
        ends = (grid.to_units(value[person])[features].item() for value in (reach.low, reach.high))
        unit = f" {column.unit}" if column.unit else ""
        ranked = bool(features[grid.scales.ranked].any())  # then the model sees places, as normal scores
        where = f", {name_places(*(torch.special.ndtr(end).item() for end in (low, high)))}" if ranked else ""
        how = f"kept between {' and '.join(map(as_text, ends))}{unit}{where}"
    else:
        how = "limited"
    return f"{column.name} ({how})"


def _say_blocked(listed: list[str], *, together: bool) -> str:
    how = " together: with all of them" if together else ": with it" if len(listed) == 1 else ": with any of them"
    return f"blocked by {list_phrases(listed, _NAMED)}{how} free a counterfactual exists"
