"""A fitted classifier as an ONNX file, which takes a table's own numbers and needs neither torch nor this library."""

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from countertrain.files import write_bytes
from countertrain.recourse.threshold import Threshold
from countertrain.tables.columns import has_indicator
from countertrain.tables.encoder import Encoder
from countertrain.tables.scales import FeatureScales
from countertrain.tables.schema import Boolean, Categorical, Numeric

__all__ = ["onnx_rows", "save_onnx"]


def onnx_rows(encoder: Encoder, table: pd.DataFrame | NDArray[Any]) -> NDArray[np.float64]:
    """(n, C), columns in the order of the schema: numbers in their own units, levels by place, truth values 0 or 1.

    A number that is missing is NaN where that is a state of its own.
    """
    x = encoder.encode(table)  # (n, D)
    rows = np.empty((len(x), len(encoder.slices)))
    for i, (column, part) in enumerate(zip(encoder.schema.columns, encoder.slices, strict=True)):
        place = x[:, part].argmax(1)
        rows[:, i] = place if isinstance(column, Categorical) else encoder.scales[i].decode(x[:, part.start])
        if has_indicator(column):
            rows[x[:, part.start + 1] > 0.5, i] = np.nan
    return rows


class _FromTable(nn.Module):
    """The network with its encoder in front and a soft-max behind."""

    column: Tensor  # (D,) place in the table
    one_hot: Tensor  # (D,) bool
    indicator: Tensor  # (D,) bool: whether a number is missing
    fill: Tensor  # (D,) what stands for a missing number
    level: Tensor  # (D,) place in its one-hot group
    start: Tensor  # (D, k) of each piece of the scale, in the table's units
    low: Tensor  # (D, k) how far below and above its start a piece reaches: the first and the last have no end
    high: Tensor  # (D, k)
    slope: Tensor  # (D, k)
    offset: Tensor  # (D,) what the start of the first piece is scaled to

    def __init__(self, encoder: Encoder, network: nn.Module, threshold: Threshold | None = None) -> None:
        super().__init__()
        self.network = network
        self.threshold = threshold
        column = torch.tensor(encoder.column_of)  # (D,)
        start = torch.tensor([part.start for part in encoder.slices])[column]
        one_hot = torch.tensor([isinstance(c, Categorical) for c in encoder.schema.columns])[column]
        self.register_buffer("column", column)
        self.register_buffer("one_hot", one_hot)
        indicator = torch.zeros_like(one_hot).index_fill_(0, torch.tensor(encoder.indicators).long(), True)
        fill = [column.fill if has_indicator(column) else 0.0 for column in encoder.schema.columns]
        self.register_buffer("indicator", indicator)
        self.register_buffer("fill", torch.tensor(fill, dtype=torch.float64)[column])
        self.register_buffer("level", (torch.arange(len(column)) - start).double())
        values, scores = (torch.from_numpy(knots)[column] for knots in _list_knots(encoder))  # (D, k + 1)
        width = values.diff()
        low, high = torch.zeros_like(width), width.clone()
        low[:, 0], high[:, -1] = -torch.inf, torch.inf
        pieces = {"start": values[:, :-1], "low": low, "high": high, "slope": scores.diff() / width}
        for name, tensor in {**pieces, "offset": scores[:, 0]}.items():
            self.register_buffer(name, tensor.contiguous())

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(n, C) rows of the table -> labels (n,) and probabilities (n, K)."""
        cells = rows[:, self.column]  # (n, D)
        missing = cells.isnan()
        cells = torch.where(missing, self.fill, cells)
        covered = torch.minimum(torch.maximum(cells.unsqueeze(-1) - self.start, self.low), self.high)  # (n, D, k)
        scaled = self.offset + (covered * self.slope).sum(-1)
        x = torch.where(self.one_hot, cells.eq(self.level).double(), scaled)
        x = torch.where(self.indicator, missing.double(), x)
        probabilities = self.network(x.float()).double().softmax(-1)
        decided = probabilities.argmax(-1) if self.threshold is None else self.threshold.choose(probabilities)
        return decided, probabilities


def _list_knots(encoder: Encoder) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Values and scores (C, k + 1) through which the scales of all columns go; a line has two of them."""
    scales = FeatureScales.of(encoder.scales)
    k = scales.values.shape[1]
    values = scales.centre.unsqueeze(1) + scales.scale.unsqueeze(1) * torch.arange(k)
    scores = torch.arange(k, dtype=torch.float64).repeat(len(values), 1)
    values[scales.ranked], scores[scales.ranked] = scales.values, scales.scores
    return values.numpy(), scores.numpy()


def save_onnx(
    encoder: Encoder, network: nn.Module, classes: NDArray[Any], path: Path, *, threshold: Threshold | None = None
) -> None:
    """Write the file, with its columns, their levels, the classes and the threshold, if one is set, as metadata."""
    if find_spec("onnx") is None or find_spec("onnxscript") is None:
        raise ImportError("save_onnx needs the packages onnx and onnxscript: pip install 'countertrain[onnx]'")
    example = torch.zeros(2, len(encoder.schema.columns), dtype=torch.float64)
    try:
        with _quiet():
            program = torch.onnx.export(
                _FromTable(encoder, network, threshold).eval(),
                (example,),
                dynamo=True,
                input_names=["rows"],
                output_names=["label", "probabilities"],
                dynamic_shapes={"rows": {0: torch.export.Dim("n")}},
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise ValueError(f"a {type(network).__name__} cannot be exported to ONNX: {reason}") from error
    assert program is not None
    program.model.metadata_props.update(
        columns=json.dumps([_described(column) for column in encoder.schema.columns]),
        classes=json.dumps(classes.tolist(), default=str),
    )
    if threshold is not None:
        needed = {"class": classes.tolist()[threshold.wanted], "probability": threshold.at}
        program.model.metadata_props["threshold"] = json.dumps(needed, default=str)
    write_bytes(path, program.model_proto.SerializeToString())


def _described(column: Numeric | Categorical | Boolean) -> dict[str, Any]:
    """What a number in this column of the input stands for."""
    if isinstance(column, Numeric):
        return {"name": column.name, "unit": column.unit}
    levels = column.labels if isinstance(column, Categorical) else column.values
    return {"name": column.name, "levels": levels}


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's prints, log lines and warnings."""
    disabled = logging.root.manager.disable
    with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(disabled)
