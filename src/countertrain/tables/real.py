"""The paper's five real data sets, prepared as the authors' program prepares them."""

import gzip
import hashlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from countertrain.tables.dataset import Dataset, Split, hold_out
from countertrain.tables.downloads import DataFileError, content, fetch, find
from countertrain.tables.frames import assemble
from countertrain.words import suggest

__all__ = ["TABLES", "load_frame", "mnist", "table"]

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
    target: str
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

    @property
    def anew(self) -> str:
        """Name in the cache of a table that was balanced anew."""
        return self.file if self.exact else self.file.replace("_balanced", "_balanced_anew")


def table(name: str, *, data_seed: int = 42) -> Dataset:
    """A table in file order: the first 80 % of its rows for training and validation, the rest for test."""
    spec = TABLES[name]
    frame, published = _found(spec)
    y = np.asarray(frame[spec.target] == spec.positive).astype(np.int64)
    known = np.arange(round(0.8 * len(frame)))
    held = hold_out(y[known], _VALIDATION, np.random.default_rng(data_seed))
    test = np.arange(len(known), len(frame))
    return assemble(
        name,
        spec.title if published else f"{spec.title}, balanced anew",
        frame.drop(columns=spec.target),
        y,
        spec.classes,
        splits=(known[~held], known[held], test),
        fit_on=known,
        categorical=spec.categorical,
        protected=spec.protected,
    )


def load_frame(name: str) -> tuple[pd.DataFrame, "pd.Series[str]"]:
    """The rows of a named table in people's units, with names for codes, and the class of each row by name."""
    if name not in TABLES:
        raise ValueError(f"{name!r} is not the name of a table; {suggest(name, TABLES)}")
    spec = TABLES[name]
    frame, _ = _found(spec)
    rows = frame.drop(columns=spec.target)
    for column, known in spec.codes.items():
        rows[column] = [known.get(code, f"code {code}") for code in rows[column]]
    label = np.where(frame[spec.target] == spec.positive, *reversed(spec.classes))
    return rows, pd.Series(label, index=rows.index, name=spec.target, dtype=object)


def _found(spec: Table) -> tuple[pd.DataFrame, bool]:
    """The table, and whether its rows are those of the published experiments."""
    path = find(spec.file) or find(spec.anew) or fetch(spec.anew, spec.source, lambda p: _download(spec, p), spec.file)
    published = path.name == spec.file
    return _read(path, spec, published=published), published


def mnist(*, data_seed: int = 42) -> Dataset:
    """MNIST: 1100 training images a digit drawn with replacement, all 10,000 test images, pixels in [-1, 1]."""
    images, labels = _idx("train-images-idx3-ubyte.gz", 60_000), _idx("train-labels-idx1-ubyte.gz", 60_000)
    rng = np.random.default_rng(data_seed)
    rows = np.sort(np.concatenate([rng.choice(np.flatnonzero(labels == k), 1100) for k in range(10)]))
    held = hold_out(labels[rows].astype(np.int64), _VALIDATION, rng)

    def split(pixels: NDArray[np.uint8], digits: NDArray[np.uint8]) -> Split:
        x = torch.from_numpy(pixels.reshape(len(pixels), -1).astype(np.float32) / 127.5 - 1.0)
        return Split(x, torch.from_numpy(digits.astype(np.int64)))

    edge = [r for r in range(28) if r < 5 or r >= 23]
    return Dataset(
        name="mnist",
        title="MNIST, handwritten digits of 28 x 28 pixels",
        train=split(images[rows[~held]], labels[rows[~held]]),
        validation=split(images[rows[held]], labels[rows[held]]),
        test=split(_idx("t10k-images-idx3-ubyte.gz", 10_000), _idx("t10k-labels-idx1-ubyte.gz", 10_000)),
        features=tuple(f"row {r}={c}" for r in range(28) for c in range(28)),
        classes=tuple(str(k) for k in range(10)),
        centre=torch.full((784,), 127.5),
        scale=torch.full((784,), 127.5),
        domain=(-1.0, 1.0),
        protected=tuple(f"row {r}" for r in edge),
    )


def _read(path: Path, spec: Table, *, published: bool) -> pd.DataFrame:
    """The table, refused unless it is whole."""
    raw = content(path)
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
        groups = [np.flatnonzero((frame[spec.target] == spec.positive) == side) for side in (False, True)]
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
        target="income",
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
        target="target",
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
        target="target",
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
        target="target",
        positive=1,
        classes=("delinquent", "no delinquency"),
        source="OpenML, data set 46929",
        download=_gmsc,
        exact=False,
        protected=("age",),
    ),
}

_MNIST = {
    "train-images-idx3-ubyte.gz": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte.gz": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte.gz": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte.gz": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


def _idx(name: str, n: int) -> NDArray[np.uint8]:
    """An IDX file as an array (n, ...), refused unless it is the original."""
    path = find(name) or fetch(name, "OpenML, data set 554", lambda p: _download_mnist(name, p))
    raw = content(path)
    if hashlib.sha256(raw).hexdigest() != _MNIST[name]:
        raise DataFileError(f"{path} has the wrong checksum: it is not the original file; delete it, and get it again")
    return np.frombuffer(raw, dtype=np.uint8, offset=16 if "idx3" in name else 8).reshape(n, -1).squeeze()


def _download_mnist(name: str, path: Path) -> None:
    """One of the four files from OpenML, which has all 70,000 images, the training ones first."""
    from sklearn.datasets import fetch_openml

    images, labels = fetch_openml(data_id=554, as_frame=False, parser="auto", return_X_y=True)
    part = slice(0, 60_000) if name.startswith("train") else slice(60_000, None)
    n = len(labels[part])
    if "images" in name:
        header, body = np.array([2051, n, 28, 28], dtype=">u4"), images[part].astype(np.uint8)
    else:
        header, body = np.array([2049, n], dtype=">u4"), labels[part].astype(np.uint8)
    raw = header.tobytes() + body.tobytes()
    if hashlib.sha256(raw).hexdigest() != _MNIST[name]:
        raise DataFileError("the source no longer has the original images")
    path.write_bytes(gzip.compress(raw, mtime=0))
