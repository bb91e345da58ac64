"""Generators by name: those of the paper, and the attacks and samplers that are compositions of the same parts."""

from countertrain.models.population import Weight
from countertrain.search.generator import Generator
from countertrain.search.penalties import Energy, Escape, FreeEnergy, Gravity, ScheduledEnergy, distance
from countertrain.search.rules import SGD, Greedy, Langevin, Sign
from countertrain.search.space import FeatureSpace, LatentSpace
from countertrain.search.starts import Around, Factual, NearestReal
from countertrain.search.state import StateSpace, StepRule
from countertrain.search.vae import VAE
from countertrain.words import refuse_attribute

__all__ = ["eccco", "fgsm", "generic", "gravitational", "greedy", "langevin", "nearest", "pgd", "revise"]
__getattr__ = refuse_attribute(__name__, __all__)


def generic(
    *,
    lambda_cost: Weight = 0.001,
    space: StateSpace | None = None,
    rule: StepRule | None = None,
    n_steps: int = 30,
    tau: Weight | None = 0.75,
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
    tau: Weight | None = 0.75,
) -> Generator:
    """ECCCo: cross-entropy, distance and energy, for counterfactuals that are faithful to the model."""
    return Generator(
        ((lambda_cost, distance), (lambda_egy, ScheduledEnergy(schedule, rho))),
        space=space or FeatureSpace(),
        rule=rule or SGD(),
        n_steps=n_steps,
        tau=tau,
    )


def revise(
    vae: VAE | None = None,
    *,
    lambda_cost: Weight = 0.001,
    rule: StepRule | None = None,
    n_steps: int = 30,
    tau: Weight | None = 0.75,
    seed: int = 0,
) -> Generator:
    """REVISE: the generic objective, searched in the latent space of a VAE, which `bind` fits if none is given."""
    return Generator(
        ((lambda_cost, distance),), space=LatentSpace(vae, seed), rule=rule or SGD(), n_steps=n_steps, tau=tau
    )


def gravitational(
    *,
    lambda_cost: Weight = 0.1,
    lambda_pull: Weight = 0.5,
    n_near: int = 50,
    space: StateSpace | None = None,
    rule: StepRule | None = None,
    n_steps: int = 30,
    tau: Weight | None = 0.75,
) -> Generator:
    """The generic objective, and the distance to the real rows of the target class that are nearest."""
    return Generator(
        ((lambda_cost, distance), (lambda_pull, Gravity(n_near))),
        space=space or FeatureSpace(),
        rule=rule or SGD(),
        n_steps=n_steps,
        tau=tau,
    )


def greedy(*, step_size: float = 0.1, most: int = 10, n_steps: int = 30, tau: Weight | None = 0.75) -> Generator:
    """One feature at a time, the one with the largest gradient (Schut et al. 2021): few features change."""
    return Generator((), space=FeatureSpace(still=True), rule=Greedy(step_size, most), n_steps=n_steps, tau=tau)


def nearest(*, tau: Weight | None = 0.75) -> Generator:
    """The nearest real row of the target class, as far as people can change; mature if the model accepts it."""
    return Generator((), start=NearestReal(), n_steps=0, tau=tau)


def fgsm(epsilon: float) -> Generator:
    """The fast gradient sign method: one step of size epsilon away from the class of the row."""
    return Generator((), loss=Escape(), rule=Sign(epsilon), n_steps=1, tau=None, radius=epsilon)


def pgd(epsilon: float, *, step_size: float = 0.01, n_steps: int = 40, random_start: bool = True) -> Generator:
    """Projected gradient descent: signed steps away from the class of the row, inside the epsilon-ball."""
    start = Around(epsilon) if random_start else Factual()
    return Generator((), loss=Escape(), rule=Sign(step_size), start=start, n_steps=n_steps, tau=None, radius=epsilon)


def langevin(*, step_size: float = 0.1, noise: float = 0.01, n_steps: int = 20, conditional: bool = True) -> Generator:
    """Samples of the classifier read as an energy-based model (SGLD): of the target class, or of any class."""
    penalty = Energy() if conditional else FreeEnergy()
    return Generator(((1.0, penalty),), loss=None, rule=Langevin(step_size, noise), n_steps=n_steps, tau=None)
