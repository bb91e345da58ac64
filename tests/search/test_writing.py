"""The amortised search: a network that writes counterfactuals in one pass."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from countertrain.constraints import Constraints
from countertrain.models.architectures import mlp
from countertrain.models.population import Population
from countertrain.search.generators import amortised, eccco, nearest
from countertrain.search.writing import Writer
from countertrain.testing import check_generator, check_method, toy_model, toy_rows
from countertrain.training import methods
from countertrain.training.method import Method
from countertrain.training.trainer import CounterfactualTrainer


def test_the_amortised_search_keeps_the_contract() -> None:
    x, y = toy_rows(3, 3)
    check_generator(amortised(n_updates=60).bind(x, y))


@pytest.mark.parametrize("method", [methods.ct, methods.cd])
def test_methods_that_search_by_it_keep_the_contract(method) -> None:
    check_method(method(generator=amortised(hidden_writer=(8,), tau=0.5), n_ce=30))


def test_a_method_that_searches_by_it_before_each_mini_batch_and_with_a_teacher_keeps_the_contract() -> None:
    from sklearn.tree import DecisionTreeClassifier

    search = amortised(hidden_writer=(8,), tau=0.5)
    check_method(methods.ct(generator=search, n_ce=30, generate="batch"))
    check_method(methods.taught(teacher=DecisionTreeClassifier(max_depth=2), generator=search, n_ce=30))


def by_hand(writer: nn.Module, model: nn.Module, x: Tensor, target: Tensor, tau: float, near: float) -> Tensor:
    """The loss of written rows, the mean over them; feature 0 stays and nothing leaves [-2, 2]."""
    moved = x + writer(torch.cat([x, functional.one_hot(target, 3)], dim=-1))
    inside = moved.clamp(-2.0, 2.0)
    inside = torch.cat([x[:, :1], inside[:, 1:]], dim=1)
    straight = moved + (inside - moved).detach()  # as if nothing had been clamped
    straight = torch.cat([x[:, :1], straight[:, 1:]], dim=1)
    p = model(straight).softmax(-1).gather(-1, target[:, None]).squeeze(-1)
    short = (torch.tensor(tau).double().logit() + 0.5 - p.logit()).clamp(min=0)
    return (short + near * (straight - x).abs().sum(-1)).mean()


def test_an_update_is_a_step_of_adam_down_the_loss_that_is_written_out_here() -> None:
    x, y = toy_rows(4, 3)
    x, model, target = x.clamp(-2, 2), toy_model(x, y), (y + 1) % 3
    limits = Constraints.of(4, mutability={0: "none"}, lower=-2.0, upper=2.0)
    writer = Writer(x, 3, [7], hidden=(8,), learning_rate=0.01, size=16)
    plain = mlp(7, 4, hidden=(8,), seed=7).double()
    optimizer = torch.optim.Adam(plain.parameters(), lr=0.01)
    generator = amortised(tau=0.8, lambda_near=0.3)
    for _ in range(4):
        loss = writer.practise(generator, Population([model]), x[None], target[None], limits)
        plainly = []
        for rows, aims in zip(x.split(16), target.split(16), strict=True):
            optimizer.zero_grad()
            value = by_hand(plain, model, rows, aims, 0.8, 0.3)
            value.backward()
            optimizer.step()
            plainly.append(value.detach())
        torch.testing.assert_close(loss[0], torch.stack(plainly).mean())
    expected = (x + plain(torch.cat([x, functional.one_hot(target, 3)], dim=-1))).detach()
    torch.testing.assert_close(writer(x[None], target[None], target[None])[0].detach(), expected)
    outside = (expected.abs() > 2).any(-1)
    assert outside.any()
    assert not outside.all()


def test_it_learns_to_reach_its_targets_about_as_cheaply_as_a_search() -> None:
    x, y = toy_rows(3, 3, n=150)
    model, target = toy_model(x, y), (y + 1) % 3
    ready = amortised(tau=0.75, n_updates=400).bind(x, y).prepare(model)
    written, searched = ready(model, x, target), eccco(n_steps=100)(model, x, target)
    assert written.mature.float().mean() > 0.95
    assert searched.mature.all()
    cost = [(found.x - x).abs().sum(-1).mean() for found in (written, searched)]
    assert cost[0] < 1.1 * cost[1]
    torch.testing.assert_close(ready(model, x[:3], target[:3]).x, written.x[:3])


def test_it_is_one_pass_of_the_model_once_it_has_learnt() -> None:
    x, y = toy_rows(3, 3)
    model = toy_model(x, y)
    ready = amortised(n_updates=5).bind(x, y).prepare(model)
    rows: list[int] = []
    model.register_forward_hook(lambda layer, given, logits: rows.append(len(given[0])))
    ready(model, x, (y + 1) % 3)
    assert sum(rows) <= len(x) + 1  # a look at one row checks the targets


def test_what_it_is_taught_are_the_penalties_of_the_generator() -> None:
    x, y = toy_rows(3, 3)
    model, target = toy_model(x, y), (y + 1) % 3
    near, far = (amortised(lambda_near=weight, n_updates=150).bind(x, y)(model, x, target).x for weight in (1.0, 0.0))
    assert 1.2 * (near - x).abs().sum() < (far - x).abs().sum()


def test_nobody_is_taught_anything_by_rows_that_were_not_shown_or_without_a_tau() -> None:
    x, y = toy_rows(3, 3)
    with pytest.raises(ValueError, match="has not seen any; bind the generator to training rows"):
        amortised()(toy_model(x, y), x, y)
    with pytest.raises(ValueError, match="has none; give the generator a tau"):
        replace(amortised(), tau=None).bind(x, y)(toy_model(x, y), x, y)


def test_models_of_a_population_that_differ_in_tau_and_weights_learn_what_they_would_alone() -> None:
    x, y = toy_rows(3, 3, n=40)
    search = amortised(tau=[0.5, 0.9], lambda_near=[0.1, 0.4], hidden_writer=(8,))
    method = methods.ct(generator=search, lambda_div=[0.1, 0.5], n_ce=20)
    trainer = CounterfactualTrainer(method, epochs=3, batch_size=20, seed=[1, 2])
    both = [mlp(3, 3, hidden=(8,), seed=i).double() for i in range(2)]
    starts = copy.deepcopy(both)
    trainer.fit(both, x, y)
    for i, start in enumerate(starts):
        replace(trainer, objective=method.member(i), seed=i + 1).fit(start, x, y)
        for one, other in zip(start.parameters(), both[i].parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-8)


def test_models_that_no_chain_describes_are_written_for_as_well() -> None:
    x, y = toy_rows(4, 2)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 2)).double()
    method = methods.ct(generator=amortised(tau=0.5), n_ce=40)
    trainer = CounterfactualTrainer(method, epochs=60, batch_size=24)
    history = trainer.fit(model, x, y)
    assert history.records[-1].metrics["mature"][0] > 0
    ready = amortised(n_updates=50, tau=0.5).bind(x, y)
    assert ready(model, x, 1 - y).mature.any()


def test_a_nascent_row_is_on_the_straight_way_to_a_start_that_is_the_end_too() -> None:
    x, y = toy_rows(3, 3)
    model, target = toy_model(x, y), (y + 1) % 3
    for generator in (nearest(), amortised(n_updates=20)):
        found = generator.bind(x, y)(model, x, target, epsilon=0.3)
        change, far = found.x - x, (found.x - x).abs().amax(-1)
        share = torch.where(far > 0.3, 0.999 * 0.3 / far, 1.0)
        torch.testing.assert_close(found.nascent, x + change * share[:, None])
        assert (far > 0.3).any()


@pytest.mark.parametrize("method", [methods.ct(generator=amortised(tau=0.5), n_ce=20), methods.counternet()])
def test_a_single_model_resumes_from_a_checkpoint_bit_for_bit(method: Method, tmp_path: Path) -> None:
    x, y = toy_rows(3, 3)
    trainer, file = CounterfactualTrainer(method, epochs=3, batch_size=20), tmp_path / "checkpoint.safetensors"
    whole, parted = (mlp(3, 3, hidden=(8,), seed=1).double() for _ in range(2))
    trainer.fit(whole, x, y)
    trainer.fit(parted, x, y, checkpoint=file, callbacks=[lambda record: record.epoch == 1])
    parted = mlp(3, 3, hidden=(8,), seed=1).double()
    history = trainer.fit(parted, x, y, checkpoint=file, resume=True)
    assert [record.epoch for record in history.records] == [1, 2, 3]
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), parted.parameters(), strict=True))
