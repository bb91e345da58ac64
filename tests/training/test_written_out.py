"""What terms know of their own derivatives is what autograd finds, for every term that a method of ours has."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from countertrain.models import traces
from countertrain.models.architectures import mlp, piecewise
from countertrain.models.population import Population
from countertrain.runs.weighting import weight_term
from countertrain.training.ct import advloss, div, ridge, teach, yloss
from countertrain.training.method import Blocks, Terms, TermState, add_up, needs, slopes
from countertrain.training.sums import Sums, TermValues

D, K, B, M = 3, 3, 6, 5
WEIGHT = torch.tensor([0.5, 2.0, 0.7], dtype=torch.float64)
EACH = {"yloss": yloss, "div": div, "ridge": ridge, "advloss": advloss, "teach": teach}
TERMS: dict[str, Terms] = {
    **{name: {"yloss": (1.0, yloss), name: (0.7, term)} for name, term in EACH.items()},
    "all": {name: (0.3 + i, term) for i, (name, term) in enumerate(EACH.items())},
    "one weight per model": {name: ([0.3 + i, 1.0], term) for i, (name, term) in enumerate(EACH.items())},
    "weighted classes": {name: (0.4, weight_term(term, WEIGHT)) for name, term in EACH.items()},
}
NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "mlp": lambda seed: mlp(D, K, hidden=(6, 5), seed=seed).double(),
    "pieces": lambda seed: piecewise(D, K, hidden=(6,), n_pieces=4, seed=seed).double(),
}


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(len(shape)))


def blocks(size: int, *, some_count: bool) -> Blocks:
    labels = {name: torch.arange(M).add(i).remainder(K).expand(size, -1) for i, name in enumerate(["x_ae", "x_ce"])}
    counted = (draw(size, M) > -0.3) if some_count else None
    assert counted is None or (counted.any() and not counted.all())
    return Blocks(
        draw(size, 3 * M, D),
        {**labels, "x_plus": labels["x_ce"]},
        {} if counted is None else {"x_ce": counted, "x_plus": counted},
        {"x_ce": draw(size, M, K).softmax(-1)},
    )


def write_out(
    terms: Terms, population: Population, x: Tensor, y: Tensor, made: Blocks | None = None
) -> tuple[TermValues, Sequence[Tensor]]:
    """What is written out for a mini-batch, between two others in the same memory."""
    sums = Sums.of(terms, population)
    assert sums is not None
    others = None if made is None else replace(made, x=made.x + 1, labels={k: 0 * v for k, v in made.labels.items()})
    before = x - 1
    found = sums.slopes([(before, 0 * y, others), (x, y, made), (before, 0 * y, others)])
    assert found is not None
    next(found)
    values, gradients = next(found)
    at_once, gradients = dict(values), [gradient.clone() for gradient in gradients]
    assert [*found]  # the last one's
    torch.testing.assert_close(dict(values), at_once)
    assert torch.equal(before, x - 1)  # whose memory it is not
    return values, gradients


def write_out_one(sums: Sums | None, *batch: Any) -> tuple[TermValues, Sequence[Tensor]]:
    """What is written out for a mini-batch alone."""
    assert sums is not None
    found = sums.slopes([batch])
    assert found is not None
    (one,) = found
    return one


@pytest.fixture(autouse=True, params=["few rows", "many rows"])
def by_numpy_or_torch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The layers of few rows are numpy's, those of many torch's."""
    if request.param == "many rows":
        monkeypatch.setattr(traces, "_SMALL", 0)


@pytest.mark.parametrize("some_count", [False, True])
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("name", TERMS)
def test_slopes_of_terms_are_those_of_autograd(name: str, network: str, some_count: bool) -> None:
    terms, size = TERMS[name], 2
    population = Population([NETWORKS[network](seed) for seed in range(size)])
    x, y = draw(size, B, D), torch.arange(B).remainder(K).expand(size, -1)
    made = blocks(size, some_count=some_count)
    values, gradients = write_out(terms, population, x, y, made)
    total, by_name = add_up(terms, population, x, y, made)
    expected = torch.autograd.grad(total.sum(), population.trainable())
    assert all(gradient.abs().max() > 1e-4 for gradient in expected)
    for gradient, theirs in zip(gradients, expected, strict=True):
        assert gradient is not None
        torch.testing.assert_close(gradient, theirs, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(values, {"loss": total, **by_name})


@pytest.mark.parametrize("made", [None, Blocks(draw(1, 0, D), {"x_ce": torch.zeros(1, 0, dtype=torch.int64)})])
def test_without_blocks_only_the_real_rows_are_learnt_from(made: Blocks | None) -> None:
    population = Population([NETWORKS["mlp"](0)])
    x, y = draw(1, B, D), torch.arange(B).remainder(K).unsqueeze(0)
    values, gradients = write_out(TERMS["all"], population, x, y, made)
    total, _ = add_up({"yloss": TERMS["all"]["yloss"]}, population, x, y)
    expected = torch.autograd.grad(total.sum(), population.trainable())
    assert set(values) == {"loss", "yloss"}
    torch.testing.assert_close(list(gradients), list(expected))


def test_a_term_that_does_not_know_its_slopes_is_differentiated_with_all_others() -> None:
    @needs("x_ce")
    def own(state: TermState) -> Tensor:
        return state["x_ce"].mean(state["x_ce"].logits.square().sum(-1))

    population = Population([NETWORKS["mlp"](seed) for seed in range(2)])
    terms: Terms = {**TERMS["all"], "own": (0.5, own)}
    x, y, made = draw(2, B, D), torch.arange(B).remainder(K).expand(2, -1), blocks(2, some_count=False)
    assert Sums.of(terms, population) is None
    _, gradients = slopes(terms, population, x, y, made)
    total, _ = add_up(terms, population, x, y, made)
    torch.testing.assert_close(list(gradients), list(torch.autograd.grad(total.sum(), population.trainable())))


def test_what_is_trained_may_change_between_mini_batches() -> None:
    population = Population([NETWORKS["mlp"](0)])
    sums = Sums.of({"yloss": (1.0, yloss)}, population)
    x, y = draw(1, B, D), torch.arange(B).remainder(K).unsqueeze(0)
    first = population.parameters["0.weight"]
    for trained in (False, True):
        first.requires_grad_(trained)
        first.data = first.data + 1  # and lie elsewhere
        found = write_out_one(sums, x, y, None)
        total, _ = add_up({"yloss": (1.0, yloss)}, population, x, y)
        torch.testing.assert_close(
            list(found[1]), list(torch.autograd.grad(total.sum(), population.trainable())), rtol=1e-10, atol=1e-12
        )


def test_under_autocast_nothing_is_written_out_though_it_was_before() -> None:
    population = Population([mlp(D, K)])
    sums, x = Sums.of({"yloss": (1.0, yloss)}, population), draw(1, B, D).float()
    y = torch.arange(B).remainder(K).unsqueeze(0)
    assert sums is not None
    assert sums.slopes([(x, y, None)]) is not None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert sums.slopes([(x, y, None)]) is None


@pytest.mark.parametrize("weight", [0.5, torch.tensor(0.5, dtype=torch.float64)])
def test_which_rows_count_and_what_a_term_weighs_may_change_between_mini_batches_of_the_same_sizes(
    weight: float | Tensor,
) -> None:
    population = Population([NETWORKS["mlp"](0)])
    terms: Terms = {"yloss": (1.0, yloss), "div": (weight, div)}
    x, y, some = draw(1, B, D), torch.arange(B).remainder(K).unsqueeze(0), blocks(1, some_count=True)
    sums, every, totals = Sums.of(terms, population), replace(some, counted={}), set()
    for made in (every, every, some, every):
        if isinstance(weight, Tensor):
            weight.add_(1)
        found = write_out_one(sums, x, y, made)
        total, by_name = add_up(terms, population, x, y, made)
        torch.testing.assert_close(found[0], {"loss": total, **by_name})
        torch.testing.assert_close(list(found[1]), list(torch.autograd.grad(total.sum(), population.trainable())))
        totals.add(found[0]["loss"].item())
    assert len(totals) == (4 if isinstance(weight, Tensor) else 2)


@pytest.mark.parametrize("name", TERMS)
def test_mini_batches_that_are_laid_out_together_are_each_learnt_from_as_alone(name: str) -> None:
    """Sizes change, blocks come and go, some rows count, and the weights move in between."""
    terms, population = TERMS[name], Population([NETWORKS["mlp"](seed) for seed in range(2)])
    y = torch.arange(B).remainder(K).expand(2, -1)
    every, some = (blocks(2, some_count=count) for count in (False, True))
    others = replace(some, counted={k: ~v for k, v in some.counted.items()}, taught={"x_ce": draw(2, M, K).sigmoid()})
    batches = [(draw(2, B, D) + i, y, made) for i, made in enumerate((every, every, some, others, None))]
    batches += [(x[:, :4], y[:, 1:5], made) for x, y, made in batches[1:4]]
    told, expected, sums = [], [], Sums.of(terms, population)
    assert sums is not None
    found = sums.slopes(batches)
    assert found is not None
    for (values, gradients), batch in zip(found, batches, strict=True):
        total, by_name = add_up(terms, population, *batch)
        by_autograd = torch.autograd.grad(total.sum(), population.trainable(), allow_unused=True)
        torch.testing.assert_close(list(gradients), list(by_autograd), rtol=1e-10, atol=1e-12)
        told.append(values)
        expected.append({"loss": total, **by_name})
        with torch.no_grad():
            for parameter, gradient in zip(population.trainable(), gradients, strict=True):
                parameter -= 0.1 * gradient
    for values, theirs in zip(told, expected, strict=True):
        torch.testing.assert_close(dict(values), theirs)
    assert len({float(values["loss"][0]) for values in told}) == len(batches)


def test_rows_that_do_not_count_have_no_slope() -> None:
    population = Population([NETWORKS["mlp"](0)])
    x, y, made = draw(1, B, D), torch.arange(B).remainder(K).unsqueeze(0), blocks(1, some_count=True)
    none = torch.zeros_like(made.counted["x_ce"])
    made = replace(made, counted={"x_ce": none, "x_plus": none})
    _, gradients = write_out({"div": (1.0, div), "ridge": (1.0, ridge)}, population, x, y, made)
    assert all(gradient is not None and not gradient.any() for gradient in gradients)
