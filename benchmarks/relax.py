"""jax-relax, which wants jax, Keras on top of it, and the first version of pydantic."""

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.measuring import Budget
from benchmarks.problems import Problem

__all__ = ["relax_api", "relax_steady"]


def relax_steady(problem: Problem, budget: Budget) -> Callable[[], Tensor]:
    """Its search under a jit of ours, which its interface does not offer: compiled once."""
    jax, relax, (module, data, predict) = _relax(problem, budget)
    relax.explain.prepare_cf_module(module, data, predict)
    targets, keys = 1 - predict(data.xs), relax.explain.prepare_rng_keys(None, len(problem.factual))

    def one(x: Any, y_target: Any, key: Any) -> Any:
        return module.generate_cf(x, pred_fn=predict, y_target=y_target, rng_key=key)

    search = jax.jit(jax.vmap(one))
    return lambda: _tensor(search(data.xs, targets, keys))


def relax_api(problem: Problem, budget: Budget) -> Callable[[], Tensor]:
    """The call that its documents show; it compiles again each time."""
    _, relax, (module, data, predict) = _relax(problem, budget)
    return lambda: _tensor(relax.generate_cf_explanations(module, data, predict).cfs[:, 0])


def _relax(problem: Problem, budget: Budget) -> tuple[Any, Any, tuple[Any, Any, Callable[[Any], Any]]]:
    """jax, jax-relax, and its search with the rows to explain and the model as a function of jax."""
    jax, relax = _import_relax()
    weights = [jax.numpy.asarray(p.detach().numpy()) for p in problem.model.parameters()]

    def predict(x: Any) -> Any:
        hidden = jax.nn.relu(x @ weights[0].T + weights[1])
        return jax.nn.softmax(hidden @ weights[2].T + weights[3])

    data = relax.DataModule.from_numpy(
        problem.factual.numpy(), (1 - problem.target).numpy()[:, None], transformation="identity"
    )
    module = relax.methods.VanillaCF({"n_steps": budget.n_steps})
    return jax, relax, (module, data, predict)


def _import_relax() -> tuple[Any, Any]:
    """jax with one thread, and jax-relax on Keras with jax below it."""
    os.environ["KERAS_BACKEND"] = "jax"
    with _one_core():
        jax = importlib.import_module("jax")
        jax.devices()  # starts its threads
    with _first_pydantic():
        return jax, importlib.import_module("relax")


@contextlib.contextmanager
def _one_core() -> Iterator[None]:
    """As if the machine had one core: a pool of threads that is started inside has one. Linux only."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        for thread in Path("/proc/self/task").iterdir():  # those that were started inside, too
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)


@contextlib.contextmanager
def _first_pydantic() -> Iterator[None]:
    """Version 1 of pydantic for whoever imports it inside: jax-relax needs it, and version 2 brings it along."""
    old = importlib.import_module("pydantic.v1")
    stand_in = {"pydantic": old, "pydantic.fields": importlib.import_module("pydantic.v1.fields")}
    kept = {name: importlib.import_module(name) for name in stand_in}
    sys.modules.update(stand_in)
    try:
        yield
    finally:
        sys.modules.update(kept)


def _tensor(array: Any) -> Tensor:
    return torch.from_numpy(np.array(array))
