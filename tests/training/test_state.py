"""A run that is killed and resumed ends with the very weights of a run that was never stopped."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from changing import change, make
from torch import Tensor, nn

from countertrain.constraints import Constraints
from countertrain.files import CheckpointError, read_tensors, write_tensors
from countertrain.models.architectures import mlp
from countertrain.search.generators import eccco
from countertrain.training.ct import CounterfactualMethod
from countertrain.training.history import EpochRecord
from countertrain.training.method import TermState
from countertrain.training.methods import ct
from countertrain.training.state import keep_models
from countertrain.training.trainer import CounterfactualTrainer

Rows = tuple[Tensor, Tensor]
Vector = Callable[[nn.Module], Tensor]
Build = Callable[[], list[nn.Module]]
SMALL = make(generator=eccco(n_steps=10), epochs=4, batch_size=16, n_ce=22, constraints=Constraints.of(3), seed=7)
MOMENTUM = partial(torch.optim.SGD, lr=0.05, momentum=0.9, nesterov=True)


class Killed(BaseException):
    """The machine went down."""


def kill_after_epoch(record: EpochRecord) -> None:
    if record.epoch == 2:
        raise Killed


def dying(at: int) -> CounterfactualMethod:
    """Counterfactual training that is killed in the middle of its `at`-th mini-batch."""
    calls = []

    def term(state: TermState) -> Tensor:
        calls.append(None)
        if len(calls) == at:
            raise Killed
        return state["x"].loss.mean(-1) * 0

    return CounterfactualMethod({**ct().terms, "death": (0.0, term)})


def plain() -> list[nn.Module]:
    return [mlp(3, 3, seed=1).double()]


def dropout_and_norm() -> list[nn.Module]:
    (model,) = plain()
    return [nn.Sequential(model[0], nn.BatchNorm1d(32).double(), nn.Dropout(0.3), *model[1:])]


def three() -> list[nn.Module]:
    return [mlp(3, 3, seed=i).double() for i in range(3)]


CASES = {
    "plain": (plain, {}),
    "shuffled": (plain, {"shuffle": True}),
    "momentum": (plain, {"optimizer": MOMENTUM, "shuffle": True}),
    "dropout and batch norm": (dropout_and_norm, {"shuffle": True}),
    "population": (three, {"shuffle": True, "seed": (7, 8, 9)}),
    "population with momentum": (three, {"optimizer": MOMENTUM}),
    "batchwise": (plain, {"generate": "batch"}),
    "averages": (plain, {"averaging": 0.9, "shuffle": True}),
    "averages of a population": (three, {"averaging": 0.9}),
}


@pytest.mark.parametrize("kill", ["after an epoch", "in an epoch"])
@pytest.mark.parametrize("case", CASES)
def test_killed_and_resumed_is_never_stopped_bit_for_bit(
    rows: Rows, weights: Vector, tmp_path: Path, case: str, kill: str
) -> None:
    build, changes = CASES[case]
    trainer = change(SMALL, **changes)
    unbroken, killed, resumed = build(), build(), build()
    torch.manual_seed(5)
    whole = change(trainer, objective=dying(at=0)).fit(unbroken, *rows)
    torch.manual_seed(5)
    path = tmp_path / "state.safetensors"
    doomed = change(trainer, objective=dying(at=0 if kill == "after an epoch" else 8))
    with pytest.raises(Killed):
        doomed.fit(killed, *rows, checkpoint=path, callbacks=[kill_after_epoch] if "after" in kill else [])
    torch.manual_seed(99)  # another process
    history = change(trainer, objective=dying(at=0)).fit(resumed, *rows, checkpoint=path, resume=True)
    for mine, theirs, half in zip(resumed, unbroken, killed, strict=True):
        assert torch.equal(weights(mine), weights(theirs))
        assert not torch.equal(weights(half), weights(theirs))
    assert [record.epoch for record in history.records] == [1, 2, 3, 4]
    assert [record.metrics for record in history.records] == [record.metrics for record in whole.records]


def test_a_run_can_be_killed_twice_and_resumed_in_the_model_it_left(
    rows: Rows, weights: Vector, tmp_path: Path
) -> None:
    (unbroken,), (model,) = plain(), plain()
    change(SMALL, objective=dying(at=0)).fit(unbroken, *rows)
    for at in (5, 5):  # in the second epoch, then in what is the third
        with pytest.raises(Killed):
            change(SMALL, objective=dying(at)).fit(model, *rows, checkpoint=tmp_path / "state", resume=True)
    change(SMALL, objective=dying(at=0)).fit(model, *rows, checkpoint=tmp_path / "state", resume=True)
    assert torch.equal(weights(model), weights(unbroken))


def test_a_finished_run_is_not_repeated_and_more_epochs_go_on_from_it(
    rows: Rows, weights: Vector, tmp_path: Path
) -> None:
    (model,), (again,), (longer,), (six,) = plain(), plain(), plain(), plain()
    path = tmp_path / "state"
    SMALL.fit(model, *rows, checkpoint=path)
    seen: list[EpochRecord] = []
    SMALL.fit(again, *rows, checkpoint=path, resume=True, callbacks=[seen.append])
    assert seen == []
    assert torch.equal(weights(again), weights(model))
    change(SMALL, epochs=6).fit(longer, *rows, checkpoint=path, resume=True, callbacks=[seen.append])
    change(SMALL, epochs=6).fit(six, *rows)
    assert [record.epoch for record in seen] == [5, 6]
    assert torch.equal(weights(longer), weights(six))


def test_without_resume_a_checkpoint_is_written_over_and_without_a_checkpoint_resume_starts_anew(
    rows: Rows, weights: Vector, tmp_path: Path
) -> None:
    (first,), (second,), (third,) = plain(), plain(), plain()
    path = tmp_path / "state"
    SMALL.fit(first, *rows, checkpoint=path, resume=True)
    assert len(SMALL.fit(second, *rows, checkpoint=str(path)).records) == 4
    SMALL.fit(third, *rows)
    assert torch.equal(weights(first), weights(second))
    assert torch.equal(weights(first), weights(third))  # writing checkpoints changes nothing


def test_a_model_that_failed_stays_failed_after_a_resume(rows: Rows, weights: Vector, tmp_path: Path) -> None:
    def bomb(state: TermState) -> Tensor:
        calls.append(None)
        factor = torch.tensor([0.0, torch.nan if len(calls) == 5 else 0.0, 0.0], dtype=torch.float64)
        return state["x"].loss.mean(-1) * factor

    calls: list[None] = []
    trainer = change(SMALL, objective=CounterfactualMethod({**ct().terms, "bomb": (1.0, bomb)}))
    one_epoch, models = three(), three()
    change(trainer, epochs=1).fit(one_epoch, *rows)
    calls.clear()
    with pytest.raises(Killed):
        trainer.fit(models, *rows, checkpoint=tmp_path / "state", callbacks=[kill_after_epoch])
    with pytest.warns(RuntimeWarning, match="model 1 stopped early"):
        history = trainer.fit(models, *rows, checkpoint=tmp_path / "state", resume=True)
    assert "epoch 2, batch 2, term bomb" in history.failures[1]
    assert torch.equal(weights(models[1]), weights(one_epoch[1]))
    assert not torch.equal(weights(models[0]), weights(one_epoch[0]))


def test_one_by_one_each_model_has_a_checkpoint_of_its_own(rows: Rows, weights: Vector, tmp_path: Path) -> None:
    def build() -> list[nn.Module]:
        return [mlp(3, 3, hidden=(size,)).double() for size in (8, 9)]

    unbroken, killed, resumed = build(), build(), build()
    path = tmp_path / "state.safetensors"
    with pytest.warns(UserWarning, match="one by one"):
        change(SMALL, objective=dying(at=0)).fit(unbroken, *rows)
    with pytest.warns(UserWarning, match="one by one"), pytest.raises(Killed):
        change(SMALL, objective=dying(at=18)).fit(killed, *rows, checkpoint=path)  # in epoch 2 of the second
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state-0.safetensors", "state-1.safetensors"]
    with pytest.warns(UserWarning, match="one by one"):
        change(SMALL, objective=dying(at=0)).fit(resumed, *rows, checkpoint=path, resume=True)
    assert all(torch.equal(weights(mine), weights(theirs)) for mine, theirs in zip(resumed, unbroken, strict=True))


@pytest.mark.parametrize("averaging", [0.0, 0.9])
@pytest.mark.parametrize("optimizer", [SMALL.optimizer, MOMENTUM])
@pytest.mark.parametrize("kept", [[0, 2], [1]])
def test_models_that_go_on_without_the_others_end_as_if_nothing_had_been(
    rows: Rows, weights: Vector, tmp_path: Path, kept: list[int], optimizer: Any, averaging: float
) -> None:
    seeds, lambdas, path = (7, 8, 9), (0.1, 0.5, 0.9), tmp_path / "state"
    whole, fewer = three(), three()
    trainer = change(SMALL, optimizer=optimizer, shuffle=True, averaging=averaging)

    def of(places: Sequence[int]) -> CounterfactualTrainer:
        objective = ct(lambda_div=[lambdas[i] for i in places])
        return change(trainer, objective=objective, seed=[seeds[i] for i in places])

    records = of(range(3)).fit(whole, *rows).records
    of(range(3)).fit(fewer, *rows, checkpoint=path, callbacks=[lambda record: record.epoch == 2])
    left_behind = [weights(model) for model in fewer]
    keep_models(path, kept)
    history = of(kept).fit([fewer[i] for i in kept], *rows, checkpoint=path, resume=True)
    for i in range(3):
        if i in kept:
            torch.testing.assert_close(weights(fewer[i]), weights(whole[i]), rtol=1e-9, atol=1e-9)
        assert torch.equal(weights(fewer[i]), left_behind[i]) == (i not in kept)
    assert [record.epoch for record in history.records] == [1, 2, 3, 4]
    for mine, theirs in zip(history.records, records, strict=True):
        for name, values in mine.metrics.items():
            assert values == pytest.approx([theirs.metrics[name][i] for i in kept], rel=1e-8)


def test_a_failure_stays_with_its_model_when_others_are_left_behind(rows: Rows, tmp_path: Path) -> None:
    path, models = tmp_path / "state", three()
    SMALL.fit(models, *rows, checkpoint=path)
    tensors, meta = read_tensors(path)
    write_tensors(path, tensors, meta | {"failures": {"2": "why"}})
    keep_models(path, [1, 2])
    assert read_tensors(path)[1]["failures"] == {"1": "why"}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ([mlp(3, 3, hidden=(16,)).double()], r"0\.bias has shape \(32,\) there and \(16,\) in this model"),
        ([mlp(3, 3, hidden=(32, 4)).double()], r"another architecture: 2\.bias has shape \(3,\) there and \(4,\)"),
        ([mlp(3, 3, seed=i).double() for i in range(2)], r"0\.bias has shape \(32,\) there and \(2, 32\)"),
    ],
)
def test_a_checkpoint_of_another_architecture_is_refused(
    rows: Rows, weights: Vector, tmp_path: Path, other: list[nn.Module], message: str
) -> None:
    SMALL.fit(plain()[0], *rows, checkpoint=tmp_path / "state")
    before = [weights(model) for model in other]
    with pytest.raises(CheckpointError, match=message):
        SMALL.fit(other, *rows, checkpoint=tmp_path / "state", resume=True)
    assert all(torch.equal(weights(model), old) for model, old in zip(other, before, strict=True))


def test_a_checkpoint_of_other_seeds_is_refused(rows: Rows, tmp_path: Path) -> None:
    SMALL.fit(plain()[0], *rows, checkpoint=tmp_path / "state")
    with pytest.raises(
        CheckpointError, match=r"was written with seeds \[7\], this run has \[8\]; resume with the same"
    ):
        change(SMALL, seed=8).fit(plain()[0], *rows, checkpoint=tmp_path / "state", resume=True)


def test_a_checkpoint_of_another_training_is_refused(rows: Rows, tmp_path: Path) -> None:
    """One of the same architecture and seeds, but of other settings or rows: nothing else would tell them apart."""
    SMALL.fit(plain(), *rows, checkpoint=tmp_path / "c", note="theirs")
    with pytest.raises(CheckpointError, match=r"c was written by a training of other settings or rows; resume that"):
        SMALL.fit(plain(), *rows, checkpoint=tmp_path / "c", resume=True, note="mine")
    SMALL.fit(plain(), *rows, checkpoint=tmp_path / "c", resume=True, note="theirs")


def test_a_truncated_checkpoint_is_refused_and_not_silently_replaced(rows: Rows, tmp_path: Path) -> None:
    path = tmp_path / "state"
    SMALL.fit(plain()[0], *rows, checkpoint=path)
    path.write_bytes(path.read_bytes()[:-100])
    size = path.stat().st_size
    with pytest.raises(CheckpointError, match="truncated or not a safetensors file"):
        SMALL.fit(plain()[0], *rows, checkpoint=path, resume=True)
    assert path.stat().st_size == size


def test_a_file_of_weights_alone_is_refused_as_a_checkpoint(rows: Rows, tmp_path: Path) -> None:
    path = tmp_path / "state"
    SMALL.fit(plain()[0], *rows, checkpoint=path)
    tensors, meta = read_tensors(path)
    assert json.loads(json.dumps(meta)) == meta
    write_tensors(path, {name: t for name, t in tensors.items() if name.startswith("model.")}, {})
    with pytest.raises(CheckpointError, match="seeds None"):
        SMALL.fit(plain()[0], *rows, checkpoint=path, resume=True)
