"""Advice without counterfactual training: boosting decides, and real people or DiCE say what to change."""

import contextlib
import importlib
import io
import random
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from benchmarks.advice_tables import Problem
from benchmarks.advisers import Contender, Prepare, fit
from benchmarks.measuring import AbsentError
from countertrain.judge.adviser import Advise
from countertrain.recourse.decider import Decider
from countertrain.recourse.defaults import TAU_RANGE, TAU_SHARE
from countertrain.recourse.reach import AnswerGrid, Reach
from countertrain.tables.encoder import Encoder
from countertrain.tables.scales import Ranks

__all__ = ["BASELINES", "Boosted", "NearestPerson", "WithDice"]

Floats = NDArray[np.float64]
_OTHER_SEED = 1000
_DICE_PEOPLE = 50
_ROUNDING = 1e-9
_OUTCOME = "has what is wanted"
_NOT_HELPED = ("No counterfactuals found", "outside")
"""What DiCE raises where it finds nothing, or a person has values that no training row has."""


@dataclass(frozen=True, eq=False)
class Boosted:
    """Boosting that decides about the rows of a table: of other trees than the panel's, and stopped early."""

    encoder: Encoder
    model: Any
    classes: tuple[Any, ...]
    rows: pd.DataFrame
    """Real people on whom it was trained."""
    y: NDArray[np.int64]  # (m,) their classes

    @classmethod
    def of(cls, decider: Decider, *, seed: int) -> Self:
        """Fitted to the reference rows of a decider, and stopped by those that this one holds out."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        if decider.reference is None or decider.held_out is None:
            raise ValueError("boosting needs rows to be trained on and rows to be stopped by; the decider has not both")
        frame, held_out = (decider.encoder.decode(x.numpy()) for x, _ in (decider.reference, decider.held_out))
        y, y_held_out = (codes.numpy() for _, codes in (decider.reference, decider.held_out))
        encoder = Encoder.fit(decider.encoder.schema, frame, fit_scale=Ranks.fit)
        model = HistGradientBoostingClassifier(
            learning_rate=0.05, max_iter=400, max_leaf_nodes=15, early_stopping=True, random_state=seed + _OTHER_SEED
        )
        model.fit(encoder.encode(frame), y, X_val=encoder.encode(held_out), y_val=y_held_out)
        return cls(encoder, model, decider.classes, frame, y)

    def compute_probabilities(self, rows: pd.DataFrame) -> Floats:
        """The probability of each class, (n, K)."""
        return self.ask_encoded(self.encoder.encode(rows))

    def ask_encoded(self, x: Floats) -> Floats:
        """The same for encoded rows x (n, D)."""
        return np.asarray(self.model.predict_proba(x))

    def default_tau(self, wanted: int) -> float:
        """As sure as it is of most real people who have that decision: the rule that `explain` has."""
        sure = np.quantile(self.compute_probabilities(self.rows[self.y == wanted])[:, wanted], TAU_SHARE)
        return round(float(np.clip(sure, *TAU_RANGE)), 2)


@dataclass(frozen=True, eq=False)
class NearestPerson:
    """Be like the nearest real person who has it and is accepted, as far as you can change."""

    boosted: Boosted

    @property
    def classes(self) -> tuple[Any, ...]:
        """K labels."""
        return self.boosted.classes

    def compute_probabilities(self, rows: pd.DataFrame) -> Floats:
        """The probability of each class, (n, K)."""
        return self.boosted.compute_probabilities(rows)

    def default_tau(self, wanted: int) -> float:
        """That of the boosting."""
        return self.boosted.default_tau(wanted)

    def ask(self, rows: pd.DataFrame, wanted: int) -> Advise:
        """For each person the cheapest row among those of real people that hold what the person cannot change."""
        boosted = self.boosted
        encoder = boosted.encoder
        real = torch.from_numpy(encoder.encode(boosted.rows[boosted.y == wanted]))  # (m, D)
        origin = torch.from_numpy(encoder.encode(rows))  # (n, D)
        grid, reach = AnswerGrid.of(encoder), Reach.of(encoder.constraints(rare=True), origin)
        fixed = torch.tensor([column.mutability == "none" for column in encoder.schema.columns])[grid.column_of]
        sure_of_real = boosted.ask_encoded(real.numpy())[:, wanted]  # (m,)
        costs, sure = np.empty((len(origin), len(real))), np.empty((len(origin), len(real)))
        for i, own in enumerate(origin):
            mixed = torch.where(fixed, own, real)  # (m, D)
            within = ((mixed >= reach.low[i] - _ROUNDING) & (mixed <= reach.high[i] + _ROUNDING)).all(1)
            costs[i] = grid.costs(mixed, own).sum(1).where(within, torch.inf).numpy()
            sure[i] = np.minimum(boosted.ask_encoded(mixed.numpy())[:, wanted], sure_of_real)

        def advise(tau: float) -> tuple[pd.DataFrame, pd.DataFrame]:
            open_costs = np.where(sure >= tau, costs, np.inf)  # (n, m)
            helped = np.flatnonzero(np.isfinite(open_costs.min(1)))
            people = boosted.rows[boosted.y == wanted].iloc[open_costs[helped].argmin(1)].reset_index(drop=True)
            own = rows.iloc[helped].reset_index(drop=True)
            kept = [column.name for column in encoder.schema.columns if column.mutability == "none"]
            return people.assign(**{name: own[name] for name in kept}), own

        return advise


@dataclass(frozen=True, eq=False)
class WithDice:
    """What the package dice-ml says, asked as its documents say: one counterfactual for each person."""

    boosted: Boosted
    seed: int
    method: str = "random"

    @property
    def classes(self) -> tuple[Any, ...]:
        """K labels."""
        return self.boosted.classes

    def compute_probabilities(self, rows: pd.DataFrame) -> Floats:
        """The probability of each class, (n, K)."""
        return self.boosted.compute_probabilities(rows)

    def default_tau(self, wanted: int) -> float:
        """That of the boosting."""
        return self.boosted.default_tau(wanted)

    def ask(self, rows: pd.DataFrame, wanted: int) -> Advise:
        """Its counterfactuals, where boosting accepts them."""
        dice_ml = importlib.import_module("dice_ml")
        columns = self.boosted.encoder.schema.columns
        real = self.boosted.rows
        numbers = [name for name in real if pd.api.types.is_numeric_dtype(real[name])]
        data = dice_ml.Data(
            dataframe=real.assign(**{_OUTCOME: (self.boosted.y == wanted).astype(int)}),
            continuous_features=numbers,
            outcome_name=_OUTCOME,
        )
        model = dice_ml.Model(model=_OneAgainstAll(self.boosted, wanted), backend="sklearn")
        explainer = dice_ml.Dice(data, model, method=self.method)
        free = [column.name for column in columns if column.mutability != "none"]

        def advise(tau: float) -> tuple[pd.DataFrame, pd.DataFrame]:
            with _quiet(self.seed):
                answers = [_explain(explainer, rows.iloc[[i]], free, tau) for i in range(len(rows))]
            helped = [i for i, answer in enumerate(answers) if answer is not None]
            own = rows.iloc[helped].reset_index(drop=True)
            if not helped:
                return own, own
            found = pd.concat([answer for answer in answers if answer is not None], ignore_index=True)
            told = own.assign(**{name: found[name].astype(own[name].dtype) for name in free})
            yes = self.compute_probabilities(told).argmax(1) == wanted
            return told[yes].reset_index(drop=True), own[yes].reset_index(drop=True)

        return advise


@dataclass(frozen=True, eq=False)
class _OneAgainstAll:
    """The wanted class as class 1: for class 0, DiCE puts a threshold of its own in the place of a larger one."""

    boosted: Boosted
    wanted: int

    def predict_proba(self, rows: pd.DataFrame) -> Floats:
        """(n, 2)."""
        real = self.boosted.rows
        p = self.boosted.compute_probabilities(rows[list(real)].astype(real.dtypes.to_dict()))[:, self.wanted]
        return np.stack([1 - p, p], axis=1)

    def predict(self, rows: pd.DataFrame) -> NDArray[np.int64]:
        """(n,)."""
        return np.asarray(self.predict_proba(rows).argmax(1))


def _explain(explainer: Any, person: pd.DataFrame, free: list[str], tau: float) -> pd.DataFrame | None:
    """One row with a column for each that may change; None where DiCE finds nothing."""
    mistakes = importlib.import_module("raiutils.exceptions")
    try:
        found = explainer.generate_counterfactuals(
            person, total_CFs=1, desired_class=1, features_to_vary=free, stopping_threshold=tau
        )
    except (mistakes.UserConfigValidationException, ValueError) as error:
        if any(reason in str(error) for reason in _NOT_HELPED):
            return None
        raise
    answer = found.cf_examples_list[0]
    told = answer.final_cfs_df if answer.final_cfs_df_sparse is None else answer.final_cfs_df_sparse
    return None if told is None or told.empty else told[free][:1]


@contextlib.contextmanager
def _quiet(seed: int) -> Iterator[None]:
    """No bars and prints of others; and numbers that DiCE draws from the streams of the process, by a seed.

    A seed that is given to DiCE itself begins anew for each column, which then all get the same draws.
    """
    streams = random.getstate(), np.random.get_state()  # noqa: NPY002  # DiCE's
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    nowhere = io.StringIO()
    try:
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            yield
    finally:
        random.setstate(streams[0])
        np.random.set_state(streams[1])  # noqa: NPY002


def _fit(problem: Problem) -> tuple[Boosted, Decider]:
    """Boosting on the very rows that a network is trained on, stopped by those that it holds out.

    A network of no epochs tells which these are.
    """
    decider = fit(problem, objective="bl", epochs=0).decider
    return Boosted.of(decider, seed=problem.seed), decider


def _nearest_person(problem: Problem) -> Contender:
    boosted, decider = _fit(problem)
    return Contender(NearestPerson(boosted), decider)


def _with_dice(problem: Problem) -> Contender:
    if find_spec("dice_ml") is None:
        raise AbsentError("because dice-ml is not installed: pip install 'countertrain[peers]'")
    boosted, decider = _fit(problem)
    note = f"dice-ml, method random; it takes people one by one, so {_DICE_PEOPLE} are asked"
    return Contender(WithDice(boosted, problem.seed), decider, _DICE_PEOPLE, note)


BASELINES: dict[str, Prepare] = {"boosting with nearest person": _nearest_person, "boosting with DiCE": _with_dice}
"""What is there without counterfactual training, and without a network."""
