"""A few rows read without pandas are what pandas makes of them, and whatever is odd is left to it."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from countertrain.recourse.reach import AnswerGrid
from countertrain.tables.cells import UnseenLevelWarning
from countertrain.tables.encoder import Encoder
from countertrain.tables.plain import PlainReader
from countertrain.tables.scales import Ranks
from countertrain.tables.schema import Numeric, Schema
from people import SCHEMA, people

ROWS = people(120, seed=5)
WIDER = Schema(columns=(*SCHEMA.columns, Numeric(name="score", missing="level", blank=("?",))))


@pytest.fixture(scope="module", params=[False, True])
def encoder(request: pytest.FixtureRequest) -> Encoder:
    rows = ROWS.assign(score=np.where(ROWS["age"] < 30, np.nan, ROWS["age"] / 7))
    return Encoder.fit(WIDER, rows, fit_scale=Ranks.fit) if request.param else Encoder.fit(WIDER, rows)


def make_plain(n: int = 60) -> pd.DataFrame:
    """People as a service gets them: Python's own values, None where one is missing."""
    rows = people(n, seed=8)
    rows["score"] = np.where(rows["age"] > 60, np.nan, rows["savings"] / 99)
    return pd.DataFrame(rows.astype(object).where(rows.notna(), None).to_numpy(), columns=rows.columns, dtype=object)


def by_pandas(monkeypatch: pytest.MonkeyPatch, ask: Any) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(PlainReader, "take", lambda self, rows: None)
        return ask()


def test_plain_rows_are_encoded_as_by_pandas(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = make_plain()
    cells = encoder.plain.take(rows)
    assert cells is not None
    read = encoder.plain.encode(cells)
    assert read is not None
    np.testing.assert_array_equal(read, by_pandas(monkeypatch, lambda: encoder.encode(rows)))
    np.testing.assert_array_equal(encoder.encode(rows.to_numpy()), read)
    unknown = encoder.plain.find_unknown(cells)
    np.testing.assert_array_equal(unknown, by_pandas(monkeypatch, lambda: encoder.find_unknown(rows)))
    assert rows.isna().any().sum() == 3  # debt, home and score
    assert unknown is not None
    assert unknown.any()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("age", "old"), ("age", None), ("age", float("inf")), ("age", 10**400), ("age", [1]), ("income", np.float32(7)),
        ("income", True), ("score", " ? "), ("score", "12.5"), ("debt", float("nan")), ("job", "pilot"), ("job", None),
        ("job", 3), ("job", ["clerk"]), ("home", None), ("home", float("nan")), ("home", np.str_("own")), ("member", 1),
        ("member", np.bool_(True)), ("member", "yes"), ("married", None),
    ],
)  # fmt: skip
def test_odd_cells_are_read_or_refused_as_by_pandas(
    encoder: Encoder, name: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = make_plain(3)
    rows.at[1, name] = value

    def ask(what: str) -> str:
        try:
            return repr(getattr(encoder, what)(rows).tolist())
        except (ValueError, TypeError, UnseenLevelWarning) as error:
            return f"{type(error).__name__}: {error}"

    for what in ("encode", "find_unknown"):
        assert ask(what) == by_pandas(monkeypatch, lambda what=what: ask(what))


def test_a_table_whose_columns_have_types_or_another_order_is_left_to_pandas(encoder: Encoder) -> None:
    rows = make_plain(4)
    assert encoder.plain.take(rows.astype({"age": int})) is None
    assert encoder.plain.take(rows[rows.columns[::-1]]) is None
    assert encoder.plain.take(pd.concat([rows] * 200, ignore_index=True)) is None
    np.testing.assert_array_equal(encoder.encode(rows[rows.columns[::-1]]), encoder.encode(rows))


def test_plain_rows_that_moved_are_decoded_as_by_pandas(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    grid, rows = AnswerGrid.of(encoder), make_plain()
    origin = torch.from_numpy(encoder.encode(rows))
    rng = np.random.default_rng(0)
    others = torch.from_numpy(encoder.encode(make_plain()[::-1].reset_index(drop=True)))
    moves = torch.from_numpy(rng.random((len(rows), grid.n_columns)) < 0.3)[:, grid.column_of]
    x = torch.where(moves, torch.where(grid.number, origin + 0.37, others), origin)
    told = grid.decode(encoder, x, rows)
    plain = by_pandas(monkeypatch, lambda: grid.decode(encoder, x, rows))
    for name in rows.columns:
        assert all(a == b or (pd.isna(a) and pd.isna(b)) for a, b in zip(told[name], plain[name], strict=True)), name
        assert {type(v) for v in told[name]} <= {type(v) for v in (*plain[name], *rows[name])}
    assert (told != rows).any().all() or encoder.ranks
    same = grid.decode(encoder, origin, rows)
    assert all(a is b for a, b in zip(same.to_numpy().ravel(), rows.to_numpy().ravel(), strict=True))
