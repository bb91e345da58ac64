"""The search for defaults: rows that no published figure uses, one line per variant, cells that are computed once."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.advice import METHODS
from benchmarks.advice_tables import CHOOSING, TABLES, AdviceTable, draw_loans
from benchmarks.cells import Cell, compute_cells, list_cells, read_records
from benchmarks.defaults import VARIANTS
from benchmarks.defaults_page import average, compare_variants, write_section
from benchmarks.measuring import AbsentError
from countertrain import CounterfactualClassifier
from countertrain.tables.sources.loans import draw_table


def write_numbers(folder: Path, n: int) -> AdviceTable:
    pd.DataFrame({"x": np.arange(n), "y": np.arange(n) % 2}).to_csv(folder / "numbers.csv.gz", index=False)
    return AdviceTable("numbers", "y", "1", ())


def test_spare_rows_are_none_of_those_that_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERTRAIN_DATA", str(tmp_path))
    table = write_numbers(tmp_path, 9000)
    judged, spare = table.read()[0], table.read(spare=True)[0]
    assert len(judged) == 8000
    assert set(judged["x"]) | set(spare["x"]) == set(range(9000))
    assert not set(judged["x"]) & set(spare["x"])
    assert len(write_numbers(tmp_path, 20_000).read(spare=True)[0]) == 8000


def test_a_small_table_has_no_spare_rows_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERTRAIN_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="numbers has no spare rows: advice is judged on all 100"):
        write_numbers(tmp_path, 100).read(spare=True)
    assert set(CHOOSING) == {*TABLES, "loans"} - {"churn", "attrition"}


def test_loans_for_choosing_are_other_people_than_those_of_the_demo() -> None:
    table = draw_loans()
    assert len(table.rows) == len(table.labels) == 8000
    assert table.wanted in set(table.labels)
    shown = draw_table()[0]
    assert list(shown) == list(table.rows)
    assert len(pd.concat([shown, table.rows]).drop_duplicates()) == len(shown) + len(table.rows)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_a_change_of_the_default(name: str) -> None:
    default, variant = (CounterfactualClassifier(**VARIANTS[one]) for one in ("default", name))
    same = variant.resolve() == default.resolve() and variant.own_code.teacher is None
    assert same == (name == "default")
    assert "," not in name  # names are given as a,b


def cell(table: str, method: str, seed: int) -> pd.DataFrame:
    """A straight line of slope 0.1 from cost 2 on; the variant is 0.1 higher."""
    cost = np.array([2.0, 4.0, 6.0])
    better = 0.0 if method == "conventional" else 0.1
    return pd.DataFrame(
        {
            "tau": [0.5, 0.75, 0.9], "default": [False, True, False], "cost": cost, "whole panel": cost / 10 + better,
            "typical": 40.0, "distance": 1.2, "valid": 1.0, "auc": 0.8 + better / 10, "fit_seconds": 3.0,
        }
    )  # fmt: skip


def refuse(table: str, method: str, seed: int) -> pd.DataFrame:
    raise AbsentError("because it is not installed")


@pytest.mark.parametrize("jobs", [1, 2])
def test_cells_are_computed_once_and_compared_with_the_conventional_network(jobs: int, tmp_path: Path) -> None:
    cells = list_cells("a,b", "conventional,default", 2, tmp_path, (["a", "b"], ["conventional", "default"]))
    compute_cells(cells, cell, jobs=jobs)
    compute_cells(cells, refuse)  # all are there
    records = read_records(tmp_path)
    assert len(records) == 8 * 3
    found = compare_variants(records)
    assert len(found) == 4
    lines = average(found).set_index("variant")
    assert lines.loc["default", ["AUC", "whole panel", "at equal cost", "tables", "seeds"]].tolist() == [
        "+0.0100", "50.0", "+10.0", 2, 2,
    ]  # fmt: skip
    assert lines.loc["conventional", ["AUC", "at equal cost"]].tolist() == ["+0.0000", "+0.0"]
    assert lines.index[0] == "default"
    page = tmp_path / "page.md"
    page.write_text("<!-- begin defaults-mean -->\n<!-- end defaults-mean -->\n", encoding="utf-8")
    assert write_section(found, page, tmp_path) == ["defaults-mean"]
    assert "| default | +0.0100 | 50.0 |" in page.read_text(encoding="utf-8")


def test_who_is_absent_has_no_record_and_stops_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compute_cells([Cell("a", "DiCE", 0, tmp_path)], refuse)
    assert "a, DiCE, seed 0: left out, because it is not installed" in capsys.readouterr().out
    assert read_records(tmp_path).empty


def test_a_name_that_is_not_known_is_answered_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'crdit' is not known; choose from credit, gmsc"):
        list_cells("crdit", "taught", 1, tmp_path, (TABLES, METHODS))
