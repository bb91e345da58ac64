"""What comes into a search from outside is looked at once, and refused in one clear sentence."""

import torch
from torch import Tensor

from countertrain.constraints import Constraints
from countertrain.models.population import Models

__all__ = ["check_search", "check_targets", "wrong_logits"]


def check_search(factual: Tensor, target: Tensor, size: int, constraints: Constraints | None) -> None:
    """Refuse rows, targets and constraints that do not go with one another or with `size` models."""
    for name, value in (("factual", factual), ("target", target)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a tensor; got {type(value).__name__}; convert it with torch.as_tensor")
    stacked = target.ndim == 2
    if factual.ndim < 2 + stacked or (size > 1 and not stacked):
        wanted = "(n, D)" if size == 1 else f"({size}, n, D)"
        raise ValueError(f"factual must have shape {wanted}; got {tuple(factual.shape)}")
    if target.shape != factual.shape[: target.ndim] or target.ndim not in (1, 2):
        raise ValueError(
            f"target must have shape {tuple(factual.shape[: 1 + stacked])}, one class per factual; "
            f"got {tuple(target.shape)}"
        )
    if stacked and len(factual) != size:
        raise ValueError(f"factual must have one block of rows per model, {size}; got {len(factual)}")
    _check_numbers(factual, target)
    shape = factual.shape[target.ndim :]
    if constraints is not None and constraints.n_features != shape.numel():
        raise ValueError(f"constraints are for {constraints.n_features} features, but factual has {shape.numel()}")
    if constraints is not None and constraints.n_rows not in (None, target.shape[-1]):
        raise ValueError(f"constraints are for {constraints.n_rows} rows, but factual has {target.shape[-1]}")


def _check_numbers(factual: Tensor, target: Tensor) -> None:
    if target.dtype != torch.int64:
        raise TypeError(f"target must hold class numbers as int64; got {target.dtype}")
    if not factual.is_floating_point():
        raise TypeError(f"factual must hold floats; got {factual.dtype}")
    if not torch.isfinite(factual).all():
        raise ValueError(f"factual must be finite; {int((~torch.isfinite(factual)).sum())} entries are NaN or infinite")


def wrong_logits(logits: Tensor, target: Tensor) -> ValueError:
    """What to raise where a model returns logits (P, ...) that are not one row of them for each target (P, n)."""
    return ValueError(
        f"the model must map (n, D) rows to (n, K) logits; for {target.shape[1]} row{'s'[: target.shape[1] - 1]} it "
        f"returned {tuple(logits.shape[1:])}"
    )


def check_targets(population: Models, factual: Tensor, target: Tensor) -> None:
    """Targets are classes of the model, as one row shows."""
    logits = population(factual[:, :1])
    if logits.shape[:2] != (len(target), 1) or logits.ndim != 3:
        raise wrong_logits(logits, target[:, :1])
    if target.min() < 0 or target.max() >= logits.shape[-1]:
        raise ValueError(
            f"target must lie in 0..{logits.shape[-1] - 1}, the classes of the model; "
            f"got {int(target.min())}..{int(target.max())}"
        )
