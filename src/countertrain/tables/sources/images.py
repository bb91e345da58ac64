"""Images: MNIST as the paper uses it, and the small digits that come with scikit-learn."""

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from countertrain.tables.dataset import Dataset, Split
from countertrain.tables.encoder import Encoder
from countertrain.tables.scales import Standard
from countertrain.tables.schema import Numeric, Schema
from countertrain.tables.sources.downloads import DataFileError, fetch, find, unzip
from countertrain.tables.splits import hold_out, split_rows

__all__ = ["digits", "mnist"]

Images = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Pixels (n, D) and the digit of each image (n,)."""

_VALIDATION = 1000
_MNIST = {
    "train-images-idx3-ubyte.gz": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte.gz": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte.gz": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte.gz": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


def mnist(*, data_seed: int = 42) -> Dataset:
    """MNIST: 1100 training images per digit drawn with replacement, all 10,000 test images, pixels in [-1, 1]."""
    images, labels = _read("train-images-idx3-ubyte.gz", 60_000), _read("train-labels-idx1-ubyte.gz", 60_000)
    rng = np.random.default_rng(data_seed)
    rows = np.sort(np.concatenate([rng.choice(np.flatnonzero(labels == k), 1100) for k in range(10)]))
    y = labels[rows].astype(np.int64)
    held = hold_out(y, _VALIDATION, rng)
    test = _read("t10k-images-idx3-ubyte.gz", 10_000), _read("t10k-labels-idx1-ubyte.gz", 10_000).astype(np.int64)
    return _assemble(
        "mnist",
        "MNIST, handwritten digits of 28 x 28 pixels",
        (images[rows[~held]], y[~held]),
        (images[rows[held]], y[held]),
        test,
        names=[f"row {r}={c}" for r in range(28) for c in range(28)],
        brightest=255,
        protected=tuple(f"row {r}" for r in range(28) if r < 5 or r >= 23),
    )


def digits(*, data_seed: int = 42) -> Dataset:
    """Handwritten digits, 1797 images of 8 x 8 pixels scaled to [-1, 1]; bundled with scikit-learn."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    pixels, y = bunch.data.astype(np.uint8), bunch.target.astype(np.int64)
    train, validation, test = ((pixels[rows], y[rows]) for rows in split_rows(y, data_seed))
    return _assemble(
        "digits",
        "Handwritten digits (8 x 8)",
        train,
        validation,
        test,
        names=[f"pixel {r},{c}" for r in range(8) for c in range(8)],
        brightest=16,
    )


def _assemble(
    name: str,
    title: str,
    train: Images,
    validation: Images,
    test: Images,
    *,
    names: list[str],
    brightest: int,
    protected: tuple[str, ...] = (),
) -> Dataset:
    """A data set whose encoder maps pixels from 0 to the brightest to [-1, 1], whatever the images show."""
    d, middle = len(names), brightest / 2
    schema = Schema(columns=tuple(Numeric(name=pixel, integer=True, lower=0, upper=brightest) for pixel in names))
    encoder = Encoder(schema, (Standard(middle, middle),) * d, ("uint8",) * d)
    frame = pd.DataFrame(test[0].reshape(-1, d), columns=names)

    def split(images: Images) -> Split:  # in single precision, as the published models saw them
        pixels = images[0].reshape(-1, d).astype(np.float32)
        return Split(torch.from_numpy(pixels / np.float32(middle) - 1), torch.from_numpy(images[1]))

    return Dataset(
        name=name,
        title=title,
        encoder=encoder,
        label="digit",
        classes=tuple(str(k) for k in range(10)),
        train=split(train),
        validation=split(validation),
        test=split(test),
        test_frame=frame.assign(digit=test[1].astype(str)),
        domain=(torch.full((d,), -1.0, dtype=torch.float64), torch.full((d,), 1.0, dtype=torch.float64)),
        protected=protected,
    )


def _read(name: str, n: int) -> NDArray[np.uint8]:
    """An IDX file as an array (n, ...), refused unless it is the original."""
    path = find(name) or fetch(name, "OpenML, data set 554", lambda p: _download(name, p))
    raw = unzip(path)
    if hashlib.sha256(raw).hexdigest() != _MNIST[name]:
        raise DataFileError(f"{path} has the wrong checksum: it is not the original file; delete it, and get it again")
    return np.frombuffer(raw, dtype=np.uint8, offset=16 if "idx3" in name else 8).reshape(n, -1).squeeze()


def _download(name: str, path: Path) -> None:
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
