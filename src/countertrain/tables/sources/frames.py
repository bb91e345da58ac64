"""Any table with labels as a data set: 70 % of its rows for training, 10 % for validation, 20 % for test."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from countertrain.tables import cells
from countertrain.tables.dataset import Dataset
from countertrain.tables.encoder import Encoder, FitEncoder
from countertrain.tables.labels import check_labels, code_labels
from countertrain.tables.regularities import infer_schema
from countertrain.tables.schema import Numeric, Schema, as_frame, check_names
from countertrain.tables.splits import split_rows
from countertrain.words import suggest

__all__ = ["breast_cancer", "check_size", "choose_label", "from_frame", "note_unlabelled"]


def from_frame(
    frame: pd.DataFrame,
    *,
    label: str | None = None,
    data_seed: int = 42,
    schema: Schema | None = None,
    drop: Sequence[str] = (),
    name: str = "table",
    title: str = "the table",
    classes: tuple[Any, ...] | None = None,
    fit_encoder: FitEncoder = Encoder.fit,
) -> Dataset:
    """A table with a column `label` (its last one if left out); rows without a label are left out, as its title says.

    The schema is inferred from all rows if left out, and so are bounds that it leaves open; the encoder is fitted to
    the training rows.
    """
    table = as_frame(frame).reset_index(drop=True)
    label = choose_label(title, list(table.columns), label, drop)
    labelled = table[table[label].notna()]  # whose index is their place in the table
    check_size(title, len(labelled), table.shape[1])
    codes, _ = code_labels(labelled[label], classes)
    check_labels(label, title, codes)
    rows = labelled.drop(columns=label)
    if schema is None:
        schema = infer_schema(rows.drop(columns=list(drop)))
    schema = schema.drop(drop)
    rows, schema = _read_by(schema, rows)
    return Dataset.of(
        rows,
        labelled[label],
        schema=schema,
        splits=split_rows(codes, data_seed),
        classes=classes,
        name=name,
        title=note_unlabelled(title, len(table) - len(labelled)),
        label=label,
        drop=drop,
        fit_encoder=fit_encoder,
    )


def _read_by(schema: Schema, rows: pd.DataFrame) -> tuple[pd.DataFrame, Schema]:
    """Numbers that came as texts as numbers, and the schema with bounds of all rows."""
    check_names(schema.names, rows.columns)
    texts = [column for column in schema.columns if isinstance(column, Numeric) and column.blank is not None]
    rows = rows.assign(**{column.name: cells.read_texts(column, rows[column.name]) for column in texts})
    bound = [cells.bound(column, rows[column.name]) for column in schema.columns]
    return rows, Schema(columns=tuple(bound), dropped=schema.dropped, rules=schema.rules)


def breast_cancer(*, data_seed: int = 42) -> Dataset:
    """Wisconsin diagnostic breast cancer, 569 rows of 30 measurements; bundled with scikit-learn."""
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    classes = tuple(str(name) for name in bunch.target_names)
    frame = pd.DataFrame(bunch.data, columns=list(bunch.feature_names))
    frame["diagnosis"] = [classes[k] for k in bunch.target]
    return from_frame(
        frame, data_seed=data_seed, name="breast-cancer", title="Breast cancer (Wisconsin)", classes=classes
    )


def choose_label(title: str, columns: Sequence[str], label: str | None, drop: Sequence[str] = ()) -> str:
    """The column to predict, which is the last one if none is named."""
    check_names(drop, columns)
    label = label or columns[-1]
    if label not in columns:
        raise ValueError(f"{title} has no column {label!r} to predict; {suggest(label, columns)}")
    if label in drop:
        raise ValueError(f"column {label!r} of {title} is to be predicted and cannot be dropped; name another label")
    return label


def check_size(title: str, n_rows: int, n_columns: int) -> None:
    """Refuse a table that is too small."""
    if n_columns < 2 or n_rows < 10:
        raise ValueError(f"{title} needs at least 2 columns and 10 rows; it has {n_columns} and {n_rows}")


def note_unlabelled(title: str, n: int) -> str:
    """The title of a table of which n rows have no label."""
    return f"{title}, {n} {'row' if n == 1 else 'rows'} without a label left out" if n else title
