"""Generators by name: those of the paper and of others, and attacks and samplers that are made of the same parts."""

from countertrain.models.population import Weight
from countertrain.search.fragility import Fragility
from countertrain.search.generator import Generator
from countertrain.search.paths import Paths
from countertrain.search.penalties import Energy, Escape, FreeEnergy, Gravity, ScheduledEnergy, distance
from countertrain.search.rules import SGD, Greedy, Langevin, Sign
from countertrain.search.space import FeatureSpace, LatentSpace
from countertrain.search.spheres import Spheres
from countertrain.search.starts import Around, Factual, NearestReal
from countertrain.search.state import StateSpace, StepRule
from countertrain.search.vae import VAE
from countertrain.search.writing import Writing
from countertrain.words import refuse_attribute

__all__ = [
    "amortised", "eccco", "face", "fgsm", "generic", "gravitational", "greedy", "growing_spheres", "langevin",
    "nearest", "pgd", "probe", "revise",
]  # fmt: skip
__getattr__ = refuse_attribute(__name__, __all__)


def generic(
    *,
    lambda_cost: Weight = 0.001,
    space: StateSpace | None = None,
    rule: StepRule | None = None,
    n_steps: int = 30,
    tau: Weight | None = 0.75,
) -> Generator:
    """Cross-entropy and distance (Wachter, Mittelstadt, Russell 2018)."""
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
    """Cross-entropy, distance and energy: faithful to the model (ECCCo, Altmeyer et al. 2024)."""
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
    """The generic objective in the latent space of a VAE (REVISE, Joshi et al. 2019).

    `bind` fits the VAE if none is given.
    """
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
    """The generic objective, and the distance to real rows of the target class (Altmeyer et al. 2023)."""
    return Generator(
        ((lambda_cost, distance), (lambda_pull, Gravity(n_near))),
        space=space or FeatureSpace(),
        rule=rule or SGD(),
        n_steps=n_steps,
        tau=tau,
    )


def greedy(*, step_size: float = 0.1, most: int = 10, n_steps: int = 30, tau: Weight | None = 0.75) -> Generator:
    """One feature at a time, the one with the largest gradient (Schut et al. 2021)."""
    return Generator((), space=FeatureSpace(still=True), rule=Greedy(step_size, most), n_steps=n_steps, tau=tau)


def nearest(*, tau: Weight | None = 0.75) -> Generator:
    """The nearest real row of the target class (nearest unlike neighbour, Dasarathy 1995).

    As far as people can change; mature if the model accepts it.
    """
    return Generator((), start=NearestReal(), n_steps=0, tau=tau)


def growing_spheres(
    *, width: float = 0.2, n_candidates: int = 1000, sparse: bool = True, n_steps: int = 30, tau: Weight = 0.75
) -> Generator:
    """Random rows from ever wider shells, without a gradient (growing spheres, Laugel et al. 2018).

    Each step is one call of the model for all candidates of a shell.
    """
    return Generator((), loss=None, rule=Spheres(width, n_candidates, sparse), n_steps=n_steps, tau=tau)


def face(*, n_near: int = 10, n_steps: int = 30, tau: Weight = 0.75) -> Generator:
    """Along real rows to one of which the model is sure (FACE, Poyiadzi et al. 2020).

    The shortest way in the graph of the `n_near` nearest neighbours, a row a step; `bind` makes the graph.
    """
    return Generator((), loss=None, rule=Paths(n_near), n_steps=n_steps, tau=tau)


def probe(
    *,
    lambda_cost: Weight = 0.001,
    lambda_hold: Weight = 1.0,
    sigma: float = 0.1,
    most: float = 0.1,
    space: StateSpace | None = None,
    rule: StepRule | None = None,
    n_steps: int = 30,
    tau: Weight | None = 0.75,
) -> Generator:
    """Advice that survives small errors in carrying it out (PROBE, Pawelczyk et al. 2023).

    Mature are only rows of whose noisy copies, with standard deviation sigma, at most the share `most` lose the target.
    """
    return Generator(
        ((lambda_cost, distance), (lambda_hold, Fragility(sigma, most))),
        space=space or FeatureSpace(),
        rule=rule or SGD(),
        n_steps=n_steps,
        tau=tau,
    )


def amortised(
    *, lambda_near: Weight = 0.1, hidden_writer: tuple[int, ...] = (50, 50), n_updates: int = 500, tau: Weight = 0.75
) -> Generator:
    """A network beside the model writes each counterfactual in one pass (ours; the idea: CounterNet, Guo et al. 2023).

    In training it learns in turns with the model; from a model that is trained already, by `n_updates` when it is asked
    or `prepare`d.
    """
    start = Writing(hidden_writer, n_updates=n_updates)
    return Generator(((lambda_near, distance),), loss=None, start=start, n_steps=0, tau=tau)


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
