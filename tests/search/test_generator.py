from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from countertrain.constraints import Constraints, Mutability
from countertrain.models.kernels import zero_nan
from countertrain.models.population import Population
from countertrain.search import generator as the_module
from countertrain.search import small_steps
from countertrain.search.generator import Generator
from countertrain.search.generators import eccco, generic, langevin
from countertrain.search.losses import predict
from countertrain.search.rules import SGD, Adam
from countertrain.search.state import Counterfactuals, Memory, StepRule
from countertrain.testing import toy_rows

WAYS: tuple[Mutability, ...] = ("none", "increase", "both")


def assert_same(found: Counterfactuals, where: int | slice, other: Counterfactuals) -> None:
    torch.testing.assert_close(found.x[where], other.x, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(found.nascent[where], other.nascent, rtol=1e-8, atol=1e-10)
    assert torch.equal(found.mature[where], other.mature)
    assert torch.equal(found.n_steps[where], other.n_steps)


def assert_eventful(found: Counterfactuals) -> None:
    """Some rows mature after some steps, some do not; some end far from their factual, some nascent rows are old."""
    assert (found.mature & (found.n_steps > 1)).any()
    assert not found.mature.all()
    assert (found.nascent != found.x).any(-1).any()
    assert (found.nascent != found.factual).any(-1).any()


def other_class(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return (predict(model(x)) + 1 + torch.arange(len(x)) % 2) % 3


@pytest.mark.parametrize("rule", [SGD(), Adam(0.1)])
def test_rows_that_leave_the_active_set_change_nothing(
    rule: StepRule, models: list[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.stack([toy_rows(n=60, seed=seed)[0] for seed in range(3)])
    target = torch.stack([other_class(model, rows) for model, rows in zip(models, x, strict=True)])
    rowwise = torch.linspace(0, 0.3, 180).view(3, 60)
    search = eccco(lambda_cost=rowwise, tau=[0.6, 0.7, 0.8], n_steps=25, rule=rule)
    constraints = Constraints.infer(x.flatten(0, 1), mutability={0: "increase"})
    taken, take = [], the_module.Pool.take
    monkeypatch.setattr(the_module.Pool, "take", lambda pool, rows: taken.append(rows.shape[1]) or take(pool, rows))
    monkeypatch.setattr(small_steps, "_WORTH_IT", 0)  # at once, by whomever the steps are made
    shrunk = search(models, x, target, constraints=constraints)
    assert len(taken) > 2  # it shrank more than once
    assert min(taken) < 40
    monkeypatch.setattr(the_module, "_WORTH_IT", 0.0)
    monkeypatch.setattr(small_steps, "_WORTH_IT", torch.inf)
    n_taken = len(taken)
    assert_same(search(models, x, target, constraints=constraints), slice(None), shrunk)
    assert len(taken) == n_taken  # it did not shrink
    assert_eventful(shrunk)
    monkeypatch.setattr(the_module, "_BLOCK", 1)
    monkeypatch.setattr(the_module, "_WORTH_IT", 1.0)
    monkeypatch.setattr(small_steps, "_WORTH_IT", 200)
    assert_same(search(models, x, target, constraints=constraints), slice(None), shrunk)


def test_rows_that_are_searched_in_parts_find_what_they_find_together(
    models: list[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.stack([toy_rows(n=25, seed=seed)[0] for seed in range(3)])
    target = torch.stack([other_class(model, rows) for model, rows in zip(models, x, strict=True)])
    search = eccco(lambda_cost=torch.linspace(0, 0.6, 75).view(3, 25), lambda_egy=torch.linspace(0, 9, 25), n_steps=13)
    whole = search(models, x, target, epsilon=[0.1, 0.2, 0.3])
    sizes, enter = [], Generator._enter
    monkeypatch.setattr(Generator, "_enter", lambda *args: sizes.append(args[-1]) or enter(*args))
    monkeypatch.setattr(the_module, "_BUDGET", 3 * 32 * 10)
    assert_same(search(models, x, target, epsilon=[0.1, 0.2, 0.3]), slice(None), whole)
    assert [part.start for part in sizes] == [0, 10, 20]
    assert_eventful(whole)


def test_in_parts_each_row_keeps_its_own_constraints_and_draws_its_own_numbers(
    model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, _ = toy_rows(n=25, seed=3)
    target, search = other_class(model, x), langevin(step_size=0.05, noise=0.2, n_steps=6)
    upper = x + torch.linspace(0, 0.5, 25).unsqueeze(-1)
    limits = replace(Constraints.of(3), upper=upper, may_decrease=torch.arange(75).view(25, 3) % 2 == 0)
    whole = search(model, x, target, constraints=limits, seed=torch.arange(25))
    monkeypatch.setattr(the_module, "_BUDGET", 32 * 10)
    parts = search(model, x, target, constraints=limits, seed=torch.arange(25))
    assert_same(parts, slice(None), whole)
    assert ((whole.x == upper) & (whole.x != x)).any(0).all()  # the bounds of some rows did stop them


def test_a_member_of_a_generator_is_the_generator_of_that_model_alone(models: list[nn.Module]) -> None:
    x = torch.stack([toy_rows(n=14, seed=seed)[0] for seed in range(3)])
    target = torch.stack([other_class(model, rows) for model, rows in zip(models, x, strict=True)])
    search = eccco(lambda_cost=[0.0, 0.1, 0.3], lambda_egy=torch.tensor([[5.0], [1.0], [0.0]]), tau=[0.6, 0.8, 0.9])
    found = search(models, x, target)
    for m, model in enumerate(models):
        assert_same(found, m, search.member(m)(model, x[m], target[m]))
        assert not torch.allclose(found.x[m], eccco()(model, x[m], target[m]).x)


def test_without_a_step_the_factual_is_returned_and_mature_only_if_it_was(model: nn.Module) -> None:
    x, _ = toy_rows(seed=3)
    target = torch.arange(48) // 2 % 3
    found = generic(n_steps=0, tau=0.75)(model, x, target)
    assert torch.equal(found.x, x)
    assert torch.equal(found.nascent, x)
    assert not found.n_steps.any()
    p = model(x).softmax(-1).gather(1, target.unsqueeze(1)).squeeze(1)
    assert torch.equal(found.mature, p >= 0.75)
    assert 0 < found.mature.sum() < 48


def test_one_step_is_one_step_of_gradient_descent(model: nn.Module) -> None:
    x, _ = toy_rows(seed=3)
    target = other_class(model, x)
    found = generic(n_steps=1, tau=0.999)(model, x, target)
    leaf = x.clone().requires_grad_()
    nn.functional.cross_entropy(model(leaf), target, reduction="sum").backward()
    torch.testing.assert_close(found.x, x - 0.1 * leaf.grad)
    assert (found.n_steps == 1).all()


def test_a_row_that_needs_k_steps_is_mature_with_t_k_and_not_with_one_less(model: nn.Module) -> None:
    x, _ = toy_rows(seed=3)
    target = other_class(model, x)
    needed = generic(n_steps=60)(model, x, target)
    k = int(needed.n_steps[needed.mature].median())
    exact, short = generic(n_steps=k)(model, x, target), generic(n_steps=k - 1)(model, x, target)
    last = needed.mature & (needed.n_steps == k)
    assert k > 2
    assert last.any()
    assert exact.mature[last].all()
    assert torch.equal(exact.x[last], needed.x[last])
    assert not short.mature[last].any()
    assert (short.n_steps[last] == k - 1).all()


def test_reaching_exactly_tau_is_mature_and_exactly_epsilon_is_nascent() -> None:
    class Quarter(SGD):
        def step(self, grad: Tensor, memory: Memory, k: int) -> tuple[Tensor, Memory]:
            return torch.full_like(grad, 0.25), memory

    def undecided(rows: Tensor) -> Tensor:
        return rows * 0  # p = 1/2, to the last bit

    x, target = torch.zeros(1, 2), torch.tensor([1])
    assert generic(tau=0.5)(undecided, x, target).mature.all()
    assert not generic(tau=0.501)(undecided, x, target).mature.any()
    found = generic(tau=0.9, n_steps=4, rule=Quarter())(undecided, x, target, epsilon=0.5)
    assert (found.x.tolist(), found.nascent.tolist()) == ([[1.0, 1.0]], [[0.5, 0.5]])


def test_each_iterate_costs_one_call_of_the_model(model: nn.Module) -> None:
    x, _ = toy_rows(seed=3)
    calls = []
    generic(n_steps=7, tau=0.9999)(lambda rows: calls.append(len(rows)) or model(rows), x, other_class(model, x))
    assert calls == [1, *[48] * 8]  # a look at the classes, the factual and seven steps


def test_a_row_wise_weight_is_the_weight_of_its_row(model: nn.Module) -> None:
    x, _ = toy_rows(seed=3)
    target, cost = other_class(model, x), torch.linspace(0, 0.6, 48)
    found = generic(lambda_cost=cost)(model, x, target)
    for i in range(0, 48, 7):
        assert_same(found, slice(i, i + 1), generic(lambda_cost=float(cost[i]))(model, x[i : i + 1], target[i : i + 1]))
    plain = generic(lambda_cost=0.0)(model, x, target)
    assert (plain.x - found.x).abs().amax(-1)[-20:].min() > 1e-3


def test_a_nan_gradient_leaves_its_row_where_it_is_and_the_others_alone(model: nn.Module) -> None:
    x, _ = toy_rows(seed=3)
    target = other_class(model, x)
    broken = x[:, 0] > 0

    def half_broken(rows: Tensor) -> Tensor:
        nan_gradient = ((rows * 0).sum(-1, keepdim=True) + (rows[:, :1] <= 0)).sqrt()  # sqrt has no slope at 0
        return model(rows) + 0 * nan_gradient

    start = x.clone().requires_grad_()
    half_broken(start).sum().backward()
    assert torch.equal(start.grad.isnan().any(-1), broken)
    constraints = Constraints.of(3, mutability={0: "none"})  # a row stays on its side
    found = generic()(half_broken, x, target, constraints=constraints)
    assert torch.equal(found.x[broken], x[broken])
    assert not found.mature[broken].any()
    healthy = generic()(model, x[~broken], target[~broken], constraints=constraints)
    assert_same(found, ~broken, healthy)
    assert healthy.mature.any()


def test_any_callable_is_a_model(model: nn.Module) -> None:
    x, _ = toy_rows(seed=3)
    target = other_class(model, x)
    found = eccco()(model, x, target)
    for same in (lambda rows: model(rows), [model], Population([model])):
        assert_same(eccco()(same, x, target), slice(None), found)
    stacked = eccco()(model, x.unsqueeze(0), target.unsqueeze(0))
    assert stacked.x.shape == (1, 48, 3)
    assert_same(stacked, 0, found)


def test_a_search_needs_neither_gradient_mode_nor_trainable_weights(model: nn.Module) -> None:
    x, _ = toy_rows(seed=3)
    target = other_class(model, x)
    found = eccco()(model, x, target)
    model.requires_grad_(False)
    with torch.no_grad():
        assert_same(eccco()(model, x.requires_grad_(), target), slice(None), found)
    assert not found.x.requires_grad
    assert not torch.equal(found.x, x)


def test_rows_are_summed_and_not_averaged_so_doubling_the_batch_changes_nothing(model: nn.Module) -> None:
    x, _ = toy_rows(seed=3)
    target = other_class(model, x)
    search = eccco(n_steps=14, tau=0.9)
    twice, once = search(model, x.repeat(2, 1), target.repeat(2)), search(model, x, target)
    assert_same(twice, slice(0, 48), once)
    assert_same(twice, slice(48, 96), once)
    assert_eventful(once)


def test_no_rows_give_no_counterfactuals(model: nn.Module) -> None:
    found = eccco()(model, torch.zeros(0, 3, dtype=torch.float64), torch.zeros(0, dtype=torch.int64))
    assert found.x.shape == (0, 3)
    assert found.mature.shape == found.n_steps.shape == (0,)


@pytest.mark.parametrize("n_steps", [0, 1, 3, 5, 6, 30, 50])
def test_each_step_is_in_one_block_of_one_of_two_lengths(n_steps: int) -> None:
    blocks = list(the_module._blocks(n_steps))
    assert [first + i for first, n in blocks for i in range(n)] == list(range(1, n_steps + 1))
    assert {n for _, n in blocks} <= {1, the_module._BLOCK}  # each length is compiled by itself
    assert all(n == 1 for _, n in blocks[:3])  # many rows mature at once


@pytest.mark.parametrize("compiling", [False, True])
def test_a_step_that_is_not_a_number_is_no_step(compiling: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: compiling)
    delta = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.5])
    assert zero_nan(delta).tolist() == [0.0, torch.inf, -torch.inf, 0.5]
