"""Models that decide together say as one population what they say one by one."""

import copy

import pytest
import torch
from torch import nn

from countertrain.models.architectures import Ensemble, linear, mlp, piecewise
from countertrain.models.deciding import Committee, as_one, as_searchable, logits_of
from countertrain.search.generators import generic
from countertrain.search.rules import SGD


@pytest.mark.parametrize("make", [mlp, linear, piecewise])
def test_a_committee_says_what_an_ensemble_says_and_has_its_slopes(make: type[nn.Module]) -> None:
    models = [make(3, 2, seed=seed).double() for seed in range(3)]
    x = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    alone, together = Ensemble(models)(x), Committee(models)(x.unsqueeze(0)).squeeze(0)
    torch.testing.assert_close(together, alone)
    assert not torch.allclose(alone, models[0](x).log_softmax(-1))
    slopes = [torch.autograd.grad(logits[:, 1].sum(), x, retain_graph=True)[0] for logits in (alone, together)]
    torch.testing.assert_close(*slopes)


def test_a_search_with_a_committee_finds_what_one_with_an_ensemble_finds() -> None:
    ensemble = Ensemble([mlp(3, 2, seed=seed) for seed in range(3)])
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    target = 1 - logits_of(ensemble, x).argmax(-1)
    search = generic(tau=0.51, n_steps=60, rule=SGD(0.5))
    fast, slow = search(as_searchable(ensemble), x, target), search(ensemble, x, target)
    assert isinstance(as_searchable(ensemble), Committee)
    assert slow.mature.any()
    torch.testing.assert_close(fast.x, slow.x, atol=1e-5, rtol=1e-5)


def test_models_that_cannot_be_stacked_stay_an_ensemble_and_one_model_stays_itself() -> None:
    mixed = Ensemble([mlp(3, 2), linear(3, 2)])
    assert as_searchable(mixed) is mixed
    one = mlp(3, 2)
    assert as_searchable(one) is one


def test_many_rows_are_decided_on_in_parts_as_all_at_once() -> None:
    models = [piecewise(3, 2, seed=seed) for seed in (0, 1)]
    x = torch.randn(2500, 3, generator=torch.Generator().manual_seed(0))
    whole = copy.deepcopy(as_one(models)).double()(x.double())
    torch.testing.assert_close(logits_of(as_one(models), x), whole, rtol=1e-10, atol=1e-10)
