"""What comes in from outside is looked at once, at the border, and refused in one clear sentence."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from countertrain.models.population import Models

__all__ = ["check_classes", "check_dtype", "check_rows", "gather_rows"]

_PART = 2**13  # rows looked at together: there may be more of them in a file than memory can hold


def gather_rows(reference: Any, like: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor]:
    """Rows x (n, *shape) and classes y (n,) of a pair (x, y), a Dataset or a DataLoader, as tensors.

    Arrays and lists are given the type and place of the weights `like`; tensors are left as they are.
    """
    if isinstance(reference, DataLoader):
        reference = reference.dataset
    if isinstance(reference, TensorDataset):
        reference = reference.tensors
    if isinstance(reference, Dataset):
        rows: Any = reference
        items = [rows[i] for i in range(len(rows))]
        x = torch.stack([torch.as_tensor(item[0]) for item in items])
        reference = x, torch.tensor([int(item[1]) for item in items], device=x.device)
    if not isinstance(reference, Sequence) or len(reference) != 2:
        raise TypeError(
            f"training rows are a pair (x, y) of rows and classes, a Dataset or a DataLoader; "
            f"got {type(reference).__name__}"
        )
    return _as_rows(reference[0], like), _as_labels(reference[1], like)


def _as_rows(x: Any, like: Sequence[Tensor]) -> Tensor:
    if isinstance(x, Tensor):
        return x
    try:
        array = np.asarray(x)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"of the type {array.dtype}")
    except (TypeError, ValueError) as error:
        raise TypeError(f"x must be a tensor or an array of numbers; got {type(x).__name__} ({error})") from None
    weights = like[0] if like else torch.empty(0)
    return torch.as_tensor(array).to(weights.device, weights.dtype)


def _as_labels(y: Any, like: Sequence[Tensor]) -> Tensor:
    if isinstance(y, Tensor):
        return y
    if y is None:
        raise TypeError(
            "the classes y of the rows x are missing; give them, or a Dataset or DataLoader that holds both"
        )
    array = np.asarray(y)
    if array.dtype.kind not in "iub":
        raise TypeError(
            f"y must hold class numbers 0, 1, ... as integers; got {type(y).__name__} of {array.dtype}; "
            "number the classes first"
        )
    return torch.as_tensor(array.astype(np.int64)).to(like[0].device if like else "cpu")


def check_dtype(parameters: Sequence[Tensor], x: Tensor) -> None:
    """Refuse rows of another type or on another device than the weights."""
    for weights in parameters:
        if weights.dtype != x.dtype or weights.device != x.device:
            raise TypeError(
                f"x is {x.dtype} on {x.device}, the model {weights.dtype} on {weights.device}; "
                "bring them together with .to()"
            )


def check_classes(model: Models, x: Tensor, y: Tensor, validation: tuple[Tensor, Tensor] | None = None) -> int:
    """Refuse labels that do not go with the model's logits; return the number of classes."""
    n_classes = _n_logits(model, x)
    for name, labels in (("", y), ("validation ", y if validation is None else validation[1])):
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


def check_rows(x: Tensor, y: Tensor, *, name: str = "", shape: Sequence[int] | None = None) -> None:
    """Refuse rows (n, *shape) that are not finite numbers, and labels (n,) that do not go with them."""
    if not (isinstance(x, Tensor) and isinstance(y, Tensor)):
        kinds = f"{type(x).__name__} and {type(y).__name__}"
        raise TypeError(f"{name}x and y must be tensors; got {kinds}; convert them with torch.as_tensor")
    if x.ndim < 2 or len(x) == 0:
        raise ValueError(f"{name}x must have shape (n, D) with at least one row; got {tuple(x.shape)}")
    if shape is not None and tuple(x.shape[1:]) != tuple(shape):
        wanted, given = (
            f"{s[0]} features" if len(s) == 1 else f"shape (n, {', '.join(map(str, s))})"
            for s in (tuple(shape), tuple(x.shape[1:]))
        )
        raise ValueError(f"{name}x must have {wanted}; got {given.removesuffix(' features')}")
    if y.shape != x.shape[:1]:
        raise ValueError(f"{name}y must have shape ({len(x)},), one class per row of x; got {tuple(y.shape)}")
    if y.dtype != torch.int64:
        raise TypeError(f"{name}y must hold class numbers as int64; got {y.dtype}; convert with y.long()")
    if not x.is_floating_point():
        raise TypeError(f"{name}x must hold floats; got {x.dtype}; convert with x.float()")
    for i, part in enumerate(x.flatten(1).split(_PART)):
        if not torch.isfinite(part).all():
            row, column = (~torch.isfinite(part)).nonzero()[0].tolist()
            value = part[row, column].item()
            raise ValueError(f"{name}x must be finite; row {row + i * _PART}, feature {column} is {value}")


def _n_logits(model: Models, x: Tensor) -> int:
    few = x[:2]
    size = len(model)
    try:
        with model.evaluating(), torch.no_grad():
            logits = model(few.expand(size, *few.shape))
    except RuntimeError as error:
        shape = f"{x.shape[1]} features" if x.ndim == 2 else f"shape {tuple(x.shape[1:])}"
        raise ValueError(f"the model cannot be called on rows of {shape} ({str(error).splitlines()[0]})") from error
    if logits.ndim != 3 or logits.shape[:2] != (size, len(few)):
        raise ValueError(
            f"the model must map (n, D) rows to (n, K) logits; for {len(few)} rows it returned "
            f"{tuple(logits.shape[1:])}"
        )
    if logits.shape[-1] < 2:
        raise ValueError(f"the model must return at least 2 logits, one per class; it returned {logits.shape[-1]}")
    _warn_of_softmax(logits)
    return logits.shape[-1]


def _warn_of_softmax(logits: Tensor) -> None:
    """Probabilities look like logits to any loss, and train to next to nothing."""
    if (logits >= 0).all() and torch.allclose(logits.double().sum(-1), logits.new_ones(()).double(), atol=1e-4):
        warnings.warn(
            "the outputs of the model are probabilities: they are not negative and add up to 1 in every row; leave out "
            "its last softmax, since losses and energies are made of logits",
            UserWarning,
            stacklevel=4,
        )
