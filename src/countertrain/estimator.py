"""The classifier for people with a table: scikit-learn outside, counterfactual training inside."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data
from torch import Tensor, nn

from countertrain.runs import callbacks, export, fitting, store
from countertrain.search.generator import Generator
from countertrain.tables.encoder import Encoder
from countertrain.tables.schema import Schema, SchemaError, as_frame, check_names
from countertrain.training.history import History
from countertrain.training.methods import Method
from countertrain.words import plain

if TYPE_CHECKING:
    from countertrain.recourse.answer import Recourse

__all__ = ["CounterfactualClassifier"]

Table = pd.DataFrame | NDArray[Any]
"""Rows with named columns, or an array of them in the order of the schema."""
_REFERENCE_ROWS = 10_000  # of each class: what recourse is compared with, and what is saved with a model


class CounterfactualClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A neural network for tables, trained so that what it asks of people is plausible and in their power.

    Rows come as a DataFrame (numbers, texts, truth values) or as an array of numbers, labels as any type.

    Its parameters:

    - `schema`: what the columns mean; inferred from the training rows if left out. Give one where not every level of a
      column is sure to be among them, as in cross-validation.
    - `immutable`, `increase`, `decrease`: names of columns that people cannot change, or only one way; they overrule
      the schema.
    - `objective`: "ct" for counterfactual training, "ar" or "cd" for one half of it, "bl" for a conventional network;
      or a Method.
    - `generator`: the search in training, "eccco", "generic" or "revise" (in latent space); or a Generator.
    - `hidden`: units of each hidden layer.
    - `module`: a network of your own: an nn.Module, which is copied and goes on from the weights that it has, or a
      callable (n_features, n_classes) that makes one.
    - `n_models`: networks that are trained together and decide by the mean of their probabilities.
    - `epochs`, `batch_size`, `learning_rate`: of the training; batches have 30 to 1000 rows, by the size of the table.
    - `n_ce`: counterfactuals searched an epoch; 1000, or all rows if there are fewer.
    - `lambda_div`, `lambda_adv`, `lambda_reg`: weights of divergence, adversarial loss and ridge in the objective.
    - `tau`, `n_steps`, `step_size`: the probability to reach in the search, its most steps, and their size. Only
      counterfactuals that get there teach the model anything by divergence; where hardly any do, `fit` warns.
    - `n_neighbours`: a counterfactual is contrasted with the nearest of so many random rows of its target class.
    - `class_weight`: "balanced", or a weight by label, of which only the ratios matter; 1 where a label is left out.
    - `early_stopping`: hold out a `validation_fraction` of the rows, stop once their loss has not fallen for `patience`
      epochs, and keep the best weights.
    - `random_state`: the same integer gives the same classifier.
    - `verbose`: show a bar while it trains.
    """

    classes_: NDArray[Any]  # (K,)
    encoder_: Encoder
    models_: list[nn.Module]
    ensemble_: nn.Module  # the models as one: (n, D) encoded rows -> (n, K) logits
    history_: History
    reference_x_: Tensor | None  # (m, D) encoded training rows, or None where they were not saved
    reference_y_: Tensor | None  # (m,) their classes, as places in classes_

    def __init__(
        self,
        schema: Schema | None = None,
        *,
        immutable: Sequence[str] = (),
        increase: Sequence[str] = (),
        decrease: Sequence[str] = (),
        objective: Literal["ct", "bl", "ar", "cd"] | Method = "ct",
        generator: Literal["eccco", "generic", "revise"] | Generator = "eccco",
        hidden: Sequence[int] = (32,),
        module: fitting.Module | None = None,
        n_models: int = 1,
        epochs: int = 100,
        batch_size: int | None = None,
        learning_rate: float = 1e-3,
        n_ce: int | None = None,
        lambda_div: float = 0.2,
        lambda_adv: float = 0.25,
        lambda_reg: float = 0.1,
        tau: float = 0.5,
        n_steps: int = 30,
        step_size: float = 0.1,
        n_neighbours: int = 16,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 10,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.schema = schema
        self.immutable = immutable
        self.increase = increase
        self.decrease = decrease
        self.objective = objective
        self.generator = generator
        self.hidden = hidden
        self.module = module
        self.n_models = n_models
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.n_ce = n_ce
        self.lambda_div = lambda_div
        self.lambda_adv = lambda_adv
        self.lambda_reg = lambda_reg
        self.tau = tau
        self.n_steps = n_steps
        self.step_size = step_size
        self.n_neighbours = n_neighbours
        self.class_weight = class_weight
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Train on rows X, a DataFrame or an array (n, columns), and their labels y (n,)."""
        self._check_parameters()
        table, labels = self._training_rows(X, y)
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"y must hold at least two classes; its {len(labels)} rows are all of one class, {plain(classes[0])!r}"
            )
        encoder = Encoder.fit(self._schema_of(table), table)
        x = encoder.tensor(table)  # (n, D)
        rng = check_random_state(self.random_state)
        weight = fitting.class_weights(self.class_weight, classes, codes)
        self.models_, self.history_ = self._train(encoder, x, torch.from_numpy(codes), weight, rng)
        fitting.warn_if_immature(self.objective, self.history_)
        self.ensemble_ = fitting.as_one(self.models_)
        self.encoder_, self.classes_ = encoder, classes
        kept = fitting.sample_of_each_class(codes, _REFERENCE_ROWS, rng)
        self.reference_x_, self.reference_y_ = x[kept], torch.from_numpy(codes[kept])
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probability of each class, (n, K), in the order of `classes_`."""
        table = self._rows(X)
        logits = fitting.logits_of(self.ensemble_, self.encoder_.tensor(table))
        return logits.softmax(-1).numpy()

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row, (n,)."""
        best: NDArray[np.int64] = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    def explain(
        self,
        rows: Any,
        target: Any = None,
        *,
        n_options: int = 1,
        immutable: Sequence[str] = (),
        ranges: Mapping[str, Any] | None = None,
        tau: float = 0.75,
        n_steps: int = 100,
        sparse: bool = True,
        seed: int = 0,
    ) -> "Recourse":
        """What each row could change to be decided as `target`; of two classes, the other one if left out.

        For this call, further columns may be held fixed and values limited: `ranges={"income": (None, 50_000)}`.
        """
        from countertrain.recourse.search import explain

        check_is_fitted(self)
        return explain(
            self,
            rows,
            target,
            n_options=n_options,
            immutable=immutable,
            ranges=ranges,
            tau=tau,
            n_steps=n_steps,
            sparse=sparse,
            seed=seed,
        )

    def report(self, X: Any, y: Any, path: str | os.PathLike[str] | None = None, **options: Any) -> Path | str:
        """One self-contained HTML page about the classifier, judged by test rows X and their labels y."""
        from countertrain.report.report import report

        check_is_fitted(self)
        return report(self, X, y, path, **options)

    def save(self, path: str | os.PathLike[str], *, rows: bool = True, overwrite: bool = False) -> None:
        """Write the fitted classifier into a new folder, whole or not at all.

        `rows=False` leaves out the training rows, with which recourse is compared. Nothing but another classifier is
        ever overwritten.
        """
        check_is_fitted(self)
        store.save(self, Path(path), rows=rows, overwrite=overwrite)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        module: fitting.Module | None = None,
        objective: Method | None = None,
        generator: Generator | None = None,
    ) -> Self:
        """The classifier that `save` wrote; nothing in the folder is ever run.

        What was code of your own has to be given again: a module always, an objective or a generator to fit again.
        """
        return store.load(cls, Path(path), module=module, objective=objective, generator=generator)

    def save_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write an ONNX file that takes rows as `onnx_rows` gives them; encoding and probabilities are part of it.

        Input `rows` (n, columns), float64; outputs `label` (n,), a place in `classes_`, and `probabilities` (n, K).
        """
        check_is_fitted(self)
        export.save_onnx(self.encoder_, self.ensemble_, self.classes_, Path(path))

    def onnx_rows(self, X: Any) -> NDArray[np.float64]:
        """Rows as the ONNX file takes them: numbers in their own units, levels by place, truth values as 0 or 1."""
        table = self._rows(X)
        return export.onnx_rows(self.encoder_, table)

    def _train(
        self, encoder: Encoder, x: Tensor, y: Tensor, weight: Tensor | None, rng: np.random.RandomState
    ) -> tuple[list[nn.Module], History]:
        """New models, trained as one population on encoded rows x (n, D) with classes y (n,)."""
        seeds = rng.randint(2**31 - 1, size=self.n_models).tolist()
        n_classes = int(y.max()) + 1
        models = fitting.build_models(self.module, x.shape[1], n_classes, hidden=self.hidden, seeds=seeds)
        stopping, validation = None, None
        if self.early_stopping:
            train, held = fitting.split(y.numpy(), self.validation_fraction, rng)
            validation, x, y = (x[held], y[held]), x[train], y[train]
            stopping = callbacks.EarlyStopping(models, *validation, weight=weight, patience=self.patience)
        trainer = fitting.build_trainer(self, encoder, x, weight, seeds)
        with callbacks.progress_bar(self.epochs, shown=self.verbose) as watching, fitting.private_stream(seeds[0]):
            watching += [] if stopping is None else [stopping]
            history = trainer.fit(models, x, y, validation=validation, callbacks=watching)
        if stopping is not None:
            stopping.restore()
        return models, history

    def _training_rows(self, X: Any, y: Any) -> tuple[Table, NDArray[Any]]:
        """Rows and labels, looked at as scikit-learn does; it notes the names and the number of the columns."""
        if isinstance(X, pd.DataFrame):
            X, y = validate_data(self, X, y, skip_check_array=True)
            _check_some(X)
        else:
            X, y = validate_data(self, X, y, dtype=np.float64)
        labels = column_or_1d(y, warn=True)
        check_consistent_length(X, labels)
        missing = np.flatnonzero(pd.isna(labels))
        if len(missing):
            raise ValueError(f"Input y contains NaN, a missing label, in row {missing[0]}; drop such rows")
        check_classification_targets(labels)
        return X, labels

    def _rows(self, X: Any) -> Table:
        """Rows to decide on: the columns of a DataFrame by name in any order, those of an array by place."""
        check_is_fitted(self)
        named = hasattr(self, "feature_names_in_")
        if not isinstance(X, pd.DataFrame):
            own = {"dtype": None, "ensure_all_finite": False} if named else {"dtype": np.float64}
            array = validate_data(self, X, reset=False, **own)
            return as_frame(array, self.encoder_.schema.names).infer_objects()
        _check_some(X)
        if named:
            return X
        validate_data(self, X, reset=False, skip_check_array=True)
        return X.set_axis(list(self.encoder_.schema.names), axis=1)

    def _schema_of(self, table: Table) -> Schema:
        """The schema given, or else inferred, with the columns that are listed by name."""
        if not isinstance(self.schema, Schema | None):
            raise TypeError(
                f"schema must be a Schema or None; got {type(self.schema).__name__}; "
                "Schema.from_json and Schema.from_toml read one"
            )
        schema = Schema.infer(table) if self.schema is None else self.schema
        lists = {"none": self.immutable, "increase": self.increase, "decrease": self.decrease}
        changes: dict[str, dict[str, str]] = {}
        for way, names in lists.items():
            for name in check_names(names, schema.names):
                if name in changes:
                    raise SchemaError(
                        f"column {name!r} is listed twice among immutable, increase and decrease; choose one"
                    )
                changes[name] = {"mutability": way}
        return schema.with_columns(**changes)

    def _check_parameters(self) -> None:
        """Refuse numbers that nothing further down would refuse."""
        for name in ("n_models", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")
        for name in ("learning_rate", "step_size"):
            if not 0 < getattr(self, name) < np.inf:
                raise ValueError(f"{name} must be a number above 0; got {getattr(self, name)}")
        for name in ("lambda_div", "lambda_adv", "lambda_reg"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name} must be a number from 0 upwards; got {getattr(self, name)}")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must lie strictly between 0 and 1; got {self.validation_fraction}")
        if isinstance(self.hidden, int) or any(width < 1 for width in self.hidden):
            raise ValueError(
                f"hidden lists the units of each hidden layer, such as (32,) or (64, 32); got {self.hidden!r}"
            )


def _check_some(frame: pd.DataFrame) -> None:
    if frame.empty:
        raise ValueError(
            f"X must have at least one row and one column; got {len(frame)} rows and {frame.shape[1]} columns"
        )
