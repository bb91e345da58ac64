"""A step that is taken without torch's overhead is the same step."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from countertrain.models.steps import fused_adam, take_step


@pytest.mark.parametrize(
    "setting",
    [{}, {"weight_decay": 0.1}, {"betas": (0.5, 0.7)}, {"eps": 0.1}, {"maximize": True}, {"amsgrad": True}],
    ids=str,
)
def test_a_step_is_the_step_of_the_optimiser_bit_for_bit(setting: dict[str, Any]) -> None:
    def train(step: Callable[[torch.optim.Optimizer], object]) -> tuple[list[Tensor], dict[str, Any]]:
        stream = torch.Generator().manual_seed(0)
        parameters = [torch.randn(3, 4, generator=stream).requires_grad_(), torch.ones(4, requires_grad=True)]
        unused = torch.ones(2, requires_grad=True)
        optimizer = fused_adam([*parameters, unused], lr=0.1)
        optimizer.param_groups[0].update(setting)
        for _ in range(5):
            for parameter in parameters:
                parameter.grad = torch.randn(parameter.shape, generator=stream)
            step(optimizer)
        return [*parameters, unused], optimizer.state_dict()

    theirs, their_state = train(lambda optimizer: optimizer.step())
    mine, my_state = train(take_step)
    assert not torch.equal(mine[0], torch.randn(3, 4, generator=torch.Generator().manual_seed(0)))
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
    assert my_state["param_groups"] == their_state["param_groups"]
    assert my_state["state"].keys() == their_state["state"].keys()
    for place, moments in their_state["state"].items():
        assert all(torch.equal(my_state["state"][place][name], value) for name, value in moments.items())


def test_gradients_may_come_and_go() -> None:
    """Each parameter has the moments, and the number of steps, that it would have if torch took the steps."""

    def train(step: Callable[[torch.optim.Optimizer], object]) -> list[Tensor]:
        parameters = [torch.full((2,), float(i), requires_grad=True) for i in range(3)]
        optimizer = fused_adam(parameters, lr=0.1)
        for i, missing in enumerate([2, 2, 1, 0, 1]):  # as many as before have one, and not always the same
            for place, parameter in enumerate(parameters):
                parameter.grad = None if place == missing else torch.tensor([1.0 + place, -0.5 * i])
            step(optimizer)
        return [parameter.detach() for parameter in parameters]

    mine, theirs = train(take_step), train(lambda optimizer: optimizer.step())
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
    assert len({float(parameter[0]) - i for i, parameter in enumerate(mine)}) == 3  # they moved, by as many steps each


def test_all_groups_of_parameters_are_moved() -> None:
    parameters = [torch.ones(2, requires_grad=True) for _ in range(2)]
    optimizer = fused_adam(parameters[:1], lr=0.1)
    optimizer.add_param_group({"params": parameters[1:], "lr": 0.2})
    for parameter in parameters:
        parameter.grad = torch.ones(2)
    take_step(optimizer)
    for parameter, moved in zip(parameters, (0.9, 0.8), strict=True):
        torch.testing.assert_close(parameter.detach(), torch.full((2,), moved))


def test_an_optimiser_that_is_loaded_goes_on_from_what_was_loaded() -> None:
    def train(step: Callable[[torch.optim.Optimizer], object]) -> Tensor:
        parameter = torch.ones(3, requires_grad=True)
        optimizer = fused_adam([parameter], lr=0.1)
        for i in range(6):
            if i == 2:
                kept = copy.deepcopy(optimizer.state_dict())
            if i == 4:
                optimizer.load_state_dict(kept)
            parameter.grad = torch.tensor([1.0, -2.0, 0.5 * i])
            step(optimizer)
        return parameter

    assert torch.equal(train(take_step), train(lambda optimizer: optimizer.step()))


@pytest.mark.parametrize("moved", [0, 1])
def test_a_parameter_that_lies_elsewhere_by_now_is_still_moved(moved: int) -> None:
    parameters = [torch.ones(2, requires_grad=True) for _ in range(2)]
    optimizer = fused_adam(parameters, lr=0.1)
    for _ in range(2):
        parameters[moved].data = parameters[moved].data.clone()
        for parameter in parameters:
            parameter.grad = torch.ones(2)
        take_step(optimizer)
    for parameter in parameters:
        torch.testing.assert_close(parameter.detach(), torch.full((2,), 0.8))


def test_whoever_watches_the_steps_of_an_optimiser_sees_them() -> None:
    parameter = torch.ones(2, requires_grad=True)
    optimizer = fused_adam([parameter], lr=0.1)
    parameter.grad = torch.ones(2)
    seen: list[int] = []
    optimizer.register_step_post_hook(lambda *args: seen.append(1))
    take_step(optimizer)
    scheduled = fused_adam([parameter], lr=0.1)
    torch.optim.lr_scheduler.StepLR(scheduled, 1)
    take_step(scheduled)
    assert seen == [1]
    assert scheduled._opt_called


def test_other_optimisers_step_as_they_do() -> None:
    parameter = torch.ones(2, requires_grad=True)
    parameter.grad = torch.ones(2)
    take_step(torch.optim.SGD([parameter], lr=0.5))
    assert parameter.tolist() == [0.5, 0.5]
