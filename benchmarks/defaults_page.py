"""What the search for defaults found: a line per variant, and the section of a page."""

from pathlib import Path

import pandas as pd

from benchmarks.advice_page import TWIN, measure_at_equal_cost
from countertrain.files import write_text
from reproduction.writing import insert_tables, markdown

__all__ = ["average", "compare_variants", "write_out", "write_section"]

_DIGITS = {
    "AUC": 4,
    "whole panel": 1,
    "typical": 0,
    "distance": 2,
    "valid": 3,
    "cost": 2,
    "fit seconds": 1,
    "at equal cost": 1,
}
_SIGNED = ("AUC", "at equal cost")


def compare_variants(records: pd.DataFrame) -> pd.DataFrame:
    """A row for each table and variant, means over seeds.

    `AUC` and `at equal cost` are differences to the conventional network on the same splits, the latter in points; the
    rest is of advice as it is given by default. What has no conventional network beside it has no difference.
    """
    default = records[records["default"]]
    keys = ["table", "method", "seed"]
    twin = default[default["method"] == TWIN][["table", "seed", "auc"]]
    cells = default.merge(twin, on=["table", "seed"], how="left", suffixes=("", "_twin"))
    cells = cells.merge(measure_at_equal_cost(records), on=keys, how="left", suffixes=("", "_at_equal_cost"))
    equal = 100 * (cells["holds"].astype(float) - cells["twin"].astype(float))
    shown = pd.DataFrame(
        {
            "table": cells["table"],
            "variant": cells["method"],
            "AUC": cells["auc"] - cells["auc_twin"],
            "whole panel": 100 * cells["whole panel"],
            "typical": cells["typical"],
            "distance": cells["distance"],
            "valid": cells["valid"],
            "cost": cells["cost"],
            "fit seconds": cells["fit_seconds"],
            "at equal cost": equal.where(cells["method"] != TWIN, 0.0),
            "seeds": cells["seed"],
        }
    )
    groups = shown.groupby(["table", "variant"], sort=False)
    return groups.agg({**dict.fromkeys(_DIGITS, "mean"), "seeds": "nunique"}).reset_index()


def average(found: pd.DataFrame) -> pd.DataFrame:
    """A line for each variant, means over tables, the best at equal cost first; each table counts the same."""
    groups = found.groupby("variant", sort=False)
    means = groups[list(_DIGITS)].mean().assign(tables=groups["table"].nunique(), seeds=groups["seeds"].min())
    means = means.sort_values("at equal cost", ascending=False, kind="stable").reset_index()
    return write_out(means)


def write_out(frame: pd.DataFrame) -> pd.DataFrame:
    """Numbers as they are read: digits that mean something, and a sign where it is a difference."""
    texts = {
        name: ["" if pd.isna(value) else f"{value:{'+' if name in _SIGNED else ''}.{digits}f}" for value in frame[name]]
        for name, digits in _DIGITS.items()
    }
    return frame.assign(**texts)


def write_section(found: pd.DataFrame, page: Path, folder: Path) -> list[str]:
    """Put the means and the line of each table into a page, between its marks."""
    write_text(folder / "defaults-mean.md", markdown(average(found)))
    write_text(folder / "defaults-each.md", markdown(write_out(found)))
    return insert_tables(page, folder)
