"""IP* as the paper computes it: one small MMD for each round and pair of factual and target class."""

import itertools

import torch
from torch import Tensor

from countertrain.evaluation.metrics import kernel

__all__ = ["GroupedDivergence"]

_POOL = 4000  # reference rows of a class at most, so that their kernel fits into memory
_BUDGET = 2**24  # numbers in one tensor


class GroupedDivergence:
    """Unbiased MMD between groups of counterfactuals and reference rows of their target class.

    A group holds the counterfactuals of one round, factual class and target class; at most `n_rows` of it are
    compared with as many random reference rows. Groups of one say nothing and are left out. With many classes and few
    individuals nearly all groups are that small: `pooled` puts all factual classes of a target into one group.
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        n_classes: int,
        *,
        length_scale: float,
        n_rows: int = 100,
        pooled: bool = False,
    ) -> None:
        self._length_scale = length_scale
        self._n_rows = n_rows
        self._pooled = pooled
        self._n_classes = n_classes
        self._pools = [x[y == k][:_POOL] for k in range(n_classes)]
        self._within = [kernel(pool, pool, length_scale) for pool in self._pools]

    def __call__(self, x: Tensor, label: Tensor, target: Tensor, valid: Tensor, stream: torch.Generator) -> Tensor:
        """Mean over the valid counterfactuals (P, k, n, D) of each block of their group's divergence: (P, k).

        Factual classes `label` and `target` are (k, n), `valid` is (P, k, n). Invalid counterfactuals are part of
        their group, but only valid ones count in the mean. Negative estimates count as 0.
        """
        total = torch.zeros(valid.shape[:2], dtype=torch.float64, device=x.device)
        count = torch.zeros_like(total)
        if self._pooled:
            label = torch.full_like(label, -1)
        for f, t in itertools.product(label.unique().tolist(), range(self._n_classes)):
            members = (label == f) & (target == t)  # (k, n)
            if f == t or int(members.sum(1).max()) < 2 or len(self._pools[t]) < 2:
                continue
            estimate = self._group(x, members, t, stream)  # (P, k)
            weight = (valid & members.to(x.device)).sum(-1) * (~estimate.isnan())
            total += weight * estimate.nan_to_num(0.0).clamp(min=0)
            count += weight
        return total / count

    def _group(self, x: Tensor, members: Tensor, t: int, stream: torch.Generator) -> Tensor:
        """MMD of one pair of classes in each block, (P, k); NaN for groups of fewer than two."""
        pool = self._pools[t]
        a = min(self._n_rows, int(members.sum(1).max()))
        b = min(self._n_rows, len(pool))
        score = torch.rand(members.shape, generator=stream).masked_fill(~members, -1.0)
        chosen = score.topk(a, dim=1).indices  # (k, a)
        there = members.gather(1, chosen).to(x.device)  # (k, a)
        reference = (
            torch.rand((len(members), len(pool)), generator=stream).topk(b, dim=1).indices.to(x.device)
        )  # (k, b)
        parts = []
        step = max(1, _BUDGET // (len(x) * max(a, b) * max(x.shape[-1], b)))
        for s in range(0, len(members), step):
            here = slice(s, s + step)
            rows = x[:, here].gather(2, _index(chosen[here].to(x.device), x))  # (P, k', a, D)
            parts.append(self._estimate(rows, there[here], reference[here], t))
        return torch.cat(parts, dim=1)

    def _estimate(self, rows: Tensor, there: Tensor, reference: Tensor, t: int) -> Tensor:
        m, b = there.sum(1).double(), reference.shape[1]  # (k,), n
        pairs = there.unsqueeze(-1) & there.unsqueeze(-2)  # (k, a, a)
        own = (kernel(rows, rows, self._length_scale) * pairs).sum((-1, -2), dtype=torch.float64)  # (P, k)
        across = kernel(rows, self._pools[t][reference], self._length_scale) * there.unsqueeze(-1)  # (P, k, a, b)
        within = self._within[t][reference.unsqueeze(-1), reference.unsqueeze(-2)]  # (k, b, b)
        return (
            torch.where(m > 1, (own - m) / (m * (m - 1)), torch.nan)
            + (within.sum((-1, -2), dtype=torch.float64) - b) / (b * (b - 1))
            - 2 * across.sum((-1, -2), dtype=torch.float64) / (m * b)
        )


def _index(chosen: Tensor, x: Tensor) -> Tensor:
    """Positions (k, a) as an index into x (P, k, n, D) along n."""
    return chosen.unsqueeze(-1).expand(len(x), -1, -1, x.shape[-1])
