from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from countertrain.models.architectures import lenet, mlp
from countertrain.models.population import NotStackableError, Population, as_population, member, per_model


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def deep(activation: Callable[[], nn.Module], *, bias: bool = True) -> nn.Module:
    inner = nn.Sequential(nn.Linear(6, 5, bias=bias), activation())
    return nn.Sequential(nn.Sequential(nn.Linear(3, 6, bias=bias), activation()), inner, nn.Linear(5, 4))


class Gated(nn.Module):
    """A model that is no chain of layers and keeps a buffer."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.inner, self.gate = nn.Linear(3, 4), nn.Linear(3, 4)
        self.register_buffer("scale", torch.tensor(scale))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.inner(x) * torch.sigmoid(self.gate(x))


class Residual(nn.Linear):
    """A subclass of a layer that does something else."""

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4))
    model[0].register_forward_hook(lambda module, args, output: output + 1)
    return model


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    return model


def shared_activation() -> nn.Module:
    act = nn.Tanh()
    return nn.Sequential(nn.Linear(3, 6), act, nn.Linear(6, 6), act, nn.Linear(6, 4))


def repeated_layer() -> nn.Module:
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, nn.Tanh(), layer)


ACTIVATIONS = [nn.ReLU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.Softplus, nn.ELU, nn.Identity, nn.LeakyReLU]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_fast_path_for_chains_gives_what_plain_calls_give(activation: Callable[[], nn.Module], bias: bool) -> None:
    models = [deep(activation, bias=bias) for _ in range(3)]
    x = drawn(3, 7, 3)
    alone = torch.stack([model(rows) for model, rows in zip(models, x, strict=True)])
    population = Population(models)
    assert population.rows_last
    torch.testing.assert_close(population(x), alone)
    torch.testing.assert_close(Population(models[1:2])(x[1:2]), alone[1:2])
    assert not torch.allclose(alone[0], alone[1])


def test_gradients_through_the_fast_path_are_those_of_plain_calls() -> None:
    models = [deep(nn.SiLU) for _ in range(2)]
    population, x = Population(models), drawn(2, 7, 3)
    population(x).square().sum().backward()
    for i, model in enumerate(models):
        model(x[i]).square().sum().backward()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(population.parameters[name].grad[i], parameter.grad)


@pytest.mark.parametrize(
    "build", [hooked, tied, repeated_layer, lambda: Gated(2.0), lambda: nn.Sequential(Residual(3, 3), nn.Linear(3, 4))]
)
def test_what_is_no_plain_chain_falls_back_to_a_plain_call(build: Callable[[], nn.Module]) -> None:
    model = build()
    population, x = Population([model]), drawn(1, 7, 3)
    assert not population.rows_last
    assert torch.equal(population(x)[0], model(x[0]))


def test_one_activation_object_used_twice_is_applied_twice() -> None:
    model, x = shared_activation(), drawn(1, 7, 3)
    torch.testing.assert_close(Population([model])(x)[0], model(x[0]))


@pytest.mark.parametrize("build", [lambda: Gated(1.0), lambda: lenet(16, 4)])
def test_other_architectures_run_under_vmap_as_they_do_alone(build: Callable[[], nn.Module]) -> None:
    models = [build() for _ in range(3)]
    for i, model in enumerate(models):
        for tensor in model.state_dict().values():
            tensor.add_(0.1 * i)
    n_features = 3 if isinstance(models[0], Gated) else 16
    population, x = Population(models), drawn(3, 5, n_features)
    alone = torch.stack([model(rows) for model, rows in zip(models, x, strict=True)])
    assert not population.rows_last
    torch.testing.assert_close(population(x), alone)
    assert not torch.allclose(population(x[:1].expand(3, -1, -1))[0], population(x[:1].expand(3, -1, -1))[1])
    population.verify(x[0])


@pytest.mark.parametrize(
    ("modules", "reason"),
    [
        ([nn.Sequential(nn.Linear(3, 2), nn.Dropout()) for _ in range(2)], "Dropout draws from the global random"),
        ([nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)) for _ in range(2)], "BatchNorm1d keeps statistics"),
        ([hooked(), hooked()], "Linear has hooks"),
        ([mlp(3, 2), mlp(3, 2, hidden=(16,))], "model 1 has another architecture than model 0"),
        ([mlp(3, 2), mlp(3, 2), mlp(3, 2).double()], "model 2 has another architecture than model 0"),
        ([deep(nn.ReLU), deep(nn.Tanh)], "model 1 has other layer settings than model 0"),
        ([tied(), tied()], "tied weights"),
    ],
)
def test_models_that_cannot_be_stacked_are_refused_with_the_reason(modules: list[nn.Module], reason: str) -> None:
    with pytest.raises(NotStackableError, match=reason):
        Population(modules)


def test_models_that_share_a_layer_with_one_another_are_refused() -> None:
    shared = nn.Linear(3, 4)
    with pytest.raises(ValueError, match="model 1 shares"):
        Population([nn.Sequential(shared, nn.ReLU(), nn.Linear(4, 2)) for _ in range(2)])


def test_the_same_object_twice_is_a_mistake_and_not_a_population() -> None:
    model = mlp(3, 2)
    with pytest.raises(ValueError, match="model 1 is the same object as an earlier one; make a copy of it"):
        Population([model, model])


def test_verify_refuses_a_model_that_vmap_cannot_run() -> None:
    class Branching(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) if x.sum() > 0 else -super().forward(x)

    with pytest.raises(NotStackableError, match="vmap cannot run it"):
        Population([Branching(3, 2), Branching(3, 2)]).verify(drawn(2, 3))


def test_verify_refuses_a_model_that_draws_random_numbers_in_training() -> None:
    class Noisy(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.dropout(super().forward(x), training=self.training)

    with pytest.raises(NotStackableError):
        Population([Noisy(3, 2), Noisy(3, 2)]).verify(drawn(2, 3))


def test_writing_back_brings_each_model_its_own_weights() -> None:
    models = [mlp(3, 2, seed=i) for i in range(3)]
    before = [[p.clone() for p in model.parameters()] for model in models]
    population = Population(models)
    with torch.no_grad():
        for stacked in population.parameters.values():
            stacked += torch.arange(1.0, 4.0).view(3, *[1] * (stacked.ndim - 1))
    for model, old in zip(models, before, strict=True):
        assert all(torch.equal(p, q) for p, q in zip(model.parameters(), old, strict=True))  # not before it is asked
    population.write_back()
    for i, (model, old) in enumerate(zip(models, before, strict=True)):
        for p, q in zip(model.parameters(), old, strict=True):
            torch.testing.assert_close(p, q + i + 1)


def test_the_parameters_of_a_population_of_one_are_the_module_s_own() -> None:
    model = mlp(3, 2)
    assert all(mine is theirs for mine, theirs in zip(Population([model]).trainable(), model.parameters(), strict=True))


def test_frozen_parameters_are_not_trained() -> None:
    models = [mlp(3, 2, seed=i) for i in range(2)]
    for model in models:
        model[0].requires_grad_(False)
    assert [tuple(p.shape) for p in Population(models).trainable()] == [(2, 2, 32), (2, 2)]


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("enter", ["evaluating", "training"])
def test_modes_are_set_inside_and_restored_layer_by_layer_even_after_an_error(size: int, enter: str) -> None:
    models = [deep(nn.ReLU) for _ in range(size)]
    models[0][0].eval()
    layers = [layer for model in models for layer in model.modules()]
    before = [layer.training for layer in layers]
    population = Population(models)

    def fail() -> None:
        with getattr(population, enter)():
            running = models[0].modules()  # of the others, a call looks at the weights only
            assert {layer.training for layer in running} == {enter == "training"}
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail()
    assert [layer.training for layer in layers] == before
    assert len(set(before)) == 2


def test_a_callable_a_module_a_list_and_a_population_all_become_a_population() -> None:
    model, x = mlp(3, 2), drawn(1, 4, 3)
    for one in (model, [model], Population([model]), lambda rows: model(rows)):
        torch.testing.assert_close(as_population(one)(x)[0], model(x[0]))


def test_weights_of_every_kind_broadcast_against_models_and_rows() -> None:
    like = drawn(3, 5, 2).double()
    assert per_model(2, 3, like) == 2.0
    for weight in ([1.0, 2.0, 3.0], torch.tensor([1.0, 2.0, 3.0]), torch.tensor([[1.0], [2.0], [3.0]])):
        column = per_model(weight, 3, like)
        assert column.dtype == torch.float64
        assert column.tolist() == [[1.0], [2.0], [3.0]]
        assert float(member(weight, 1)) == 2.0
    assert per_model(torch.arange(5.0), 3, like).shape == (1, 5)
    assert per_model(torch.ones(3, 5), 3, like).shape == (3, 5)
    assert member(0.5, 2) == 0.5
    with pytest.raises(ValueError, match="one number per model, 3 of them; got 2"):
        per_model([1.0, 2.0], 3, like)
