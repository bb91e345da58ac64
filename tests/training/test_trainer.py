import copy
from collections.abc import Callable
from functools import partial

import pytest
import torch
from changing import change, make
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from countertrain.constraints import Constraints
from countertrain.models.architectures import mlp
from countertrain.search.generator import Generator
from countertrain.search.generators import eccco
from countertrain.search.penalties import distance
from countertrain.search.state import SearchState
from countertrain.testing import toy_rows
from countertrain.training.history import BatchRecord, EpochRecord
from countertrain.training.methods import bl, cd, ct, pgd
from countertrain.training.sampler import Sampler
from countertrain.training.trainer import CounterfactualTrainer

Rows = tuple[Tensor, Tensor]
Vector = Callable[[nn.Module], Tensor]
Fresh = Callable[..., nn.Module]
fast = partial(torch.optim.Adam, lr=0.02)
SMALL = make(
    generator=eccco(n_steps=15), epochs=4, batch_size=16, n_ce=22, optimizer=fast, constraints=Constraints.of(3)
)


def by_hand(model: nn.Module, x: Tensor, y: Tensor, trainer: CounterfactualTrainer, constraints: Constraints) -> None:
    """Algorithm 1 in the words of REFERENCE.md B, with nothing but plain calls of the model."""
    sampler, optimizer, method = Sampler(y, 3, [trainer.seed]), trainer.optimizer(model.parameters()), trainer.objective
    for _ in range(trainer.epochs):
        rows = sampler.factuals(method.n_ce)
        target = sampler.targets(model(x[rows[0]]).argmax(-1).unsqueeze(0))
        found = method.generator(model, x[rows[0]], target[0], constraints=constraints, epsilon=method.epsilon)
        x_plus, t = x[sampler.neighbours(target)[0]], target[0]
        x_ce = torch.where(found.mature.unsqueeze(-1), found.x, x_plus)
        x_plus = constraints.reachable(x_plus, x_ce)
        at = 0
        for i, batch in enumerate(torch.arange(len(x)).split(trainer.batch_size)):
            n = 8 if i == 0 else 7  # 22 counterfactuals, three batches
            group = slice(at, at + n)
            at += n
            z_ce = model(x_ce[group]).gather(1, t[group].unsqueeze(1))
            z_plus = model(x_plus[group]).gather(1, t[group].unsqueeze(1))
            loss = cross_entropy(model(x[batch]), y[batch]) + 0.5 * (z_ce - z_plus).mean()
            loss = loss + 0.25 * cross_entropy(model(found.nascent[group]), y[rows[0]][group])
            loss = loss + 0.1 * (z_ce.square() + z_plus.square()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@pytest.mark.parametrize("epsilon", [0.1, 0.5])
def test_training_is_algorithm_1_by_hand(rows: Rows, fresh: Fresh, weights: Vector, epsilon: float) -> None:
    constraints = Constraints.infer(rows[0], mutability={0: "none", 1: "increase"})
    trainer = change(SMALL, seed=5, constraints=constraints, epsilon=epsilon)
    model, expected = fresh(), fresh()
    history = trainer.fit(model, *rows)
    by_hand(expected, *rows, trainer, constraints)
    torch.testing.assert_close(weights(model), weights(expected), rtol=1e-8, atol=1e-10)
    assert all(0 < mature[0] < 1 for mature in history["mature"][1:])
    assert (weights(model) - weights(fresh())).abs().max() > 0.01


@pytest.mark.parametrize(
    "changes",
    [{}, {"shuffle": True, "immature": "drop"}, {"generate": "batch"}, {"optimizer": partial(torch.optim.SGD, lr=0.1)}],
    ids=["sweep", "shuffled, dropped", "batch", "sgd"],
)
def test_a_population_ends_as_its_models_do_one_by_one(
    rows: Rows, fresh: Fresh, weights: Vector, changes: dict[str, object]
) -> None:
    lambda_div, tau, epsilon = [0.1, 0.5, 0.5, 0.8, 0.0], [0.6, 0.75, 0.75, 0.9, 0.5], [0.1, 0.3, 0.3, 0.5, 0.2]
    seeds = [3, 4, 5, 6, 7]
    search = partial(eccco, n_steps=15)
    trainer = change(
        SMALL, objective=ct(lambda_div=lambda_div), generator=search(tau=tau), epsilon=epsilon, seed=seeds, **changes
    )
    together, starts = [fresh(i) for i in range(5)], [fresh(i) for i in range(5)]
    history = trainer.fit(together, *rows, validation=toy_rows(seed=9))
    for i, model in enumerate(together):
        settings = {"objective": ct(lambda_div=lambda_div[i]), "generator": search(tau=tau[i]), "epsilon": epsilon[i]}
        alone = fresh(i)
        history_alone = change(trainer, seed=seeds[i], **settings).fit(alone, *rows, validation=toy_rows(seed=9))
        torch.testing.assert_close(weights(model), weights(alone), rtol=1e-7, atol=1e-9)
        for record, single in zip(history.records, history_alone.records, strict=True):
            assert {name: [values[i]] for name, values in record.metrics.items()} == {
                name: pytest.approx(values, rel=1e-5, abs=1e-6) for name, values in single.metrics.items()
            }
        assert (weights(model) - weights(starts[i])).abs().max() > 1e-3
    assert min((weights(a) - weights(b)).abs().max() for a in together for b in together if a is not b) > 1e-3
    assert any(0 < share < 1 for record in history["mature"] for share in record)


def test_models_of_a_population_that_differ_only_in_one_number_end_differently(
    rows: Rows, fresh: Fresh, weights: Vector
) -> None:
    numbers = {
        "lambda_div": change(SMALL, objective=ct(lambda_div=[0.1, 0.9])),
        "tau": change(SMALL, generator=eccco(n_steps=15, tau=[0.5, 0.9])),
        "epsilon": change(SMALL, epsilon=[0.05, 1.0]),
        "seed": change(SMALL, seed=[1, 2]),
    }
    for name, trainer in numbers.items():
        pair = [fresh(), fresh()]
        trainer.fit(pair, *rows)
        assert (weights(pair[0]) - weights(pair[1])).abs().max() > 1e-4, name


def searched(rows: Rows, model: nn.Module, **changes: object) -> list[int]:
    """How many rows each search of a run begins with."""
    sizes: list[int] = []

    def spy(state: SearchState) -> Tensor:
        if state.step == 1:
            sizes.append(state.x.shape[1])
        return distance(state)

    change(SMALL, generator=Generator(((0.001, spy),), n_steps=5), **changes).fit(model, *rows)
    return sizes


def test_an_epoch_searches_once_or_once_a_mini_batch(rows: Rows, fresh: Fresh) -> None:
    assert searched(rows, fresh()) == [22] * 4
    assert searched(rows, fresh(), generate="batch", epochs=2) == [8, 7, 7, 8, 7, 7]
    assert searched(rows, fresh(), n_ce=None, epochs=1) == [48]
    assert searched(rows, fresh(), objective=bl()) == []


def test_fewer_counterfactuals_than_mini_batches_are_enough_to_train(rows: Rows, fresh: Fresh, weights: Vector) -> None:
    for generate in ("sweep", "batch"):
        model = fresh()
        history = change(SMALL, n_ce=2, generate=generate).fit(model, *rows)
        assert weights(model).isfinite().all()
        assert all(torch.tensor(list(record.metrics.values())).isfinite().all() for record in history.records)


def test_burn_in_trains_the_first_epochs_without_a_search(rows: Rows, fresh: Fresh, weights: Vector) -> None:
    assert searched(rows, fresh(), burn_in=0.5) == [22, 22]
    model, conventional, snapshots = fresh(), fresh(), []
    history = change(SMALL, burn_in=0.5).fit(model, *rows, callbacks=[lambda _: snapshots.append(weights(model))])
    change(SMALL, objective=bl(), epochs=2).fit(conventional, *rows)
    assert torch.equal(snapshots[1], weights(conventional))
    assert ["div" in record.metrics for record in history.records] == [False, False, True, True]
    change(SMALL, objective=bl(), epochs=4).fit(conventional := fresh(), *rows)
    assert not torch.allclose(weights(model), weights(conventional))


def test_a_model_goes_on_from_the_weights_it_has(rows: Rows, fresh: Fresh, weights: Vector) -> None:
    for model in (fresh(), fresh(1)):
        start = weights(model)
        change(SMALL, epochs=1, optimizer=partial(torch.optim.SGD, lr=1e-6)).fit(model, *rows)
        assert 0 < (weights(model) - start).abs().max() < 1e-4
    stacked = [fresh(), fresh(1)]
    change(SMALL, epochs=0).fit(stacked, *rows)
    assert torch.equal(weights(stacked[1]), weights(fresh(1)))


def test_fine_tuning_a_trained_model_keeps_what_it_knows(rows: Rows, fresh: Fresh) -> None:
    trained, scratch = fresh(), fresh()
    change(SMALL, objective=bl(), epochs=15).fit(trained, *rows)
    tuned, new = (change(SMALL, epochs=1).fit(model, *rows)["train_loss"][0][0] for model in (trained, scratch))
    assert tuned < 0.5 * new


def test_the_history_holds_terms_shares_and_accuracies_of_each_model(rows: Rows, fresh: Fresh) -> None:
    models, held_out = [fresh(0), fresh(1)], toy_rows(seed=9, n=30)
    history = change(SMALL, objective=cd()).fit(models, *rows, validation=held_out)
    names = {"loss", "yloss", "div", "ridge", "mature", "n_steps", "train_loss", "train_accuracy"}
    last = history.records[-1]
    assert set(last.metrics) == names | {"validation_loss", "validation_accuracy"}
    assert [record.epoch for record in history.records] == [1, 2, 3, 4]
    assert all(len(values) == 2 for values in last.metrics.values())
    for i, model in enumerate(models):
        for name, (x, y) in {"train": rows, "validation": held_out}.items():
            logits = model(x).detach()
            assert last.metrics[f"{name}_loss"][i] == pytest.approx(cross_entropy(logits, y).item())
            accuracy = (logits.argmax(-1) == y).float().mean().item()
            assert last.metrics[f"{name}_accuracy"][i] == pytest.approx(accuracy)
    total = [last.metrics["yloss"][i] + 0.5 * last.metrics["div"][i] + 0.1 * last.metrics["ridge"][i] for i in (0, 1)]
    assert last.metrics["loss"] == pytest.approx(total)


def test_a_callback_sees_each_epoch_and_the_weights_after_it(rows: Rows, fresh: Fresh, weights: Vector) -> None:
    models, seen, snapshots = [fresh(0), fresh(1)], [], []

    def look(record: EpochRecord) -> None:
        seen.append((record.epoch, record.n_epochs))
        snapshots.append(weights(models[1]))

    history = SMALL.fit(models, *rows, callbacks=[look, lambda record: seen.append(record)])
    assert seen[::2] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert seen[1::2] == history.records
    change(SMALL, epochs=2).fit(two := [fresh(0), fresh(1)], *rows)
    assert torch.equal(snapshots[1], weights(two[1]))
    assert torch.equal(snapshots[3], weights(models[1]))


def test_a_callback_that_returns_true_ends_the_training_after_all_have_seen_the_epoch(
    rows: Rows, fresh: Fresh, weights: Vector
) -> None:
    models, seen = [fresh(0), fresh(1)], []
    history = SMALL.fit(models, *rows, callbacks=[lambda record: record.epoch == 2, lambda record: seen.append(record)])
    assert seen == history.records
    assert [record.epoch for record in seen] == [1, 2]
    change(SMALL, epochs=2).fit(two := [fresh(0), fresh(1)], *rows)
    assert [weights(model).tolist() for model in models] == [weights(model).tolist() for model in two]


def test_modes_and_global_random_stream_are_as_before(rows: Rows, fresh: Fresh) -> None:
    models = [fresh(0), fresh(1)]
    models[0].eval()
    models[1][1].eval()
    before, random = [[layer.training for layer in model.modules()] for model in models], torch.get_rng_state()
    change(SMALL, shuffle=True).fit(models, *rows)
    assert [[layer.training for layer in model.modules()] for model in models] == before
    assert torch.equal(torch.get_rng_state(), random)


def test_batch_norm_and_dropout_train_in_training_mode(rows: Rows, fresh: Fresh) -> None:
    model = (
        nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3)).double().eval()
    )
    kept = copy.deepcopy(model)
    SMALL.fit(model, *rows)
    assert int(model[1].num_batches_tracked) == 12  # three batches an epoch, and nothing else was counted
    assert not torch.equal(model[1].running_mean, kept[1].running_mean)
    assert not model.training


def test_targets_avoid_what_the_model_predicts_without_dropout(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []
    factuals, targets = Sampler.factuals, Sampler.targets
    monkeypatch.setattr(Sampler, "factuals", lambda self, n: seen.append(factuals(self, n)) or seen[-1])
    monkeypatch.setattr(Sampler, "targets", lambda self, y: seen.append(y) or targets(self, y))
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.9), nn.Linear(8, 3)).double()
    with torch.no_grad():
        calm = model.eval()(rows[0]).argmax(-1)
        noisy = model.train()(rows[0]).argmax(-1)
    change(SMALL, epochs=1).fit(model, *rows)
    assert torch.equal(seen[1], calm[seen[0]])
    assert not torch.equal(calm, noisy)


def test_the_same_seed_trains_the_same_model_and_the_domain_is_inferred_by_default(
    rows: Rows, fresh: Fresh, weights: Vector
) -> None:
    x, y = rows[0].clamp(-1.5, 1.5), rows[1]
    assert (Constraints.infer(x).upper > x.amax(0)).all()  # Eq. (domain) reaches beyond the rows
    first, second, wide, narrow = (fresh() for _ in range(4))
    trainer = change(SMALL, shuffle=True, constraints=None, generator=eccco(n_steps=40, tau=0.99))
    trainer.fit(first, x, y)
    change(trainer, constraints=Constraints.infer(x)).fit(second, x, y)
    change(trainer, constraints=Constraints.of(3)).fit(wide, x, y)
    change(trainer, constraints=Constraints.infer(x, n_sigma=0)).fit(narrow, x, y)
    assert torch.equal(weights(first), weights(second))
    assert not torch.allclose(weights(first), weights(wide))
    assert not torch.allclose(weights(first), weights(narrow))


def test_parameters_that_no_loss_depends_on_stay_what_they_are() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(2, 2), nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
    model = Idle()
    before = model.used.weight.detach().clone()
    make(objective=bl(), epochs=1, batch_size=10).fit(model, x, (x[:, 0] > 0).long())
    assert torch.equal(model.idle, torch.ones(3))
    assert not torch.equal(model.used.weight, before)


METHODS = {
    "conventional": bl(),
    "one search an epoch": ct(n_ce=22, generator=eccco(n_steps=15)),
    "a search for each mini-batch": ct(n_ce=22, generator=eccco(n_steps=15), generate="batch"),
    "immature ones dropped": ct(n_ce=22, generator=eccco(n_steps=3), immature="drop"),
    "attacks on the models as they are": pgd(n_steps=3),
}


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_nothing_depends_on_whether_somebody_looks_at_every_mini_batch(name: str, shuffle: bool) -> None:
    def train(on_batch: list[Callable[[BatchRecord], None]]) -> tuple[list[Tensor], list[dict[str, float]]]:
        models = [mlp(3, 3, seed=seed).double() for seed in range(2)]
        trainer = CounterfactualTrainer(METHODS[name], epochs=3, batch_size=7, optimizer=fast, shuffle=shuffle, seed=1)
        history = trainer.fit(models, *toy_rows(), on_batch=on_batch)
        return [p.detach() for model in models for p in model.parameters()], [r.metrics for r in history.records]

    seen: list[BatchRecord] = []
    (alone, told), (watched, told_too) = train([]), train([seen.append])
    assert len(seen) == 3 * 7
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(alone, watched, strict=True))
    assert not torch.equal(alone[0], mlp(3, 3, seed=0).double().get_parameter("0.weight"))
    for mine, theirs in zip(told, told_too, strict=True):
        assert {k: pytest.approx(v, rel=1e-12) for k, v in mine.items()} == theirs


def test_terms_of_counterfactuals_are_averaged_over_the_mini_batches_that_had_any() -> None:
    seen: list[dict[str, float]] = []
    trainer = CounterfactualTrainer(ct(n_ce=2, generator=eccco(n_steps=2)), epochs=1, batch_size=6)
    on_batch = [lambda record: seen.append({name: float(value) for name, value in record.values.items()})]
    told = trainer.fit(mlp(3, 3).double(), *toy_rows(), on_batch=on_batch).records[0].metrics
    had = [values for values in seen if "ridge" in values]
    assert (len(seen), len(had)) == (8, 2)
    for name in ("div", "ridge", "advloss"):
        assert told[name] == pytest.approx([sum(values[name] for values in had) / 2])
    assert told["loss"] == pytest.approx([sum(values["loss"] for values in seen) / 8])
