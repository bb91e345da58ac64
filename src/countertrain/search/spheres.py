"""Growing spheres: rows drawn from shells around the factual, each wider than the last, until one is accepted."""

from dataclasses import dataclass

import torch
from torch import Tensor

from countertrain.models.kernels import choose
from countertrain.search.proposals import Ground
from countertrain.search.state import Memory
from countertrain.search.streams import draw_normal, draw_uniform

__all__ = ["Spheres"]

_BUDGET = 2**22  # numbers in one tensor of candidates


@dataclass(frozen=True)
class Spheres:
    """Step k draws candidates from the shell between (k - 1) and k times `width`, and goes to the nearest mature one.

    Then features go back to where they were, the one that changed least first, for as long as the row stays mature.
    Where there is no mature candidate, a row stays at its factual.
    """

    width: float = 0.2
    n_candidates: int = 1000
    sparse: bool = True
    """Whether features go back."""
    draws = True

    def init(self, z: Tensor, seed: Tensor) -> Memory:
        """The seed of each row, so that its candidates are its own."""
        return (seed,)

    def propose(self, ground: Ground, memory: Memory, k: int) -> tuple[Tensor, Memory]:
        """The nearest mature candidate of shell k."""
        (seed,) = memory
        d = ground.factual[0, 0].numel()
        rows = max(1, _BUDGET // (len(seed) * self.n_candidates * max(d, 32)))
        found = [self._search(part, seed[:, where], k) for where, part in ground.split(rows)]
        return torch.cat(found, dim=1), memory

    def _search(self, ground: Ground, seed: Tensor, k: int) -> Tensor:
        """Where some of the rows go, (P, n, *shape)."""
        candidates = ground.project(self._draw(ground, seed, k))  # (P, n, N, *shape)
        far = (candidates - ground.factual.unsqueeze(2)).flatten(3).norm(dim=-1)  # (P, n, N)
        far = far.masked_fill(~ground.is_mature(candidates), torch.inf)
        least, at = far.min(-1)
        places = at.view(*at.shape, *[1] * (candidates.ndim - 2)).expand(-1, -1, 1, *candidates.shape[3:])
        nearest, found = candidates.gather(2, places).squeeze(2), least.isfinite()
        if self.sparse and found.any():
            nearest = _put_back(ground, nearest, found)
        return choose(found, nearest, ground.factual)

    def _draw(self, ground: Ground, seed: Tensor, k: int) -> Tensor:
        """Candidates (P, n, N, *shape), evenly spread over the shell, in those features that can move."""
        around = ground.factual.unsqueeze(2)
        like = around.expand(-1, -1, self.n_candidates, *around.shape[3:])
        noise = draw_normal(seed, 2 * k, like)
        dimensions = torch.full_like(ground.limit, around[0, 0].numel())  # (P, n)
        if ground.low is not None and ground.high is not None:
            free = ground.low < ground.high
            noise, dimensions = noise * free.unsqueeze(2), free.flatten(2).sum(-1).clamp(min=1).to(noise)
        share = draw_uniform(seed, 2 * k + 1, like.flatten(3)[..., 0])  # (P, n, N)
        least = ((k - 1) / k) ** dimensions.unsqueeze(-1)  # of the volume
        radius = k * self.width * (least + (1 - least) * share) ** (1 / dimensions.unsqueeze(-1))
        length: Tensor = noise.flatten(3).norm(dim=-1).clamp(min=torch.finfo(noise.dtype).tiny)
        scale = radius / length
        return around + noise * scale.view(*scale.shape, *[1] * (around.ndim - 3))


def _put_back(ground: Ground, x: Tensor, going: Tensor) -> Tensor:
    """The rows x with features as in the factual, the least changed first, until that would cost maturity."""
    factual = ground.factual.flatten(2)
    order = (x.flatten(2) - factual).abs().argsort(dim=-1, stable=True)  # (P, n, D)
    for at in order.split(1, dim=-1):
        trial = x.flatten(2).scatter(-1, at, factual.gather(-1, at)).view_as(x)
        trial = ground.project(trial)
        going = going & ground.is_mature(trial)
        x = choose(going, trial, x)
    return x
