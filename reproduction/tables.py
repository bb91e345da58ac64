"""The paper's tables from stored records: ours beside the published numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from countertrain.evaluation.comparison import Reduction, compare
from countertrain.evaluation.metrics import known
from reproduction.cells import Cell, CellResult, Variant, read_cell, read_pooled
from reproduction.published import COSTS, IG, NAMES, TABLE1, TABLE_CI, VALIDITY, Published

__all__ = ["TABLES", "paper_label", "read_pair"]

_OTHERS = ("as-written", "longer", "categories", "neighbours", "tuned")
"""Profiles that Table 1 shows as further columns."""


@dataclass(frozen=True, eq=False)
class Pair:
    """CT and BL of one data set and variant."""

    ct: CellResult
    bl: CellResult

    def reduction(self, metric: str) -> Reduction:
        """Reduction of a metric by CT against BL."""
        return compare(self.ct.records, self.bl.records, [metric])[0]


def paper_label(metric: str) -> str:
    """A metric as the paper's tables name it: IP, IP*, Cost."""
    label = known()[metric].label
    return label[0].upper() + label[1:]


def read_pair(data: str, variant: Variant, results: Path, profile: str = "as-run") -> Pair | None:
    """The two cells to compare, if both are stored."""
    ct = read_cell(Cell(data, "ct", variant, profile), results)
    bl = read_cell(Cell(data, "bl", variant, profile), results)
    return Pair(ct, bl) if ct is not None and bl is not None else None


def table1(datasets: Iterable[str], results: Path, profile: str = "as-run") -> pd.DataFrame:
    """Table 1: reductions of IP and IP* without constraints, and of cost with the protected feature, in percent."""
    rows = []
    for data in datasets:
        for metric, variant in (("ip", "free"), ("ip_star", "free"), ("cost", "protected")):
            found = read_pair(data, variant, results, profile)  # type: ignore[arg-type]  # a literal
            if found is not None:
                row = _reduction_row(data, metric, found.reduction(metric), TABLE1[data, metric])
                if profile == "as-run":
                    row |= {other: _reduce_under(other, data, metric, variant, results) for other in _OTHERS}
                    row["pooled"] = _pooled(data, results) if metric == "ip_star" else ""
                rows.append(row)
    frame = pd.DataFrame(rows)
    return frame.drop(columns=[name for name in (*_OTHERS, "pooled") if name in frame and not frame[name].any()])


def _reduce_under(profile: str, data: str, metric: str, variant: str, results: Path) -> str:
    """The same cell under another profile, "mean ± sd over seeds"; empty where it is not stored."""
    found = read_pair(data, variant, results, profile)  # type: ignore[arg-type]  # a literal
    return _mean_sd(found.reduction(metric).per_seed) if found is not None else ""


def _pooled(data: str, results: Path) -> str:
    percent = _pooled_reductions(data, results)
    return _mean_sd(percent) if percent is not None else ""


def _mean_sd(values: Sequence[float]) -> str:
    return f"{np.mean(values):.1f} ± {np.std(values, ddof=1) if len(values) > 1 else float('nan'):.1f}"


def table_costs(datasets: Iterable[str], results: Path, profile: str = "as-run") -> pd.DataFrame:
    """Appendix: reduction of cost without constraints, in percent."""
    rows = []
    for data in datasets:
        found = read_pair(data, "free", results, profile)
        if found is not None:
            rows.append(_reduction_row(data, "cost", found.reduction("cost"), COSTS[data, "cost"]))
    return pd.DataFrame(rows)


def _reduction_row(data: str, metric: str, ours: Reduction, theirs: Published) -> dict[str, object]:
    half = _interval(ours.per_seed)
    published = (theirs.percent - 2.576 * theirs.spread, theirs.percent + 2.576 * theirs.spread)
    return {
        "data": NAMES[data],
        "metric": paper_label(metric),
        "published": theirs.percent,
        "published ±": theirs.spread,
        "published *": "*" if theirs.star else "",
        "ours": ours.percent,
        "sd over seeds": ours.seed_sd,
        "99 % low": ours.percent - half,
        "99 % high": ours.percent + half,
        "ours *": "*" if half < abs(ours.percent) else "",
        "sd over rounds": ours.round_sd,
        "same sign": "yes" if ours.percent * theirs.percent > 0 else "no",
        "inside published": "yes" if published[0] <= ours.percent <= published[1] else "no",
        "seeds": len(ours.per_seed),
    }


def _interval(values: Sequence[float]) -> float:
    """Half the width of the 99 % t-interval of the mean over seeds."""
    from scipy.stats import t

    n = len(values)
    return float(t.ppf(0.995, n - 1) * np.std(values, ddof=1) / n**0.5) if n > 1 else float("nan")


def table_ci(datasets: Iterable[str], results: Path, profile: str = "as-run") -> pd.DataFrame:
    """Appendix: mean outcomes of CT and BL, and the 99 % interval over rounds of their difference."""
    rows = []
    for metric, variant in (("cost", "protected"), ("ip_star", "free"), ("ip", "free")):
        for data in datasets:
            found = read_pair(data, variant, results, profile)  # type: ignore[arg-type]  # a literal
            if found is None:
                continue
            r = found.reduction(metric)
            ct, bl, low, high = TABLE_CI[metric][data]
            rows.append(
                {
                    "metric": paper_label(metric),
                    "data": NAMES[data],
                    "CT": r.treated,
                    "published CT": ct,
                    "BL": r.baseline,
                    "published BL": bl,
                    "LB": r.interval[0],
                    "published LB": low,
                    "UB": r.interval[1],
                    "published UB": high,
                }
            )
    return pd.DataFrame(rows)


def table_validity(datasets: Iterable[str], results: Path, profile: str = "as-run") -> pd.DataFrame:
    """Average validity of CT and BL, without and with constraints; ± over training seeds."""
    rows = []
    for data in datasets:
        row: dict[str, object] = {"data": NAMES[data]}
        place = 0
        for variant in ("free", "protected"):
            for objective in ("ct", "bl"):
                result = read_cell(Cell(data, objective, variant, profile), results)
                column = f"{objective.upper()} {variant}"
                if result is not None:
                    by_seed = result.records.groupby("model")["validity"].mean()
                    row[column], row[f"{column} sd"] = by_seed.mean(), by_seed.std(ddof=1)
                row[f"published {column}"] = VALIDITY[data][place]
                place += 1
        rows.append(row)
    return pd.DataFrame(rows)


def table_ig(datasets: Iterable[str], results: Path, profile: str = "as-run") -> pd.DataFrame:
    """Sensitivity to protected features: median over rounds, its mean and spread over training seeds."""
    rows = []
    for data in datasets:
        row: dict[str, object] = {"data": NAMES[data]}
        for k, objective in enumerate(("ct", "bl")):
            result = read_cell(Cell(data, objective, "protected", profile), results)  # type: ignore[arg-type]
            name = objective.upper()
            if result is not None:
                values = np.array(result.scores["sensitivity"])  # (seeds, rounds)
                medians = np.median(values, axis=1)
                low, high = np.quantile(values, [0.025, 0.975], axis=1).mean(axis=1)
                row |= {name: medians.mean(), f"{name} sd over seeds": medians.std(ddof=1)}
                row |= {f"{name} 2.5 %": low, f"{name} 97.5 %": high}
            row |= dict(
                zip((f"published {name}", f"published {name} low", f"published {name} high"), IG[data][k], strict=True)
            )
        rows.append(row)
    return pd.DataFrame(rows)


def table_pooled(datasets: Iterable[str], results: Path, profile: str = "as-run") -> pd.DataFrame:
    """IP* pooled over factual classes and rounds: reductions of CT against BL, in percent."""
    rows = []
    for data in datasets:
        percent = _pooled_reductions(data, results, profile)
        if percent is not None:
            row = {"data": NAMES[data], "published IP*": TABLE1[data, "ip_star"].percent, "pooled": np.mean(percent)}
            rows.append({**row, "sd over seeds": np.std(percent, ddof=1) if len(percent) > 1 else float("nan")})
    return pd.DataFrame(rows)


def _pooled_reductions(data: str, results: Path, profile: str = "as-run") -> list[float] | None:
    """For each seed, by how many percent pooled IP* is lower for CT than for BL."""
    ct, bl = (read_pooled(Cell(data, o, "free", profile), results) for o in ("ct", "bl"))
    return None if ct is None or bl is None else [100 * (1 - a / b) for a, b in zip(ct, bl, strict=True)]


def table_accuracy(datasets: Iterable[str], results: Path, profile: str = "as-run") -> pd.DataFrame:
    """Test accuracy of BL, CT, AR and CD, and of CT under the other profiles with what it loses against its BL."""
    rows = []
    for data in datasets:
        row: dict[str, object] = {"data": NAMES[data]}
        for objective in ("bl", "ct", "ar", "cd"):
            result = read_cell(Cell(data, objective, "free", profile), results)
            row[objective.upper()] = _percent(result.scores["accuracy"]) if result is not None else ""
        for other in (profile, *_OTHERS):
            found = read_pair(data, "free", results, other)
            if found is not None:
                ct, bl = (np.mean(result.scores["accuracy"]) for result in (found.ct, found.bl))
                row[f"{other}: CT"] = _percent(found.ct.scores["accuracy"])
                row[f"{other}: lost"] = f"{round(100 * (bl - ct), 1) + 0.0:.1f}"  # never -0.0
        rows.append(row)
    frame = pd.DataFrame(rows).astype(object).fillna("")
    return frame.drop(columns=f"{profile}: CT", errors="ignore")


def _percent(values: Sequence[float]) -> str:
    return _mean_sd([100 * value for value in values])


TABLES = {
    "table1": table1,
    "table-ci": table_ci,
    "table-ig": table_ig,
    "table-validity": table_validity,
    "table-costs": table_costs,
    "table-accuracy": table_accuracy,
    "table-pooled": table_pooled,
}
