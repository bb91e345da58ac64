"""Does the advice hold? Holding against cost, method by method and table by table: `make advice`.

Each table is split 70/30 by a seed; each method is trained on the 70 with its defaults; people of the 30 whom boosting
and logistic regression refuse, and the method's own model, too, are told what to change; models that know nothing of
the method judge the rows that they are told. Records go to results/advice; what is there is not computed again.
"""

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray

from benchmarks.advice_page import OURS, TWIN, compare_at_equal_cost, summarise, write_page
from countertrain import CounterfactualClassifier
from countertrain.cli.app import run
from countertrain.cli.console import console, frame_table
from countertrain.files import write_text
from countertrain.judge import judge
from countertrain.judge.judge import CLASSIFIER, TAUS
from countertrain.judge.panel import fit_panel
from countertrain.tables.encoder import Encoder
from countertrain.tables.scales import Ranks
from countertrain.tables.schema import Schema
from countertrain.tables.sources.downloads import find

__all__ = ["METHODS", "TABLES", "AdviceTable", "compute_cell", "main", "read_records"]

_MOST, _PEOPLE, _FEWEST = 8000, 200, 40


@dataclass(frozen=True)
class AdviceTable:
    """A table on which advice is judged, and what people cannot change there."""

    file: str
    label: str
    wanted: str
    immutable: Sequence[str]
    drop: Sequence[str] = ()
    codes: Sequence[str] = ()
    """Columns whose numbers are names."""

    def read(self) -> tuple[pd.DataFrame, "pd.Series[str]"]:
        """At most 8,000 rows and their labels; levels that hardly anybody has are one."""
        file = find(f"{self.file}.csv.gz")
        if file is None:
            raise FileNotFoundError(f"there is no {self.file}.csv.gz; name its folder in COUNTERTRAIN_DATA")
        frame = pd.read_csv(file).drop(columns=list(self.drop)).dropna()
        if len(frame) > _MOST:
            frame = frame.sample(_MOST, random_state=0)
        frame = frame.reset_index(drop=True)
        y = frame.pop(self.label)
        labels = y.astype(int).astype(str) if pd.api.types.is_numeric_dtype(y) else y.astype(str)
        for name in self.codes:
            frame[name] = "code " + frame[name].astype(int).astype(str)
        for name in frame.select_dtypes(exclude="number").columns.astype(str):
            common = frame[name].map(frame[name].value_counts()) >= _FEWEST
            frame[name] = frame[name].where(common, "other")
        return frame, labels


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

METHODS: dict[str, Mapping[str, Any]] = {
    OURS: {},
    TWIN: {"objective": "bl"},
    "CT as published": {"objective": "ct", "lambda_div": 0.5, "lambda_adv": 0.25, "lambda_reg": 0.25},
    "divergence alone": {"objective": "cd"},
    "teacher alone": {"lambda_div": 0.0, "lambda_reg": 0.0},
}
"""Our default and what it is compared with; all have the default's inputs, network, ensemble and stopping."""


def compute_cell(table: AdviceTable, method: str, seed: int) -> pd.DataFrame:
    """Train one method on one split, and judge its advice: a row for each tau."""
    from sklearn.model_selection import train_test_split

    X, y = table.read()
    Xa, Xb, ya, yb = train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)
    Xa, Xb, yb = Xa.reset_index(drop=True), Xb.reset_index(drop=True), yb.to_numpy()
    started = time.process_time()
    schema = Schema.infer(X)  # a level may be in one part only
    model = CounterfactualClassifier(schema, immutable=table.immutable, random_state=seed, **METHODS[method])
    model.fit(Xa, ya)
    seconds = time.process_time() - started
    classes = list(model.classes_)
    codes = np.array([classes.index(label) for label in yb])
    verdict = judge(
        model.decider,
        Xb,
        codes,
        table.wanted,
        people=_PEOPLE,
        among=_find_refused(Xa, ya.to_numpy(), Xb, table.wanted, seed),
        taus=TAUS,
        seed=seed,
    )
    return verdict.to_frame().assign(
        seed=seed,
        method=method,
        accuracy=verdict.accuracy[CLASSIFIER],
        auc=verdict.auc[CLASSIFIER],
        auc_boosting=verdict.auc["boosting"],
        accuracy_boosting=verdict.accuracy["boosting"],
        fit_seconds=seconds,
        default=[tau == verdict.default for tau in verdict.to_frame()["tau"]],
        **{f"real {name}": share for name, share in verdict.ceiling.items()},
        **{"real whole panel": verdict.whole_ceiling},
    )


def _find_refused(Xa: pd.DataFrame, ya: NDArray[Any], Xb: pd.DataFrame, wanted: str, seed: int) -> NDArray[np.bool_]:
    """Whom boosting and logistic regression refuse: the same people for every method."""
    encoder = Encoder.fit(Schema.infer(pd.concat([Xa, Xb])), Xa, fit_scale=Ranks.fit)
    panel = fit_panel(encoder.encode(Xa), ya == wanted, seed=seed)
    refused = [~panel[name].predict(encoder.encode(Xb)) for name in ("boosting", "logistic")]
    return np.asarray(refused[0] & refused[1])


def read_records(folder: Path) -> pd.DataFrame:
    """All cells that were computed, one row for each tau."""
    parts = [pd.read_csv(file) for file in sorted(folder.glob("*-*-*.csv"))]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def advice(
    tables: Annotated[str, typer.Option(help="Tables to judge on: a,b.")] = ",".join(TABLES),
    methods: Annotated[str, typer.Option(help="Methods to judge: a,b.")] = ",".join(METHODS),
    seeds: Annotated[int, typer.Option(help="Seeds of split and training.", min=1)] = 5,
    out: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("results/advice"),
    page: Annotated[Path | None, typer.Option(help="Markdown page to render, docs/advice.md.")] = None,
) -> None:
    """Train each method on each table, judge its advice, and render what was found."""
    out.mkdir(parents=True, exist_ok=True)
    wanted = [(t, m, s) for s in range(seeds) for t in tables.split(",") for m in methods.split(",")]
    for i, (table, method, seed) in enumerate(wanted, 1):
        file = out / f"{table}-{method.replace(' ', '_')}-{seed}.csv"
        if not file.exists():
            console.print(f"{i} of {len(wanted)}: {table}, {method}, seed {seed}", soft_wrap=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                cell = compute_cell(TABLES[table], method, seed)
            write_text(file, cell.assign(table=table).to_csv(index=False, float_format="%.5g"))
    records = read_records(out)
    console.print(frame_table("Advice as it is given by default", summarise(records)))
    console.print(frame_table("Share that holds at equal cost", compare_at_equal_cost(records)))
    if page is not None:
        write_page(records, page, out)


def main(args: Sequence[str] | None = None) -> None:
    """Run the comparison."""
    run(app, args, "python -m benchmarks.advice")


if __name__ == "__main__":
    main()
