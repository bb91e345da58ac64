"""From a CSV or Parquet file that does not fit in memory to rows that training can read by their numbers."""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from countertrain.tables import cells
from countertrain.tables.encoder import Encoder
from countertrain.tables.labels import LabelCoder, check_labels
from countertrain.tables.scales import Ranks
from countertrain.tables.schema import Categorical, Schema, as_frame
from countertrain.tables.sources.files import read_parts, short_name, write_rows
from countertrain.tables.sources.folder import Description, check_new, check_space, write_folder
from countertrain.tables.sources.frames import check_size, choose_label, note_unlabelled
from countertrain.tables.splits import Rows, split_rows
from countertrain.tables.summaries import Summary

__all__ = ["convert"]

Progress = Callable[[int, int | None], None]
"""Told how many rows have been read, and of how many if that is known; each is read three times."""

_ROWS = 2**15  # held at a time
_HELD_OUT = 10_000  # most rows for validation, and most for the test: they are scored as a whole


def convert(
    source: Path,
    folder: Path,
    *,
    label: str | None = None,
    data_seed: int = 42,
    schema: Schema | None = None,
    drop: Sequence[str] = (),
    progress: Progress = lambda done, total: None,
) -> None:
    """Turn a CSV file with a header, or a Parquet file, into a folder that `load` opens without reading its rows.

    Its schema, encoder and rows are those of the file when it is read as a whole, but for at most 10,000 rows each
    being held out for validation and test. The source is read three times, some rows at a time: for schema and labels,
    for what the encoder needs to know, and for the rows. Of all rows at once, only their labels, their new places and
    one column are ever held.
    """
    check_new(folder)
    first = next(read_parts(source, _ROWS), pd.DataFrame())
    if first.shape[1] < 2:
        check_size(source.name, *first.shape)
    label = choose_label(source.name, [str(name) for name in first.columns], label, drop)
    survey = _survey(source, label, progress)
    schema = survey.settle((survey.infer(drop) if schema is None else schema).drop(drop))
    splits = split_rows(survey.y, data_seed, most=_HELD_OUT)
    folder.mkdir(parents=True, exist_ok=True)
    encoder = _fit(survey, schema, splits[0], folder / ".columns", survey.read(progress, 1))
    description = Description(
        name=short_name(source),
        title=note_unlabelled(source.name, survey.n_unlabelled),
        label=label,
        data_seed=data_seed,
        splits=[len(split) for split in splits],
        classes=survey.classes,
        encoder=json.loads(encoder.to_json()),
    )
    order = np.concatenate(splits)  # (n,) where each row of the folder is in the source
    place = order.argsort()  # (n,) where each row of the source comes to lie
    held_out: list[pd.DataFrame] = []
    with write_folder(folder, description) as (rows, labels):
        labels[:] = survey.y[order]
        for part, frame in survey.read(progress, 2):
            with cells.as_declared():
                rows[place[part]] = encoder.encode(frame)
            held_out.append(frame[place[part] >= len(order) - len(splits[2])])
        people = pd.concat(held_out)
        write_rows(folder / "test.csv", people[[*people.columns.drop(label), label]])


@dataclass(frozen=True, eq=False)
class _Survey:
    """What one look at all rows of a source has shown."""

    source: Path
    label: str
    summaries: dict[str, Summary]
    y: NDArray[np.int64]  # (n,)
    classes: tuple[Any, ...]
    n_unlabelled: int
    texts: tuple[str, ...]
    """The columns to be read as texts."""

    def infer(self, drop: Collection[str]) -> Schema:
        """The schema of all columns but the label and those to drop."""
        return Schema.of(one for name, one in self.summaries.items() if name != self.label and name not in drop)

    def settle(self, schema: Schema) -> Schema:
        """The schema that knows whether there are levels which it does not list."""
        seen = {name: pd.Series(one.distinct, dtype=object) for name, one in self.summaries.items()}
        levels = [column for column in schema.columns if isinstance(column, Categorical) and column.name in seen]
        return schema.with_columns(**{one.name: cells.bound(one, seen[one.name]) for one in levels})

    def read(self, progress: Progress, passes: int) -> Iterator[tuple[slice, pd.DataFrame]]:
        """The rows that have a label, some at a time, and which ones they are."""
        done, n = 0, len(self.y)
        for frame in read_parts(self.source, _ROWS, self.texts):
            labelled = as_frame(frame[frame[self.label].notna()])
            yield slice(done, done + len(labelled)), labelled
            done += len(labelled)
            progress(passes * n + done, 3 * n)


def _survey(source: Path, label: str, progress: Progress, texts: tuple[str, ...] = ()) -> _Survey:
    """Look at all rows once; or twice, where a column turns out to hold texts only after others."""
    summaries: dict[str, Summary] = {}
    coder, n, n_read = LabelCoder(label), 0, 0
    for frame in read_parts(source, _ROWS, texts):
        labelled = as_frame(frame[frame[label].notna()])
        for name in labelled.columns if len(labelled) else ():
            part = Summary.of(labelled[name])
            summaries[name] = summaries[name].merge(part) if name in summaries else part
        if not summaries or not summaries[label].clashes:
            coder.add(labelled[label])
        n, n_read = n + len(labelled), n_read + len(frame)
        progress(n, None)
    late = tuple(name for name, summary in summaries.items() if summary.clashes)
    if late:
        return _survey(source, label, progress, late)
    check_size(source.name, n, len(summaries))
    y, classes = coder.finish()
    check_labels(label, source.name, y)
    return _Survey(source, label, summaries, y, classes, n_read - n, texts)


def _fit(
    survey: _Survey, schema: Schema, train: Rows, scratch: Path, parts: Iterator[tuple[slice, pd.DataFrame]]
) -> Encoder:
    """The encoder of the training rows, whose columns wait on disk until it is their turn."""
    shape = len(schema.columns), len(survey.y)
    check_space(scratch.parent, 8 * shape[0] * shape[1])
    stored = np.memmap(scratch, dtype=np.float64, mode="w+", shape=shape)
    try:
        for part, frame in parts:
            for i, column in enumerate(schema.columns):
                stored[i, part] = cells.store(column, frame[column.name])
        bound = [cells.bound(column, cells.restore(column, stored[i])) for i, column in enumerate(schema.columns)]
        schema = Schema(columns=tuple(bound), rules=schema.rules)
        ruled = () if schema.rulebook is None else schema.rulebook.columns
        mine = {name: stored[schema.names.index(name)][train] for name in ruled}
        schema.check_rules(pd.DataFrame({name: cells.restore(schema[name], mine[name]) for name in ruled}))
        columns = (cells.restore(column, stored[i][train]) for i, column in enumerate(schema.columns))
        dtypes = [survey.summaries[name].dtype for name in schema.names]
        return Encoder.fit_columns(schema, columns, dtypes, fit_scale=Ranks.fit)
    finally:
        del stored
        scratch.unlink()
