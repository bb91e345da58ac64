"""The classifier for people with a table: scikit-learn outside, counterfactual training inside."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
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

from countertrain.files import one_sentence
from countertrain.models.deciding import logits_of
from countertrain.recourse.defaults import N_STEPS, OPTIONS
from countertrain.recourse.threshold import decide
from countertrain.runs import callbacks, export, fitting
from countertrain.runs.folder import read_run, write_run
from countertrain.runs.looking import hold_fixed
from countertrain.runs.measure import Training
from countertrain.runs.modules import Module
from countertrain.runs.monotone import declare_monotone
from countertrain.runs.registry import OwnCode, find_encoder, read_schema
from countertrain.runs.run import Run
from countertrain.runs.settings import FRAME, Settings, SettingsSource, settings_to_mapping
from countertrain.runs.training import describe_environment
from countertrain.runs.wanted import check_wanted, choose_threshold, gather_evidence
from countertrain.search.generator import Generator
from countertrain.tables.cells import as_declared
from countertrain.tables.encoder import Encoder
from countertrain.tables.labels import code_labels
from countertrain.tables.names import find_fixed
from countertrain.tables.regularities import infer_schema
from countertrain.tables.schema import Schema, as_frame, check_names
from countertrain.training.history import History
from countertrain.training.method import Method
from countertrain.training.teaching import Teacher
from countertrain.words import plain

if TYPE_CHECKING:
    from countertrain.judge import Verdict
    from countertrain.recourse.answer import Recourse
    from countertrain.recourse.decider import Decider

__all__ = ["CounterfactualClassifier", "load"]

Table = pd.DataFrame | NDArray[Any]
"""Rows with named columns, or an array of them in the order of the schema."""
_CODE = ("module", "objective", "generator", "teacher")  # parameters that may be code of the user's own
_KINDS: dict[str, Any] = {"objective": Method, "generator": Generator, "teacher": Teacher}  # where it has also names


class CounterfactualClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A neural network for tables, trained so that what it asks of people is plausible and in their power.

    Rows come as a DataFrame (numbers, texts, truth values) or as an array of numbers, labels as any type.

    What is left out is what `settings` say: the path of a settings.toml or chosen.toml, a mapping, or Settings; or else
    the profile `table`. Its other parameters:

    - `schema`: what the columns mean; inferred from the training rows if left out. Give one where not every level of a
      column is sure to be among them, as in cross-validation.
    - `immutable`, `increase`, `decrease`: names of columns that people cannot change, or only one way; they overrule
      the schema.
    - `fix_proposed`: whether what people can rarely change, by the names of the columns of a DataFrame (age, sex,
      family, where they live), is held fixed, too, as `settings_.immutable` then says. Left out, it is unless `schema`
      or `settings` say what is fixed.
    - `target`: the class that people want. Whatever explains, judges and reports then speaks of it.
    - `threshold`: the probability that `target` needs, of two classes: a number; or "cost:5:1", chosen by the held-out
      rows so that mistakes cost least (to grant it wrongly costs 5, to refuse it wrongly 1); or "rate:0.3", so that
      30 % of people get it.
    - `monotone`: columns in which the model never goes the wrong way, by construction: {"income": "+", "debt": "-"}. As
      one with "+" rises, `target` never becomes less probable, all else equal. Also 1, -1 and 0, by name or in a list
      with one for each column, as LightGBM and scikit-learn have it.
    - `against_evidence`: advice keeps to what the training rows say of a column, where that is clear (that more of it,
      or less, makes the wanted class more frequent, all else equal) and nobody has declared a direction. True, or the
      names of columns, lets it go the other way.
    - `objective`: "taught" for counterfactual training with a teacher, "ct" for the paper's, "ar" or "cd" for one half
      of that, "bl" for a conventional network; or a Method.
    - `generator`: the search in training, "eccco", "generic" or "revise" (in latent space); or a Generator.
    - `teacher`: who says what it makes of counterfactuals, "boosting" or "none"; or anything with scikit-learn's `fit`
      and `predict_proba`.
    - `hidden`: units of each hidden layer, (128,).
    - `module`: a network of your own: an nn.Module, which is copied and goes on from the weights that it has, or a
      callable (n_features, n_classes) that makes one.
    - `n_models`: networks that are trained together and decide by the mean of their probabilities, 2; or one per seed
      of the settings.
    - `epochs`, `batch_size`, `learning_rate`: of the training, at most 40, and 0.002; batches have 30 to 1000 rows, by
      the size of the table.
    - `n_ce`: counterfactuals searched per epoch; 1000, or all rows if there are fewer.
    - `lambda_div`, `lambda_adv`, `lambda_reg`, `lambda_teach`: weights of divergence (0.1), adversarial loss (0.25,
      "ct" and "ar" only), ridge (0.1) and teacher (2, "taught" only).
    - `tau`, `n_steps`, `step_size`: the probability to reach in the search of training (0.75), its most steps (10), and
      their size (0.3). Only counterfactuals that get there teach the model anything by divergence; where hardly any do,
      `fit` warns, unless there is a teacher, who speaks of all.
    - `n_neighbours`: a counterfactual is contrasted with the nearest of so many (16) random rows of its target class.
    - `class_weight`: "balanced", or a weight by label, of which only the ratios matter; 1 where a label is left out.
    - `early_stopping`, on by default: hold out a `validation_fraction` (0.1) of the rows, stop once their loss has not
      fallen for `patience` (6) epochs, and keep the best weights.
    - `random_state`: the same integer gives the same classifier; without one, the seeds of the settings, if they have
      any, are used.
    - `verbose`: show a bar while it trains.
    """

    run_: Run
    settings_: Settings
    classes_: NDArray[Any]  # (K,)
    encoder_: Encoder
    models_: list[nn.Module]
    ensemble_: nn.Module  # the models as one: (n, D) encoded rows -> (n, K) logits
    history_: History
    reference_x_: Tensor | None  # (m, D) encoded training rows, or None where they were not saved
    reference_y_: Tensor | None  # (m,) their classes, as places in classes_

    @fitting.answer_typos
    def __init__(
        self,
        schema: Schema | None = None,
        *,
        settings: SettingsSource | None = None,
        immutable: Sequence[str] | None = None,
        increase: Sequence[str] | None = None,
        decrease: Sequence[str] | None = None,
        fix_proposed: bool | None = None,
        target: Any = None,
        threshold: float | str | Mapping[str, float] | None = None,
        monotone: Mapping[str, Any] | Sequence[Any] | NDArray[Any] | None = None,
        against_evidence: bool | Sequence[str] | None = None,
        objective: str | Method | None = None,
        generator: str | Generator | None = None,
        hidden: Sequence[int] | None = None,
        module: Module | None = None,
        n_models: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        n_ce: int | None = None,
        lambda_div: float | None = None,
        lambda_adv: float | None = None,
        lambda_reg: float | None = None,
        lambda_teach: float | None = None,
        teacher: str | Teacher | None = None,
        tau: float | None = None,
        n_steps: int | None = None,
        step_size: float | None = None,
        n_neighbours: int | None = None,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        early_stopping: bool | None = None,
        validation_fraction: float | None = None,
        patience: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.schema = schema
        self.settings = settings
        self.immutable = immutable
        self.increase = increase
        self.decrease = decrease
        self.fix_proposed = fix_proposed
        self.target = target
        self.threshold = threshold
        self.monotone = monotone
        self.against_evidence = against_evidence
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
        self.lambda_teach = lambda_teach
        self.teacher = teacher
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
        settings = self.resolve()
        table, labels = self._training_rows(X, y)
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"y must hold at least two classes; its {len(labels)} rows are all of one class, {plain(classes[0])!r}"
            )
        if isinstance(table, pd.DataFrame):
            table = table.drop(columns=[name for name in settings.drop if name in table])
        settings = self._hold_fixed(settings, table)
        encoder = find_encoder(settings.encoder)(self._schema_of(table, settings), table)
        label = _name_of(y, encoder.schema.names)
        with as_declared():
            x, y = encoder.tensor(table), torch.from_numpy(codes)  # (n, D), (n,)
        settings, rng = self._draw_seeds(settings)
        if self.early_stopping is None and len(y) < fitting.FEWEST_ROWS:
            settings = settings.change(early_stopping=False)
        data = fitting.make_dataset(settings, encoder, x, y, classes, rng, label)
        check_wanted(settings, data)
        training = Training.begin([settings], data, own=self.own_code)
        with callbacks.progress_bar(settings.epochs, shown=self.verbose) as watching:
            history = training.fit(callbacks=watching)
        if self.own_code.objective is None:
            fitting.warn_if_immature(settings.objective, history)
        kept = fitting.keep_rows(settings, data, rng)
        threshold = choose_threshold(settings, data, training.models)
        run = Run(
            settings,
            kept,
            training.models,
            history,
            threshold=threshold,
            evidence=gather_evidence(settings, data),
            environment=describe_environment() | {"data": data.fingerprint},
        )
        run = replace(run.learn_taus(), own_code=self._name_own_code(), estimator=self._remember(classes))
        return self._adopt(run)

    def resolve(self) -> Settings:
        """The settings of these parameters: what is given, then what `settings` say, then the profile `table`.

        The seeds are only as many as there are models; `fit` draws them from `random_state`.
        """
        given = {name: _as_given(name, getattr(self, name)) for name in Settings.model_fields if hasattr(self, name)}
        given = {
            name: value
            for name, value in given.items()
            if value is not None and not isinstance(value, _KINDS.get(name, ()))
        }
        shared = settings_to_mapping(self.settings)
        if self.n_models is None and self.module is not None and "seeds" not in shared:
            given["seeds"] = (0,)
        if self.n_models is not None:
            if self.n_models < 1:
                raise ValueError(f"n_models must be at least 1; got {self.n_models}")
            if self.n_models != len(shared.get("seeds", ())):
                given["seeds"] = tuple(range(self.n_models))
        return Settings.resolve(FRAME, {**shared, **given})

    @property
    def own_code(self) -> OwnCode:
        """What was given as Python objects instead of by name."""
        return OwnCode(
            module=self.module,
            objective=self.objective if isinstance(self.objective, Method) else None,
            generator=self.generator if isinstance(self.generator, Generator) else None,
            teacher=self.teacher if isinstance(self.teacher, Teacher) else None,
        )

    def _draw_seeds(self, settings: Settings) -> tuple[Settings, np.random.RandomState]:
        """The settings with a seed for each model, and a stream for all else that is drawn."""
        if self.random_state is None and "seeds" in settings_to_mapping(self.settings):
            return settings, np.random.RandomState(settings.data_seed)
        rng = check_random_state(self.random_state)
        return settings.change(seeds=rng.randint(2**31 - 1, size=len(settings.seeds)).tolist()), rng

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probability of each class, (n, K), in the order of `classes_`."""
        table = self._rows(X)
        logits = logits_of(self.ensemble_, self.encoder_.tensor(table))
        return logits.softmax(-1).numpy()

    def predict(self, X: Any) -> NDArray[Any]:
        """The class that is decided for, (n,): the most probable one, or the one that reaches the threshold."""
        table = self._rows(X)
        logits = logits_of(self.ensemble_, self.encoder_.tensor(table))
        decided: NDArray[np.int64] = decide(logits, self.run_.threshold).numpy()
        return self.classes_[decided]

    @property
    def decider(self) -> "Decider":
        """What explaining, judging and serving the decisions needs of the fitted classifier."""
        check_is_fitted(self)
        return self.run_.decider

    def explain(
        self,
        rows: Any,
        target: Any = None,
        *,
        options: int = OPTIONS,
        immutable: Sequence[str] = (),
        ranges: Mapping[str, Any] | None = None,
        tau: float | None = None,
        n_steps: int = N_STEPS,
        certainty: float | None = None,
        sparse: bool = True,
        against_evidence: bool = False,
        prove: bool | float = True,
        seed: int = 0,
    ) -> "Recourse":
        """What each row could change to be decided as `target`; left out, as people want by `target` of the classifier.

        Where nobody said what they want, it is the other one of two classes. Who is decided so already is told to
        change nothing.

        Up to `options` ways are found per row. They make the classifier as sure as it takes for such advice to hold,
        or give it the probability `tau`. For this call, further columns may be held fixed and values limited:
        `ranges={"income": (None, 50_000)}`; `against_evidence` lets columns go the way that the training rows speak
        against.

        Where no way is found, `existence` says whether that is proven; `prove=60` spends about a minute more on each
        person for whom it stays open, `prove=False` does not ask.

        `certainty` asks for advice that holds: of such advice to people who were held out in training, so large a share
        is accepted by independent models, too (some seconds the first time).
        """
        from countertrain.recourse.search import explain

        if certainty is not None:
            if tau is not None:
                raise ValueError("give either tau or certainty, not both")
            tau = self._find_tau(certainty, target)
        return explain(
            self.decider,
            rows,
            target,
            options=options,
            immutable=immutable,
            ranges=ranges,
            tau=tau,
            n_steps=n_steps,
            sparse=sparse,
            against_evidence=against_evidence,
            prove=prove,
            seed=seed,
        )

    def _find_tau(self, certainty: float, target: Any) -> float:
        """The probability at which so large a share of the advice holds."""
        from countertrain.judge.certainty import find_tau, judge_held_out

        target = self.decider.settle_target(target)
        known = self.__dict__.setdefault("_verdicts", {})
        if plain(target) not in known:
            known[plain(target)] = judge_held_out(self.decider, target)
        return find_tau(known[plain(target)], certainty)

    def report(
        self,
        X: Any,
        y: Any,
        path: str | os.PathLike[str] | None = None,
        *,
        baseline: "CounterfactualClassifier | None" = None,
        **options: Any,
    ) -> Path | str:
        """One self-contained HTML page about the classifier, judged by test rows X and their labels y."""
        from countertrain.report.write import write_report

        if not isinstance(baseline, CounterfactualClassifier | None):
            raise TypeError(f"baseline must be a CounterfactualClassifier; got {type(baseline).__name__}")
        other = None if baseline is None else baseline.decider
        return write_report(self.decider, X, y, path, baseline=other, **options)

    def judge(self, X: Any, y: Any, target: Any = None, **options: Any) -> "Verdict":
        """Does the advice hold? What independent models make of the rows that people among X are told to have.

        They are boosting, a forest, logistic regression, and this classifier trained anew on two halves of its rows.
        `target` is the decision that people want; left out, that of the classifier, or else the last class. y holds the
        true labels of X.
        """
        from countertrain.judge import judge

        target = self.decider.settle_target(target)
        table = as_frame(self._rows(X), self.encoder_.schema.names)
        codes = code_labels(pd.Series(column_or_1d(y), name=self.run_.data.label), tuple(self.decider.classes))[0]
        wanted = self.classes_[-1] if target is None else target
        retrain = partial(fitting.retrain, self.run_, own=self.own_code)
        return judge(self.decider, table, codes, plain(wanted), retrain=retrain, **options)

    def save(self, path: str | os.PathLike[str], *, rows: bool = True, overwrite: bool = False) -> None:
        """Write the fitted classifier into a new folder, whole or not at all.

        `rows=False` leaves out the rows of people, with which recourse is compared. Nothing but another classifier is
        ever overwritten.
        """
        check_is_fitted(self)
        write_run(self.run_, Path(path), rows=rows, overwrite=overwrite)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        module: Module | None = None,
        objective: Method | None = None,
        generator: Generator | None = None,
        teacher: Teacher | None = None,
    ) -> Self:
        """The model in a folder, whether `save` or `countertrain train` wrote it; nothing in the folder is ever run.

        Code of your own has to be given again: a module always, an objective, a generator or a teacher to fit again.
        """
        run = read_run(Path(path), module=module)
        return cls.of(run, module=module, objective=objective, generator=generator, teacher=teacher)

    @classmethod
    def of(
        cls,
        run: Run,
        *,
        module: Module | None = None,
        objective: Method | None = None,
        generator: Generator | None = None,
        teacher: Teacher | None = None,
    ) -> Self:
        """The classifier of a run; code of your own, where it had any, is given again as in `load`."""
        given: dict[str, Any] = dict(zip(_CODE, (module, objective, generator, teacher), strict=True))
        for name, value in given.items():
            if value is not None and name not in run.own_code:
                raise ValueError(f"the model in {run.folder} has no {name} of its own; load it without {name}=")
        code: dict[str, Any] = {name: fitting.LOST if given[name] is None else given[name] for name in run.own_code}
        if run.estimator is None:
            classifier = cls(settings=run.settings, **code)
            classifier.n_features_in_ = len(run.data.schema.names)
            classifier.feature_names_in_ = np.array(run.data.schema.names, dtype=object)
        else:
            with one_sentence(Path(run.folder or ".") / "about.json", "copy the folder again, or save it again"):
                classifier = cls(**fitting.parameters_from_json(run.estimator["parameters"]), **code)
            classifier.n_features_in_ = run.estimator["n_features_in"]
            if run.estimator["feature_names_in"] is not None:
                classifier.feature_names_in_ = np.array(run.estimator["feature_names_in"], dtype=object)
        return classifier._adopt(run)

    def _adopt(self, run: Run) -> Self:
        """Be the classifier of a run."""
        self.run_ = run
        self.__dict__.pop("_verdicts", None)
        self.settings_, self.encoder_, self.classes_ = run.settings, run.data.encoder, run.classes
        self.models_, self.ensemble_, self.history_ = list(run.models), run.model, run.history
        reference = run.data.train
        self.reference_x_, self.reference_y_ = (reference.x, reference.y) if len(reference) else (None, None)
        return self

    def _name_own_code(self) -> dict[str, str]:
        """The parameters that are code, and what they are called."""
        code = {name: getattr(self, name) for name in _CODE}
        return {
            name: getattr(value, "__name__", type(value).__name__)
            for name, value in code.items()
            if not isinstance(value, str | None)
        }

    def _remember(self, classes: NDArray[Any]) -> dict[str, Any]:
        """What a folder must keep for a classifier to be the same again."""
        own_code, parameters = self._name_own_code(), self.get_params(deep=False)
        return {
            "parameters": fitting.parameters_to_json({k: v for k, v in parameters.items() if k not in own_code}),
            "classes_dtype": classes.dtype.str,
            "n_features_in": self.n_features_in_,
            "feature_names_in": getattr(self, "feature_names_in_", np.array(None)).tolist(),
        }

    def save_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write an ONNX file that takes rows as `onnx_rows` gives them; encoding and probabilities are part of it.

        Input `rows` (n, columns), float64; outputs `label` (n,), a place in `classes_`, and `probabilities` (n, K).
        """
        check_is_fitted(self)
        export.save_onnx(self.encoder_, self.ensemble_, self.classes_, Path(path), threshold=self.run_.threshold)

    def onnx_rows(self, X: Any) -> NDArray[np.float64]:
        """Rows as the ONNX file takes them: numbers in their own units, levels by place, truth values as 0 or 1."""
        table = self._rows(X)
        return export.onnx_rows(self.encoder_, table)

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

    def _hold_fixed(self, settings: Settings, table: Table) -> Settings:
        """The settings that hold fixed, too, what people can rarely change, unless somebody said what is fixed."""
        said = self.schema is not None or settings.schema_file or "immutable" in settings_to_mapping(self.settings)
        if not isinstance(table, pd.DataFrame) or (said if self.fix_proposed is None else not self.fix_proposed):
            return settings
        return hold_fixed(settings, find_fixed(map(str, table.columns)))[0]

    def _schema_of(self, table: Table, settings: Settings) -> Schema:
        """The schema given, or else inferred, with the columns that are listed by name."""
        if not isinstance(self.schema, Schema | None):
            raise TypeError(
                f"schema must be a Schema or None; got {type(self.schema).__name__}; "
                "Schema.from_json and Schema.from_toml read one"
            )
        schema = self.schema
        if schema is None and settings.schema_file is not None:
            schema = read_schema(Path(settings.schema_file))
        if schema is None:
            schema = infer_schema(table) if isinstance(table, pd.DataFrame) else Schema.infer(table)
        check_names(list(settings.mutability), schema.names)
        schema = declare_monotone(settings, schema, list(table.columns) if isinstance(table, pd.DataFrame) else None)
        return schema.with_columns(**{name: {"mutability": way} for name, way in settings.mutability.items()})


def load(path: str | os.PathLike[str], *, module: Module | None = None) -> CounterfactualClassifier:
    """The model in a folder, whoever trained it; a network of your own has to be given again as `module`."""
    return CounterfactualClassifier.load(path, module=module)


def _as_given(name: str, value: Any) -> Any:
    """A parameter as settings take it."""
    if name in ("immutable", "increase", "decrease") and value is not None:
        return tuple(check_names(value, value))
    if name == "against_evidence" and not isinstance(value, bool | None):
        return tuple(check_names(value, value))
    return plain(value)


def _name_of(y: Any, columns: Sequence[str]) -> str:
    """What labels are called, if they have a name that no column has."""
    name = getattr(y, "name", None)
    return name if isinstance(name, str) and name not in columns else "label"


def _check_some(frame: pd.DataFrame) -> None:
    if frame.empty:
        raise ValueError(
            f"X must have at least one row and one column; got {len(frame)} rows and {frame.shape[1]} columns"
        )
