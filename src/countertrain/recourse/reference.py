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
class _Crowd:
    """Real rows as distances are measured to them: in single precision, numbers and levels apart."""

    places: Tensor  # (m,) in the reference
    number: Tensor  # (m, N)
    level: Tensor  # (m, L)

    def __getitem__(self, rows: Tensor | slice) -> Self:
        return type(self)(self.places[rows], self.number[rows], self.level[rows])


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

    @cached_property
    def _everybody(self) -> _Crowd:
        return _gather(torch.arange(len(self.x)), self.x, self.grid)

    @cached_property
    def _crowds(self) -> dict[int, _Crowd]:
        """The rows of each class."""
        return {k: self._everybody[(self.y == k).nonzero()[:, 0]] for k in self.y.unique().tolist()}

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
        return self._crowds[k].places if k in self._crowds else self.y.new_empty(0)

    def find_nearest(self, x: Tensor, k: int, n: int, most: int | None = None) -> tuple[Tensor, Tensor]:
        """Distances and places (m, n) of the nearest real rows of class k, nearest first, for rows x (m, D).

        Among the first `most` of that class, if that is said.
        """
        real = self._crowds[k][:most]
        n = min(n, len(real.places))
        found = [_measure_distances(part, real, self.grid).topk(n, largest=False) for part in x.split(_BLOCK)]
        if len(found) == 1:
            return found[0].values, real.places[found[0].indices]
        return torch.cat([d for d, _ in found]), real.places[torch.cat([i for _, i in found])]

    def measure_distances(self, x: Tensor, among: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        """(n, m), how far rows x (n, D) are from some real ones; and how far in some features (n, D) of each alone."""
        real = self._everybody[among]
        patterns, pattern = features.unique(dim=0, return_inverse=True)  # most people have the same
        within = torch.empty(len(x), len(among))
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
        classes = {*target.tolist()}
        if len(classes) == 1 and len(self.of_class(k := classes.pop())) > _NEIGHBOURS:  # nothing to take apart
            distances, near = self.find_nearest(x, k, _NEIGHBOURS, _SAMPLE)
            return distances.double().mean(1) / self.typical[k], near
        away = torch.zeros(len(x), dtype=torch.float64)
        near = torch.zeros(len(x), _NEIGHBOURS, dtype=torch.int64)
        for k in target.unique().tolist():
            mine, n_real = (target == k).nonzero()[:, 0], len(self.of_class(k))
            if n_real > _NEIGHBOURS:
                distances, near[mine] = self.find_nearest(x[mine], k, _NEIGHBOURS, _SAMPLE)
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
            mine = target == k
            if not len(self.of_class(k)):
                continue
            distances, places = self.find_nearest(x[mine], k, n_nearest)
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
    others = _gather(torch.arange(len(x)), x, grid)
    own_and_others = _measure_distances(x[:_SPACING_ROWS], others, grid).topk(n, largest=False).values  # own: 0
    fewer = _measure_distances(x[:_SPACING_ROWS], others[:_SAMPLE], grid).topk(n, largest=False).values
    return own_and_others[:, 1].sort().values, max(float(fewer[:, 1:].mean(1).median()), _LEAST / grid.n_columns)


def _gather(places: Tensor, x: Tensor, grid: AnswerGrid) -> _Crowd:
    """Real rows x (m, D) and their places."""
    x, (number, level) = x.float(), grid.sides
    return _Crowd(places, x[:, number], x[:, level])


def _measure_distances(x: Tensor, real: _Crowd, grid: AnswerGrid, features: Tensor | None = None) -> Tensor:
    """(n, m): mean over table columns of the differences that make up the cost; only those of some `features` (D,).

    Levels are compared by a product of their one-hot codes, many times faster than feature by feature.
    """
    number, level = (x.float()[:, places] for places in grid.sides)
    theirs = real.number, real.level
    if features is not None:
        chosen = [features[places] for places in grid.sides]
        number, level = number[:, chosen[0]], level[:, chosen[1]]
        theirs = real.number[:, chosen[0]], real.level[:, chosen[1]]
    apart = torch.cdist(number, theirs[0], p=1)
    same = level @ theirs[1].T  # (n, m) number of categories with the same level
    return (apart + level.sum(1, keepdim=True) - same) / grid.n_columns
