"""How trained models decide: several as one, and logits that do not depend on the rows beside a row."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from countertrain.models.architectures import Ensemble
from countertrain.models.population import Population

__all__ = ["as_one", "logits_of"]


def as_one(models: Sequence[nn.Module]) -> nn.Module:
    """One module (n, D) -> (n, K) logits: the model itself, or the ensemble of several."""
    return models[0] if len(models) == 1 else Ensemble(models)


def logits_of(model: nn.Module, x: Tensor) -> Tensor:
    """Logits (n, K) of rows x (n, D), on which all decisions rest.

    They are computed in float64, in evaluation mode: no row is decided otherwise because of the rows beside it.
    """
    tensors = dict((*model.named_parameters(), *model.named_buffers()))
    exact = {name: t.double() if t.is_floating_point() else t for name, t in tensors.items()}
    with Population([model]).evaluating(), torch.no_grad():
        return functional_call(model, exact, (x.double(),))  # type: ignore[no-any-return]  # a module returns Any
