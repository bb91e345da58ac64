"""Why an option is not what was asked for; which column blocks is found by trying to free it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from countertrain.tabular.ladder import Ladder
from countertrain.tabular.reach import Reach
from countertrain.tabular.recourse import OptionTable
from countertrain.tabular.schema import plain

__all__ = ["blocked_by", "notes", "reasons"]

_NAMED = 3  # columns named in a sentence, at most


def reasons(
    options: OptionTable, labels: NDArray[Any], blocked: Mapping[int, str | None], ladder: Ladder
) -> NDArray[np.object_]:
    """For each option (m,) why it is not valid, short of tau or without a change; None where it is as asked for."""
    said = np.full(len(options.row), None, dtype=object)
    for i in np.flatnonzero(~options.mature | ~options.costs.any(1)):
        row, p = int(options.row[i]), options.probability[i]
        if options.valid[i] and not options.costs[i].any():
            said[i] = f"already {plain(labels[row])!r}"
        elif options.valid[i]:
            said[i] = f"stopped after {ladder.n_steps} steps at probability {p:.3f}, short of {ladder.tau:g}"
        else:
            cause = blocked.get(row) or f"no counterfactual found within {ladder.n_steps} steps"
            unasked = "" if row in blocked else f" (which constraint blocks was tried for {len(blocked)} others only)"
            said[i] = f"{cause}{unasked}; this is the closest attempt"
    return said


def notes(options: OptionTable, n_options: NDArray[np.int64]) -> NDArray[np.object_]:
    """For each row (n,) a remark where it has valid options, but fewer than were asked for."""
    counts = np.bincount(options.row[options.valid & options.costs.any(1)], minlength=len(n_options))
    said = np.full(len(n_options), None, dtype=object)
    for row in np.flatnonzero((counts > 0) & (counts < n_options)):
        said[row] = f"{counts[row]} of {n_options[row]} options: none was found without what matters most in these"
    return said


def blocked_by(ladder: Ladder, reach: Reach, target: Tensor, names: Sequence[str]) -> list[str | None]:
    """For each person a sentence on the columns that block, if their release makes a counterfactual possible."""
    alone, together = _releases(ladder, reach, target)
    sentences: list[str | None] = []
    for i in range(len(target)):
        helpful = alone[i].isfinite()
        blocking = alone[i].argsort()[: int(helpful.sum())] if helpful.any() else together[i].nonzero()[:, 0]
        listed = [f"{names[c]} ({_limit(reach, i, ladder.grid.column_of == c)})" for c in blocking.tolist()]
        sentences.append(_sentence(listed, together=not helpful.any()) if listed else None)
    return sentences


def _releases(ladder: Ladder, reach: Reach, target: Tensor) -> tuple[Tensor, Tensor]:
    """What each counterfactual costs (n, C) that a column makes possible when freed, and which do so together.

    A free column has the whole domain of the schema. One search tries each restricted column, and all at once.
    """
    grid = ladder.grid
    free = reach.widened(torch.ones_like(reach.low, dtype=torch.bool), grid.lower, grid.upper)
    restricted = grid.by_column(((reach.low > free.low) | (reach.high < free.high)).double()) > 0  # (n, C)
    person, column = restricted.nonzero().unbind(1)
    several = (restricted.sum(1) > 1).nonzero()[:, 0]
    who = torch.cat([person, several])
    freed = torch.cat([torch.eye(grid.n_columns, dtype=torch.bool)[column], restricted[several]])  # (v, C)
    wider = reach[who].widened(freed[:, grid.column_of], grid.lower, grid.upper)
    found = replace(ladder, sparse=True).climb(wider, target[who])
    costs = grid.costs(found.x, wider.origin)  # (v, C)
    alone = torch.full_like(reach.low[:, : grid.n_columns], torch.inf)
    alone[person, column] = costs.sum(1).masked_fill(~found.valid, torch.inf)[: len(person)]
    together = torch.zeros_like(restricted)
    together[several] = (freed & (costs > 0) & found.valid.unsqueeze(1))[len(person) :]
    return alone, together


def _limit(reach: Reach, person: int, features: Tensor) -> str:
    """In a word, how the features of a column are limited for a person."""
    own, low, high = (value[person, features] for value in (reach.origin, reach.low, reach.high))
    up, down = bool((high > own).any()), bool((low < own).any())
    if up and down:
        return "limited"
    return "may only increase" if up else "may only decrease" if down else "immutable"


def _sentence(listed: list[str], *, together: bool) -> str:
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    how = " together: with all of them" if together else ": with it" if len(listed) == 1 else ": with any of them"
    return f"blocked by {', '.join(listed[:_NAMED])}{more}{how} free a counterfactual exists"
