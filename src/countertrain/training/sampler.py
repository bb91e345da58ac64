"""What training draws at random, for each model from a stream of its own."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from countertrain.models.kernels import choose

__all__ = ["Sampler"]


class Sampler:
    """Draws factuals, targets and neighbours for each model from a random stream of its own."""

    def __init__(self, y: Tensor, n_classes: int, seeds: Sequence[int]) -> None:
        self.streams = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.n_classes = n_classes
        self.n_rows = len(y)
        self._by_class = y.argsort(stable=True)  # (n,) rows of class 0 first, then of class 1, ...
        self._count = torch.bincount(y, minlength=n_classes)  # (K,)
        self._start = self._count.cumsum(0) - self._count  # (K,)

    def factuals(self, n: int) -> Tensor:
        """n different rows for each model, (P, n)."""
        return self.draw(lambda stream: torch.randperm(self.n_rows, generator=stream)[:n])

    def targets(self, predicted: Tensor) -> Tensor:
        """A class for each row, uniform over those that the model does not predict: (P, n) -> (P, n)."""
        n = predicted.shape[1]
        other = self.draw(lambda stream: torch.randint(self.n_classes - 1, (n,), generator=stream))
        return other + (other >= predicted)

    def neighbours(self, target: Tensor) -> Tensor:
        """A random row of the target class for each counterfactual, with replacement: (P, n) -> (P, n)."""
        n = target.shape[1]
        u = self.draw(lambda stream: torch.rand(n, generator=stream, dtype=torch.float64))
        place = (u * self._count[target]).long()
        return self._by_class[self._start[target] + place]

    def nearest(self, x: Tensor, target: Tensor, x_ce: Tensor, k: int) -> Tensor:
        """The neighbour nearest to each counterfactual (l1) of k random rows of its target class: (P, n, *shape)."""
        x_plus = x[self.neighbours(target)]
        if k == 1:
            return x_plus
        least = (x_plus - x_ce).abs().flatten(2).sum(-1)  # (P, n)
        for _ in range(k - 1):
            other = x[self.neighbours(target)]
            away = (other - x_ce).abs().flatten(2).sum(-1)
            x_plus, least = choose(away < least, other, x_plus), torch.minimum(away, least)
        return x_plus

    def draw(self, draw: Callable[[torch.Generator], Tensor]) -> Tensor:
        """What `draw` gives for the stream of each model, (P, ...)."""
        return torch.stack([draw(stream) for stream in self.streams]).to(self._count.device)
