"""Every mistake is answered by one sentence that says who, what is allowed, what came, and the way out."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from countertrain.constraints import Constraints
from countertrain.models.architectures import mlp
from countertrain.search.generators import eccco, generic
from countertrain.testing import toy_rows
from countertrain.training.methods import ct
from countertrain.training.trainer import CounterfactualTrainer

X, Y = toy_rows(dtype=torch.float32)
SHORT = CounterfactualTrainer(ct(n_ce=10), epochs=1)


def spoilt(x: Tensor, row: int, feature: int, value: float) -> Tensor:
    x = x.clone()
    x[row, feature] = value
    return x


def labelled(row: int, label: int) -> Tensor:
    y = Y.clone()
    y[row] = label
    return y


TRAINING: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: SHORT.fit(mlp(3, 3), X[0], Y), ValueError, r"x must have shape \(n, D\) .* row; got \(3,\)"),
    (lambda: SHORT.fit(mlp(3, 3), X[:0], Y[:0]), ValueError, r"with at least one row; got \(0, 3\)"),
    (lambda: SHORT.fit(mlp(3, 3), X, Y[:7]), ValueError, r"y must have shape \(48,\), one class per row .*\(7,\)"),
    (lambda: SHORT.fit(mlp(3, 3), X, Y.unsqueeze(1)), ValueError, r"y must have shape \(48,\).*; got \(48, 1\)"),
    (lambda: SHORT.fit(mlp(3, 3), X, Y.int()), TypeError, r"int64; got torch.int32; convert with y.long\(\)"),
    (lambda: SHORT.fit(mlp(3, 3), X, Y.float()), TypeError, "y must hold class numbers as int64; got torch.float32"),
    (lambda: SHORT.fit(mlp(3, 3), spoilt(X, 7, 2, torch.nan), Y), ValueError, "finite; row 7, feature 2 is nan"),
    (lambda: SHORT.fit(mlp(3, 3), spoilt(X, 9, 0, -torch.inf), Y), ValueError, "finite; row 9, feature 0 is -inf"),
    (lambda: SHORT.fit(mlp(3, 3), X, labelled(4, 3)), ValueError, r"y must lie in 0\.\.2, .* 3 logits; got 0\.\.3"),
    (lambda: SHORT.fit(mlp(3, 3), X, labelled(4, -1)), ValueError, r"y must lie in 0\.\.2.*; got -1\.\.2"),
    (lambda: SHORT.fit(mlp(3, 4), X, Y), ValueError, "class 3 has none; add rows of it, or use .* fewer than 4 logits"),
    (lambda: SHORT.fit(mlp(3, 1), X, Y), ValueError, "at least 2 logits, one per class; it returned 1"),
    (lambda: SHORT.fit(nn.Flatten(0), X, Y), ValueError, r"\(n, D\) rows to \(n, K\) logits; for 2 rows .* \(6,\)"),
    (lambda: SHORT.fit(nn.Unflatten(1, (3, 1)), X, Y), ValueError, r"for 2 rows it returned \(2, 3, 1\)"),
    (
        lambda: SHORT.fit(mlp(3, 3), X.double(), Y),
        TypeError,
        r"x is torch.float64 .*, the model torch.float32 .*\.to\(\)",
    ),
    (lambda: SHORT.fit(mlp(5, 3), X, Y), ValueError, "the model .* 3 features"),
    (lambda: SHORT.fit([], X, Y), ValueError, "one seed per model; got 0 models and 0 seeds"),
    (
        lambda: SHORT.fit(mlp(3, 3), X, Y, validation=(X[:, :2], Y)),
        ValueError,
        "validation x must have 3 features; got 2",
    ),
    (
        lambda: SHORT.fit(mlp(3, 3), X, Y, validation=(X, labelled(0, 5))),
        ValueError,
        r"validation y must lie in 0\.\.2.*got 0\.\.5",
    ),
    (
        lambda: SHORT.fit(mlp(3, 3), X, Y, validation=(spoilt(X, 1, 1, torch.nan), Y)),
        ValueError,
        "validation x must be finite; row 1, feature 1",
    ),
    (
        lambda: CounterfactualTrainer(ct(n_ce=49)).fit(mlp(3, 3), X, Y),
        ValueError,
        "n_ce must be at most the number of training rows, 48; got 49; lower it, or leave it out",
    ),
    (
        lambda: CounterfactualTrainer(seed=[1, 2]).fit(mlp(3, 3), X, Y),
        ValueError,
        "one seed per model; got 1 models and 2 seeds",
    ),
    (
        lambda: CounterfactualTrainer(constraints=Constraints.of(2)).fit(mlp(3, 3), X, Y),
        ValueError,
        "constraints are for 2 features, but x has 3",
    ),
    (
        lambda: CounterfactualTrainer(ct(epsilon=[0.1, 0.2])).fit(mlp(3, 3), X, Y),
        ValueError,
        "one number per model, 1 of them; got 2",
    ),
]

SETTINGS: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: CounterfactualTrainer(epochs=-1), ValueError, "epochs must be at least 0; got -1"),
    (lambda: CounterfactualTrainer(batch_size=0), ValueError, "batch_size must be at least 1; got 0"),
    (lambda: CounterfactualTrainer(ct(n_ce=0)), ValueError, "n_ce must be at least 1; got 0"),
    (lambda: CounterfactualTrainer(ct(burn_in=1.5)), ValueError, "share of the epochs, between 0 and 1; got 1.5"),
    (lambda: CounterfactualTrainer(ct(immature="keep")), ValueError, "one of neighbour, drop; got 'keep'"),
    (lambda: CounterfactualTrainer(ct(generate="epoch")), ValueError, "one of sweep, batch; got 'epoch'"),
    (lambda: CounterfactualTrainer(on_nonfinite="warn"), ValueError, "one of stop, skip; got 'warn'"),
    (lambda: generic(tau=0.0), ValueError, "tau must lie strictly between 0 and 1; got 0.0"),
    (lambda: generic(tau=1.0), ValueError, "tau must lie strictly between 0 and 1; got 1.0"),
    (lambda: generic(tau=[0.5, 1.2]), ValueError, r"tau must lie strictly between 0 and 1; got \[0\.5, 1\.2\]"),
    (lambda: generic(tau=torch.nan), ValueError, "tau must lie strictly between 0 and 1; got nan"),
    (lambda: generic(n_steps=-1), ValueError, "n_steps must be at least 0; got -1"),
    (
        lambda: Constraints.of(2, lower=[0.0, 3.0], upper=[1.0, 2.0]),
        ValueError,
        "the domain of feature 1 is empty: its lower bound 3 must not exceed its upper bound 2; swap or widen them",
    ),
    (lambda: Constraints.of(2, lower=torch.nan), ValueError, "the domain of feature 0 is empty: its lower bound nan"),
    (
        lambda: Constraints.of(2, lower=[0.0, 1.0, 2.0]),
        ValueError,
        r"lower must be one number or 2 numbers; got \(3,\)",
    ),
    (lambda: Constraints.of(2, mutability={5: "none"}), ValueError, r"names feature 5, but features are 0\.\.1"),
    (lambda: Constraints.of(2, mutability=["none"]), ValueError, "mutability must name 2 features; got 1"),
    (
        lambda: Constraints.of(2, mutability={1: "up"}),
        ValueError,
        "mutability of feature 1 must be one of both, increase, decrease, none; got 'up'",
    ),
    (lambda: Constraints.of(4, categories=[slice(0, 2), slice(1, 3)]), ValueError, "disjoint slices of the 4 feature"),
    (lambda: Constraints.of(4, categories=[slice(2, 6)]), ValueError, "disjoint slices of the 4 feature columns"),
    (lambda: Constraints.of(4, categories=[slice(2, 2)]), ValueError, "disjoint slices of the 4 feature columns"),
    (lambda: Constraints.infer(torch.zeros(0, 2)), ValueError, r"x must have shape \(n, D\) .* got \(0, 2\)"),
    (
        lambda: Constraints(torch.ones(3).bool(), torch.ones(2).bool(), torch.zeros(2), torch.ones(2)),
        ValueError,
        r"may_increase must have shape \(2,\) or \(n, 2\), one entry per feature; got \(3,\)",
    ),
]

SEARCH: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: eccco()(mlp(3, 3), X, Y[:3]), ValueError, r"target must have shape \(48,\), one class per .*got \(3,\)"),
    (lambda: eccco()(mlp(3, 3), X[0], Y[0]), ValueError, r"factual must have shape \(n, D\); got \(3,\)"),
    (lambda: eccco()([mlp(3, 3), mlp(3, 3)], X, Y), ValueError, r"factual must have shape \(2, n, D\); got \(48, 3\)"),
    (
        lambda: eccco()([mlp(3, 3), mlp(3, 3)], X.expand(3, -1, -1), Y.expand(3, -1)),
        ValueError,
        "one block of rows per model, 2; got 3",
    ),
    (lambda: eccco()(mlp(3, 3), X, Y.int()), TypeError, "target must hold class numbers as int64; got torch.int32"),
    (lambda: eccco()(mlp(3, 3), Y.expand(3, -1).T, Y), TypeError, "factual must hold floats; got torch.int64"),
    (lambda: eccco()(mlp(3, 3), spoilt(X, 3, 1, torch.nan), Y), ValueError, "finite; 1 entries are NaN or infinite"),
    (lambda: eccco()(mlp(3, 3), X, Y + 1), ValueError, r"target must lie in 0\.\.2, the classes .*; got 1\.\.3"),
    (lambda: eccco()(mlp(3, 3), X, Y - 1), ValueError, r"target must lie in 0\.\.2, the classes .*; got -1\.\.1"),
    (lambda: eccco()(mlp(3, 3), X, Y, constraints=Constraints.of(4)), ValueError, "for 4 features, but factual has 3"),
    (lambda: eccco()(lambda x: x.sum(-1), X, Y), ValueError, r"\(n, K\) logits; for 1 row it returned \(1,\)"),
    (lambda: eccco()(lambda x: x[:5], X, Y), ValueError, r"for 48 rows it returned \(5, 3\)"),
    (lambda: eccco(tau=[0.5, 0.6])(mlp(3, 3), X, Y), ValueError, "one number per model, 1 of them; got 2"),
    (lambda: eccco()(mlp(3, 3), X, Y, epsilon=[0.1, 0.2]), ValueError, "one number per model, 1 of them; got 2"),
]


@pytest.mark.parametrize(("mistake", "error", "message"), TRAINING + SETTINGS + SEARCH)
def test_a_mistake_is_answered_in_one_clear_sentence(
    mistake: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        mistake()


@pytest.mark.parametrize("x", [X.double(), X[0], spoilt(X, 7, 2, torch.nan)])
def test_a_mistake_with_a_list_of_models_is_answered_just_so_without_a_warning(x: Tensor) -> None:
    with pytest.raises((ValueError, TypeError), match="x "):
        SHORT.fit([mlp(3, 3), mlp(3, 3, seed=1)], x, Y)


def test_a_mistake_leaves_the_model_as_it_was(weights: Callable[[nn.Module], Tensor]) -> None:
    model = mlp(3, 3).eval()
    with pytest.raises(ValueError, match="finite; row 7"):
        SHORT.fit(model, spoilt(X, 7, 2, torch.nan), Y)
    assert not model.training
    assert torch.equal(weights(model), weights(mlp(3, 3)))
