"""A data set as training needs it: three splits in the model's units, and the encoder that leads there and back."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from countertrain.constraints import Constraints, Mutability
from countertrain.tables import cells
from countertrain.tables.encoder import Encoder, FitEncoder
from countertrain.tables.labels import code_labels
from countertrain.tables.rules.keeper import RuleKeeper
from countertrain.tables.schema import Schema, as_frame
from countertrain.tables.splits import Rows, Splits
from countertrain.words import suggest

__all__ = ["Dataset", "Split"]

_WAYS: dict[tuple[bool, bool], Mutability] = {
    (True, True): "both",
    (True, False): "increase",
    (False, True): "decrease",
    (False, False): "none",
}


@dataclass(frozen=True, eq=False)
class Split:
    """Rows x (n, D) in the model's units, float32, and their classes y (n,), int64."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows for training, validation and test, with the encoder that they come from."""

    name: str
    title: str
    encoder: Encoder
    label: str
    """The column to predict."""
    classes: tuple[Any, ...]
    """The labels of the K classes."""
    train: Split
    validation: Split
    test: Split
    test_frame: pd.DataFrame | None = None
    """The test rows in people's units with their labels, and with columns that the model does not see."""
    domain: tuple[Tensor, Tensor] | None = None
    """Lowest and highest value of each feature in the model's units, (D,); None: from the rows, or from the schema."""
    protected: tuple[str, ...] = ()
    """The features that the paper treats as immutable."""
    known: Tensor | None = None
    """Training and validation rows as one tensor, for data that do not fit in memory; None: joined when needed."""

    @classmethod
    def of(
        cls,
        rows: pd.DataFrame | NDArray[Any],
        y: Any,
        *,
        schema: Schema | None = None,
        splits: Splits | None = None,
        fit_on: Rows | None = None,
        classes: tuple[Any, ...] | None = None,
        name: str = "table",
        title: str = "table",
        label: str = "label",
        drop: Sequence[str] = (),
        protected: tuple[str, ...] = (),
        fit_encoder: FitEncoder = Encoder.fit,
    ) -> Self:
        """A data set of rows in people's units and their labels y (n,).

        The schema is inferred from all rows if left out, and the encoder fitted to the rows `fit_on`, which are those
        for training if left out; without `splits`, all rows are. `classes` gives the labels in an order other than
        theirs. The model does not see the columns to `drop`; the test rows keep them.
        """
        table = as_frame(rows, None if schema is None else schema.names)
        labels = pd.Series(np.asarray(y) if not isinstance(y, pd.Series) else y.to_numpy(), name=label)
        if len(labels) != len(table):
            raise ValueError(f"y must hold one label for each of the {len(table)} rows; got {len(labels)}")
        codes, classes = code_labels(labels, classes)
        parts = splits or (np.arange(len(table)), np.arange(0), np.arange(0))
        if schema is None:
            schema = Schema.infer(rows if isinstance(rows, np.ndarray) else table.drop(columns=list(drop)))
        encoder = fit_encoder(schema.drop(drop), table.iloc[parts[0] if fit_on is None else fit_on])
        with cells.as_declared():
            x, targets = encoder.tensor(table), torch.from_numpy(codes)  # (n, D), (n,)
        train, validation, test = (Split(x[part], targets[part]) for part in parts)
        frame = table.iloc[parts[2]].reset_index(drop=True)
        frame[label] = pd.Series([classes[k] for k in codes[parts[2]]], dtype=object).infer_objects()
        return cls(
            name=name,
            title=title,
            encoder=encoder,
            label=label,
            classes=classes,
            train=train,
            validation=validation,
            test=test,
            test_frame=frame,
            protected=tuple(column for column in protected if column not in drop),
        )

    @property
    def schema(self) -> Schema:
        """What the columns mean."""
        return self.encoder.schema

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the D columns that the model sees; those of a one-hot group read "name=level"."""
        return self.encoder.features

    @property
    def n_features(self) -> int:
        """D, the number of columns that the model sees."""
        return len(self.features)

    @property
    def n_classes(self) -> int:
        """K, the number of classes."""
        return len(self.classes)

    @property
    def categories(self) -> tuple[slice, ...]:
        """The one-hot groups among the features; a truth value is a group of one."""
        return self.encoder.categories

    @cached_property
    def fingerprint(self) -> str:
        """The same for the same encoder, classes and rows of all splits, and for no others."""
        digest = hashlib.sha256(self.encoder.to_json().encode())
        digest.update(json.dumps([str(label) for label in self.classes]).encode())
        for split in (self.train, self.validation, self.test):
            digest.update(f"{tuple(split.x.shape)}".encode())
            for tensor in (split.x, split.y):
                digest.update(tensor.contiguous().numpy().data)
        return digest.hexdigest()[:16]

    def original(self, x: Tensor) -> Tensor:
        """Rows (n, D) with numbers in a person's units; for whole rows of a table, see `encoder.decode`."""
        return self.encoder.unscale(x)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns of the table that the model sees."""
        return tuple(dict.fromkeys(feature.split("=", 1)[0] for feature in self.features))

    def columns(self, names: Sequence[str]) -> list[int]:
        """Places of the named features; the name of a one-hot group stands for all of its columns."""
        places: list[int] = []
        for name in names:
            mine = [i for i, f in enumerate(self.features) if f == name or f.split("=", 1)[0] == name]
            if not mine:
                raise ValueError(f"{self.name} has no column {name!r}; {suggest(name, self.column_names)}")
            places += mine
        return places

    def drop(self, names: Sequence[str]) -> Self:
        """The data set of a model that does not see these columns of the table."""
        kept = [i for i, column in enumerate(self.encoder.column_of) if self.schema.names[column] not in names]
        return replace(
            self,
            encoder=self.encoder.drop(names),
            train=Split(self.train.x[:, kept], self.train.y),
            validation=Split(self.validation.x[:, kept], self.validation.y),
            test=Split(self.test.x[:, kept], self.test.y),
            domain=None if self.domain is None else (self.domain[0][kept], self.domain[1][kept]),
            protected=tuple(name for name in self.protected if name not in names),
            known=None,
        )

    def constraints(
        self,
        *,
        n_sigma: float | None = 2.0,
        immutable: Sequence[str] = (),
        mutability: Mapping[str, Mutability] | None = None,
        categories: bool = False,
    ) -> Constraints:
        """What may change, in the model's units: the schema's mutability, overruled by what is listed here.

        The domain is the data set's own; or else mean and `n_sigma` standard deviations of training and validation
        rows, where every level that some row has is open to all; with None, bounds and levels are the schema's.
        `categories` projects one-hot groups at every step, as the authors' program does at test time only.
        """
        declared = self.encoder.constraints(rare=n_sigma is not None)
        ways = [_WAYS[way] for way in zip(declared.may_increase.tolist(), declared.may_decrease.tolist(), strict=True)]
        for name, way in {**(mutability or {}), **dict.fromkeys(immutable, "none")}.items():
            for place in self.columns([name]):
                if place not in self.encoder.indicators or way == "none":
                    ways[place] = way  # type: ignore[call-overload]  # checked by Constraints
        lower, upper = self.domain or (declared.lower, declared.upper)
        if self.domain is None and n_sigma is not None:
            known = torch.cat([self.train.x, self.validation.x]) if self.known is None else self.known
            inferred = Constraints.infer(known, n_sigma=n_sigma)
            lower, upper = inferred.lower, inferred.upper
        keeper = RuleKeeper.of(self.encoder)
        groups, transitions = (self.categories, declared.transitions) if categories else ((), {})
        free = Constraints.of(self.n_features, mutability=ways, lower=lower, upper=upper, categories=groups)
        repair = None if keeper is None else keeper.mend_search
        return replace(free, transitions=transitions, held=declared.held, repair=repair)
