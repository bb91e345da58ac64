import torch

from countertrain.search.space import FeatureSpace, LatentSpace
from countertrain.search.vae import fit_vae
from countertrain.testing import toy_rows


def test_in_feature_space_a_row_is_its_own_state_and_the_projected_row_the_next_one() -> None:
    space, z, x = FeatureSpace(), torch.zeros(1, 2, 3), torch.ones(1, 2, 3)
    assert space.encode(x) is x
    assert space.decode(z) is z
    assert space.settle(z, x) is x


def test_latent_space_is_entered_at_the_mean_and_never_re_encoded() -> None:
    rows, _ = toy_rows()
    vae = fit_vae(rows, epochs=2)
    space = LatentSpace(vae)
    z = space.encode(rows.unsqueeze(0))
    assert torch.equal(z, vae.encode(rows.unsqueeze(0))[0])
    assert torch.equal(space.decode(z), vae.decode(z))
    assert space.settle(z, rows) is z
