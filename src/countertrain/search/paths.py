"""FACE: from one real row to the next that is near, until one is reached of which the model is sure."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from countertrain.models.kernels import choose
from countertrain.search.proposals import Ground
from countertrain.search.real_rows import RealRows, find_nearest
from countertrain.search.state import Memory

__all__ = ["Graph", "Paths"]


@dataclass(frozen=True, eq=False)
class Graph:
    """Real rows, and which of them are neighbours: each of its k nearest, or it of them."""

    rows: Tensor  # (r, *shape)
    label: Tensor  # (r,)
    k: int

    @classmethod
    def of(cls, x: Tensor, y: Tensor, k: int) -> Self:
        """The graph of rows x (n, *shape) of classes y (n,); of a large class, as many as `RealRows` keeps."""
        kept = RealRows.of(x, y).by_class
        label = torch.arange(len(kept), device=x.device).repeat_interleave(torch.tensor([len(rows) for rows in kept]))
        return cls(torch.cat([*kept]), label, min(k, len(label) - 1))

    @cached_property
    def edges(self) -> Any:
        """The length (l1) of the way between neighbours, as a sparse matrix (r, r)."""
        from scipy.sparse import csr_array  # late: only this search needs it

        flat = self.rows.flatten(1)
        far, at = find_nearest(flat, flat, self.k + 1)  # a row is its own neighbour, or its twin is
        start = np.arange(len(flat)).repeat(self.k + 1)
        # twins are no length apart, and a sparse matrix takes nothing for no edge
        length = far.double().clamp(min=1e-12).flatten().cpu().numpy()
        return csr_array((length, (start, at.flatten().cpu().numpy())), shape=(len(flat), len(flat)))

    def find_ways(self, ends: Tensor) -> tuple[Tensor, Tensor]:
        """How far each row is from the nearest of `ends`, (r,) bool, and the row that comes next on the way there."""
        from scipy.sparse.csgraph import dijkstra

        if not ends.any():
            return torch.full((len(ends),), torch.inf, dtype=torch.float64), torch.arange(len(ends))
        sources = ends.nonzero()[:, 0].cpu().numpy()
        far, after, _ = dijkstra(self.edges, directed=False, indices=sources, return_predecessors=True, min_only=True)
        itself = np.arange(len(ends))
        return torch.from_numpy(far), torch.from_numpy(np.where(after < 0, itself, after).astype(np.int64))


@dataclass(frozen=True)
class Paths:
    """Step k goes to the k-th real row on the shortest way to a row of the target class of which the model is sure.

    What people cannot change stays as it is on the way; who is mature before the end stays there.
    """

    n_neighbours: int = 10
    graph: Graph | None = None
    """None: made of the training rows by `bind`."""
    draws = False

    def bind(self, x: Tensor, y: Tensor) -> Self:
        """The rule with the graph of the training rows x (n, *shape) of classes y (n,)."""
        return self if self.graph is not None else replace(self, graph=Graph.of(x, y, self.n_neighbours))

    def init(self, z: Tensor, seed: Tensor) -> Memory:
        """No way is known yet."""
        return (z.new_zeros((*z.shape[:2], 0), dtype=torch.int64),)

    def propose(self, ground: Ground, memory: Memory, k: int) -> tuple[Tensor, Memory]:
        """The next row on the way."""
        if self.graph is None:
            raise ValueError(
                "this search goes along real rows, and has not seen any; bind the generator to training rows: "
                "generator.bind(x, y)"
            )
        (ways,) = memory if k > 1 else (_plan(self.graph, ground),)  # (P, n, T), -1 where there is none
        at = ways[..., k - 1]
        there = ground.project(self.graph.rows.to(ground.x)[at.clamp(min=0)])
        return choose(at >= 0, there, ground.factual), (ways,)


def _plan(graph: Graph, ground: Ground) -> Tensor:
    """The places of the real rows on the way of each row, (P, n, T); the last stands for all after it."""
    size, n = ground.target.shape
    real = graph.rows.to(ground.x)
    log_p = ground.ask(real.expand(size, *real.shape))  # (P, K, r)
    far, near = find_nearest(ground.factual.flatten(0, 1).flatten(1), real.flatten(1), graph.k)
    far, near = (each.view(size, n, -1) for each in (far.double(), near))
    ways = ground.target.new_full((size, n, ground.n_steps), -1)
    for i in range(size):
        asked = torch.stack([ground.target[i].double(), ground.limit[i].double()])  # (2, n)
        for label, limit in asked.unique(dim=1).T:
            mine = (asked == torch.stack([label, limit]).unsqueeze(-1)).all(0)
            ends = (graph.label == label.long()) & (log_p[i, label.long()] >= limit)
            to_go, after = (each.to(far.device) for each in graph.find_ways(ends))
            total, first = (far[i, mine] + to_go[near[i, mine]]).min(-1)
            at = near[i, mine].gather(-1, first.unsqueeze(-1)).squeeze(-1)
            hops = [at]
            for _ in range(ground.n_steps - 1):
                hops.append(after[hops[-1]])
            ways[i, mine] = torch.stack(hops, dim=-1).masked_fill(~total.isfinite().unsqueeze(-1), -1)
    return ways
