"""The paper's four real tables, prepared as the authors' program prepares them."""

import gzip
import hashlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from countertrain.tables.dataset import Dataset
from countertrain.tables.encoder import Encoder, FitEncoder
from countertrain.tables.schema import Schema
from countertrain.tables.sources.downloads import DataFileError, fetch, find, unzip
from countertrain.tables.splits import hold_out

__all__ = ["TABLES", "table", "table_frame"]

_VALIDATION = 1000
_BALANCING_SEED = 2025


@dataclass(frozen=True)
class Table:
    """A table of the paper: its file, its columns, and how to get it anew."""

    title: str
    file: str
    sha256: str
    """Of the uncompressed file: the very rows and row order of the published experiments."""
    n_rows: int
    columns: tuple[str, ...]
    label: str
    positive: object
    classes: tuple[str, str]
    source: str
    download: Callable[[], pd.DataFrame]
    """The same columns from the public source."""
    exact: bool
    """Whether the download has the published rows; else it is balanced anew, with a seed of our own."""
    protected: tuple[str, ...]
    categorical: tuple[str, ...] = ()
    codes: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """Names of the levels of columns that hold codes; a code that its authors never explained has none."""

    def name_of(self, column: str, code: object) -> str:
        """The name of a level of a column that holds levels."""
        known = self.codes.get(column)
        return str(code) if known is None else known.get(int(str(code)), f"code {code}")

    @property
    def anew(self) -> str:
        """Name in the cache of a table that was balanced anew."""
        return self.file if self.exact else self.file.replace("_balanced", "_balanced_anew")


def table(
    name: str, *, data_seed: int = 42, schema: Schema | None = None, fit_encoder: FitEncoder = Encoder.fit
) -> Dataset:
    """A table in file order: the first 80 % of its rows for training and validation, the rest for test.

    Its encoder knows the levels of the whole file, and the numbers of training and validation rows.
    """
    spec = TABLES[name]
    frame, published = _find_rows(spec)
    rows, labels = _name_codes(spec, frame)
    known = np.arange(round(0.8 * len(frame)))
    y = np.asarray(frame[spec.label] == spec.positive).astype(np.int64)
    held = hold_out(y[known], _VALIDATION, np.random.default_rng(data_seed))
    return Dataset.of(
        rows,
        labels,
        schema=_declare(spec, frame, rows) if schema is None else schema,
        splits=(known[~held], known[held], np.arange(len(known), len(frame))),
        fit_on=known,
        classes=spec.classes,
        fit_encoder=fit_encoder,
        name=name,
        title=spec.title if published else f"{spec.title}, balanced anew",
        label=spec.label,
        protected=spec.protected,
    )


def table_frame(name: str) -> tuple[pd.DataFrame, "pd.Series[str]"]:
    """The rows of a table in people's units, with names for codes, and the class of each row by name."""
    return _name_codes(TABLES[name], _find_rows(TABLES[name])[0])


def _name_codes(spec: Table, frame: pd.DataFrame) -> tuple[pd.DataFrame, "pd.Series[str]"]:
    """The rows of a file with names for codes, and their labels."""
    rows = frame.drop(columns=spec.label)
    for column in spec.codes:
        rows[column] = [spec.name_of(column, code) for code in rows[column]]
    label = np.where(frame[spec.label] == spec.positive, *reversed(spec.classes))
    return rows, pd.Series(label, index=rows.index, name=spec.label, dtype=object)


def _declare(spec: Table, frame: pd.DataFrame, rows: pd.DataFrame) -> Schema:
    """The schema of a table: levels in the order of their codes or texts in the file, all else numbers."""
    kinds: dict[str, dict[str, object]] = {}
    for column in spec.categorical:
        codes = sorted(frame[column].unique(), key=str)
        kinds[column] = {"kind": "categorical", "levels": tuple(spec.name_of(column, code) for code in codes)}
    return Schema.infer(rows).with_columns(**kinds)


def _find_rows(spec: Table) -> tuple[pd.DataFrame, bool]:
    """The rows of a table, and whether they are those of the published experiments."""
    path = find(spec.file) or find(spec.anew) or fetch(spec.anew, spec.source, lambda p: _download(spec, p), spec.file)
    published = path.name == spec.file
    return _read(path, spec, published=published), published


def _read(path: Path, spec: Table, *, published: bool) -> pd.DataFrame:
    """The table, refused unless it is whole."""
    raw = unzip(path)
    try:
        frame = pd.read_csv(io.BytesIO(raw), keep_default_na=False)
    except (ValueError, pd.errors.ParserError) as error:
        raise DataFileError(f"{path} is not a CSV table ({error}); delete it, and get it again") from error
    missing = [column for column in spec.columns if column not in frame.columns]
    if missing:
        raise DataFileError(f"{path} lacks the column {', '.join(missing)}; it is not the file that is needed")
    if published and len(frame) != spec.n_rows:
        raise DataFileError(
            f"{path} must have {spec.n_rows:,} rows; it has {len(frame):,}: delete it, and get it again"
        )
    if published and hashlib.sha256(raw).hexdigest() != spec.sha256:
        raise DataFileError(
            f"{path} has the wrong checksum: its content is not that of the published experiments; "
            "delete it, and get it again"
        )
    return frame[list(spec.columns)]


def _download(spec: Table, path: Path) -> None:
    """Get the table from its source, balance it if the published rows cannot be had, and write it."""
    frame = spec.download()[list(spec.columns)]
    if not spec.exact:
        rng = np.random.default_rng(_BALANCING_SEED)
        groups = [np.flatnonzero((frame[spec.label] == spec.positive) == side) for side in (False, True)]
        n = min(len(group) for group in groups)
        frame = frame.iloc[rng.permutation(np.concatenate([rng.permutation(group)[:n] for group in groups]))]
    raw = frame.to_csv(index=False, lineterminator="\n").encode()
    if spec.exact and hashlib.sha256(raw).hexdigest() != spec.sha256:
        raise DataFileError("the source no longer has the rows of the published experiments")
    path.write_bytes(gzip.compress(raw, mtime=0))


def _adult() -> pd.DataFrame:
    from sklearn.datasets import fetch_openml

    frame = fetch_openml(data_id=1590, as_frame=True, parser="auto").frame.iloc[16281:]  # the test rows come first
    frame = frame.rename(columns={"class": "income"})
    texts = frame.select_dtypes(exclude="number").columns
    frame[texts] = frame[texts].astype(object).fillna("?").astype(str)
    numbers = frame.select_dtypes("number").columns
    frame[numbers] = frame[numbers].astype(np.int64)
    return pd.DataFrame(frame)


def _california() -> pd.DataFrame:
    from sklearn.datasets import fetch_california_housing

    frame = pd.DataFrame(fetch_california_housing(as_frame=True).frame)
    return frame.assign(target=(frame["MedHouseVal"] >= frame["MedHouseVal"].median()).astype(float))


def _credit() -> pd.DataFrame:
    from sklearn.datasets import fetch_openml

    frame = pd.DataFrame(fetch_openml(data_id=42477, as_frame=True, parser="auto").frame)
    frame.columns = [*_CREDIT[:-1], "default"]
    return frame.astype(float).astype(int).assign(target=lambda f: 1 - f["default"])


def _gmsc() -> pd.DataFrame:
    from sklearn.datasets import fetch_openml

    frame = pd.DataFrame(fetch_openml(data_id=46929, as_frame=True, parser="auto").frame).dropna()
    return frame.assign(target=(frame["FinancialDistressNextTwoYears"] == "No").astype(int))


_ADULT = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship", "race",
    "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income",
)  # fmt: skip
_CREDIT = (
    "LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE", "PAY_0", "PAY_2", "PAY_3", "PAY_4", "PAY_5", "PAY_6",
    *(f"BILL_AMT{i}" for i in range(1, 7)), *(f"PAY_AMT{i}" for i in range(1, 7)), "target",
)  # fmt: skip
_GMSC = (
    "target", "RevolvingUtilizationOfUnsecuredLines", "age", "NumberOfTime30-59DaysPastDueNotWorse", "DebtRatio",
    "MonthlyIncome", "NumberOfOpenCreditLinesAndLoans", "NumberOfTimes90DaysLate", "NumberRealEstateLoansOrLines",
    "NumberOfTime60-89DaysPastDueNotWorse", "NumberOfDependents",
)  # fmt: skip

TABLES: dict[str, Table] = {
    "adult": Table(
        title="Adult census income (Adult)",
        file="adult.csv.gz",
        sha256="f2c62076f19504d99a38b22badf445a7f42530ade6b827acf78dd143fbce38bb",
        n_rows=32_561,
        columns=_ADULT,
        label="income",
        positive=">50K",
        classes=("<=50K", ">50K"),
        source="OpenML, data set 1590",
        download=_adult,
        exact=True,
        protected=("age",),
        categorical=(
            "workclass",
            "education",
            "marital-status",
            "occupation",
            "relationship",
            "race",
            "sex",
            "native-country",
        ),
    ),
    "california": Table(
        title="California housing (CH)",
        file="california_housing_balanced.csv.gz",
        sha256="7777da56fae024f8a0cd2eb014c8f03b75a0eae591376828e38ff21156be4aef",
        n_rows=20_630,
        columns=(
            "MedInc",
            "HouseAge",
            "AveRooms",
            "AveBedrms",
            "Population",
            "AveOccup",
            "Latitude",
            "Longitude",
            "target",
        ),
        label="target",
        positive=1,
        classes=("below the median", "at or above the median"),
        source="StatLib through scikit-learn's fetch_california_housing",
        download=_california,
        exact=False,
        protected=("HouseAge",),
    ),
    "credit": Table(
        title="Default of credit card clients (Cred)",
        file="credit_default_balanced.csv.gz",
        sha256="9105fb70f002f4963426b16a229e35f5cd118d2613b9e90e72139e065c8c1380",
        n_rows=13_272,
        columns=_CREDIT,
        label="target",
        positive=1,
        classes=("default", "no default"),
        source="OpenML, data set 42477",
        download=_credit,
        exact=False,
        protected=("AGE",),
        categorical=("SEX", "EDUCATION", "MARRIAGE"),
        codes={
            "SEX": {1: "male", 2: "female"},
            "EDUCATION": {1: "graduate school", 2: "university", 3: "high school", 4: "other"},
            "MARRIAGE": {1: "married", 2: "single", 3: "other"},
        },
    ),
    "gmsc": Table(
        title="Give Me Some Credit (GMSC)",
        file="give_me_some_credit_balanced.csv.gz",
        sha256="e00a2463dcceb90a0ac6ea37044750f417ebe62f51380a9bc75d6e08fd43e0f4",
        n_rows=16_714,
        columns=_GMSC,
        label="target",
        positive=1,
        classes=("delinquent", "no delinquency"),
        source="OpenML, data set 46929",
        download=_gmsc,
        exact=False,
        protected=("age",),
    ),
}
