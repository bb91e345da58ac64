import math

import pytest
import torch
from torch import Tensor, nn

from countertrain.models.architectures import mlp
from countertrain.models.population import Population
from countertrain.testing import check_term
from countertrain.training.ct import CounterfactualMethod, Pairs, advloss, div, ridge, yloss
from countertrain.training.method import Blocks, Term, add_up, needs
from countertrain.training.methods import ar, bl, cd, ct
from countertrain.training.trainer import CounterfactualTrainer


class Lookup(nn.Module):
    """A model whose logits are its input, so that terms can be computed by hand."""

    def forward(self, x: Tensor) -> Tensor:
        return x


def hand_made() -> tuple[Tensor, Tensor, Blocks]:
    """One real row and two pairs, given by their logits."""
    x, y = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[0]])
    x_ce, x_plus = torch.tensor([[[0.0, 3.0], [2.0, 0.0]]]), torch.tensor([[[0.0, 1.0], [7.0, 0.0]]])
    x_ae = torch.tensor([[[0.0, 0.0], [0.0, 2.0]]])
    return x, y, Pairs(x_ce, x_plus, x_ae, torch.tensor([[1, 0]]), torch.tensor([[0, 1]]), None).split(1)[0]


def soft(x: float) -> float:
    return math.log(1 + math.exp(x))


BY_HAND = {
    "yloss": soft(-1.0),  # logits 1, 0 and class 0
    "div": ((3 - 1) + (2 - 7)) / 2,  # logit of the counterfactual less that of its neighbour
    "ridge": ((9 + 1) + (4 + 49)) / 2,
    "advloss": (math.log(2) + soft(-2.0)) / 2,  # against the true label, not the target
}


@pytest.mark.parametrize("name", BY_HAND)
def test_a_term_is_what_the_equation_gives_by_hand(name: str) -> None:
    total, values = add_up(ct().terms, Population([Lookup()]), *hand_made())
    assert values[name].item() == pytest.approx(BY_HAND[name], rel=1e-6)
    weights = {"yloss": 1.0, "div": 0.5, "advloss": 0.25, "ridge": 0.1}
    assert total.item() == pytest.approx(sum(weights[n] * value for n, value in BY_HAND.items()), rel=1e-6)


def test_dropped_pairs_leave_divergence_and_ridge_but_not_the_adversarial_loss() -> None:
    x, y, group = hand_made()
    some = torch.tensor([[False, True]])
    dropped = Blocks(group.x, group.labels, {"x_ce": some, "x_plus": some})
    _, values = add_up(ct().terms, Population([Lookup()]), x, y, dropped)
    assert values["div"].item() == pytest.approx(2 - 7)
    assert values["ridge"].item() == pytest.approx(4 + 49)
    assert values["advloss"].item() == pytest.approx(BY_HAND["advloss"])


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (bl, ["yloss"]),
        (ar, ["yloss", "advloss"]),
        (cd, ["yloss", "div", "ridge"]),
        (ct, ["yloss", "div", "advloss", "ridge"]),
    ],
)
def test_an_ablation_has_its_terms_and_the_weights_it_was_given(make: object, names: list[str]) -> None:
    given = {"yloss": 2.0, "div": 3.0, "advloss": 5.0, "ridge": 7.0}
    symbols = {"yloss": "lambda_clf", "div": "lambda_div", "advloss": "lambda_adv", "ridge": "lambda_reg"}
    objective = make(**{symbols[name]: given[name] for name in names})
    assert list(objective.terms) == names
    assert objective.needs_counterfactuals == (make is not bl)
    total, values = add_up(objective.terms, Population([Lookup()]), *hand_made())
    assert list(values) == names
    assert total.item() == pytest.approx(sum(given[n] * BY_HAND[n] for n in names), rel=1e-6)


def test_without_a_group_only_the_classification_loss_is_left() -> None:
    x, y, _ = hand_made()
    total, values = add_up(ct(lambda_clf=3.0).terms, Population([Lookup()]), x, y)
    assert list(values) == ["yloss"]
    assert total.item() == pytest.approx(3 * BY_HAND["yloss"])


def test_an_empty_group_is_no_group() -> None:
    x, y, group = hand_made()
    empty = Blocks(group.x[:, :0], {name: label[:, :0] for name, label in group.labels.items()})
    total, values = add_up(ct(lambda_clf=3.0).terms, Population([Lookup()]), x, y, empty)
    assert list(values) == ["yloss"]
    assert total.item() == pytest.approx(3 * BY_HAND["yloss"])


def drawn(p: int, seed: int = 0) -> tuple[Tensor, Tensor, Blocks]:
    stream = torch.Generator().manual_seed(seed)
    x, x_ce, x_plus, x_ae = torch.randn(4, p, 6, 3, generator=stream, dtype=torch.float64)
    y, target, y_ae = torch.randint(3, (3, p, 6), generator=stream)
    return x, y, Pairs(x_ce, x_plus, x_ae, target, y_ae, None).split(1)[0]


@pytest.mark.parametrize("weight", [[0.1, 0.9], torch.tensor([0.1, 0.9]), torch.tensor([[0.1], [0.9]])])
def test_each_model_of_a_population_has_its_own_weight(weight: object) -> None:
    models = [mlp(3, 3, seed=i).double() for i in range(2)]
    x, y, group = drawn(2)
    method = CounterfactualMethod({"yloss": (1.0, yloss), "div": (weight, div)})
    total, values = add_up(method.terms, Population(models), x, y, group)
    expected = values["yloss"] + torch.tensor([0.1, 0.9], dtype=torch.float64) * values["div"]
    torch.testing.assert_close(total, expected, rtol=1e-6, atol=0)
    assert values["div"].abs().min() > 0.01
    alone = method.member(1)
    assert float(alone.terms["div"][0]) == pytest.approx(0.9)
    assert alone.terms["yloss"][0] == 1.0


def test_the_gradient_of_the_whole_objective_is_that_of_finite_differences() -> None:
    models = [mlp(3, 3, hidden=(4,), activation=nn.Tanh, seed=i).double() for i in range(2)]
    x, y, group = drawn(2)
    population = Population(models)
    names, values = zip(*population.parameters.items(), strict=True)

    def total(*parameters: Tensor) -> Tensor:
        population.parameters = dict(zip(names, parameters, strict=True))
        return add_up(ct(lambda_div=[0.5, 2.0]).terms, population, x, y, group)[0]

    assert torch.autograd.gradcheck(total, values)
    gradients = torch.autograd.grad(total(*values).sum(), values)
    assert all(gradient.abs().sum(tuple(range(1, gradient.ndim))).min() > 1e-3 for gradient in gradients)


def test_batch_norm_statistics_see_real_rows_only() -> None:
    x, y, group = drawn(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3)).double().train()
    _, values = add_up(ct().terms, Population([model]), x, y, group)
    with torch.no_grad():
        hidden = model[0](x[0])
    torch.testing.assert_close(model[1].running_mean, 0.1 * hidden.mean(0))
    assert int(model[1].num_batches_tracked) == 1
    assert model.training
    assert model[1].training
    with torch.no_grad():  # the counterfactuals went through the statistics as they are at prediction time
        logits = model.eval()(group.x[0])
    expected = nn.functional.cross_entropy(logits[:6], group.labels["x_ae"][0])
    torch.testing.assert_close(values["advloss"][0], expected)


def test_dropout_is_active_on_real_rows_and_counterfactuals() -> None:
    x, y, group = drawn(1)
    model = nn.Sequential(nn.Linear(3, 16), nn.Dropout(0.5), nn.Linear(16, 3)).double().train()
    first, second = (add_up(ct().terms, Population([model]), x, y, group)[1] for _ in range(2))
    assert all(first[name] != second[name] for name in first)


@pytest.mark.parametrize("term", [yloss, div, ridge, advloss])
def test_every_term_keeps_the_contract(term: Term) -> None:
    check_term(term)


def test_the_contract_refuses_terms_that_break_it() -> None:
    pair = needs("x_ce", "x_plus")
    for broken, reason in (
        (pair(lambda state: div(state).sum()), r"one number per model, \(3,\); got \(\)"),
        (pair(lambda state: div(state).detach()), "differentiable in the logits"),
        (pair(lambda state: div(state) - div(state).mean()), "must not depend on the logits of another"),
        (pair(lambda state: div(state) / 0), "must be finite"),
        (pair(lambda state: yloss(state) + state["x_ce"].x.mean((0, 1, 2))), "must not look at the rows"),
        (lambda state: state.logits.mean((1, 2)) * state.logits.shape[0], "what it gets alone"),
        (pair(lambda state: div(state) / state["x_ce"].mean(torch.ones(3, 5))), "must be finite"),  # none left
    ):
        with pytest.raises(AssertionError, match=reason):
            check_term(broken)


def test_a_term_is_left_out_where_a_block_that_it_needs_is_missing() -> None:
    x, y, group = hand_made()
    only_nascent = Blocks(group.x[:, :2], {"x_ae": group.labels["x_ae"]})
    _, values = add_up(ct().terms, Population([Lookup()]), x, y, only_nascent)
    assert list(values) == ["yloss", "advloss"]
    assert values["advloss"].item() == pytest.approx(BY_HAND["advloss"])


def test_a_term_that_needs_a_block_which_nobody_makes_is_refused_with_the_nearest() -> None:
    misspelt = needs("x_ce", "x_pluss")(div)
    method = CounterfactualMethod({"yloss": (1.0, yloss), "mine": (1.0, misspelt)})
    x = torch.randn(12, 3)
    with pytest.raises(ValueError, match="the term 'mine' needs the block 'x_pluss'; did you mean 'x_plus'"):
        CounterfactualTrainer(method, epochs=1).fit(mlp(3, 2), x, torch.arange(12) % 2)
