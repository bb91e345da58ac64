"""What comes in from outside is looked at once, at the border, and refused in one clear sentence."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from countertrain.models.population import Population

__all__ = ["check_classes", "check_data", "check_rows"]

_PART = 2**13  # rows looked at together: there may be more of them in a file than memory can hold


def check_data(modules: Sequence[nn.Module], x: Tensor, y: Tensor, validation: tuple[Tensor, Tensor] | None) -> None:
    """Refuse rows and labels that no model could be trained on."""
    check_rows(x, y)
    if validation is not None:
        check_rows(*validation, name="validation ", n_features=x.shape[1])
    for module in modules:
        for weights in module.parameters():
            if weights.dtype != x.dtype or weights.device != x.device:
                raise TypeError(
                    f"x is {x.dtype} on {x.device}, the model {weights.dtype} on {weights.device}; "
                    "bring them together with .to()"
                )


def check_classes(population: Population, x: Tensor, y: Tensor, validation: tuple[Tensor, Tensor] | None) -> int:
    """Refuse labels that do not go with the model's logits; return the number of classes."""
    n_classes = _n_logits(population, x)
    for name, labels in {"": y, "validation ": y if validation is None else validation[1]}.items():
        if labels.min() < 0 or labels.max() >= n_classes:
            raise ValueError(
                f"{name}y must lie in 0..{n_classes - 1}, as the model returns {n_classes} logits; "
                f"got {int(labels.min())}..{int(labels.max())}"
            )
    empty = (torch.bincount(y, minlength=n_classes) == 0).nonzero().flatten().tolist()
    if empty:
        raise ValueError(
            f"every class needs at least one training row; class {empty[0]} has none; add rows of it, "
            f"or use a model with fewer than {n_classes} logits"
        )
    return n_classes


def check_rows(x: Tensor, y: Tensor, *, name: str = "", n_features: int | None = None) -> None:
    """Refuse rows (n, D) that are not finite numbers, and labels (n,) that do not go with them."""
    if x.ndim != 2 or len(x) == 0:
        raise ValueError(f"{name}x must have shape (n, D) with at least one row; got {tuple(x.shape)}")
    if n_features is not None and x.shape[1] != n_features:
        raise ValueError(f"{name}x must have {n_features} features; got {x.shape[1]}")
    if y.shape != x.shape[:1]:
        raise ValueError(f"{name}y must have shape ({len(x)},), one class per row of x; got {tuple(y.shape)}")
    if y.dtype != torch.int64:
        raise TypeError(f"{name}y must hold class numbers as int64; got {y.dtype}; convert with y.long()")
    for i, part in enumerate(x.split(_PART)):
        if not torch.isfinite(part).all():
            row, column = (~torch.isfinite(part)).nonzero()[0].tolist()
            row += i * _PART
            raise ValueError(f"{name}x must be finite; row {row}, feature {column} is {x[row, column].item()}")


def _n_logits(population: Population, x: Tensor) -> int:
    few = x[:2]
    try:
        with population.evaluating(), torch.no_grad():
            logits = population(few.expand(len(population), -1, -1))
    except RuntimeError as error:
        raise ValueError(
            f"the model cannot be called on rows of {x.shape[1]} features ({str(error).splitlines()[0]})"
        ) from error
    if logits.ndim != 3 or logits.shape[:2] != (len(population), len(few)):
        raise ValueError(
            f"the model must map (n, D) rows to (n, K) logits; for {len(few)} rows it returned "
            f"{tuple(logits.shape[1:])}"
        )
    if logits.shape[-1] < 2:
        raise ValueError(f"the model must return at least 2 logits, one a class; it returned {logits.shape[-1]}")
    return logits.shape[-1]
