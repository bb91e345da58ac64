"""Networks that are monotone by the signs of their weights: in training, in a file, wherever they run.

Every unit is told which way it goes as a monotone feature gets better: half of each hidden layer up, half of it down,
the logit of the wanted class up, all others down. A weight between two things that have a way has the sign of their
product, and weights from all other features stay free. Activations never fall, so that each unit keeps its way, and
rectifiers that go up and down bend both ways: any monotone function is within reach (Runje and Shankaranarayana, 2023).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor, nn

from countertrain.models.architectures import Pieces
from countertrain.models.traces import find_chain

__all__ = ["Monotone"]

_RISING = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.Softplus, nn.Tanh, nn.Sigmoid, nn.Hardtanh, nn.Identity)


@dataclass(frozen=True, eq=False)
class Monotone:
    """The signs that the weights of a chain of layers must have, and the orders of those from ordered levels."""

    signs: Mapping[str, Tensor]
    """By the name of a weight, (out, in): 1, -1, or 0 where it is free."""
    orders: Sequence[tuple[str, slice, Tensor]] = ()
    """A weight, the levels among its inputs, and which way (out, 1) it goes from the first of them to the last."""

    @cached_property
    def _bounds(self) -> dict[str, tuple[Tensor, Tensor]]:
        """By the name of a weight, (out, in) both, what it may not be below, and not be above."""
        return {
            name: (torch.where(sign > 0, 0.0, -torch.inf), torch.where(sign < 0, 0.0, torch.inf))
            for name, sign in self.signs.items()
        }

    @classmethod
    def of(cls, module: nn.Module, ways: Tensor, wanted: int, levels: Sequence[tuple[slice, int]] = ()) -> Self:
        """What keeps the probability of class `wanted` from falling as features go their ways (D,): 1, -1, 0 for any.

        `levels` are the one-hot features of ordered levels, worst or best first by their way.
        """
        chain = find_chain(module)
        if chain is None or not all(isinstance(layer, tuple | Pieces) or _rises(layer) for layer in chain):
            raise ValueError(
                "monotone needs a chain of linear layers and activations that never fall, such as nn.ReLU or nn.Tanh; "
                f"got {type(module).__name__}; leave out monotone, or take the model 'piecewise', 'mlp' or 'linear'"
            )
        weights = [layer[0] for layer in chain if isinstance(layer, tuple)]
        signs, orders, before = {}, [], ways.float()  # (in,)
        for layer in chain:
            if isinstance(layer, Pieces):
                _refuse_coded(layer, levels)
                before = torch.cat([before, before[layer.numbers].repeat_interleave(layer.n_pieces)])
            elif isinstance(layer, tuple):
                after = _give_ways(len(module.get_parameter(layer[0])), wanted if layer[0] == weights[-1] else None)
                signs[layer[0]] = after.unsqueeze(1) * before
                if layer[0] == weights[0]:
                    orders = [(layer[0], part, way * after.unsqueeze(1)) for part, way in levels]
                before = after
        return cls(signs, orders)

    @torch.no_grad()
    def begin(self, parameters: Mapping[str, Tensor]) -> None:
        """Turn the weights that have the wrong sign, and put into order those of levels: new weights lose no size."""
        for name, sign in self.signs.items():
            weight = parameters[name]
            weight.copy_(torch.where(sign == 0, weight, weight.abs() * sign))
        for name, part, way in self.orders:
            weight = parameters[name][..., part]
            weight.copy_((weight * way).sort(-1).values * way)

    @torch.no_grad()
    def project(self, parameters: Mapping[str, Tensor]) -> None:
        """Put to 0 the weights, (out, in) or (P, out, in), that have the wrong sign; level those out of order."""
        for name, bounds in self._bounds.items():
            parameters[name].clamp_(*bounds)
        for name, part, way in self.orders:
            weight = parameters[name][..., part]
            rising = weight * way
            above, below = rising.cummax(-1).values, rising.flip(-1).cummin(-1).values.flip(-1)
            weight.copy_((above + below) / 2 * way)


def _rises(layer: nn.Module) -> bool:
    """Whether an activation never falls, whatever it was told to do below 0."""
    return isinstance(layer, _RISING) and min(getattr(layer, name, 0.0) for name in ("negative_slope", "alpha")) >= 0


def _give_ways(n: int, wanted: int | None) -> Tensor:
    """(n,), which way units go: hidden ones in turn; of the logits, the wanted one up and all others down."""
    ways = -torch.ones(n)
    ways[slice(0, None, 2) if wanted is None else wanted] = 1
    return ways


def _refuse_coded(layer: Pieces, levels: Sequence[tuple[slice, int]]) -> None:
    coded = {*layer.numbers.tolist()}
    if any(coded & {*range(part.start, part.stop)} for part, _ in levels):
        raise ValueError(
            "monotone needs ordered levels as they are; the module codes them as pieces, as if they were numbers; "
            "name the places of the numbers, Pieces(n_features, numbers)"
        )
