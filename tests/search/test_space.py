import torch
from torch import nn

from countertrain.constraints import Constraints
from countertrain.search.generators import eccco
from countertrain.search.space import FeatureSpace, LatentSpace
from countertrain.search.vae import fit_vae
from countertrain.testing import toy_rows


def test_in_feature_space_a_row_is_its_own_state_and_the_projected_row_the_next_one() -> None:
    space, z, x = FeatureSpace(), torch.zeros(1, 2, 3), torch.ones(1, 2, 3)
    assert space.encode(x) is x
    assert space.decode(z) is z
    assert space.settle(z, x) is x


def test_kept_categories_go_on_from_where_they_were_but_never_beyond_what_a_category_can_be() -> None:
    z = torch.tensor([[[0.3, -0.5, 0.4, 1.7]]])
    x = torch.tensor([[[0.2, 0.0, 0.0, 1.0]]])
    state = FeatureSpace(keep=(slice(1, 4),)).settle(z, x)
    assert torch.equal(state, torch.tensor([[[0.2, 0.0, 0.4, 1.0]]]))
    assert torch.equal(x, torch.tensor([[[0.2, 0.0, 0.0, 1.0]]]))


def test_latent_space_is_entered_at_the_mean_and_never_re_encoded() -> None:
    rows, _ = toy_rows()
    vae = fit_vae(rows, epochs=2)
    space = LatentSpace(vae)
    z = space.encode(rows.unsqueeze(0))
    assert torch.equal(z, vae.encode(rows.unsqueeze(0))[0])
    assert torch.equal(space.decode(z), vae.decode(z))
    assert space.settle(z, rows) is z


def test_categories_change_where_their_progress_is_kept_and_never_where_it_is_not() -> None:
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 1.0, 0.0, 0.0], [0.0, -1.0, 2.0, 0.0]]))
        model.bias.zero_()
    group = slice(1, 4)
    factual = torch.tensor([[0.3, 1.0, 0.0, 0.0]]).repeat(5, 1)
    target = torch.ones(5, dtype=torch.int64)
    limits = Constraints.of(4, lower=-1.0, upper=1.5, categories=[group])
    kept, lost = (
        eccco(space=FeatureSpace(keep=keep), n_steps=30, tau=0.7)(model, factual, target, constraints=limits)
        for keep in ((group,), ())
    )
    for found in (kept, lost):
        assert torch.equal(found.x[:, group].sum(1), torch.ones(5))
        assert set(found.x[:, group].unique().tolist()) == {0.0, 1.0}
    assert kept.mature.all()
    assert torch.equal(kept.x[:, group], torch.tensor([[0.0, 1.0, 0.0]]).repeat(5, 1))
    assert torch.equal(lost.x[:, group], factual[:, group])
    assert 1 < kept.n_steps.float().mean() < 30
