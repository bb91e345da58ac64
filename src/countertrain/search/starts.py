"""Where a search starts: at the factual, somewhere around it, or at a real row of the target class."""

from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from countertrain.search.real_rows import RealRows, look_at
from countertrain.search.streams import draw_uniform

__all__ = ["Around", "Factual", "NearestReal"]


@dataclass(frozen=True)
class Factual:
    """At the factual itself."""

    draws = False

    def __call__(self, factual: Tensor, target: Tensor, seed: Tensor) -> Tensor:
        """The rows (P, n, *shape) to start from."""
        return factual


@dataclass(frozen=True)
class Around:
    """Anywhere within `radius` of the factual in every feature, all places alike."""

    radius: float
    draws = True

    def __call__(self, factual: Tensor, target: Tensor, seed: Tensor) -> Tensor:
        """The rows (P, n, *shape) to start from, by the seed (P, n) of each."""
        return factual + self.radius * (2 * draw_uniform(seed, 0, factual) - 1)


@dataclass(frozen=True)
class NearestReal:
    """At the real row of the target class that is nearest to the factual."""

    real: RealRows | None = None
    """None: taken from the training rows by `bind`."""
    draws = False

    def bind(self, x: Tensor, y: Tensor) -> Self:
        """The start with the training rows x (n, *shape) of classes y (n,) to choose from."""
        return self if self.real is not None else replace(self, real=RealRows.of(x, y))

    def __call__(self, factual: Tensor, target: Tensor, seed: Tensor) -> Tensor:
        """The rows (P, n, *shape) to start from."""
        return look_at(self.real).nearest(factual, target).squeeze(2)
