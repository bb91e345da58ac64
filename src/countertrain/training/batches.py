"""The mini-batches of an epoch, for every model of a population."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torch import Tensor
from torch.utils.data import DataLoader

from countertrain.training.checks import check_rows
from countertrain.training.sampler import Sampler

__all__ = ["Batches", "Rows", "gather"]

Rows = tuple[Tensor, Tensor]
"""Rows and their classes."""

_TOGETHER = 2**20  # numbers that are read from the table by one call


@dataclass(frozen=True, eq=False)
class Batches:
    """Rows x (n, *shape) and classes y (n,), cut into mini-batches anew for each epoch."""

    x: Tensor
    y: Tensor
    size: int
    """b, rows in a mini-batch."""
    shuffle: bool
    """A new order each epoch, another one per model; else the order of the rows, the same for all."""
    loader: DataLoader[tuple[Tensor, Tensor]] | None = None
    """Whose mini-batches are taken instead, if somebody has one: as it shuffles, samples and augments."""

    def __len__(self) -> int:
        return len(self.loader) if self.loader is not None else -(-len(self.x) // self.size)

    def epoch(self, sampler: Sampler) -> Iterator[Rows]:
        """Mini-batches (P, b, *shape) and (P, b), b rows for each of the models that the sampler draws for."""
        size = len(sampler.streams)
        if self.loader is not None:
            return self._from(self.loader, size)
        if self.shuffle:  # drawn at once, before the method draws
            return self._shuffled(sampler.factuals(len(self.x)))
        x, y = (values.expand(size, *values.shape).split(self.size, dim=1) for values in (self.x, self.y))
        return zip(x, y, strict=True)

    def _shuffled(self, rows: Tensor) -> Iterator[Rows]:
        """The mini-batches of rows (P, n), several read at once."""
        together = max(1, _TOGETHER // (len(rows) * self.size * self.x[0].numel()))
        for part in rows.split(together * self.size, dim=1):
            yield from zip(self.x[part].split(self.size, dim=1), self.y[part].split(self.size, dim=1), strict=True)

    def _from(self, loader: DataLoader[tuple[Tensor, Tensor]], size: int) -> Iterator[Rows]:
        for x, y in loader:
            x, y = x.to(self.x), y.to(self.y)
            check_rows(x, y, name="mini-batch ", shape=self.x.shape[1:])
            yield x.expand(size, *x.shape), y.expand(size, *y.shape)


def gather(mini_batches: Iterable[Rows], most: int) -> Iterator[list[Rows]]:
    """Mini-batches together, at least one and as many as hold so many numbers."""
    some: list[Rows] = []
    numbers = 0
    for x, y in mini_batches:
        some.append((x, y))
        numbers += x.numel()
        if numbers >= most:
            yield some
            some, numbers = [], 0
    if some:
        yield some
