"""Names become objects here, and nowhere below."""

from collections.abc import Sequence
from functools import partial

from torch import nn

from countertrain import models
from countertrain.constraints import Constraints
from countertrain.evaluation.protocol import EvaluationProtocol
from countertrain.runs.settings import Settings
from countertrain.search.generator import Generator
from countertrain.search.generators import eccco, generic, revise
from countertrain.search.rules import SGD
from countertrain.search.space import FeatureSpace
from countertrain.search.vae import VAE
from countertrain.tables import Dataset
from countertrain.training.objective import Objective, ar, bl, cd, ct
from countertrain.training.trainer import CounterfactualTrainer, fused_adam

__all__ = ["VARYING", "build_constraints", "build_generator", "build_models", "build_protocol", "build_trainer"]


VARYING = (
    "seeds", "lambda_clf", "lambda_div", "lambda_adv", "lambda_reg", "epsilon", "tau", "lambda_cost", "lambda_egy",
)  # fmt: skip
"""Settings in which the models of one population may differ."""


def build_models(settings: Settings, data: Dataset) -> list[nn.Module]:
    """One freshly initialised model for each seed."""
    shape = (data.n_features, data.n_classes)
    if settings.model == "linear":
        return [models.linear(*shape, seed=seed, init=settings.init) for seed in settings.seeds]
    if settings.model == "lenet":
        return [models.lenet(*shape, seed=seed, init=settings.init) for seed in settings.seeds]
    return [models.mlp(*shape, hidden=settings.hidden, seed=seed, init=settings.init) for seed in settings.seeds]


def build_constraints(settings: Settings, data: Dataset, *, test_time: bool = False) -> Constraints:
    """Domain and mutability; one-hot groups are projected at test time only (as run), unless settings say otherwise."""
    projected = test_time or settings.train_categories == "change"
    return data.constraints(n_sigma=settings.n_sigma, immutable=settings.immutable, categories=projected)


def build_generator(settings: Settings | Sequence[Settings], data: Dataset, vae: VAE | None = None) -> Generator:
    """The counterfactual search of training, for the models of one run or of several."""
    runs = _runs(settings)
    first = runs[0]
    space = FeatureSpace(keep=data.categories if first.train_categories == "change" else ())
    rule = SGD(first.step_size)
    lambda_cost, tau = _each(runs, "lambda_cost"), _each(runs, "tau")
    if first.generator == "generic" or first.objective == "bl":  # conventional training never searches
        return generic(lambda_cost=lambda_cost, space=space, rule=rule, n_steps=first.n_steps, tau=tau)
    if first.generator == "revise":
        assert vae is not None
        return revise(vae, lambda_cost=lambda_cost, rule=rule, n_steps=first.n_steps, tau=tau)
    return eccco(
        lambda_cost=lambda_cost,
        lambda_egy=_each(runs, "lambda_egy"),
        schedule=first.energy_schedule,
        rho=first.energy_square,
        space=space,
        rule=rule,
        n_steps=first.n_steps,
        tau=tau,
    )


def build_objective(settings: Settings | Sequence[Settings]) -> Objective:
    """The terms that are trained on, with their weights."""
    runs = _runs(settings)
    clf, div, adv, reg = (_each(runs, f"lambda_{name}") for name in ("clf", "div", "adv", "reg"))
    if runs[0].objective == "bl":
        return bl(lambda_clf=clf)
    if runs[0].objective == "ar":
        return ar(lambda_clf=clf, lambda_adv=adv)
    if runs[0].objective == "cd":
        return cd(lambda_clf=clf, lambda_div=div, lambda_reg=reg)
    return ct(lambda_clf=clf, lambda_div=div, lambda_adv=adv, lambda_reg=reg)


def build_trainer(
    settings: Settings | Sequence[Settings], data: Dataset, vae: VAE | None = None, *, compiled: bool = False
) -> CounterfactualTrainer:
    """The trainer of a run, or of several that differ in nothing but VARYING settings and train as one population."""
    runs = _runs(settings)
    first = runs[0]
    return CounterfactualTrainer(
        objective=build_objective(runs),
        generator=build_generator(runs, data, vae),
        constraints=build_constraints(first, data),
        epochs=first.epochs,
        batch_size=first.batch_size,
        n_ce=first.n_ce if first.n_ce is not None else min(1000, len(data.train)),
        burn_in=first.burn_in,
        epsilon=_each(runs, "epsilon"),
        immature=first.immature,
        n_neighbours=first.n_neighbours,
        generate=first.generate,
        optimizer=partial(fused_adam, lr=first.learning_rate),
        shuffle=first.shuffle,
        on_nonfinite=first.on_nonfinite,
        compiled=compiled,
        seed=tuple(seed for run in runs for seed in run.seeds),
    )


def _runs(settings: Settings | Sequence[Settings]) -> Sequence[Settings]:
    return [settings] if isinstance(settings, Settings) else settings


def _each(runs: Sequence[Settings], name: str) -> float | list[float]:
    """One number if all runs agree, else one a model."""
    values = [getattr(run, name) for run in runs for _ in run.seeds]
    return float(values[0]) if len(set(values)) == 1 else values


def build_protocol(
    settings: Settings, *, rounds: int, individuals: int, tau: float | None = None
) -> EvaluationProtocol:
    """The evaluation of a run: tau 0.95, or 0.5 (cost of just valid counterfactuals) under constraints."""
    return EvaluationProtocol(
        rounds=rounds,
        individuals=individuals,
        tau=tau if tau is not None else (0.5 if settings.immutable else 0.95),
        step_size=settings.test_step_size or settings.step_size,
        schedule=settings.energy_schedule,
        rho=settings.energy_square,
        length_scale=settings.length_scale,
        # treated and baseline models draw their individuals independently of one another
        seed=sum(settings.objective.encode()),
    )
