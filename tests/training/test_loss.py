"""Counterfactual training in anybody's loop, and whatever `fit` may be given."""

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, StepLR
from torch.utils.data import DataLoader, Dataset, TensorDataset

import countertrain
from countertrain.constraints import Constraints
from countertrain.models.architectures import mlp
from countertrain.search.generators import eccco
from countertrain.testing import toy_rows
from countertrain.training.history import BatchRecord
from countertrain.training.loss import CounterfactualLoss
from countertrain.training.methods import bl, ct
from countertrain.training.trainer import CounterfactualTrainer


def images(n: int = 600, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Pictures (n, 1, 8, 8) of a bar that lies, stands or leans, in noise."""
    stream = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    x = 0.4 * torch.randn(n, 1, 8, 8, generator=stream)
    at = torch.randint(1, 7, (n,), generator=stream)
    for i in range(n):
        if y[i] == 0:
            x[i, 0, at[i]] += 1
        elif y[i] == 1:
            x[i, 0, :, at[i]] += 1
        else:
            x[i, 0, torch.arange(8), (torch.arange(8) + at[i]) % 8] += 1
    return x, y


def cnn(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(-3), nn.Linear(128, 3)
        )


def accuracy(net: nn.Module) -> float:
    x, y = images(seed=9)
    with torch.no_grad():
        return (net.eval()(x).argmax(-1) == y).float().mean().item()


def own_loop(net: nn.Module, epochs: int, *, autocast: bool) -> CounterfactualLoss:
    train_set = TensorDataset(*images())
    loader = DataLoader(train_set, batch_size=50, shuffle=True, generator=torch.Generator().manual_seed(0))
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
    scheduler = CosineAnnealingLR(opt, epochs)
    cast = partial(torch.autocast, "cpu", dtype=torch.bfloat16) if autocast else contextlib.nullcontext
    ct = countertrain.CounterfactualLoss(net, reference=train_set, generator=eccco(tau=0.5), n_ce=200)
    for _ in range(epochs):
        for xb, yb in loader:
            with cast():
                loss = ct(xb, yb)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
        scheduler.step()
    return ct


@pytest.mark.parametrize("autocast", [False, True])
def test_a_loop_of_ones_own_reaches_what_fit_reaches(autocast: bool) -> None:
    net, fitted = cnn(), cnn()
    before = accuracy(net)
    loss = own_loop(net, 12, autocast=autocast)
    assert loss.epoch == 12  # one search per pass over the rows
    assert {"yloss", "div", "advloss", "ridge"} == set(loss.values)
    trainer = CounterfactualTrainer(
        ct(generator=eccco(tau=0.5), n_ce=200),
        epochs=12,
        batch_size=50,
        shuffle=True,
        optimizer=partial(torch.optim.AdamW, lr=3e-3),
        scheduler=partial(CosineAnnealingLR, T_max=12),
    )
    history = trainer.fit(fitted, *images())
    assert any(0 < share[0] < 1 for share in history["mature"])
    assert before < 0.6
    assert accuracy(net) > 0.9
    assert abs(accuracy(net) - accuracy(fitted)) < 0.05


def test_a_whole_training_inside_autocast_learns() -> None:
    x, y = images()
    trainer = CounterfactualTrainer(
        ct(generator=eccco(tau=0.5, n_steps=10), n_ce=100),
        epochs=6,
        batch_size=50,
        optimizer=partial(torch.optim.Adam, lr=5e-3),
    )
    plain, cast = cnn(), cnn()
    trainer.fit(plain, x, y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        trainer.fit(cast, x, y)
    assert accuracy(plain) > 0.85
    assert abs(accuracy(plain) - accuracy(cast)) < 0.05
    assert not torch.equal(plain[0].weight, cast[0].weight)  # it did compute in half precision


def test_a_search_inside_autocast_is_in_full_precision_and_leaves_no_cast_weights_behind() -> None:
    x, y = toy_rows(dtype=torch.float32)
    net = mlp(3, 3)
    plain = eccco(n_steps=8)(net, x, (y + 1) % 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = eccco(n_steps=8)(net, x, (y + 1) % 3)
        net(x).float().sum().backward()  # with weights that were cast without a gradient, there would be none
    assert torch.equal(plain.x, cast.x)
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_inside_one_autocast_each_step_sees_the_weights_that_the_last_one_left() -> None:
    x, y = images()
    cast = partial(torch.autocast, "cpu", dtype=torch.bfloat16)

    def learn(around: Callable[[], Any], each: Callable[[], Any]) -> nn.Module:
        net = cnn()
        loss = countertrain.CounterfactualLoss(net, reference=(x, y), generator=eccco(n_steps=2), n_ce=8)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with around():
            for _ in range(3):
                with each():
                    total = loss(x[:50], y[:50])
                total.backward()
                optimizer.step()
                optimizer.zero_grad()
        return net

    once, each_time = learn(cast, contextlib.nullcontext), learn(contextlib.nullcontext, cast)
    assert all(torch.equal(a, b) for a, b in zip(once.parameters(), each_time.parameters(), strict=True))


def test_the_loss_in_ones_own_loop_takes_the_very_steps_of_the_trainer() -> None:
    x, y = toy_rows()
    net, fitted = mlp(3, 3).double(), mlp(3, 3).double()
    limits = Constraints.infer(x, mutability={0: "none"})
    objective = ct(generator=eccco(tau=0.5, n_steps=10), n_ce=20)
    loss = CounterfactualLoss(net, (x, y), objective=objective, constraints=limits, seed=3)
    opt = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(3):
        for rows, labels in zip(x.split(16), y.split(16), strict=True):
            opt.zero_grad()
            loss(rows, labels).backward()
            opt.step()
    optimizer = partial(torch.optim.Adam, lr=0.01)
    CounterfactualTrainer(objective, limits, epochs=3, batch_size=16, optimizer=optimizer, seed=3).fit(fitted, x, y)
    for one, other in zip(net.parameters(), fitted.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_a_loop_that_goes_on_from_a_saved_state_is_the_loop_that_was_never_stopped() -> None:
    x, y = toy_rows()

    def loop(net: nn.Module, loss: CounterfactualLoss, epochs: int) -> None:
        for _ in range(epochs):
            for rows, labels in zip(x.split(16), y.split(16), strict=True):
                net.zero_grad()
                loss(rows, labels).backward()
                with torch.no_grad():
                    for p in net.parameters():
                        p -= 0.05 * p.grad

    whole, half = mlp(3, 3).double(), mlp(3, 3).double()
    loop(whole, CounterfactualLoss(whole, (x, y), n_ce=20), 4)
    first = CounterfactualLoss(half, (x, y), n_ce=20)
    loop(half, first, 2)
    second = CounterfactualLoss(half, (x, y), n_ce=20)
    second.load(first.state(), epoch=2)
    loop(half, second, 2)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), half.parameters(), strict=True))


@pytest.mark.parametrize(("batch_size", "drop_last"), [(30, False), (30, True), (7, False), (48, False), (100, False)])
def test_an_epoch_of_ones_own_loop_is_one_pass_over_the_rows(batch_size: int, drop_last: bool) -> None:
    data = TensorDataset(*(part.repeat_interleave(2, 0) for part in toy_rows(n=48)))  # 96 rows
    loader = DataLoader(data, batch_size=batch_size, drop_last=drop_last, shuffle=True)
    loss = CounterfactualLoss(mlp(3, 3).double(), loader if drop_last else data, n_ce=20, generator=eccco(n_steps=1))
    epochs = []
    for _ in range(4):
        for rows, labels in loader:
            loss(rows, labels)
        epochs.append(loss.epoch)
    assert epochs == [1, 2, 3, 4]


def test_a_loader_without_a_mini_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="the DataLoader gives no mini-batch; lower its batch_size, or leave out drop"):
        SMALL.fit(mlp(3, 3).double(), DataLoader(TensorDataset(X, Y), batch_size=500, drop_last=True))


class Rows(Dataset[tuple[Tensor, int]]):
    def __init__(self) -> None:
        self.x, self.y = toy_rows()

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.x[i], int(self.y[i])


X, Y = toy_rows()
SMALL = CounterfactualTrainer(ct(n_ce=20, generator=eccco(n_steps=8)), Constraints.of(3), epochs=2, batch_size=16)


@pytest.mark.parametrize(
    "given",
    [
        (X.numpy(), Y.numpy()),
        (X.tolist(), Y.tolist()),
        (X.numpy(), Y.numpy().astype(np.int8)),
        (TensorDataset(X, Y),),
        (Rows(),),
        (DataLoader(TensorDataset(X, Y), batch_size=16),),
        (DataLoader(Rows(), batch_size=16),),
    ],
    ids=["arrays", "lists", "small integers", "tensor data set", "data set", "loader", "loader of a data set"],
)
def test_fit_takes_rows_in_any_form(given: tuple[object, ...]) -> None:
    expected, model = mlp(3, 3).double(), mlp(3, 3).double()
    SMALL.fit(expected, X, Y, validation=(X[:9], Y[:9]))
    SMALL.fit(model, *given, validation=(X[:9].numpy(), Y[:9].numpy()))
    for one, other in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_mini_batches_of_a_loader_are_taken_as_they_come_by_every_model() -> None:
    seen: list[BatchRecord] = []
    loader = DataLoader(TensorDataset(X, Y), batch_size=10, drop_last=True, shuffle=True)
    SMALL.fit([mlp(3, 3, seed=i).double() for i in range(2)], loader, on_batch=[seen.append])
    assert [(record.epoch, record.batch, record.n_batches) for record in seen] == [
        (epoch, batch, 4) for epoch in (1, 2) for batch in (1, 2, 3, 4)
    ]
    assert all(record.values["yloss"].shape == (2,) for record in seen)


def test_records_say_which_model_they_are_about_where_models_are_trained_one_by_one() -> None:
    batches, epochs = [], []
    models = [mlp(3, 3, hidden=(4 + i,)).double() for i in range(2)]
    with pytest.warns(UserWarning, match="one by one"):
        SMALL.fit(models, X, Y, on_batch=[batches.append], callbacks=[epochs.append])
    assert [record.first_model for record in epochs] == [0, 0, 1, 1]
    assert [record.first_model for record in batches] == [0] * 6 + [1] * 6


def test_an_optimiser_of_ones_own_and_a_schedule_are_used_and_resumed(tmp_path: Path) -> None:
    rates: list[float] = []
    model, again = mlp(3, 3).double(), mlp(3, 3).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    own = CounterfactualTrainer(
        SMALL.objective,
        SMALL.constraints,
        epochs=4,
        batch_size=16,
        optimizer=optimizer,
        scheduler=partial(StepLR, step_size=1, gamma=0.5),
    )
    own.fit(model, X, Y, callbacks=[lambda record: rates.append(optimizer.param_groups[0]["lr"])])
    assert rates == pytest.approx([0.005, 0.0025, 0.00125, 0.000625])
    factory = CounterfactualTrainer(
        SMALL.objective,
        SMALL.constraints,
        epochs=4,
        batch_size=16,
        optimizer=partial(torch.optim.Adam, lr=0.01),
        scheduler=partial(StepLR, step_size=1, gamma=0.5),
    )
    path = tmp_path / "checkpoint.safetensors"
    factory.fit(mlp(3, 3).double(), X, Y, checkpoint=path, callbacks=[lambda record: record.epoch == 2])
    factory.fit(again, X, Y, checkpoint=path, resume=True)
    for one, other in zip(model.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    with pytest.raises(ValueError, match="the optimiser moves parameters that are not the model's"):
        own.fit(mlp(3, 3).double(), X, Y)
    with pytest.raises(ValueError, match="several models need a function that builds an optimiser"):
        own.fit([mlp(3, 3).double(), mlp(3, 3, seed=1).double()], X, Y)


def test_a_device_takes_models_and_rows_along() -> None:
    model = mlp(3, 3)
    trainer = CounterfactualTrainer(bl(), epochs=1, device="cpu")
    trainer.fit(model, X.float(), Y)
    with pytest.raises(Exception, match="meta"):
        CounterfactualTrainer(bl(), epochs=1, device="meta").fit(mlp(3, 3), X.float(), Y)


def test_a_network_that_ends_in_a_softmax_is_noticed() -> None:
    model = nn.Sequential(mlp(3, 3).double(), nn.Softmax(-1))
    with pytest.warns(UserWarning, match="outputs of the model are probabilities.*leave out its last softmax"):
        SMALL.fit(model, X, Y)
    with pytest.warns(UserWarning, match="leave out its last softmax"):
        CounterfactualLoss(model, (X, Y))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            (X.numpy(), Y.numpy().astype(float)),
            r"y must hold class numbers 0, 1, \.\.\. as integers; got ndarray of float",
        ),
        ((X.numpy().astype(str), Y.numpy()), "x must be a tensor or an array of numbers; got ndarray"),
        (([[1.0, 2.0], [3.0]], [0, 1]), "x must be a tensor or an array of numbers; got list"),
        ((X, ["yes", "no"]), "y must hold class numbers"),
        ((X,), "the classes y of the rows x are missing; give them, or a Dataset or DataLoader that holds both"),
        ((TensorDataset(X, Y), Y), "a TensorDataset holds its classes itself; leave out y"),
        ((X.long(), Y), "x must hold floats; got torch.int64; convert with x.float"),
    ],
)
def test_rows_in_a_form_that_nobody_can_learn_from_are_refused(given: tuple[object, ...], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        SMALL.fit(mlp(3, 3).double(), *given)


def test_mistakes_in_ones_own_loop_are_refused_in_one_sentence() -> None:
    net = mlp(3, 3).double()
    loss = CounterfactualLoss(net, (X, Y), n_ce=10)
    with pytest.raises(ValueError, match="mini-batch x must have 3 features; got 2"):
        loss(X[:, :2], Y)
    with pytest.raises(TypeError, match="mini-batch x and y must be tensors; got ndarray and Tensor"):
        loss(X.numpy(), Y)
    with pytest.raises(TypeError, match="an objective has all its options already; leave out n_ce"):
        CounterfactualLoss(net, (X, Y), objective=bl(), n_ce=10)
    with pytest.raises(ValueError, match=r"burn_in is a share of the epochs.*epochs=\.\.\."):
        CounterfactualLoss(net, (X, Y), burn_in=0.5)
    with pytest.raises(TypeError, match="training rows are a pair"):
        CounterfactualLoss(net, {"x": X})


def test_a_task_is_not_given_again_what_it_has() -> None:
    net = mlp(3, 3).double()
    task = CounterfactualLoss(net, (X, Y), n_ce=10).task
    assert CounterfactualLoss(net, task, n_ce=10).task is task
    for given in ({"constraints": Constraints.of(3)}, {"seed": 3}, {"epochs": 2}):
        with pytest.raises(TypeError, match=f"^a Task has its own; leave out {next(iter(given))}$"):
            CounterfactualLoss(net, task, n_ce=10, **given)


def test_what_a_term_weighs_may_change_between_two_mini_batches() -> None:
    (x, y), weight = toy_rows(), torch.tensor(1.0, dtype=torch.float64)
    loss = CounterfactualLoss(mlp(3, 3).double(), (x, y), objective=bl(lambda_clf=weight))
    told = []
    for _, values, _ in loss.slopes([(x.unsqueeze(0), y.unsqueeze(0))] * 3):
        told.append(float(values["loss"]) / float(values["yloss"]))
        weight += 1
    assert told == pytest.approx([1.0, 2.0, 3.0])
