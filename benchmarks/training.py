"""Part (b), training: an epoch of CT beside conventional, adversarial and energy-based ones at the same batches."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.measuring import Budget, Contender, Measurement, Part, Say, Timing, guard, race
from benchmarks.peers import EPSILON, step_size, training_peers
from benchmarks.problems import Problem, bare_loop, problems
from countertrain.search.generator import Generator
from countertrain.search.generators import eccco, pgd
from countertrain.training.history import History
from countertrain.training.methods import bl, ct
from countertrain.training.trainer import CounterfactualTrainer, adam

__all__ = ["BARE", "CONVENTIONAL", "CT", "CT_COMPILED", "jem_loss", "measure_training"]

CONVENTIONAL, CT, CT_COMPILED = "conventional", "CT", "CT, compiled"
BARE = "CT's search passes alone, bare torch loop"
_BAR = 2.0
_BUFFER, _FRESH, _SGLD_STEPS, _SGLD_LR, _SGLD_STD = 10_000, 0.05, 20, 1.0, 0.01  # of JEM's program

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


def measure_training(budget: Budget, say: Say) -> Part:
    """The cost of an epoch on both problems."""
    rows: list[dict[str, object]] = []
    measurements: list[Measurement] = []
    for problem in problems(budget.n_rows):
        say(f"training, {problem.name}")
        model = copy.deepcopy(problem.model)
        trainer = CounterfactualTrainer(
            ct(
                lambda_reg=0.25,
                generator=eccco(tau=0.9, n_steps=budget.n_steps),
                n_ce=budget.n_rows,
                epsilon=EPSILON,
            ),
            constraints=problem.free,
            epochs=1,
            batch_size=problem.batch_size,
        )
        steps = _epoch(trainer, problem, model)["n_steps"][0][0]
        passes = round(steps) + 1  # the last iterate is looked at, too
        contenders = [*_epochs(trainer, problem, model, budget, passes), *training_peers(problem, budget)]
        timings = race(contenders, budget, say)
        plain = timings[CONVENTIONAL].seconds
        rows += [_row(problem, name, timing, plain) for name, timing in timings.items()]
        measurements.append(_measurement(problem, timings))
    return Part("training", pd.DataFrame(rows), measurements)


def _epochs(
    trainer: CounterfactualTrainer, problem: Problem, model: nn.Module, budget: Budget, passes: int
) -> list[Contender]:
    """One epoch in each way, each from the same weights."""
    n, attacked = len(problem.x), f"{len(problem.x):,} rows x {budget.n_steps} steps"
    searched = f"{budget.n_rows:,} rows x {passes} passes on average"
    attack = pgd(EPSILON, step_size=step_size(budget), n_steps=budget.n_steps, random_start=False)
    sampled = f"by hand; SGLD, {n:,} rows x {_SGLD_STEPS} steps"
    contenders = [
        Contender(CONVENTIONAL, partial(_epoch, replace(trainer, objective=bl()), problem, model)),
        Contender(CT, partial(_epoch, trainer, problem, model), searched),
        Contender(BARE, partial(bare_loop, problem.model, problem.factual, problem.target, passes), searched),
        Contender("conventional, bare torch loop", partial(_by_hand, problem, model, lambda: _yloss), "by hand"),
        Contender(
            "adversarial, our own PGD",
            partial(_by_hand, problem, model, lambda: partial(_adversarial_loss, attack)),
            f"by hand; {attacked}",
        ),
        Contender("JEM-style", partial(_by_hand, problem, model, lambda: jem_loss(problem)), sampled),
    ]
    if budget.compiled:
        fast = guard(partial(_epoch, replace(trainer, compiled=True), problem, model))
        contenders.insert(2, Contender(CT_COMPILED, fast, searched))
    return contenders


def _epoch(trainer: CounterfactualTrainer, problem: Problem, model: nn.Module) -> History:
    """An epoch by our trainer."""
    model.load_state_dict(problem.model.state_dict())
    return trainer.fit(model, problem.x, problem.y)


def _by_hand(problem: Problem, model: nn.Module, loss: Callable[[], Loss]) -> None:
    """An epoch of a plain loop over the same batches; `loss` makes the loss, which may remember what it has seen."""
    model.load_state_dict(problem.model.state_dict())
    optimizer, of_batch = adam(model.parameters()), loss()
    batches = zip(problem.x.split(problem.batch_size), problem.y.split(problem.batch_size), strict=True)
    for x, y in batches:
        optimizer.zero_grad()
        of_batch(model, x, y).backward()
        optimizer.step()


def _yloss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(model(x), y)


def _adversarial_loss(attack: Generator, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Madry's adversarial training: only the attacked rows count."""
    return _yloss(model, attack(model, x, y).x, y)


def jem_loss(problem: Problem) -> Loss:
    """The loss of JEM: classification, and the likelihood of the rows by samples of the model itself.

    Samples are drawn by stochastic gradient Langevin dynamics on logsumexp of the logits, and start where earlier
    ones ended, or afresh now and then.
    """
    stream = torch.Generator().manual_seed(0)
    low, high = problem.x.amin(0), problem.x.amax(0)

    def fresh(n: int) -> Tensor:
        return low + (high - low) * torch.rand(n, len(low), generator=stream)

    buffer = fresh(_BUFFER)  # (10000, D)

    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        places = torch.randint(_BUFFER, (len(x),), generator=stream)
        again = torch.rand(len(x), 1, generator=stream) < _FRESH
        sample = torch.where(again, fresh(len(x)), buffer[places])
        for _ in range(_SGLD_STEPS):
            sample.requires_grad_()
            (grad,) = torch.autograd.grad(model(sample).logsumexp(-1).sum(), sample)
            noise = torch.randn(sample.shape, generator=stream)
            sample = (sample + _SGLD_LR * grad + _SGLD_STD * noise).detach()
        buffer[places] = sample
        logits: Tensor = model(x)
        likelihood: Tensor = logits.logsumexp(-1).mean() - model(sample).logsumexp(-1).mean()
        return functional.cross_entropy(logits, y) - likelihood

    return loss


def _row(problem: Problem, name: str, timing: Timing, plain: float) -> dict[str, object]:
    return {
        "model": problem.name,
        "training": name,
        "ms per epoch": 1e3 * timing.seconds,
        "times conventional": timing.seconds / plain,
        "first call (s)": timing.first,
        "note": timing.note,
    }


def _measurement(problem: Problem, timings: dict[str, Timing]) -> Measurement:
    """One CT epoch against a conventional one plus the bare cost of its search passes."""
    slow, fast, bare = (timings[name].seconds for name in (CT, CONVENTIONAL, BARE))
    note = f"CT {1e3 * slow:.0f} ms, conventional {1e3 * fast:.0f} ms, bare search {1e3 * bare:.1f} ms"
    what = f"a CT epoch, {problem.name}: times a conventional one plus bare search"
    return Measurement(what, slow / (fast + bare), "x", _BAR, False, note)
