"""Whatever kind of network is trained, alone or in a population, a bare torch loop ends with the same weights."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from countertrain.constraints import Constraints
from countertrain.models.architectures import piecewise
from countertrain.models.population import Population
from countertrain.models.steps import fused_adam
from countertrain.search.generators import eccco
from countertrain.search.rules import SGD
from countertrain.training.methods import bl, ct
from countertrain.training.trainer import CounterfactualTrainer

D, K, EPOCHS, BATCH = 4, 3, 6, 16


class Residual(nn.Module):
    """Two blocks around which the rows find their way unchanged."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(D, 8), nn.Tanh(), nn.Linear(8, D)) for _ in range(2))
        self.out = nn.Linear(D, K)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        return self.out(x)


class Embedded(nn.Module):
    """The first column names a level that has a vector of its own; the others are numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.levels, self.out = nn.Embedding(5, 6), nn.Linear(6 + D - 1, K)

    def forward(self, x: Tensor) -> Tensor:
        level = x[..., 0].detach().round().clamp(0, 4).long()
        return self.out(torch.cat([self.levels(level), x[..., 1:]], dim=-1))


class Pieces(nn.Module):
    """Each number in pieces between fixed knots, with a linear way past them: parameters used by einsum."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("knots", torch.linspace(-2, 2, 5))
        self.weight, self.skip = nn.Parameter(torch.randn(D, 5, 8) / 3), nn.Parameter(torch.randn(K, D) / 3)
        self.out = nn.Linear(8, K)

    def forward(self, x: Tensor) -> Tensor:
        pieces = (x.unsqueeze(-1) - self.knots).clamp(0, 1)
        return self.out(torch.einsum("nds,dsh->nh", pieces, self.weight).relu()) + x @ self.skip.T


class Attention(nn.Module):
    """Features look at one another: a weight that is used transposed, a norm, a product of products."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.norm, self.out = nn.Parameter(torch.randn(D, 6)), nn.LayerNorm(6), nn.Linear(6, K)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.norm(x.unsqueeze(-1) * self.lift)
        weights = (tokens @ tokens.transpose(-1, -2) / 6**0.5).softmax(-1)
        return self.out((weights @ tokens).mean(-2))


KINDS: dict[str, Callable[[], nn.Module]] = {
    "chain": lambda: nn.Sequential(nn.Linear(D, 8), nn.ReLU(), nn.Linear(8, K)),
    "linear": lambda: nn.Linear(D, K),
    "layer norm": lambda: nn.Sequential(nn.Linear(D, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, K)),
    "group norm": lambda: nn.Sequential(nn.Linear(D, 8), nn.GroupNorm(2, 8), nn.Tanh(), nn.Linear(8, K)),
    "learnt activation": lambda: nn.Sequential(nn.Linear(D, 8), nn.PReLU(), nn.Linear(8, K)),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(-1, (1, D)), nn.Conv1d(1, 5, 3, padding=1), nn.ReLU(), nn.Flatten(-2), nn.Linear(5 * D, K)
    ),
    "images": lambda: nn.Sequential(
        nn.Unflatten(-1, (1, 2, 2)), nn.Conv2d(1, 4, 2, padding=1), nn.Tanh(), nn.Flatten(-3), nn.Linear(36, K)
    ),
    "residual": Residual,
    "embedding": Embedded,
    "piecewise linear": Pieces,
    "attention": Attention,
    "piecewise": lambda: piecewise(D, K, numbers=[0, 2], hidden=(8,), n_pieces=4, seed=int(torch.randint(99, ()))),
}


@pytest.fixture(scope="module")
def data() -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(1)
    x = torch.randn(60, D, generator=stream, dtype=torch.float64)
    return x, (x[:, 0] + x[:, 1] > 0).long() + (x[:, 2] > 0.5).long()


def three(kind: str) -> list[nn.Module]:
    torch.manual_seed(0)
    return [KINDS[kind]().double() for _ in range(3)]


def bare_loop(model: nn.Module, x: Tensor, y: Tensor) -> None:
    """What anybody would write: backward and plain Adam."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, foreach=False, fused=False)
    for _ in range(EPOCHS):
        for rows, labels in zip(x.split(BATCH), y.split(BATCH), strict=True):
            optimizer.zero_grad()
            cross_entropy(model(rows), labels).backward()
            optimizer.step()


def averaging_loop(model: nn.Module, x: Tensor, y: Tensor, keep: float) -> None:
    """The same, and afterwards the mean of what there was after each update, where late ones count more."""
    optimizer, count = torch.optim.Adam(model.parameters(), lr=0.02, foreach=False, fused=False), 0
    means = [parameter.detach().clone() for parameter in model.parameters()]
    for _ in range(EPOCHS):
        for rows, labels in zip(x.split(BATCH), y.split(BATCH), strict=True):
            optimizer.zero_grad()
            cross_entropy(model(rows), labels).backward()
            optimizer.step()
            count += 1
            share = max(1 - keep, 9 / (10 + count))
            means = [(1 - share) * m + share * p.detach() for m, p in zip(means, model.parameters(), strict=True)]
    with torch.no_grad():
        for parameter, mean in zip(model.parameters(), means, strict=True):
            parameter.copy_(mean)


def conventional(**changes: object) -> CounterfactualTrainer:
    return CounterfactualTrainer(
        objective=bl(),
        epochs=EPOCHS,
        batch_size=BATCH,
        optimizer=partial(torch.optim.Adam, lr=0.02, fused=True),
        **changes,  # type: ignore[arg-type]
    )


def same(these: nn.Module, those: nn.Module) -> None:
    for (name, a), (_, b) in zip(these.named_parameters(), those.named_parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 3])
def test_averages_are_those_of_a_bare_loop(kind: str, n: int, data: tuple[Tensor, Tensor]) -> None:
    models = three(kind)[:n]
    expected, last = copy.deepcopy(models), copy.deepcopy(models)
    scored = conventional(seed=[0, 1, 2][:n], averaging=0.6).fit(models, *data).records[-1].metrics["train_loss"]
    conventional(seed=[0, 1, 2][:n]).fit(last, *data)
    for mine, bare, without, loss in zip(models, expected, last, scored, strict=True):
        averaging_loop(bare, *data, keep=0.6)
        same(mine, bare)
        assert loss == pytest.approx(float(cross_entropy(mine(data[0]), data[1]).detach()), rel=1e-6)
        with pytest.raises(AssertionError):
            same(mine, without)


@pytest.mark.parametrize("kind", KINDS)
def test_a_population_ends_with_the_weights_of_bare_loops(kind: str, data: tuple[Tensor, Tensor]) -> None:
    models = three(kind)
    expected, before = copy.deepcopy(models), copy.deepcopy(models)
    history = conventional(seed=[0, 1, 2]).fit(models, *data)
    assert history.one_by_one is None, "this kind is no longer stacked, so nothing was tested"
    for model, other, start in zip(models, expected, before, strict=True):
        bare_loop(other, *data)
        same(model, other)
        moved = [(a - b).abs().max() for a, b in zip(model.parameters(), start.parameters(), strict=True)]
        assert max(moved) > 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_one_model_ends_with_the_weights_of_a_bare_loop(kind: str, data: tuple[Tensor, Tensor]) -> None:
    model = three(kind)[0]
    expected = copy.deepcopy(model)
    conventional().fit(model, *data)
    bare_loop(expected, *data)
    same(model, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_counterfactual_training_gives_a_population_what_plain_adam_gives_each_alone(
    kind: str, data: tuple[Tensor, Tensor]
) -> None:
    models = three(kind)
    expected = copy.deepcopy(models)
    trainer = CounterfactualTrainer(
        ct(generator=eccco(n_steps=20, tau=0.5, rule=SGD(0.3)), n_ce=24),
        epochs=3,
        batch_size=BATCH,
        constraints=Constraints.of(D, mutability={0: "none"}, lower=-3.0, upper=3.0),
        optimizer=partial(torch.optim.Adam, lr=0.02, fused=True),
        seed=[4, 5, 6],
    )
    history = trainer.fit(models, *data)
    assert history.one_by_one is None
    assert any(0 < share < 1 for shares in history["mature"] for share in shares)
    plain = partial(torch.optim.Adam, lr=0.02, foreach=False, fused=False)
    for i, (model, other) in enumerate(zip(models, expected, strict=True)):
        replace(trainer, seed=4 + i, optimizer=plain).fit(other, *data)
        same(model, other)


def test_gradients_that_do_not_lie_as_their_parameters_do_are_made_to() -> None:
    """Under vmap autograd hands back gradients with other strides; without that, nothing above would be tested."""
    population = Population(three("layer norm"))
    loss = population(torch.randn(3, 7, D, dtype=torch.float64)).square().sum()
    trainable = population.trainable()
    gradients = torch.autograd.grad(loss, trainable)
    assert any(g.stride() != p.stride() for g, p in zip(gradients, trainable, strict=True))


def strided() -> nn.Module:
    """Images whose weights lie with their channels last, and a weight that is the transpose of another tensor."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Unflatten(-1, (1, 2, 2)),
        nn.Conv2d(1, 6, 2, padding=1),
        nn.Tanh(),
        nn.Conv2d(6, 4, 2),
        nn.Flatten(-3),
        nn.Linear(16, K),
    ).double()
    model.to(memory_format=torch.channels_last)
    model[5].weight = nn.Parameter(model[5].weight.detach().T.contiguous().T)
    return model


def test_weights_that_lie_in_memory_otherwise_train_and_resume_as_in_a_bare_loop(
    data: tuple[Tensor, Tensor], tmp_path: Path
) -> None:
    model, expected = strided(), strided()
    assert not model[3].weight.is_contiguous()
    assert not model[5].weight.is_contiguous()
    trainer, file = conventional(), tmp_path / "checkpoint.safetensors"
    trainer.fit(model, *data, checkpoint=file, callbacks=[lambda record: record.epoch == 3])
    again = strided()
    trainer.fit(again, *data, checkpoint=file, resume=True)
    bare_loop(expected, *data)
    same(again, expected)
    models, others = [strided() for _ in range(2)], [strided() for _ in range(2)]
    conventional(seed=[0, 1]).fit(models, *data)
    for one, other in zip(models, others, strict=True):
        bare_loop(other, *data)
        same(one, other)


def test_a_weight_that_is_a_view_with_gaps_is_not_written_over_its_neighbours(data: tuple[Tensor, Tensor]) -> None:
    whole = torch.randn(K, 2 * D, dtype=torch.float64)
    model, expected = nn.Linear(D, K).double(), nn.Linear(D, K).double()
    expected.load_state_dict(model.state_dict())
    kept = whole[:, 1::2].clone()
    whole[:, ::2] = model.weight.detach()
    model.weight = nn.Parameter(whole[:, ::2])
    replace(conventional(), optimizer=partial(fused_adam, lr=0.02)).fit(model, *data)
    bare_loop(expected, *data)
    same(model, expected)
    assert torch.equal(whole[:, 1::2], kept)
