"""The method protocol, on three methods that pull in different directions."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from countertrain.models.architectures import mlp
from countertrain.models.population import Models, Population, Weight, member
from countertrain.search.generator import Generator
from countertrain.search.generators import eccco, generic, langevin, pgd, revise
from countertrain.testing import check_method, toy_rows
from countertrain.training.ct import advloss, yloss
from countertrain.training.method import Blocks, Method, Session, Task, Terms, TermState, needs
from countertrain.training.methods import ar, bl, cd, ct, taught
from countertrain.training.trainer import CounterfactualTrainer

QUICK = {"generator": eccco(n_steps=15, tau=0.5), "n_ce": 30}


@pytest.mark.parametrize(
    "method",
    [
        ct(**QUICK),
        ct(**QUICK, immature="drop", n_neighbours=3, generate="batch"),
        ct(generator=generic(n_steps=10, tau=0.5), n_ce=7, burn_in=0.4),
        ct(generator=replace(pgd(0.5, n_steps=3), tau=0.5), n_ce=20),
        ar(**QUICK),
        cd(**QUICK),
        bl(),
        taught(teacher=LogisticRegression(), **QUICK),
        taught(
            teacher=LogisticRegression(),
            teacher_sees="mutable",
            **QUICK,
            immature="drop",
            generate="batch",
            burn_in=0.4,
        ),
    ],
    ids=[
        "ct",
        "ct by mini-batch",
        "ct after burn-in",
        "ct that draws",
        "ar",
        "cd",
        "bl",
        "taught",
        "taught by mini-batch",
    ],
)
def test_the_methods_of_the_paper_keep_the_contract(method: Method) -> None:
    check_method(method)


def test_revise_fits_its_autoencoder_when_the_method_is_bound() -> None:
    check_method(ct(generator=revise(n_steps=5, tau=0.4), n_ce=20))


@dataclass(frozen=True)
class PGDTraining:
    """Madry et al.: learn from the worst rows around each real one, instead of from the real one."""

    attack: Generator = field(default_factory=lambda: pgd(0.3, step_size=0.1, n_steps=5))

    @property
    def terms(self) -> Terms:
        return {"advloss": (1.0, advloss)}

    def bind(self, task: Task) -> Session:
        return Attacking(self.attack, task)

    def member(self, i: int) -> "PGDTraining":
        return self


class Attacking(Session):
    def __init__(self, attack: Generator, task: Task) -> None:
        self.attack, self.task = attack, task

    def rows(self, model: Models, x: Tensor, y: Tensor) -> Blocks:
        seed = self.task.sampler.draw(lambda stream: torch.randint(2**62, y.shape[1:], generator=stream))
        return Blocks.of(x_ae=(self.attack(model, x, y, constraints=self.task.constraints, seed=seed).x, y))


@needs("x", "x_sgld")
def energy_gap(state: TermState) -> Tensor:
    """Real rows should have a lower energy in their class than samples of the model."""
    return (state["x"].energy - state["x_sgld"].energy).mean(-1)


@needs("x", "x_sgld")
def energy_size(state: TermState) -> Tensor:
    """Without it, energies run away."""
    return (state["x"].energy.square() + state["x_sgld"].energy.square()).mean(-1)


@dataclass(frozen=True)
class JEM:
    """Grathwohl et al., conditional: samples of the model by SGLD, from a buffer that goes on from epoch to epoch."""

    weight: Weight = 0.2
    sampling: Generator = field(default_factory=lambda: langevin(step_size=0.1, noise=0.01, n_steps=5))
    size: int = 40
    restart: float = 0.1

    @property
    def terms(self) -> Terms:
        return {"yloss": (1.0, yloss), "gap": (self.weight, energy_gap), "size": (0.1, energy_size)}

    def bind(self, task: Task) -> Session:
        return Sampling(self, task)

    def member(self, i: int) -> "JEM":
        return replace(self, weight=member(self.weight, i))


class Sampling(Session):
    def __init__(self, method: JEM, task: Task) -> None:
        self.method, self.task, self.draw = method, task, task.sampler.draw
        self.low, self.width = task.x.amin(0), task.x.amax(0) - task.x.amin(0)
        self.buffer = self.fresh(method.size)  # (P, B, *shape)

    def fresh(self, n: int) -> Tensor:
        shape, dtype = (n, *self.task.x.shape[1:]), self.task.x.dtype
        return self.low + self.width * self.draw(lambda stream: torch.rand(shape, generator=stream, dtype=dtype))

    def rows(self, model: Models, x: Tensor, y: Tensor) -> Blocks:
        n = y.shape[1]
        place = self.draw(lambda stream: torch.randint(self.method.size, (n,), generator=stream))
        new = self.draw(lambda stream: torch.rand(n, generator=stream)) < self.method.restart
        models = torch.arange(len(place)).unsqueeze(-1)
        old, fresh = self.buffer[models, place], self.fresh(n)
        start = torch.where(new.view(*new.shape, *[1] * (x.ndim - 2)), fresh, old)
        seed = self.draw(lambda stream: torch.randint(2**62, (n,), generator=stream))
        found = self.method.sampling(model, start, y, constraints=self.task.constraints, seed=seed).x
        self.buffer[models, place] = found
        return Blocks.of(x_sgld=(found, y))

    def state(self) -> dict[str, Tensor]:
        return {"buffer": self.buffer}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.buffer = state["buffer"]


@dataclass(frozen=True)
class CounterNet:
    """Guo et al.: a network beside the classifier learns, in turns with it, to write counterfactuals in one pass."""

    @property
    def terms(self) -> Terms:
        return {"yloss": (1.0, yloss)}

    def bind(self, task: Task) -> Session:
        return Writing(task)

    def member(self, i: int) -> "CounterNet":
        return self


class Writing(Session):
    def __init__(self, task: Task) -> None:
        d = task.x[0].numel()
        seeds = task.sampler.draw(lambda stream: torch.randint(1000, (1,), generator=stream)).flatten().tolist()
        self.writers = Population([mlp(d, d, hidden=(8,), seed=seed).to(task.x) for seed in seeds])
        self.optimizer = torch.optim.SGD(self.writers.trainable(), lr=0.5)
        self.losses: list[Tensor] = []

    def rows(self, model: Models, x: Tensor, y: Tensor) -> Blocks:
        with torch.no_grad():
            return Blocks.of(x_cf=((x.flatten(2) + self.writers(x.flatten(2))).view_as(x), y))

    def after_step(self, model: Models, x: Tensor, y: Tensor) -> None:
        move = self.writers(x.flatten(2))
        logits = model((x.flatten(2) + move).view_as(x))
        other = (y + 1) % logits.shape[-1]
        loss = -logits.log_softmax(-1).gather(-1, other.unsqueeze(-1)).mean((1, 2)) + 0.1 * move.square().mean((1, 2))
        self.losses.append(loss.detach())
        gradients = torch.autograd.grad(loss.sum(), self.writers.trainable())
        for parameter, gradient in zip(self.writers.trainable(), gradients, strict=True):
            parameter.grad = gradient.contiguous()
        self.optimizer.step()

    def metrics(self) -> dict[str, Tensor]:
        return {"writing": torch.stack(self.losses[-3:]).mean(0)}

    def state(self) -> dict[str, Tensor]:
        stacked = len(self.writers) > 1
        return {n: p if stacked else p.unsqueeze(0) for n, p in self.writers.parameters.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self.writers.parameters.items():
                parameter.copy_(state[name].view_as(parameter))


@pytest.mark.parametrize("method", [PGDTraining(), JEM(), CounterNet()], ids=["pgd", "jem", "counternet"])
def test_methods_of_anybody_keep_the_contract(method: Method) -> None:
    check_method(method)


def test_a_method_that_trains_something_of_its_own_gets_its_turns() -> None:
    x, y = toy_rows()
    model = mlp(3, 3, seed=1).double()
    history = CounterfactualTrainer(CounterNet(), epochs=25, batch_size=12).fit(model, x, y)
    first, last = history["writing"][0][0], history["writing"][-1][0]
    assert last < 0.7 * first


class Forgetful(Sampling):
    def state(self) -> dict[str, Tensor]:
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        pass


class Careless(Sampling):
    def fresh(self, n: int) -> Tensor:
        return torch.randn(len(self.task.sampler.streams), n, *self.task.x.shape[1:], dtype=self.task.x.dtype)


class Mingling(Attacking):
    def rows(self, model: Models, x: Tensor, y: Tensor) -> Blocks:
        return Blocks.of(x_ae=(x * (1 + 0.1 * len(x)), y))


class Flat(Attacking):
    def rows(self, model: Models, x: Tensor, y: Tensor) -> Blocks:
        return Blocks.of(x_ae=(x + 0.1 * torch.arange(x.shape[-1]), y))


@pytest.mark.parametrize(
    ("session", "method", "reason"),
    [
        (Forgetful, JEM, "go on to the very weights"),
        (Careless, JEM, "global random stream"),
        (Mingling, PGDTraining, "what it gets alone"),
        (Flat, PGDTraining, "rows of any shape"),
    ],
)
def test_the_contract_refuses_methods_that_break_it(session: type, method: type, reason: str) -> None:
    class Broken(method):
        def bind(self, task: Task) -> Session:
            return session(self if method is JEM else self.attack, task)

        def member(self, i: int) -> "Broken":
            return self

    with pytest.raises(AssertionError, match=reason):
        check_method(Broken())
