"""Where a search starts: at the factual, or somewhere around it."""

from dataclasses import dataclass

from torch import Tensor

from countertrain.search.streams import draw_uniform

__all__ = ["Around", "Factual"]


@dataclass(frozen=True)
class Factual:
    """At the factual itself."""

    draws = False

    def __call__(self, factual: Tensor, seed: Tensor) -> Tensor:
        """The rows (P, n, *shape) to start from."""
        return factual


@dataclass(frozen=True)
class Around:
    """Anywhere within `radius` of the factual in every feature, all places alike."""

    radius: float
    draws = True

    def __call__(self, factual: Tensor, seed: Tensor) -> Tensor:
        """The rows (P, n, *shape) to start from, by the seed (P, n) of each."""
        return factual + self.radius * (2 * draw_uniform(seed, 0, factual) - 1)
