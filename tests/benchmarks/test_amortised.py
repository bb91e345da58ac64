"""What is told of amortised counterfactual training comes from its own records."""

from pathlib import Path

import pandas as pd
import pytest

from benchmarks.amortised import WAYS, main, summarise
from reproduction.writing import markdown

ROOT = Path(__file__).parents[2]


def test_the_comparison_trains_every_way_and_puts_its_table_into_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- begin amortised -->\n<!-- end amortised -->\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="0"):
        main(["--data=moons", "--seeds=2", "--epochs=1", "--rounds=1", f"--out={tmp_path}", f"--page={page}"])
    records = pd.read_csv(tmp_path / "amortised.csv")
    assert list(records["way"]) == [*WAYS, *WAYS]
    assert (records["CPU s"] > 0).all()
    assert records["mature"].isna().tolist() == [way == "conventional" for way in records["way"]]
    assert all(way in page.read_text(encoding="utf-8") for way in WAYS)


def test_the_page_has_what_is_on_record() -> None:
    table = markdown(summarise(pd.read_csv(ROOT / "results" / "amortised" / "amortised.csv")))
    assert table in (ROOT / "docs" / "generators.md").read_text(encoding="utf-8")
