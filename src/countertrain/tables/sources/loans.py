"""The table `loans`: people of a process that is known, with what a bank would say of its columns."""

from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from countertrain.tables.dataset import Dataset
from countertrain.tables.encoder import Encoder, FitEncoder
from countertrain.tables.schema import Boolean, Categorical, Numeric, Schema
from countertrain.tables.sources.frames import from_frame
from countertrain.tables.sources.loan_process import draw

__all__ = ["LABEL", "SCHEMA", "TITLE", "draw_table", "loans", "name_outcomes"]

LABEL = "outcome"
TITLE = "Loans, 14 columns, drawn from a process that is known"
_N = 10_000
_JOBS = ("part-time", "full-time", "self-employed")

SCHEMA = Schema(
    columns=(
        Numeric(name="age", integer=True, unit="years", mutability="none"),
        Categorical(name="region", levels=("capital", "coast", "inland"), mutability="none"),
        Categorical(name="employment", levels=("none", *_JOBS), transitions=dict.fromkeys(("none", *_JOBS), _JOBS)),
        Numeric(name="years_employed", integer=True, unit="years", mutability="increase", missing="fill", fill=0),
        Numeric(name="income", integer=True, unit="EUR a year", step=100, lower=0),
        Categorical(name="housing", levels=("rent", "own", "with family")),
        Numeric(name="savings", integer=True, unit="EUR", step=100, lower=0),
        Numeric(name="debt", integer=True, unit="EUR", step=100, lower=0),
        Numeric(name="credit_history_years", integer=True, unit="years", mutability="increase", missing="fill", fill=0),
        Numeric(name="late_payments", integer=True, lower=0, mutability="decrease"),
        Boolean(name="guarantor"),
        Categorical(
            name="purpose", levels=("car", "furniture", "renovation", "education", "business"), mutability="none"
        ),
        Numeric(name="loan_amount", integer=True, unit="EUR", step=100, lower=500),
        Numeric(name="loan_term", integer=True, unit="months", step=12, lower=12, upper=96),
    )
)
"""What a bank would say of the columns; nobody can be told to lose their job, or to be younger."""


def draw_table(data_seed: int = 42) -> tuple[pd.DataFrame, "pd.Series[str]"]:
    """10,000 people as a bank sees them, and what became of their loans."""
    people = draw(_N, data_seed)
    return people.rows, pd.Series(name_outcomes(people.repaid), name=LABEL, dtype=object)


def name_outcomes(repaid: NDArray[np.bool_]) -> NDArray[np.str_]:
    """(n,), what became of loans in words."""
    return np.where(repaid, "repaid", "default")


def loans(*, data_seed: int = 42, schema: Schema | None = None, fit_encoder: FitEncoder = Encoder.fit) -> Dataset:
    """10,000 people, drawn and split by the seed, treated like any table that people bring."""
    rows, outcome = draw_table(data_seed)
    data = from_frame(
        rows.assign(**{LABEL: outcome}),
        label=LABEL,
        data_seed=data_seed,
        schema=SCHEMA if schema is None else schema,
        name="loans",
        title=TITLE,
        fit_encoder=fit_encoder,
    )
    return replace(data, protected=("age", "region"))
