"""What the trainer does when a loss is not finite, and when models cannot be stacked."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from changing import change, make
from torch import Tensor, nn

from countertrain.constraints import Constraints
from countertrain.files import read_tensors
from countertrain.models.architectures import mlp
from countertrain.search.generators import eccco
from countertrain.training.ct import CounterfactualMethod, yloss
from countertrain.training.method import TermState
from countertrain.training.methods import ct
from countertrain.training.trouble import NonFiniteLossError

Rows = tuple[Tensor, Tensor]
Vector = Callable[[nn.Module], Tensor]
Fresh = Callable[..., nn.Module]
SMALL = make(
    generator=eccco(n_steps=10),
    epochs=4,
    batch_size=16,
    n_ce=22,
    optimizer=partial(torch.optim.Adam, lr=0.02),
    constraints=Constraints.of(3),
)


class Bomb:
    """A term that is 0, but at its n-th call NaN for one model, and so are its gradients."""

    def __init__(self, at: int, model: int = 0) -> None:
        self.at, self.model, self.calls = at, model, 0

    def __call__(self, state: TermState) -> Tensor:
        self.calls += 1
        factor = torch.zeros(len(state.model), dtype=state.logits.dtype)
        if self.calls == self.at:
            factor[self.model] = torch.nan
        return state["x"].loss.mean(-1) * factor


class Spike(Bomb):
    """A term that is always 0, but whose gradient is NaN at its n-th call."""

    def __call__(self, state: TermState) -> Tensor:
        self.calls += 1
        nothing = state["x"].loss.mean(-1) * 0
        return nothing.sqrt() if self.calls == self.at else nothing


def with_term(term: Callable[[TermState], Tensor]) -> CounterfactualMethod:
    return CounterfactualMethod({**ct().terms, "bomb": (1.0, term)})


def test_a_non_finite_loss_is_reported_with_epoch_batch_and_term_and_the_last_good_weights_are_kept(
    rows: Rows, fresh: Fresh, weights: Vector
) -> None:
    model, two_epochs = fresh(), fresh()
    model.eval()
    with pytest.raises(
        NonFiniteLossError, match=r"epoch 3, batch 2, term bomb; the model keeps its weights of epoch 2;"
    ):
        change(SMALL, objective=with_term(Bomb(8))).fit(model, *rows)  # three batches an epoch
    change(SMALL, epochs=2, objective=with_term(Bomb(0))).fit(two_epochs, *rows)
    assert torch.equal(weights(model), weights(two_epochs))
    assert not model.training
    assert not torch.equal(weights(model), weights(fresh()))


@pytest.mark.parametrize("at", [3, 6, 8])
def test_weights_that_the_last_update_of_an_epoch_broke_are_not_called_good(
    rows: Rows, fresh: Fresh, weights: Vector, at: int
) -> None:
    model, before = fresh(), fresh()
    with pytest.raises(NonFiniteLossError):
        change(SMALL, objective=with_term(Spike(at))).fit(model, *rows)
    change(SMALL, epochs=(at - 1) // 3, objective=with_term(Bomb(0))).fit(before, *rows)
    assert torch.equal(weights(model), weights(before))


@pytest.mark.parametrize("size", [1, 2])
def test_the_weights_that_are_kept_give_a_finite_loss_when_the_learning_rate_is_much_too_large(
    rows: Rows, size: int
) -> None:
    models = [mlp(3, 3, seed=i) for i in range(size)]
    wild = partial(torch.optim.SGD, lr=1e30)
    with pytest.raises(NonFiniteLossError):
        change(SMALL, batch_size=48, optimizer=wild, constraints=None).fit(models, rows[0].float(), rows[1])
    for model in models:
        assert nn.functional.cross_entropy(model(rows[0].float()), rows[1]).isfinite()


@pytest.mark.parametrize("averaging", [0.0, 0.9])
def test_in_a_population_only_that_model_stops_and_the_others_end_as_if_alone(
    rows: Rows, fresh: Fresh, weights: Vector, tmp_path: Path, averaging: float
) -> None:
    together = [fresh(i) for i in range(3)]
    trainer = change(SMALL, seed=[3, 4, 5], averaging=averaging)
    with pytest.warns(RuntimeWarning, match=r"model 1 stopped early: .*epoch 2, batch 1, term bomb"):
        history = change(trainer, objective=with_term(Bomb(4, model=1))).fit(
            together, *rows, checkpoint=tmp_path / "state"
        )
    kept = {name: t for name, t in read_tensors(tmp_path / "state")[0].items() if name.startswith(("model", "averag"))}
    assert any(name.startswith("averag") for name in kept) == bool(averaging)
    assert all(tensor.isfinite().all() for tensor in kept.values())  # nor does it go on from what is not
    assert list(history.failures) == [1]
    assert len(history.records) == 4
    for i, epochs in ((0, 4), (1, 1), (2, 4)):
        alone = fresh(i)
        change(trainer, seed=3 + i, epochs=epochs).fit(alone, *rows)
        torch.testing.assert_close(weights(together[i]), weights(alone), rtol=1e-8, atol=1e-10)


def test_a_population_all_of_whose_models_fail_raises(rows: Rows, fresh: Fresh, weights: Vector) -> None:
    def bomb(state: TermState) -> Tensor:
        return state["x"].loss.mean(-1) * torch.inf

    pair = [fresh(0), fresh(1)]
    with pytest.raises(NonFiniteLossError, match="epoch 1, batch 1, term bomb"):
        change(SMALL, objective=with_term(bomb)).fit(pair, *rows)
    assert all(torch.equal(weights(model), weights(fresh(i))) for i, model in enumerate(pair))


def test_skipping_leaves_out_just_that_update(rows: Rows, fresh: Fresh, weights: Vector) -> None:
    def sometimes_nan(state: TermState) -> Tensor:
        calls.append(None)
        return yloss(state) * (torch.nan if len(calls) == 2 else 1.0)

    calls: list[None] = []
    trainer = change(SMALL, batch_size=48, epochs=3, on_nonfinite="skip")  # one update an epoch
    skipped, two_updates = fresh(), fresh()
    history = change(trainer, objective=CounterfactualMethod({"yloss": (1.0, sometimes_nan)})).fit(skipped, *rows)
    plain = CounterfactualMethod({"yloss": (1.0, lambda state: yloss(state))})  # differentiated as the other one is
    change(trainer, objective=plain, epochs=2).fit(two_updates, *rows)
    assert torch.equal(weights(skipped), weights(two_updates))
    assert [record[0] != record[0] for record in history["loss"]] == [False, True, False]
    assert history.failures == {}


class Weird(torch.optim.SGD):
    """An optimiser of which nobody knows whether it looks at models separately."""


def noisy(seed: int) -> nn.Module:
    model = mlp(3, 3, hidden=(16,), seed=seed).double()
    return nn.Sequential(model[0], nn.Dropout(0.3), *model[1:])


@pytest.mark.parametrize(
    ("build", "changes", "reason"),
    [
        (noisy, {}, "Dropout draws from the global random stream"),
        (lambda seed: mlp(3, 3, hidden=(8 + seed,)).double(), {}, "model 1 has another architecture"),
        (None, {"optimizer": partial(Weird, lr=0.1)}, "the optimiser Weird may look at all parameters"),
        (None, {"on_nonfinite": "skip"}, "skipping an update is the affair of one model"),
    ],
    ids=["dropout", "architecture", "optimiser", "skip"],
)
def test_models_that_cannot_be_stacked_are_trained_one_by_one_with_a_warning(
    rows: Rows, fresh: Fresh, weights: Vector, build: Fresh | None, changes: dict[str, object], reason: str
) -> None:
    build = build or fresh
    together, alone = [build(0), build(1)], [build(0), build(1)]
    tau = [0.6, 0.8]
    trainer = change(SMALL, **changes)
    torch.manual_seed(0)
    with pytest.warns(UserWarning, match=f"training 2 models one by one: {reason}"):
        history = change(
            trainer, seed=[3, 4], objective=ct(lambda_div=[0.1, 0.9]), generator=eccco(n_steps=10, tau=tau), epsilon=tau
        ).fit(together, *rows)
    torch.manual_seed(0)
    for i, model in enumerate(alone):
        search = eccco(n_steps=10, tau=tau[i])
        settings = {"objective": ct(lambda_div=[0.1, 0.9][i]), "generator": search, "epsilon": tau[i]}
        single = change(trainer, seed=3 + i, **settings).fit(model, *rows)
        assert torch.equal(weights(together[i]), weights(model))
        assert [record[i] for record in history["yloss"]] == [record[0] for record in single["yloss"]]
    assert reason in history.one_by_one
    assert weights(alone[0]).shape != weights(alone[1]).shape or not torch.equal(weights(alone[0]), weights(alone[1]))


def test_one_by_one_a_model_that_fails_keeps_its_place_in_the_history(rows: Rows, weights: Vector) -> None:
    models = [mlp(3, 3, hidden=(8 + i,)).double() for i in range(2)]
    with pytest.warns() as caught:
        history = change(SMALL, objective=with_term(Bomb(4))).fit(models, *rows)
    assert any("one by one" in str(w.message) for w in caught)
    assert any("model 0 stopped early" in str(w.message) for w in caught)
    assert list(history.failures) == [0]
    assert weights(models[0]).isfinite().all()
    for record in history["yloss"]:
        assert len(record) == 2
        assert torch.tensor(record[1]).isfinite()
    last = nn.functional.cross_entropy(models[1](rows[0]), rows[1]).item()
    assert history["train_loss"][-1][1] == pytest.approx(last)


def test_a_model_that_draws_random_numbers_by_itself_is_trained_one_by_one(rows: Rows) -> None:
    class Noisy(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.dropout(super().forward(x), 0.2, self.training)

    with pytest.warns(UserWarning, match="training 2 models one by one"):
        SMALL.fit([Noisy(3, 3).double(), Noisy(3, 3).double()], *rows)


@pytest.mark.parametrize("in_place", [True, False])
def test_buffers_that_a_model_changes_in_training_are_not_lost_in_a_population(rows: Rows, in_place: bool) -> None:
    class Counting(nn.Linear):
        def __init__(self) -> None:
            super().__init__(3, 3)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            if self.training and in_place:
                self.calls += 1
            elif self.training:
                self.calls = self.calls + 1
            return super().forward(x)

    together, alone = [Counting().double(), Counting().double()], Counting().double()
    SMALL.fit(alone, *rows)
    with pytest.warns(UserWarning, match="training 2 models one by one"):
        SMALL.fit(together, *rows)
    assert together[1].calls == alone.calls == 12


def test_the_same_model_twice_is_refused_even_where_it_could_not_be_stacked(rows: Rows, weights: Vector) -> None:
    model = noisy(0)
    with pytest.raises(ValueError, match="model 1 is the same object as an earlier one"):
        SMALL.fit([model, model], *rows)
    assert torch.equal(weights(model), weights(noisy(0)))


def test_weights_that_lie_in_memory_in_another_order_are_trained(rows: Rows) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).double()
    model[0].weight.data = model[0].weight.data.T
    assert not model[0].weight.is_contiguous()
    assert len(SMALL.fit(model, *rows).records) == 4
