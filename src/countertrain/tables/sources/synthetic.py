"""The paper's four synthetic data sets, and the debts and ages of its Figure 1."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from countertrain.tables.dataset import Dataset, Split
from countertrain.tables.encoder import Encoder
from countertrain.tables.scales import UNSCALED
from countertrain.tables.schema import Numeric, Schema
from countertrain.tables.splits import hold_out

__all__ = ["SYNTHETIC", "make"]

Points = NDArray[np.float64]
Labels = NDArray[np.int64]

# The authors draw the centres once with a fixed seed of Julia's generator, so they are constants.
_CENTRES = np.array([[2.586902, -0.451857], [-0.993221, 4.062597]])
_GENERATED, _KNOWN, _VALIDATION, _TEST = 100_000, 3600, 600, 900


def _blobs(y: Labels, rng: np.random.Generator, *, spread: float) -> Points:
    return np.asarray(_CENTRES[y] + rng.normal(scale=spread, size=(len(y), 2)))


def _circles(y: Labels, rng: np.random.Generator) -> Points:
    angle = rng.uniform(0, 2 * np.pi, len(y))
    radius = np.where(y == 1, 1.0, 0.01)
    centre = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return np.asarray(centre + rng.normal(scale=0.15, size=(len(y), 2)))


def _moons(y: Labels, rng: np.random.Generator) -> Points:
    angle = rng.uniform(0, np.pi, len(y)) * np.where(y == 1, -1, 1)
    shift = np.where(y[:, None] == 1, [1.0, 0.3], [0.0, 0.0])
    return np.column_stack([np.cos(angle), np.sin(angle)]) + shift + rng.normal(scale=0.1, size=(len(y), 2))


def _debt_age(y: Labels, rng: np.random.Generator) -> Points:
    """Debt and age, standardised: those who got a loan owe less and are older."""
    return np.where(y[:, None] == 1, [-1.0, 0.8], [1.0, -0.8]) + rng.normal(scale=0.6, size=(len(y), 2))


_PlainNames = (("x1", "x2"), ("0", "1"))
SYNTHETIC: dict[str, tuple[str, Callable[[Labels, np.random.Generator], Points], tuple[tuple[str, ...], ...]]] = {
    "ls": ("Linearly separable clusters (LS)", lambda y, rng: _blobs(y, rng, spread=0.5), _PlainNames),
    "ol": ("Overlapping clusters (OL)", lambda y, rng: _blobs(y, rng, spread=2.0), _PlainNames),
    "circles": ("Concentric circles (Circ)", _circles, _PlainNames),
    "moons": ("Interlocking moons (Moon)", _moons, _PlainNames),
    "debt-age": (
        "Debt and age of people who ask for a loan (Figure 1)",
        _debt_age,
        (("debt", "age"), ("loan withheld", "loan provided")),
    ),
}


def make(name: str, *, data_seed: int = 42) -> Dataset:
    """A synthetic data set: 3000 training, 600 validation and 900 test rows of 100,000, in raw units."""
    title, draw, (features, classes) = SYNTHETIC[name]
    rng = np.random.default_rng(data_seed)
    y = np.arange(_GENERATED) % 2
    x = draw(y, rng)
    order = np.random.default_rng(2025).permutation(_GENERATED)
    known, test = order[:_KNOWN], order[-_TEST:]
    held = hold_out(y[known], _VALIDATION, rng)

    seen = x.astype(np.float32)
    schema = Schema(columns=tuple(Numeric(name=feature) for feature in features))
    encoder = Encoder.fit(schema, seen[known])
    raw = replace(encoder, scales=(UNSCALED, UNSCALED), dtypes=("float64", "float64"))

    def split(rows: NDArray[np.int64]) -> Split:
        return Split(torch.from_numpy(seen[rows]), torch.from_numpy(y[rows]))

    return Dataset(
        name=name,
        title=title,
        encoder=raw,
        label="class",
        classes=classes,
        train=split(known[~held]),
        validation=split(known[held]),
        test=split(test),
        test_frame=pd.DataFrame(seen[test].astype(np.float64), columns=list(features)).assign(
            **{"class": np.array(classes)[y[test]]}
        ),
        protected=("age",) if name == "debt-age" else ("x1",),
    )
