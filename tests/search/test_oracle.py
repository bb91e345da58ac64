"""The oracle: the batched search against a loop over rows that is too simple to be wrong."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from countertrain.constraints import Constraints, Mutability
from countertrain.search.generator import Generator
from countertrain.search.generators import eccco, generic
from countertrain.search.losses import predict
from countertrain.search.state import Counterfactuals
from countertrain.testing import toy_rows

WAYS: tuple[Mutability, ...] = ("none", "increase", "both")


def naive_search(
    model: nn.Module,
    x0: Tensor,
    t: int,
    *,
    n_steps: int,
    tau: float,
    lambda_cost: float,
    lambda_egy: float,
    epsilon: float,
    box: tuple[Tensor, Tensor],
    ways: Sequence[Mutability],
) -> tuple[Tensor, Tensor, bool, int]:
    """One row by itself, REFERENCE.md A.2 to A.5 and B.4 word by word, with step size 0.1 and rho 1e-3."""
    b = round(n_steps / 25)
    x, path = x0.clone(), [x0.clone()]
    while True:
        x = x.detach().requires_grad_()
        f = model(x.unsqueeze(0))[0]
        p = f.softmax(-1)
        if p[t] >= tau or len(path) > n_steps:
            break
        k = len(path)
        phi = b / 10 * (b + k) ** -0.9
        pull = p.detach().clone()  # gradient of the objective in the logits
        pull[t] += -1 + lambda_egy * phi * (-1 + 2e-3 * f[t].item())
        (g,) = torch.autograd.grad(f, x, pull)
        x = x.detach() - 0.1 * (g + lambda_cost * torch.sign(x.detach() - x0))
        for d, way in enumerate(ways):  # features go back to where the person starts, then into the domain
            if (way in ("none", "increase") and x[d] < x0[d]) or (way in ("none", "decrease") and x[d] > x0[d]):
                x[d] = x0[d]
            x[d] = min(max(x[d], box[0][d]), box[1][d])
        path.append(x.clone())
    near = [point for point in path if (point - x0).abs().max() <= epsilon]
    return path[-1], near[-1], bool(p[t] >= tau), len(path) - 1


def assert_as_naive(found: Counterfactuals, where: tuple[int, ...], one: tuple[Tensor, Tensor, bool, int]) -> None:
    torch.testing.assert_close(found.x[where], one[0], rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(found.nascent[where], one[1], rtol=1e-8, atol=1e-10)
    assert (bool(found.mature[where]), int(found.n_steps[where])) == one[2:]


def assert_eventful(found: Counterfactuals) -> None:
    """Some rows mature after some steps, some do not; some end far from their factual, some nascent rows are old."""
    assert (found.mature & (found.n_steps > 1)).any()
    assert not found.mature.all()
    assert (found.nascent != found.x).any(-1).any()
    assert (found.nascent != found.factual).any(-1).any()


def other_class(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return (predict(model(x)) + 1 + torch.arange(len(x)) % 2) % 3


@pytest.mark.parametrize("n_steps", [12, 30])
@pytest.mark.parametrize("make", [generic, eccco])
def test_the_batched_search_is_a_naive_loop_over_rows(
    make: Callable[..., Generator], n_steps: int, model: nn.Module
) -> None:
    x, _ = toy_rows(n=40, seed=3)
    target = other_class(model, x)
    constraints = Constraints.infer(x, n_sigma=0.1, mutability=WAYS)
    settings = {"lambda_cost": 0.05} | ({"lambda_egy": 5.0} if make is eccco else {})
    found = make(n_steps=n_steps, tau=0.8, **settings)(model, x, target, constraints=constraints, epsilon=0.2)
    for i in range(len(x)):
        box, egy = (constraints.lower, constraints.upper), settings.get("lambda_egy", 0.0)
        one = naive_search(
            model, x[i], int(target[i]), n_steps=n_steps, tau=0.8, lambda_cost=0.05, lambda_egy=egy, epsilon=0.2,
            box=box, ways=WAYS,
        )  # fmt: skip
        assert_as_naive(found, (i,), one)
    assert_eventful(found)
    at_the_edge = ((found.x == constraints.lower) | (found.x == constraints.upper)) & (found.x != x)
    assert at_the_edge.any()  # the domain did stop some


def test_a_population_with_its_own_numbers_for_each_model_is_a_naive_loop_too(models: list[nn.Module]) -> None:
    x = torch.stack([toy_rows(n=14, seed=seed)[0] for seed in range(3)])
    target = torch.stack([other_class(model, rows) for model, rows in zip(models, x, strict=True)])
    constraints = Constraints.infer(x.flatten(0, 1), mutability=WAYS)
    tau, cost, egy, epsilon = [0.6, 0.8, 0.9], [0.0, 0.1, 0.3], [5.0, 1.0, 0.0], [0.1, 0.2, 0.4]
    search = eccco(lambda_cost=cost, lambda_egy=torch.tensor(egy), tau=tau)
    found = search(models, x, target, constraints=constraints, epsilon=epsilon)
    for m, model in enumerate(models):
        for i in range(x.shape[1]):
            one = naive_search(
                model, x[m, i], int(target[m, i]), n_steps=30, tau=tau[m], lambda_cost=cost[m], lambda_egy=egy[m],
                epsilon=epsilon[m], box=(constraints.lower, constraints.upper), ways=WAYS,
            )  # fmt: skip
            assert_as_naive(found, (m, i), one)
    assert_eventful(found)
