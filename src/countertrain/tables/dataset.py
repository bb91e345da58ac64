"""A data set as training needs it: three splits in the model's units, and the way back to a person's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from countertrain.constraints import Constraints, Mutability
from countertrain.tables.encoder import Encoder
from countertrain.words import suggest

__all__ = ["Dataset", "Split", "hold_out"]


@dataclass(frozen=True, eq=False)
class Split:
    """Rows x (n, D) in the model's units and their classes y (n,)."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows for training, validation and test, with what is known about their columns."""

    name: str
    title: str
    train: Split
    validation: Split
    test: Split
    features: tuple[str, ...]
    """Names of the D columns; those of a one-hot group read "name=level"."""
    classes: tuple[str, ...]
    centre: Tensor  # (D,)
    scale: Tensor  # (D,): a person's units are x * scale + centre
    categories: tuple[slice, ...] = ()
    domain: tuple[float, float] | None = None
    """Bounds of every feature in the model's units; None: inferred from the rows."""
    protected: tuple[str, ...] = ()
    """The features that the paper treats as immutable."""
    known: Tensor | None = None
    """Training and validation rows as one tensor, for data that do not fit in memory; None: joined when needed."""
    encoder: Encoder | None = None
    """What turned the rows of a table into these; None: the columns are only known by name."""

    @property
    def n_features(self) -> int:
        """D, the number of columns."""
        return len(self.features)

    @property
    def n_classes(self) -> int:
        """K, the number of classes."""
        return len(self.classes)

    def original(self, x: Tensor) -> Tensor:
        """Rows in a person's units."""
        return x * self.scale + self.centre

    def columns(self, names: Sequence[str]) -> list[int]:
        """Columns of the named features; the name of a one-hot group stands for all of its columns."""
        found: list[int] = []
        for name in names:
            columns = [i for i, f in enumerate(self.features) if f == name or f.split("=", 1)[0] == name]
            if not columns:
                known = list(dict.fromkeys(f.split("=", 1)[0] for f in self.features))
                raise ValueError(f"{self.name} has no feature {name!r}; {suggest(name, known)}")
            found += columns
        return found

    def constraints(
        self,
        *,
        n_sigma: float = 2.0,
        immutable: Sequence[str] = (),
        mutability: Mapping[str, Mutability] | None = None,
        categories: bool = False,
    ) -> Constraints:
        """What may change: domain (given or inferred from training and validation rows), mutability, groups.

        `categories` projects one-hot groups at every step, as the authors' program does at test time only.
        """
        ways: dict[int, Mutability] = {}
        for name, way in {**(mutability or {}), **dict.fromkeys(immutable, "none")}.items():
            ways |= dict.fromkeys(self.columns([name]), way)  # type: ignore[arg-type]  # checked by Constraints
        groups = self.categories if categories else ()
        if self.domain is not None:
            lower, upper = self.domain
            return Constraints.of(self.n_features, mutability=ways, lower=lower, upper=upper, categories=groups)
        known = torch.cat([self.train.x, self.validation.x]) if self.known is None else self.known
        return Constraints.infer(known, n_sigma=n_sigma, mutability=ways, categories=groups)


def hold_out(y: NDArray[np.int64], n: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """A mask of n rows, of each class its share (largest remainders are rounded up)."""
    held = np.zeros(len(y), dtype=bool)
    labels, counts = np.unique(y, return_counts=True)
    shares = n * counts / len(y)
    quota = np.floor(shares).astype(int)
    quota[np.argsort(quota - shares, kind="stable")[: n - quota.sum()]] += 1
    for label, wanted in zip(labels, quota, strict=True):
        held[rng.permutation(np.flatnonzero(y == label))[:wanted]] = True
    return held
