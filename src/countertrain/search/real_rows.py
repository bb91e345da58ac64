"""Real rows of each class, for parts of a search that look at them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

__all__ = ["RealRows", "find_nearest", "look_at"]

_MOST = 2000  # rows of a class that are kept
_BUDGET = 2**22  # numbers of one block of distances


@dataclass(frozen=True, eq=False)
class RealRows:
    """The training rows, class by class."""

    by_class: Sequence[Tensor]  # (m, *shape) for each class

    @classmethod
    def of(cls, x: Tensor, y: Tensor) -> Self:
        """The rows x (n, *shape) of classes y (n,): of a large class a sample, evenly spread over the table."""
        places = ((y == label).nonzero()[:, 0] for label in range(int(y.max()) + 1))
        return cls([x[at[:: max(1, -(-len(at) // _MOST))]] for at in places])

    @torch.no_grad()
    def nearest(self, x: Tensor, target: Tensor, k: int = 1) -> Tensor:
        """The k real rows of its target class that are nearest (l1) to each row: (P, n, *shape) -> (P, n, k, *shape).

        Where a class has fewer rows, the nearest one stands in for those that are missing.
        """
        found = x.unsqueeze(2).repeat(1, 1, k, *[1] * (x.ndim - 2))
        for label in target.unique().tolist():
            mine, rows = target == label, self.by_class[label].to(x)
            if not len(rows):
                raise ValueError(f"the training rows have none of class {label}, so that none can be near")
            _, at = find_nearest(x[mine].flatten(1), rows.flatten(1), min(k, len(rows)))
            found[mine] = rows[torch.cat([at, at[:, :1].expand(-1, k - at.shape[1])], dim=1)]
        return found


def find_nearest(x: Tensor, real: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """How far (l1) the k nearest of real rows (r, D) are from each row of x (m, D), and their places, (m, k)."""
    parts = (torch.cdist(part, real, p=1) for part in x.split(max(1, _BUDGET // len(real))))
    near = [part.topk(k, largest=False) for part in parts]
    return torch.cat([each.values for each in near]), torch.cat([each.indices for each in near])


def look_at(real: RealRows | None) -> RealRows:
    """The rows that a part of a search was shown, refused where there are none."""
    if real is None:
        raise ValueError(
            "this search looks at real rows, and has not seen any; bind the generator to training rows: "
            "generator.bind(x, y)"
        )
    return real
