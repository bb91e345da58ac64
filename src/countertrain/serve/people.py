"""People to look at: made up from what is usual, or real ones where the owner has chosen to show them."""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import ndtr

from countertrain.recourse.search import RecourseSearch
from countertrain.serve.anonymity import KAnonymous
from countertrain.serve.answers import Label, SampleRow
from countertrain.tables.schema import Numeric

__all__ = ["PEOPLE", "People", "find_people"]

_Kind = Literal["made-up", "real", "none"]
People = _Kind | KAnonymous
PEOPLE: tuple[str, ...] = get_args(_Kind)

Floats = NDArray[np.float64]
_SHARES = np.linspace(0.05, 0.95, 10)  # of a class: what lies beyond is nobody's example
_FEWEST = 20  # real people of a class from whom others can be made up
_RARE = 5  # a level that fewer of them have is not given to anybody


def find_people(search: RecourseSearch, kind: People, n: int) -> dict[Label, list[SampleRow]]:
    """Up to n people of each class, in the user's units."""
    people: dict[Label, list[SampleRow]] = {label: [] for label in search.decider.classes}
    if search.reference is None or kind == "none":
        return people
    taken = {*_list_rows(search.examples)}
    for k, label in enumerate(people):
        places = search.reference.of_class(k)
        if kind == "real" or isinstance(kind, KAnonymous):
            rows = _list_rows(search.examples.iloc[places[:n].tolist()])
        else:
            made = _make_up(search, search.reference.x[places].numpy(), n, seed=k)
            rows = [row for row in _list_rows(made) if row not in taken]
        people[label] = [SampleRow(label, dict(zip(search.examples.columns, row, strict=True))) for row in rows]
    return people


def _make_up(search: RecourseSearch, x: Floats, n: int, seed: int) -> pd.DataFrame:
    """Rows with the quantiles and frequencies of each column of rows x (m, D), and about their correlations.

    Normal scores with the correlations of the columns are drawn, each of which stands for its number or for the level
    that most have, and are turned into what has this place among the real ones. No number is nearer to the ends than
    a twentieth of the people.
    """
    encoder = search.decider.encoder
    if len(x) < _FEWEST:
        return search.examples.iloc[:0]
    columns = [*zip(encoder.schema.columns, encoder.slices, strict=True)]
    leading = [
        p.start if isinstance(c, Numeric) else p.start + int(x[:, p].mean(0).argmax()) for c, p in columns
    ]  # (C,)
    spread = x[:, leading].std(0)
    correlation = np.atleast_2d(np.corrcoef(x[:, leading] + 1e-9 * np.arange(len(x))[:, None], rowvar=False))
    correlation = np.nan_to_num(correlation) * (spread > 0) * (spread > 0)[:, None]
    np.fill_diagonal(correlation, 1.0)
    values, vectors = np.linalg.eigh(correlation)
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((n, len(leading)))
    place = ndtr((noise * np.sqrt(values.clip(0))) @ vectors.T)  # (n, C) in 0..1
    blocks = []
    for i, (column, part) in enumerate(columns):
        if isinstance(column, Numeric):
            indicator = x[:, part.start + 1 : part.stop]  # (m, 0) where it is never missing
            known = x[indicator.sum(1) < 0.5, part.start]
            quantiles = np.quantile(known if len(known) else x[:, part.start], _SHARES)
            missing = (rng.random((n, indicator.shape[1])) < indicator.mean(0)).astype(np.float64)
            blocks += [np.interp(place[:, i], _SHARES, quantiles)[:, None], missing]
        else:
            blocks.append(_draw_levels(x[:, part], place[:, i]))
    made = torch.from_numpy(np.concatenate(blocks, 1))
    if search.grid.keeper is not None:
        low, high = (end.double().expand_as(made) for end in (search.grid.lower, search.grid.upper))
        made = search.grid.keeper.mend_search(made, made, low, high)
    return search.grid.decode(encoder, made)


def _draw_levels(block: Floats, place: Floats) -> Floats:
    """(n, width), the levels at such places (n,) among people, from the rarest to the commonest one."""
    single = block.shape[1] == 1  # a truth value
    codes = np.concatenate([1 - block, block], 1) if single else block
    counts = codes.sum(0)
    counts = np.where(counts < min(_RARE, counts.max()), 0, counts)
    order = counts.argsort(kind="stable")
    drawn = order[np.searchsorted(counts[order].cumsum() / counts.sum(), place).clip(0, len(order) - 1)]
    return np.asarray(drawn[:, None] if single else np.eye(len(order))[drawn], dtype=np.float64)


def _list_rows(frame: pd.DataFrame) -> Sequence[tuple[object, ...]]:
    """Rows as JSON says them; a missing value is None."""
    plain = frame.astype(object)
    return [tuple(row) for row in plain.where(plain.notna(), None).to_numpy().tolist()]
