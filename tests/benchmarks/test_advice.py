"""The comparison of advice: curves at equal cost, means and spread over seeds, and a page."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.advice import METHODS
from benchmarks.advice_page import average_tables, compare_at_equal_cost, measure_area, summarise, write_page
from benchmarks.advice_tables import GROUPS, TABLES, UNSEEN
from benchmarks.cells import read_records

STORED = Path(__file__).parents[2] / "results" / "advice"


def curve(shift: float = 0.0) -> pd.DataFrame:
    cost = np.array([2.0, 4.0, 6.0]) + shift
    return pd.DataFrame({"cost": cost, "whole panel": [0.2, 0.6, 1.0]})


def test_at_equal_cost_the_curve_that_rises_earlier_holds_more() -> None:
    found = measure_area(curve(-1.0), curve())
    assert found is not None
    ours, theirs = found  # between costs 2 and 5, where both are: straight lines of slope 0.2
    assert ours == pytest.approx(0.7)
    assert theirs == pytest.approx(0.5)
    assert measure_area(curve(), curve(10.0)) is None


def test_stored_records_are_of_known_tables_and_methods_and_make_a_page(tmp_path: Path) -> None:
    records = read_records(STORED)
    assert set(records["table"]) == {*TABLES, *UNSEEN}
    assert {"taught", "conventional"} <= set(records["method"]) <= set(METHODS)
    default = summarise(records)
    assert len(default) == len(records.groupby(["table", "method"]))
    assert set(compare_at_equal_cost(records)["table"]) == {*TABLES, *UNSEEN}
    assert {"taught", "conventional"} <= set(average_tables(records, GROUPS)["method"])
    page = tmp_path / "advice.md"
    page.write_text("<!-- begin advice-default -->\n<!-- end advice-default -->\n", encoding="utf-8")
    assert write_page(records, page, tmp_path, GROUPS) == ["advice-default"]
    assert "| credit | taught |" in page.read_text(encoding="utf-8")
    assert (tmp_path / "advice" / "curves.svg").is_file()


def test_a_mean_over_tables_counts_each_table_once_and_needs_all_of_them() -> None:
    def cells(table: str, method: str, holds: list[float]) -> pd.DataFrame:
        part = pd.DataFrame({"whole panel": holds, "seed": range(len(holds))})
        numbers = dict.fromkeys(("real whole panel", "cost", "typical", "distance", "auc", "auc_boosting"), 0.5)
        return part.assign(table=table, method=method, default=True, tau=0.7, **numbers)

    records = pd.concat([cells("a", "one", [0.2, 0.4]), cells("b", "one", [0.9]), cells("a", "two", [1.0])])
    (found,) = average_tables(records, {"both": ["a", "b"]}).to_dict("records")
    assert (found["method"], found["whole panel"], found["seeds"]) == ("one", "60.0 (50)", 1)


@pytest.mark.parametrize("name", TABLES)
def test_what_people_cannot_change_are_columns_of_the_table(name: str) -> None:
    table = TABLES[name]
    try:
        frame, labels = table.read()
    except FileNotFoundError:
        pytest.skip("the data files are not here; set COUNTERTRAIN_DATA")
    assert set(table.immutable) <= set(frame.columns)
    assert table.wanted in set(labels)
    assert len(frame) <= 8000
