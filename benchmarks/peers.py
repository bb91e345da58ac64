"""Other libraries, called as their documents say, on the same models and rows; each only where it is installed."""

import contextlib
import copy
import importlib
import io
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from benchmarks.measuring import AbsentError, Budget, Contender, guard
from benchmarks.problems import Problem
from benchmarks.relax import relax_api, relax_steady
from countertrain.training.trainer import adam

__all__ = ["EPSILON", "RELAX_STEADY", "Peer", "enter", "search_peers", "step_size", "training_peers"]

RELAX_STEADY = "jax-relax VanillaCF, steady"
EPSILON = 0.3
"""Reach of the attacks in adversarial training; epsilon of CT is the same."""


@dataclass(frozen=True)
class Peer:
    """A method of another library."""

    name: str
    package: str
    """The name under which pip knows it."""
    prepare: Callable[[Problem, Budget], Callable[[], Any]]
    """Everything that has to be done once; what it returns is timed."""
    note: str


def enter(peer: Peer, problem: Problem, budget: Budget) -> Contender:
    """The peer as a contender, prepared; one that is not installed or fails takes no part, and says so."""
    try:
        version = metadata.version(peer.package)
    except metadata.PackageNotFoundError:
        return Contender(peer.name, _be_absent(AbsentError("not installed")))
    try:
        with _quiet():
            run = guard(partial(peer.prepare, problem, budget))()
    except AbsentError as why:
        return Contender(peer.name, _be_absent(why))

    def quietly() -> Any:
        with _quiet():
            return run()

    return Contender(peer.name, guard(quietly), f"{peer.package} {version}; {peer.note}")


def search_peers(problem: Problem, budget: Budget) -> list[Contender]:
    """The searches of other libraries."""
    return [enter(peer, problem, budget) for peer in _SEARCHES]


def training_peers(problem: Problem, budget: Budget) -> list[Contender]:
    """The adversarial training of other libraries: an epoch each, from the weights that the problem's model has."""
    return [enter(peer, problem, budget) for peer in _TRAININGS]


def _foolbox(problem: Problem, budget: Budget) -> Callable[[], Tensor]:
    """Targeted PGD in the sup-norm, within half of the range of the rows."""
    foolbox = importlib.import_module("foolbox")
    low, high = float(problem.x.min()), float(problem.x.max())
    model = foolbox.PyTorchModel(problem.model, bounds=(low, high))
    attack = foolbox.attacks.LinfPGD(steps=budget.n_steps)
    wanted = foolbox.criteria.TargetedMisclassification(problem.target)

    def run() -> Tensor:
        _, clipped, _ = attack(model, problem.factual, wanted, epsilons=(high - low) / 2)
        return torch.as_tensor(clipped)

    return run


def _dice(problem: Problem, budget: Budget) -> Callable[[], Tensor]:
    """One counterfactual for each of a few rows; without its search for sparser ones, which can take a minute a row."""
    dice_ml = importlib.import_module("dice_ml")
    names = [f"x{i}" for i in range(problem.x.shape[1])]
    rows = pd.DataFrame(problem.x.double().numpy(), columns=names)
    data = dice_ml.Data(
        dataframe=rows.assign(y=problem.y.numpy()), continuous_features=names, outcome_name="y", precision=6
    )
    model = dice_ml.Model(model=_Scaled(problem), backend="PYT", func="ohe-min-max")
    explainer = dice_ml.Dice(data, model, method="gradient")
    asked = pd.DataFrame(problem.factual[: budget.dice_rows].double().numpy(), columns=names)
    steps = {"min_iter": budget.n_steps, "max_iter": budget.n_steps}

    def run() -> Tensor:
        found = explainer.generate_counterfactuals(
            asked, total_CFs=1, desired_class="opposite", posthoc_sparsity_param=None, **steps
        )
        x_ce = problem.factual[: budget.dice_rows].clone()  # a row for which it found none stays as it was
        for row, answer in zip(x_ce, found.cf_examples_list, strict=True):
            if answer.final_cfs_df is not None and len(answer.final_cfs_df):
                row.copy_(torch.from_numpy(answer.final_cfs_df[names].to_numpy(np.float32)[0]))
        return x_ce

    return run


def step_size(budget: Budget) -> float:
    """The step of an attack that can cross its ball, with some to spare."""
    return 2.5 * EPSILON / budget.n_steps


def _art(problem: Problem, budget: Budget) -> Callable[[], None]:
    """An epoch of training by Madry's protocol."""
    trainers = importlib.import_module("art.defences.trainer")
    estimators = importlib.import_module("art.estimators.classification")
    model = copy.deepcopy(problem.model)
    start = copy.deepcopy(model.state_dict())
    x, y = problem.x.numpy(), problem.y.numpy()

    def run() -> None:
        model.load_state_dict(start)
        classifier = estimators.PyTorchClassifier(
            model,
            loss=nn.CrossEntropyLoss(),
            optimizer=adam(model.parameters()),
            input_shape=x.shape[1:],
            nb_classes=2,
            clip_values=(float(x.min()), float(x.max())),
            device_type="cpu",
        )
        trainers.AdversarialTrainerMadryPGD(
            classifier,
            nb_epochs=1,
            batch_size=problem.batch_size,
            eps=EPSILON,
            eps_step=step_size(budget),
            max_iter=budget.n_steps,
        ).fit(x, y)

    return run


class _Scaled(nn.Module):
    """The probability of class 1 for rows scaled to [0, 1], which is what DiCE calls a model."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.model = problem.model
        self.low, self.range = problem.x.amin(0), problem.x.amax(0) - problem.x.amin(0)

    def forward(self, x: Tensor) -> Tensor:
        """(n, D) scaled rows, or one of them -> (n, 1) probabilities."""
        return self.model(x * self.range + self.low).softmax(-1)[..., 1:]  # type: ignore[no-any-return]  # a module


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No bars, no prints, no warnings of others."""
    nowhere = io.StringIO()
    with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _be_absent(why: AbsentError) -> Callable[[], Any]:
    def run() -> Any:
        raise why

    return run


_SEARCHES = (
    Peer("foolbox LinfPGD", "foolbox", _foolbox, "targeted, within half of the range"),
    Peer(RELAX_STEADY, "jax-relax", relax_steady, "under a jit that its interface does not offer"),
    Peer("jax-relax VanillaCF, as called", "jax-relax", relax_api, "compiles in every call"),
    Peer("DiCE gradient", "dice-ml", _dice, "few rows, one by one, no search for sparser ones"),
)
_TRAININGS = (Peer("ART, AdversarialTrainerMadryPGD", "adversarial-robustness-toolbox", _art, "the same attack"),)
