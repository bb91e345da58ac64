"""Real rows, by which an option is judged plausible or not."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from countertrain.recourse.reach import AnswerGrid

__all__ = ["Plausibility", "Reference"]

_ROWS = 2000  # real rows per class, at most: more would hardly change the distances
_SPACING_ROWS = 500  # of these, rows whose own distance to the others is measured
_SAMPLE, _NEIGHBOURS = 500, 5  # real rows per class, and the nearest of them by which a row is typical or not
_LEAST = 0.1  # cost that people who are all alike are taken to be apart
_ROUNDING = 1 + 1e-5  # by which a distance in single precision is wrong, at most
_BLOCK = 1000  # rows compared with all real ones at once


@dataclass(frozen=True, eq=False)
class Plausibility:
    """How near n rows are to real ones of their target class; NaN and -1 where there are none."""

    distance: Tensor  # (n,) to the nearest: mean over table columns of the differences that make up the cost
    percentile: Tensor  # (n,) per cent of real rows that are nearer to their own nearest neighbour
    nearest: Tensor  # (n, k) places in the reference

    @classmethod
    def unknown(cls, n: int, k: int) -> Self:
        """Of n rows that nothing can be compared with."""
        nothing = torch.full((n,), torch.nan, dtype=torch.float64)
        return cls(nothing, nothing.clone(), torch.full((n, k), -1))


@dataclass(frozen=True, eq=False)
class Reference:
    """A sample of real rows with their true classes, and how near those of a class are to one another."""

    x: Tensor  # (r, D) float64
    y: Tensor  # (r,)
    grid: AnswerGrid
    spacing: dict[int, Tensor]
    """Per class, in ascending order: distances of real rows to the nearest other one."""
    typical: dict[int, float]
    """Per class: how far a real row in the middle is from its neighbours, as `measure_atypicality` does."""

    @cached_property
    def _single(self) -> Tensor:
        return self.x.float()

    @classmethod
    def of(cls, x: Tensor, y: Tensor, grid: AnswerGrid, *, seed: int = 0) -> Self:
        """A sample of the rows x (N, D) with classes y (N,)."""
        stream = torch.Generator().manual_seed(seed)
        kept, spacing, typical = [y[:0]], {}, {}
        for k in y.unique().tolist():
            places = (y == k).nonzero()[:, 0]
            kept.append(places[torch.randperm(len(places), generator=stream)[:_ROWS]])
            spacing[k], typical[k] = _measure_spacing(x[kept[-1]], grid)
        rows = torch.cat(kept)
        return cls(x[rows].double(), y[rows], grid, spacing, typical)

    def of_class(self, k: int) -> Tensor:
        """Places of the rows whose true class is k."""
        return (self.y == k).nonzero()[:, 0]

    def find_nearest(self, x: Tensor, among: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """Distances and places (m, n) of the nearest real rows, nearest first, for rows x (m, D)."""
        real, n = self.x[among], min(n, len(among))
        found = [_measure_distances(part, real, self.grid).topk(n, largest=False) for part in x.split(_BLOCK)]
        return torch.cat([d for d, _ in found]), among[torch.cat([i for _, i in found])]

    def measure_distances(self, x: Tensor, among: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        """(n, m), how far rows x (n, D) are from some real ones; and how far in some features (n, D) of each alone."""
        real = self.x[among]
        patterns, pattern = features.unique(dim=0, return_inverse=True)  # most people have the same
        within = torch.empty(len(x), len(real))
        for i, mine in enumerate(patterns):
            rows = (pattern == i).nonzero()[:, 0]
            within[rows] = _measure_distances(x[rows], real, self.grid, mine)
        return _measure_distances(x, real, self.grid), within

    def measure_atypicality(self, x: Tensor, target: Tensor) -> Tensor:
        """(n,), how far rows x (n, D) are from real ones of their target class: 1 as a real row in the middle is.

        Measured to the nearest few; 0 where there are none to compare with.
        """
        return self.find_neighbours(x, target)[0]

    def find_neighbours(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """What `measure_atypicality` says, and the places (n, k) of the nearest few; any where there are none."""
        away = torch.zeros(len(x), dtype=torch.float64)
        near = torch.zeros(len(x), _NEIGHBOURS, dtype=torch.int64)
        for k in target.unique().tolist():
            mine, among = (target == k).nonzero()[:, 0], self.of_class(k)[:_SAMPLE]
            if len(among) > _NEIGHBOURS:
                distances, near[mine] = self.find_nearest(x[mine], among, _NEIGHBOURS)
                away[mine] = distances.double().mean(1) / self.typical[k]
        return away, near

    def bound_atypicality(self, x: Tensor, target: Tensor, near: Tensor) -> Tensor:
        """(n,), what `measure_atypicality` does not exceed: how far rows x (n, D) are from some real ones (n, k).

        They are to be of the target class, and among those to whom it measures.
        """
        weight = self.grid.weight.float()
        apart = ((x.float().unsqueeze(1) - self._single[near]).abs_() @ weight).mean(1).double()  # (n,)
        usual = torch.ones(int(target.max()) + 1 if len(target) else 0, dtype=torch.float64)
        for k in target.unique().tolist():
            usual[k] = self.typical.get(k, 1.0)
        return _ROUNDING * apart / self.grid.n_columns / usual[target]

    def measure_plausibility(self, x: Tensor, target: Tensor, n_nearest: int = 3) -> Plausibility:
        """How near rows x (n, D) are to the real rows of their target class."""
        found = Plausibility.unknown(len(x), n_nearest)
        for k in target.unique().tolist():
            mine, among = target == k, self.of_class(k)
            if not len(among):
                continue
            distances, places = self.find_nearest(x[mine], among, n_nearest)
            found.distance[mine] = distances[:, 0].double()
            found.nearest[mine, : places.shape[1]] = places
            spacing = self.spacing[k]
            if len(spacing):
                nearer = torch.searchsorted(spacing, distances[:, 0].contiguous())
                found.percentile[mine] = 100.0 * nearer.double() / len(spacing)
        return found


def _measure_spacing(x: Tensor, grid: AnswerGrid) -> tuple[Tensor, float]:
    """Distance of some rows to the nearest other one, ascending, and the median of that to several others."""
    if len(x) < 2:
        return x.new_empty(0), _LEAST / grid.n_columns
    n = min(_NEIGHBOURS + 1, len(x))
    own_and_others = _measure_distances(x[:_SPACING_ROWS], x, grid).topk(n, largest=False).values  # own: 0
    fewer = _measure_distances(x[:_SPACING_ROWS], x[:_SAMPLE], grid).topk(n, largest=False).values
    return own_and_others[:, 1].sort().values, max(float(fewer[:, 1:].mean(1).median()), _LEAST / grid.n_columns)


def _measure_distances(x: Tensor, real: Tensor, grid: AnswerGrid, features: Tensor | None = None) -> Tensor:
    """(n, m): mean over table columns of the differences that make up the cost; only those of some `features` (D,).

    Levels are compared by a product of their one-hot codes, many times faster than feature by feature.
    """
    x, real = x.float(), real.float()
    level = grid.weight < 1  # (D,)
    number = ~level
    if features is not None:
        level, number = level & features, number & features
    apart = torch.cdist(x[:, number], real[:, number], p=1)
    same = x[:, level] @ real[:, level].T  # (n, m) number of categories with the same level
    return (apart + x[:, level].sum(1, keepdim=True) - same) / grid.n_columns
