"""Steps in numpy are the steps that torch makes, for every generator and every kind of model that they accept."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from countertrain.constraints import Constraints
from countertrain.models import traces
from countertrain.models.architectures import mlp, piecewise
from countertrain.models.deciding import Committee
from countertrain.models.population import Models, Population
from countertrain.search import generator as the_generator
from countertrain.search import small_steps
from countertrain.search.generator import Generator
from countertrain.search.generators import eccco, generic
from countertrain.search.penalties import CrossEntropy, Distance, Energy, Escape, FreeEnergy, distance
from countertrain.search.rules import SGD
from countertrain.search.small_steps import SmallSteps
from countertrain.search.space import FeatureSpace
from countertrain.search.state import Counterfactuals, Memory, SearchState

D, K, N = 5, 3, 60


def tanh(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(D, 6), nn.Tanh(), nn.Linear(6, K, bias=False))


def layer_norm(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(D, 6), nn.LayerNorm(6), nn.Linear(6, K))


CHAINS: dict[str, Callable[[int], nn.Module]] = {
    "mlp": lambda seed: mlp(D, K, hidden=(8, 7), seed=seed),
    "tanh": tanh,
    "pieces": lambda seed: piecewise(D, K, numbers=[0, 1], hidden=(6,), n_pieces=5, seed=seed),
    "linear": lambda seed: mlp(D, K, hidden=(), seed=seed),
}
MODELS: dict[str, Callable[[], Models]] = {
    **{name: lambda make=make: Population([make(0).double()]) for name, make in CHAINS.items()},
    **{
        f"{name}, three": lambda make=make: Population([make(i).double() for i in range(3)])
        for name, make in CHAINS.items()
    },
    "single precision": lambda: Population([CHAINS["mlp"](0)]),
    "a committee": lambda: Committee([CHAINS["mlp"](i).double() for i in range(3)]),
}
EACH_ROW = torch.linspace(0.1, 2.0, N, dtype=torch.float64)
GENERATORS: dict[str, Generator] = {
    "eccco": eccco(n_steps=30, tau=0.42),
    "generic": generic(n_steps=30, tau=0.42),
    "never mature": eccco(n_steps=9, tau=None),
    "within a radius": Generator([(0.1, distance)], n_steps=12, tau=0.8, radius=0.4),
    "a weight per row": Generator([(EACH_ROW, Energy()), (0.2 * EACH_ROW, distance)], n_steps=15, tau=0.7),
    "tau per row": Generator([(0.1, Energy())], n_steps=15, tau=(0.3 + 0.3 * EACH_ROW).clamp(max=0.9)),
    "away": Generator([(0.3, FreeEnergy())], loss=Escape(), n_steps=8, tau=None),
    "no loss": Generator([(1.0, FreeEnergy()), (0.0, CrossEntropy())], loss=None, n_steps=8, tau=None),
}
LIMITS: dict[str, Constraints | None] = {
    "free": None,
    "a box": Constraints.of(D, mutability={0: "none", 1: "increase"}, lower=-1.0, upper=[2.0, 1.0, 1.0, 1.0, 2.0]),
    "a box that all are in": Constraints.of(D, mutability={0: "none", 1: "increase"}, lower=-9.0, upper=9.0),
    "levels": Constraints.of(D, mutability={0: "decrease"}, lower=-2.0, upper=2.0, categories=[slice(2, 5)]),
}


@pytest.fixture(autouse=True)
def few_rows_leave_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows leave as soon as they are mature, as many do only where letting them go pays."""
    monkeypatch.setattr(small_steps, "_WORTH_IT", 0)


def search(generator: Generator, models: Models, limits: Constraints | None) -> Counterfactuals:
    draw = torch.Generator().manual_seed(2)
    like = next(iter(models.trainable()), torch.empty(0, dtype=torch.float64)).dtype
    x = torch.randn(N, D, dtype=torch.float64, generator=draw).to(like)
    x[:, 2:] = torch.eye(3, dtype=like)[torch.arange(N) % 3]
    target = torch.arange(N) % K
    size = len(models)
    return generator(models, x.expand(size, N, D), target.expand(size, N), constraints=limits, epsilon=0.3)


def by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(the_generator.SmallSteps, "of", lambda *parts: None)
    monkeypatch.setattr(traces, "_SMALL", 0)


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("name", GENERATORS)
def test_steps_in_numpy_are_those_of_torch(name: str, kind: str, limits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    models, made = MODELS[kind](), []
    wrapped = SmallSteps.__call__
    monkeypatch.setattr(SmallSteps, "__call__", lambda *given: made.append(1) or wrapped(*given))
    found = search(GENERATORS[name], models, LIMITS[limits])
    assert made  # by numpy
    by_torch(monkeypatch)
    expected = search(GENERATORS[name], models, LIMITS[limits])
    exact = found.x.dtype == torch.float64
    close = {"rtol": 1e-9, "atol": 1e-10} if exact else {"rtol": 1e-3, "atol": 1e-4}
    torch.testing.assert_close(found.x, expected.x, **close)
    torch.testing.assert_close(found.nascent, expected.nascent, **close)
    assert torch.equal(found.mature, expected.mature)
    assert torch.equal(found.n_steps, expected.n_steps)
    assert (found.x != found.factual).any()
    if name == "eccco" and kind == "mlp, three":
        assert (found.mature & (found.n_steps > 3)).any()
        assert not found.mature.all()
        assert (found.nascent != found.x).any()
        assert (found.nascent != found.factual).any()


def test_numbers_that_are_none_are_no_step_in_numpy_either(monkeypatch: pytest.MonkeyPatch) -> None:
    model = mlp(D, K, hidden=(6,), seed=0).double()
    with torch.no_grad():
        model[-1].weight[0, 0] = torch.inf
    found = search(GENERATORS["generic"], Population([model]), None)
    by_torch(monkeypatch)
    expected = search(GENERATORS["generic"], Population([model]), None)
    assert found.x.isfinite().all()
    torch.testing.assert_close(found.x, expected.x)


class Half(SGD):
    """A rule that is another one, though it inherits a short cut."""

    def step(self, grad: Tensor, memory: Memory, k: int) -> tuple[Tensor, Memory]:
        return -0.05 * grad, memory


class Twice(Distance):
    def __call__(self, state: SearchState) -> Tensor:
        return 2 * super().__call__(state)


class Aside(FeatureSpace):
    def decode(self, z: Tensor) -> Tensor:
        return 0.9 * z


def test_a_subclass_that_changes_what_a_short_cut_stands_for_has_none() -> None:
    models = Population([CHAINS["mlp"](0).double()])
    plain = search(generic(n_steps=10, tau=None), models, None).x
    of_half = search(Generator([(0.001, distance)], rule=Half(), n_steps=10, tau=None), models, None).x
    slower = search(Generator([(0.001, distance)], rule=SGD(0.05), n_steps=10, tau=None), models, None).x
    torch.testing.assert_close(of_half, slower)
    assert not torch.allclose(of_half, plain)
    twice = search(Generator([(0.2, Twice())], n_steps=10, tau=None), models, None).x
    torch.testing.assert_close(twice, search(Generator([(0.4, distance)], n_steps=10, tau=None), models, None).x)
    assert not torch.allclose(search(Generator([], space=Aside(), n_steps=10, tau=None), models, None).x, plain)


def test_models_that_are_no_chain_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SmallSteps, "__call__", lambda *given: pytest.fail("by numpy"))
    found = search(GENERATORS["eccco"], Population([layer_norm(0).double()]), None)
    assert (found.x != found.factual).any()
