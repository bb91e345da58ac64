"""Metrics of counterfactuals and of predictions, as functions of tensors."""

from typing import Self

import torch
from torch import Tensor

from countertrain.search.losses import predict

__all__ = ["Implausibility", "accuracy", "cost", "f1", "kernel", "mmd", "sparsity", "validity"]

_BLOCK = 2048


def validity(logits: Tensor, target: Tensor) -> Tensor:
    """Whether the model puts each counterfactual into its target class: (..., n, K), (..., n) -> (..., n) bool."""
    return predict(logits) == target


def cost(x: Tensor, factual: Tensor) -> Tensor:
    """l1 distance between counterfactual and factual: (..., n, D) -> (..., n)."""
    return (x - factual).abs().sum(-1)


def sparsity(x: Tensor, factual: Tensor) -> Tensor:
    """Share of features that a counterfactual leaves as they were: (..., n, D) -> (..., n)."""
    return (x == factual).double().mean(-1)


def accuracy(logits: Tensor, y: Tensor) -> Tensor:
    """Share of rows put into their class: (..., n, K), (..., n) -> (...)."""
    return (predict(logits) == y).double().mean(-1)


def f1(logits: Tensor, y: Tensor) -> Tensor:
    """F1 score of each class, averaged over classes: (..., n, K), (..., n) -> (...)."""
    classes = torch.arange(logits.shape[-1], device=logits.device).unsqueeze(-1)  # (K, 1)
    said, true = predict(logits).unsqueeze(-2) == classes, y.unsqueeze(-2) == classes  # (..., K, n)
    hits = (said & true).double().sum(-1)
    total = said.double().sum(-1) + true.double().sum(-1)
    return torch.where(total > 0, 2 * hits / total.clamp(min=1), 0.0).mean(-1)


class Implausibility:
    """IP, Eq. (impl-dist): mean l1 distance from a row to all reference rows of its target class.

    The l1 distance is a sum over features, so the mean over m reference rows needs only their sorted columns and
    running sums: exact, and D log m operations a row instead of D m.
    """

    def __init__(self, sorted_columns: list[Tensor], sums: list[Tensor]) -> None:
        self._sorted = sorted_columns  # a class each: (D, m)
        self._sums = sums  # a class each: (D, m + 1)

    @classmethod
    def of(cls, x: Tensor, y: Tensor, n_classes: int) -> Self:
        """Reference rows x (n, D) and their classes y (n,)."""
        columns = [x[y == k].double().T.contiguous().sort(dim=1).values for k in range(n_classes)]
        sums = [torch.cat([c.new_zeros(len(c), 1), c.cumsum(1)], dim=1) for c in columns]
        return cls(columns, sums)

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        """IP of each row: (..., n, D), (..., n) -> (..., n); NaN for a class without a reference row."""
        rows, labels = x.reshape(-1, x.shape[-1]).double(), target.reshape(-1)
        result = rows.new_full((len(rows),), torch.nan)
        for k, (columns, sums) in enumerate(zip(self._sorted, self._sums, strict=True)):
            m, mine = columns.shape[1], labels == k
            if m == 0 or not mine.any():
                continue
            value = rows[mine].T.contiguous()  # (D, q)
            below = torch.searchsorted(columns, value)
            away = value * (2 * below - m) + sums[:, -1:] - 2 * sums.gather(1, below)  # sum of |value - reference|
            result[mine] = away.sum(0) / m
        return result.reshape(target.shape)


def mmd(a: Tensor, b: Tensor, *, length_scale: float = 5.0) -> Tensor:
    """IP*, Eq. (mmd): unbiased estimate of the squared maximum mean discrepancy of rows a (m, D) and b (n, D).

    Gaussian kernel. Computed in blocks, so memory does not grow with m n. NaN with fewer than two rows on a side.
    """
    if min(len(a), len(b)) < 2:
        return torch.tensor(torch.nan, dtype=torch.float64, device=a.device)
    m, n = len(a), len(b)
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
