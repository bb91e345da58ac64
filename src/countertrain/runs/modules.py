"""Networks of the user's own: copied or made, one per seed, and looked at before they are trained."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from countertrain.models.deciding import logits_of

__all__ = ["Module", "build_own_models", "private_stream"]

Module = nn.Module | Callable[[int, int], nn.Module]
"""A module to go on training from, or a callable (n_features, n_classes) that makes a new one."""


def build_own_models(module: Module, n_features: int, n_classes: int, *, seeds: Sequence[int]) -> list[nn.Module]:
    """New models in evaluation mode, one per seed, as the user's module says."""
    if isinstance(module, nn.Module) and len(seeds) > 1:
        raise ValueError(
            f"an ensemble of {len(seeds)} models needs module to be a callable (n_features, n_classes) -> nn.Module; "
            f"copies of one {type(module).__name__} would all start alike"
        )
    models = []
    for seed in seeds:
        with private_stream(seed):
            made = module if isinstance(module, nn.Module) else module(n_features, n_classes)
        if not isinstance(made, nn.Module):
            raise TypeError(
                "module must be an nn.Module, or a callable (n_features, n_classes) that returns one; "
                f"it returned {type(made).__name__}"
            )
        models.append(copy.deepcopy(made).to("cpu", torch.float32).eval())
    _check_sizes(models[0], n_features, n_classes)
    return models


def _check_sizes(model: nn.Module, n_features: int, n_classes: int) -> None:
    wanted = f"module must map (n, {n_features}) rows, in float32 or float64, to (n, {n_classes}) logits, one per class"
    way_out = "a callable (n_features, n_classes) -> nn.Module is told both numbers"
    try:
        shape = tuple(logits_of(model, torch.zeros(2, n_features)).shape)
    except (RuntimeError, ValueError, IndexError) as error:
        raise ValueError(f"{wanted}; it fails with {str(error).splitlines()[0]!r}; {way_out}") from error
    if shape != (2, n_classes):
        raise ValueError(f"{wanted}; for 2 rows it returned {shape}; {way_out}")


@contextmanager
def private_stream(seed: int) -> Iterator[None]:
    """Torch's global random stream starts at `seed` inside, and afterwards is as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
