"""The three generators of the paper, each a composition of penalties, a space and a step rule."""

from dataclasses import dataclass

from torch import Tensor

from countertrain.models.population import Weight
from countertrain.search.generator import Generator
from countertrain.search.rules import SGD
from countertrain.search.space import FeatureSpace, LatentSpace
from countertrain.search.state import SearchState, Slopes, StateSpace, StepRule
from countertrain.search.vae import VAE

__all__ = ["Distance", "EnergyPenalty", "distance", "eccco", "generic", "revise"]


@dataclass(frozen=True)
class Distance:
    """How far a row has moved: the l1 distance to its factual, summed over features."""

    def __call__(self, state: SearchState) -> Tensor:
        """Penalty of each row, (P, n)."""
        return state.change.abs().sum(-1)

    def slopes(self, state: SearchState) -> Slopes:
        """A step up or down, whichever leads away from the factual."""
        return Slopes(by_x=state.change.sign())


distance = Distance()


@dataclass(frozen=True)
class EnergyPenalty:
    """ECCCo's pull towards inputs that the model itself finds likely in the target class: phi(k) (E + rho E^2).

    As run, phi decays polynomially; as written in the paper there is neither phi nor the square.
    """

    schedule: bool = True
    rho: float = 1e-3

    def __call__(self, state: SearchState) -> Tensor:
        """Penalty of each row, (P, n)."""
        e, phi = state.energy, self._phi(state)
        return e * (phi + phi * self.rho * e)

    def slopes(self, state: SearchState) -> Slopes:
        """phi (1 + 2 rho E)."""
        phi = self._phi(state)
        return Slopes(by_energy=phi + 2 * phi * self.rho * state.energy)

    def _phi(self, state: SearchState) -> float:
        return self.phi(state.step, state.n_steps) if self.schedule else 1.0

    @staticmethod
    def phi(k: int, n_steps: int) -> float:
        """The decay: a (b + k)^-0.9 with b = round(T / 25), a = b / 10; none at all for T <= 12."""
        b = round(n_steps / 25)
        return b / 10 * (b + k) ** -0.9  # type: ignore[no-any-return]  # a power of a positive number


def generic(
    *,
    lambda_cost: Weight = 0.001,
    space: StateSpace | None = None,
    rule: StepRule | None = None,
    n_steps: int = 30,
    tau: Weight = 0.75,
) -> Generator:
    """Wachter's search: cross-entropy and distance."""
    return Generator(
        ((lambda_cost, distance),), space=space or FeatureSpace(), rule=rule or SGD(), n_steps=n_steps, tau=tau
    )


def eccco(
    *,
    lambda_cost: Weight = 0.001,
    lambda_egy: Weight = 5.0,
    schedule: bool = True,
    rho: float = 1e-3,
    space: StateSpace | None = None,
    rule: StepRule | None = None,
    n_steps: int = 30,
    tau: Weight = 0.75,
) -> Generator:
    """ECCCo: cross-entropy, distance and energy, for counterfactuals that are faithful to the model."""
    return Generator(
        ((lambda_cost, distance), (lambda_egy, EnergyPenalty(schedule, rho))),
        space=space or FeatureSpace(),
        rule=rule or SGD(),
        n_steps=n_steps,
        tau=tau,
    )


def revise(
    vae: VAE,
    *,
    lambda_cost: Weight = 0.001,
    rule: StepRule | None = None,
    n_steps: int = 30,
    tau: Weight = 0.75,
) -> Generator:
    """REVISE: the generic objective, searched in the latent space of a VAE."""
    return Generator(((lambda_cost, distance),), space=LatentSpace(vae), rule=rule or SGD(), n_steps=n_steps, tau=tau)
