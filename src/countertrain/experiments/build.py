"""Names become objects here, and nowhere below."""

from functools import partial

import torch
from torch import nn

from countertrain import models
from countertrain.constraints import Constraints
from countertrain.data import Dataset
from countertrain.evaluation.protocol import Protocol
from countertrain.experiments.settings import Settings
from countertrain.objective import Objective, ar, bl, cd, ct
from countertrain.search.generator import Generator
from countertrain.search.generators import eccco, generic, revise
from countertrain.search.rules import SGD
from countertrain.search.vae import VAE
from countertrain.trainer import CounterfactualTrainer

__all__ = ["build_constraints", "build_generator", "build_models", "build_protocol", "build_trainer"]


def build_models(settings: Settings, data: Dataset) -> list[nn.Module]:
    """One freshly initialised model for each seed."""
    shape = (data.n_features, data.n_classes)
    if settings.model == "linear":
        return [models.linear(*shape, seed=seed, init=settings.init) for seed in settings.seeds]
    if settings.model == "lenet":
        return [models.lenet(*shape, seed=seed, init=settings.init) for seed in settings.seeds]
    return [models.mlp(*shape, hidden=settings.hidden, seed=seed, init=settings.init) for seed in settings.seeds]


def build_constraints(settings: Settings, data: Dataset, *, test_time: bool = False) -> Constraints:
    """Domain and mutability; one-hot groups are projected at test time only, as in the authors' program."""
    return data.constraints(n_sigma=settings.n_sigma, immutable=settings.immutable, categories=test_time)


def build_generator(settings: Settings, vae: VAE | None = None) -> Generator:
    """The counterfactual search of training."""
    rule = SGD(settings.step_size)
    if settings.generator == "generic":
        return generic(lambda_cost=settings.lambda_cost, rule=rule, n_steps=settings.n_steps, tau=settings.tau)
    if settings.generator == "revise":
        assert vae is not None
        return revise(vae, lambda_cost=settings.lambda_cost, rule=rule, n_steps=settings.n_steps, tau=settings.tau)
    return eccco(
        lambda_cost=settings.lambda_cost,
        lambda_egy=settings.lambda_egy,
        schedule=settings.energy_schedule,
        rho=settings.energy_square,
        rule=rule,
        n_steps=settings.n_steps,
        tau=settings.tau,
    )


def build_objective(settings: Settings) -> Objective:
    """The terms that are trained on, with their weights."""
    clf, div, adv, reg = settings.lambda_clf, settings.lambda_div, settings.lambda_adv, settings.lambda_reg
    if settings.objective == "bl":
        return bl(lambda_clf=clf)
    if settings.objective == "ar":
        return ar(lambda_clf=clf, lambda_adv=adv)
    if settings.objective == "cd":
        return cd(lambda_clf=clf, lambda_div=div, lambda_reg=reg)
    return ct(lambda_clf=clf, lambda_div=div, lambda_adv=adv, lambda_reg=reg)


def build_trainer(settings: Settings, data: Dataset, vae: VAE | None = None) -> CounterfactualTrainer:
    """The trainer of a run."""
    n_ce = settings.n_ce if settings.n_ce is not None else min(1000, len(data.train))
    return CounterfactualTrainer(
        objective=build_objective(settings),
        generator=build_generator(settings, vae),
        constraints=build_constraints(settings, data),
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        n_ce=n_ce,
        burn_in=settings.burn_in,
        epsilon=settings.epsilon,
        immature=settings.immature,
        generate=settings.generate,
        optimizer=partial(torch.optim.Adam, lr=settings.learning_rate, fused=True),
        shuffle=settings.shuffle,
        on_nonfinite=settings.on_nonfinite,
        seed=settings.seeds,
    )


def build_protocol(settings: Settings, *, rounds: int, individuals: int, tau: float | None = None) -> Protocol:
    """The evaluation of a run: tau 0.95, or 0.5 (cost of just valid counterfactuals) under constraints."""
    return Protocol(
        rounds=rounds,
        individuals=individuals,
        tau=tau if tau is not None else (0.5 if settings.immutable else 0.95),
        step_size=settings.step_size,
        schedule=settings.energy_schedule,
        rho=settings.energy_square,
        length_scale=settings.length_scale,
        # treated and baseline models draw their individuals independently of one another
        seed=sum(settings.objective.encode()),
    )
