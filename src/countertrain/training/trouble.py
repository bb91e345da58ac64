"""What goes wrong while training: losses and weights that are not finite, found and named."""

import re
import warnings
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from countertrain.models.population import Population
from countertrain.training.history import History

__all__ = ["NonFiniteLossError", "find_non_finite", "is_out_of_memory", "warn_of_failures"]

_NO_MEMORY = re.compile("can't allocate memory|cannot allocate memory|not enough memory|out of memory", re.IGNORECASE)


class NonFiniteLossError(ArithmeticError):
    """The loss became NaN or infinite; the model keeps the weights of the last good epoch."""

    def __init__(self, message: str, history: History) -> None:
        super().__init__(message)
        self.history = history


def is_out_of_memory(error: BaseException) -> bool:
    """Whether there was too little memory; Python, torch and the system say so in their own ways."""
    return isinstance(error, MemoryError) or bool(_NO_MEMORY.search(str(error)))


def find_non_finite(
    curves: Sequence[Mapping[str, Tensor]], population: Population, metrics: Mapping[str, Tensor], epoch: int
) -> dict[int, str]:
    """In which mini-batch each model's loss (P,) first was NaN or infinite, or that its weights are so now."""
    way_out = (
        f"the model keeps its weights of epoch {epoch - 1}; lower the learning rate or lambda_div, or raise lambda_reg"
    )
    size = len(population)
    whole = [torch.isfinite(p).reshape(size, -1).all(1) for p in population.parameters.values()]
    whole.append(torch.isfinite(metrics["train_loss"]))
    broken = f"the weights or their loss are not finite after the last update of epoch {epoch}; {way_out}"
    bad = dict.fromkeys((~torch.stack(whole).all(0)).nonzero().flatten().tolist(), broken)
    if torch.isfinite(metrics["loss"]).all():  # a mean is finite only if all of its numbers are
        return bad
    wrong = ~torch.isfinite(torch.stack([values["loss"] for values in curves]))  # (batches, P)
    for i in wrong.any(0).nonzero().flatten().tolist():
        batch = int(wrong[:, i].nonzero()[0])
        terms = [name for name, value in curves[batch].items() if name != "loss" and not torch.isfinite(value[i])]
        said = f"epoch {epoch}, batch {batch + 1}, term {', '.join(terms) or 'loss'}"
        bad[i] = f"the loss is not finite at {said}; {way_out}"
    return bad


def warn_of_failures(history: History) -> None:
    """Say which models of a population stopped early, and why."""
    for i, why in history.failures.items():
        warnings.warn(f"model {i} stopped early: {why}", RuntimeWarning, stacklevel=3)
