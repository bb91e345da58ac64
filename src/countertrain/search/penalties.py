"""Terms of the search objective: what a counterfactual should reach, and what it should stay near to."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from countertrain.models.kernels import pick_label
from countertrain.search.real_rows import RealRows, look_at
from countertrain.search.state import Amounts, SearchState, Slopes
from countertrain.words import refuse_attribute

__all__ = [
    "ClassLogProbability",
    "CrossEntropy",
    "Distance",
    "Energy",
    "Escape",
    "FreeEnergy",
    "Gravity",
    "Margin",
    "ScheduledEnergy",
    "distance",
]
__getattr__ = refuse_attribute(__name__, __all__)


@dataclass(frozen=True)
class CrossEntropy:
    """Towards the target class: minus the logarithm of its probability."""

    def __call__(self, state: SearchState) -> Tensor:
        """Loss of each row, (P, n)."""
        return -pick_label(state.log_p, state.target)

    def amounts(self, step: int, n_steps: int) -> Amounts:
        """The loss itself."""
        return Amounts(loss=1.0)


@dataclass(frozen=True)
class Escape:
    """Away from the class of the row, whichever way: the loss of an untargeted attack."""

    def __call__(self, state: SearchState) -> Tensor:
        """Loss of each row, (P, n)."""
        return pick_label(state.log_p, state.target)

    def amounts(self, step: int, n_steps: int) -> Amounts:
        """The loss, the other way."""
        return Amounts(loss=-1.0)


@dataclass(frozen=True)
class ClassLogProbability:
    """The logarithm of the probability of one class, whatever the target."""

    label: int

    def __call__(self, state: SearchState) -> Tensor:
        """Penalty of each row, (P, n)."""
        return state.log_p[:, self.label]

    def slopes(self, state: SearchState) -> Slopes:
        """One for the logit of the class, less all probabilities."""
        by_logits = -state.log_p.exp()
        by_logits[:, self.label] += 1
        return Slopes(by_logits=by_logits)


@dataclass(frozen=True)
class Margin:
    """A hinge: how far the target's logit is from being the largest by `margin`."""

    margin: float = 1.0

    def __call__(self, state: SearchState) -> Tensor:
        """Loss of each row, (P, n)."""
        others = state.logits.scatter(-1, state.target.unsqueeze(-1), -torch.inf)
        return torch.relu(self.margin + others.amax(-1) + state.energy)


@dataclass(frozen=True)
class Distance:
    """How far a row has moved: the l1 distance to its factual, summed over features."""

    def __call__(self, state: SearchState) -> Tensor:
        """Penalty of each row, (P, n)."""
        return state.change.abs().flatten(2).sum(-1)

    def amounts(self, step: int, n_steps: int) -> Amounts:
        """The distance itself."""
        return Amounts(distance=1.0)


distance = Distance()


@dataclass(frozen=True)
class Energy:
    """The energy of the target class: low where the model itself finds a row likely in it."""

    def __call__(self, state: SearchState) -> Tensor:
        """Penalty of each row, (P, n)."""
        return state.energy

    def amounts(self, step: int, n_steps: int) -> Amounts:
        """The energy itself."""
        return Amounts(energy=1.0)


@dataclass(frozen=True)
class FreeEnergy:
    """The energy of a row in any class, minus the logsumexp of its logits."""

    def __call__(self, state: SearchState) -> Tensor:
        """Penalty of each row, (P, n)."""
        return -state.logits.logsumexp(-1)

    def amounts(self, step: int, n_steps: int) -> Amounts:
        """The energy in the target class, less the loss."""
        return Amounts(loss=-1.0, energy=1.0)


@dataclass(frozen=True)
class ScheduledEnergy:
    """ECCCo's pull towards inputs that the model itself finds likely in the target class: phi(k) (E + rho E^2).

    As run, phi decays polynomially; as written in the paper there is neither phi nor the square.
    """

    schedule: bool = True
    rho: float = 1e-3

    def __call__(self, state: SearchState) -> Tensor:
        """Penalty of each row, (P, n)."""
        e, some = state.energy, self.amounts(state.step, state.n_steps)
        return some.energy * e + some.square * e.square()  # type: ignore[no-any-return]  # amounts may be arrays

    def amounts(self, step: int, n_steps: int) -> Amounts:
        """phi, and phi rho of the square."""
        phi = self.phi(step, n_steps) if self.schedule else 1.0
        return Amounts(energy=phi, square=phi * self.rho)

    @staticmethod
    def phi(k: int, n_steps: int) -> float:
        """The decay: a (b + k)^-0.9 with b = round(T / 25), a = b / 10; none at all for T <= 12."""
        b = round(n_steps / 25)
        return b / 10 * (b + k) ** -0.9  # type: ignore[no-any-return]  # a power of a positive number


@dataclass(frozen=True)
class Gravity:
    """The mean l1 distance to the `k` nearest real rows of the target class, which pulls a row to where people are."""

    k: int = 50
    real: RealRows | None = None
    """None: taken from the training rows by `bind`."""

    def bind(self, x: Tensor, y: Tensor) -> Self:
        """The penalty with the training rows x (n, *shape) of classes y (n,)."""
        return self if self.real is not None else replace(self, real=RealRows.of(x, y))

    def __call__(self, state: SearchState) -> Tensor:
        """Penalty of each row, (P, n)."""
        return self._ways(state).abs().flatten(3).sum(-1).mean(2)

    def slopes(self, state: SearchState) -> Slopes:
        """Away from the most of them, feature by feature."""
        return Slopes(by_x=self._ways(state).sign().mean(2))

    def _ways(self, state: SearchState) -> Tensor:
        """From each real row to the iterate, (P, n, k, *shape)."""
        return state.x.unsqueeze(2) - look_at(self.real).nearest(state.x.detach(), state.target, self.k)
