"""IP*: the maximum mean discrepancy of rows, and one small one per round and pair of classes, as in the paper."""

import itertools

import torch
from torch import Tensor

__all__ = ["GroupedDivergence", "kernel", "mmd"]

_BLOCK = 2048
_POOL = 4000  # reference rows of a class at most, so that their kernel fits into memory
_BUDGET = 2**24  # numbers in one tensor


def mmd(a: Tensor, b: Tensor, *, length_scale: float = 5.0) -> Tensor:
    """IP*, Eq. (mmd): unbiased estimate of the squared maximum mean discrepancy of rows a and b.

    Rows are (m, *shape) and (n, *shape); the kernel is Gaussian. Computed in blocks, so memory does not grow with m n.
    NaN with fewer than two rows on a side.
    """
    if min(len(a), len(b)) < 2:
        return torch.tensor(torch.nan, dtype=torch.float64, device=a.device)
    m, n, a, b = len(a), len(b), a.flatten(1), b.flatten(1)
    within_a = (_kernel_sum(a, a, length_scale) - m) / (m * (m - 1))  # k(x, x) = 1 on the diagonal
    within_b = (_kernel_sum(b, b, length_scale) - n) / (n * (n - 1))
    return within_a + within_b - 2 * _kernel_sum(a, b, length_scale) / (m * n)


def _kernel_sum(a: Tensor, b: Tensor, length_scale: float) -> Tensor:
    total = torch.zeros((), dtype=torch.float64, device=a.device)
    for rows in a.double().split(_BLOCK):
        for others in b.double().split(_BLOCK):
            total += kernel(rows, others, length_scale).sum()
    return total


def kernel(a: Tensor, b: Tensor, length_scale: float) -> Tensor:
    """Gaussian kernel exp(-|u - v|^2 / 2 l^2) of all pairs: (..., m, D), (..., n, D) -> (..., m, n)."""
    square = a.square().sum(-1).unsqueeze(-1) + b.square().sum(-1).unsqueeze(-2) - 2 * a @ b.transpose(-1, -2)
    return square.clamp_(min=0).mul_(-0.5 / length_scale**2).exp_()


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
        self._pools = [x[y == k][:_POOL].flatten(1) for k in range(n_classes)]
        self._within = [kernel(pool, pool, length_scale) for pool in self._pools]

    def __call__(self, x: Tensor, label: Tensor, target: Tensor, valid: Tensor, stream: torch.Generator) -> Tensor:
        """Mean over the valid counterfactuals (P, k, n, *shape) of each block of their group's divergence: (P, k).

        Factual classes `label` and `target` are (k, n), `valid` is (P, k, n). Invalid counterfactuals are part of
        their group, but only valid ones count in the mean. Negative estimates count as 0.
        """
        x = x.flatten(valid.ndim)  # (P, k, n, D)
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
