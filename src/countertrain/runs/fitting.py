"""From the parameters of a classifier to what trains it: names become objects here."""

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor, nn
from torch.func import functional_call

from countertrain.models.architectures import Ensemble, mlp
from countertrain.models.kernels import fused_adam
from countertrain.models.population import Population
from countertrain.search.generator import Generator
from countertrain.search.generators import eccco, generic, revise
from countertrain.search.rules import SGD
from countertrain.search.space import FeatureSpace
from countertrain.search.vae import fit_vae
from countertrain.tables.encoder import Encoder
from countertrain.tables.splits import split_off
from countertrain.training.history import History
from countertrain.training.objective import Objective, Term, advloss, ar, bl, cd, ct, yloss
from countertrain.training.trainer import CounterfactualTrainer, fused_adam
from countertrain.words import suggest

if TYPE_CHECKING:
    from countertrain.estimator import CounterfactualClassifier

__all__ = [
    "Module",
    "as_one",
    "build_models",
    "build_trainer",
    "class_weights",
    "logits_of",
    "private_stream",
    "sample_of_each_class",
    "split",
    "warn_if_immature",
]

Module = nn.Module | Callable[[int, int], nn.Module]
"""A module to go on training from, or a callable (n_features, n_classes) that makes a new one."""
Rows = NDArray[np.int64]
Known = TypeVar("Known")
_TOO_FEW = 0.05  # of the counterfactuals of an epoch, for the divergence to learn from


def build_trainer(
    clf: "CounterfactualClassifier", encoder: Encoder, x: Tensor, weight: Tensor | None, seeds: Sequence[int]
) -> CounterfactualTrainer:
    """The trainer of a classifier, for encoded training rows x (n, D), class weights (K,) and one seed a model."""
    return CounterfactualTrainer(
        objective=_objective(clf, weight),
        generator=_generator(clf, encoder, x, seeds[0]),
        constraints=encoder.constraints(),
        epochs=clf.epochs,
        batch_size=batch_size_for(len(x)) if clf.batch_size is None else clf.batch_size,
        n_ce=clf.n_ce,
        n_neighbours=clf.n_neighbours,
        optimizer=partial(fused_adam, lr=clf.learning_rate),
        shuffle=True,
        seed=seeds,
    )


def batch_size_for(n_rows: int) -> int:
    """Batches of 30 rows for small tables; for larger ones as many as leave 64 updates an epoch, up to 1000."""
    return min(max(30, n_rows // 64), 1000)


def _objective(clf: "CounterfactualClassifier", weight: Tensor | None) -> Objective:
    known = {
        "ct": ct(lambda_div=clf.lambda_div, lambda_adv=clf.lambda_adv, lambda_reg=clf.lambda_reg),
        "bl": bl(),
        "ar": ar(lambda_adv=clf.lambda_adv),
        "cd": cd(lambda_div=clf.lambda_div, lambda_reg=clf.lambda_reg),
    }
    given = clf.objective
    objective = given if isinstance(given, Objective) else _named("objective", given, known, Objective)
    if weight is None:
        return objective
    if objective.terms.get("yloss", (1.0, None))[1] is not yloss:
        raise ValueError(
            "class_weight needs an objective with countertrain's yloss; weight the classes in your own term"
        )
    return Objective({name: (share, weighted(term, weight)) for name, (share, term) in objective.terms.items()})


def weighted(term: Term, weight: Tensor) -> Term:
    """The term with each row weighted by its true class, (K,), where it is a loss against true classes."""
    if term is yloss:
        return lambda state: (weight[state.y] * state.yloss).mean(-1)
    if term is advloss:
        return lambda state: (weight[state.group.y_ae] * state.yloss_ae).mean(-1)
    return term


def class_weights(class_weight: Any, classes: NDArray[Any], codes: Rows) -> Tensor | None:
    """A weight for each class, (K,), such that the training rows weigh 1 on average; None where all weigh the same.

    So scaled, the weighted losses keep their share of the whole objective.
    """
    if class_weight is None:
        return None
    weight = compute_class_weight(class_weight, classes=classes, y=classes[codes])
    mean = weight[codes].mean()
    if weight.min() < 0 or not 0 < mean < np.inf:
        raise ValueError(f"class_weight must hold finite numbers from 0 upwards, not all 0; got {class_weight!r}")
    return torch.from_numpy(weight / mean).float()


def _generator(clf: "CounterfactualClassifier", encoder: Encoder, x: Tensor, seed: int) -> Generator:
    common: dict[str, Any] = {"rule": SGD(clf.step_size), "n_steps": clf.n_steps, "tau": clf.tau}
    space = FeatureSpace(keep=encoder.categories)  # so that categories really change
    known: dict[str, Callable[[], Generator]] = {
        "eccco": lambda: eccco(space=space, **common),
        "generic": lambda: generic(space=space, **common),
        "revise": lambda: revise(fit_vae(x, seed=seed), **common),
    }
    given = clf.generator
    return given if isinstance(given, Generator) else _named("generator", given, known, Generator)()


def _named(what: str, name: object, known: Mapping[str, Known], kind: type) -> Known:
    """The known thing of that name."""
    if isinstance(name, str) and name in known:
        return known[name]
    raise ValueError(
        f"{what} must be one of {', '.join(known)}, or a countertrain {kind.__name__}; got {name!r}; "
        f"{suggest(name, known)}"
    )


def build_models(
    module: Module | None, n_features: int, n_classes: int, *, hidden: Sequence[int], seeds: Sequence[int]
) -> list[nn.Module]:
    """New models in evaluation mode, one a seed: multilayer perceptrons, or what the user's module says."""
    if module is None:
        return [mlp(n_features, n_classes, hidden=hidden, seed=seed).eval() for seed in seeds]
    if isinstance(module, nn.Module) and len(seeds) > 1:
        raise ValueError(
            f"an ensemble of {len(seeds)} models needs module to be a callable (n_features, n_classes) -> nn.Module; "
            f"copies of one {type(module).__name__} would all start alike"
        )
    models = []
    for seed in seeds:
        with private_stream(seed):
            made = module if isinstance(module, nn.Module) else module(n_features, n_classes)
        if not isinstance(made, nn.Module):
            raise TypeError(
                "module must be an nn.Module, or a callable (n_features, n_classes) that returns one; "
                f"it returned {type(made).__name__}"
            )
        models.append(copy.deepcopy(made).to("cpu", torch.float32).eval())
    _check_sizes(models[0], n_features, n_classes)
    return models


def _check_sizes(model: nn.Module, n_features: int, n_classes: int) -> None:
    wanted = f"module must map (n, {n_features}) rows, in float32 or float64, to (n, {n_classes}) logits, one a class"
    way_out = "a callable (n_features, n_classes) -> nn.Module is told both numbers"
    try:
        shape = tuple(logits_of(model, torch.zeros(2, n_features)).shape)
    except (RuntimeError, ValueError, IndexError) as error:
        raise ValueError(f"{wanted}; it fails with {str(error).splitlines()[0]!r}; {way_out}") from error
    if shape != (2, n_classes):
        raise ValueError(f"{wanted}; for 2 rows it returned {shape}; {way_out}")


def as_one(models: Sequence[nn.Module]) -> nn.Module:
    """One module (n, D) -> (n, K) logits: the model itself, or the ensemble of several."""
    return models[0] if len(models) == 1 else Ensemble(models)


def logits_of(model: nn.Module, x: Tensor) -> Tensor:
    """Logits (n, K) of rows x (n, D), on which all decisions rest.

    They are computed in float64, in evaluation mode: no row is decided otherwise because of the rows beside it.
    """
    tensors = dict((*model.named_parameters(), *model.named_buffers()))
    exact = {name: t.double() if t.is_floating_point() else t for name, t in tensors.items()}
    with Population([model]).evaluating(), torch.no_grad():
        return functional_call(model, exact, (x.double(),))  # type: ignore[no-any-return]  # a module returns Any


def warn_if_immature(objective: object, history: History) -> None:
    """Warn where the divergence had next to nothing to learn from in the last epoch."""
    if objective not in ("ct", "cd") or not history.records:
        return
    share = float(np.nanmean(history["mature"][-1]))  # NaN: a model that had stopped before
    if share < _TOO_FEW:
        warnings.warn(
            f"only {share:.1%} of the last epoch's counterfactuals reached the probability tau, so that the divergence "
            "had next to nothing to learn from; lower tau, or raise n_steps or epochs",
            ConvergenceWarning,
            stacklevel=3,  # where fit was called
        )


@contextmanager
def private_stream(seed: int) -> Iterator[None]:
    """Torch's global random stream starts at `seed` inside, and afterwards is as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def split(codes: Rows, fraction: float, rng: np.random.RandomState) -> tuple[Rows, Rows]:
    """Rows to train on and rows to validate on, the same mix of classes in both."""
    try:
        return split_off(codes, fraction, rng)
    except ValueError as error:
        raise ValueError(
            f"early_stopping cannot hold out {fraction:g} of {len(codes)} rows with every class in both parts; "
            "change validation_fraction, or train without early_stopping"
        ) from error


def sample_of_each_class(codes: Rows, most: int, rng: np.random.RandomState) -> Rows:
    """Places of at most so many random rows of each class, in order."""
    places = [rng.permutation(np.flatnonzero(codes == k))[:most] for k in np.unique(codes)]
    return np.sort(np.concatenate(places))
