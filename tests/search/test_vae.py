import copy

import pytest
import torch
from torch import Tensor

from countertrain.constraints import Constraints
from countertrain.search.generators import revise
from countertrain.search.vae import VAE, fit_vae, vae_loss
from countertrain.testing import toy_model, toy_rows


def reconstruction_error(vae: VAE, x: Tensor) -> float:
    return float((vae.decode(vae.encode(x)[0]) - x).square().sum(-1).mean())


def test_the_loss_is_error_plus_divergence_plus_decoder_penalty_by_hand() -> None:
    x, _ = toy_rows(n=6)
    vae = fit_vae(x, epochs=1)
    noise = torch.randn(6, vae.n_latent, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mean, log_sigma = vae.encode(x)
    sigma = log_sigma.exp()
    error = (vae.decode(mean + sigma * noise) - x).square().sum() / 6
    normal, standard = torch.distributions.Normal(mean, sigma), torch.distributions.Normal(0.0, 1.0)
    kl = torch.distributions.kl_divergence(normal, standard).sum() / 6
    decoder = sum(p.square().sum() for n, p in vae.named_parameters() if n.startswith("out"))
    torch.testing.assert_close(vae_loss(vae, x, noise), error + kl + 0.01 * decoder)
    assert min(error, kl, decoder) > 0


def test_the_gradient_of_the_loss_is_that_of_finite_differences() -> None:
    x, _ = toy_rows(n=6)
    vae = fit_vae(x, epochs=1).requires_grad_(True)
    noise = torch.randn(6, vae.n_latent, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    names, values = zip(*vae.named_parameters(), strict=True)

    def loss(*parameters: Tensor) -> Tensor:
        class Call(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.vae = vae

            def forward(self) -> Tensor:
                return vae_loss(self.vae, x, noise)

        given = {f"vae.{name}": value for name, value in zip(names, parameters, strict=True)}
        return torch.func.functional_call(Call(), given, ())

    assert torch.autograd.gradcheck(loss, values, fast_mode=True)


def test_fitting_reduces_the_reconstruction_error() -> None:
    x, _ = toy_rows(dtype=torch.float32)
    start, middle, end = (reconstruction_error(fit_vae(x, epochs=epochs), x) for epochs in (0, 100, 400))
    assert end < middle < start
    assert end < 0.75 * start


def test_fitting_twice_gives_the_same_autoencoder_and_draws_nothing_from_the_global_stream() -> None:
    x, _ = toy_rows(n=60, dtype=torch.float32)
    before = torch.get_rng_state()
    first, second, other = fit_vae(x, epochs=3), fit_vae(x, epochs=3), fit_vae(x, epochs=3, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.out.weight, second.out.weight)
    assert not torch.equal(first.out.weight, other.out.weight)


@pytest.mark.parametrize(("n_features", "latent", "hidden"), [(2, 2, 16), (3, 4, 32), (100, 4, 32)])
def test_sizes_are_those_of_the_authors(n_features: int, latent: int, hidden: int) -> None:
    vae = VAE(n_features)
    assert (vae.n_latent, vae.n_hidden) == (latent, hidden)


def test_latent_search_keeps_immutable_features_bit_for_bit() -> None:
    x, y = toy_rows(dtype=torch.float32)
    model, vae = toy_model(x, y), fit_vae(x, epochs=300)
    constraints = Constraints.infer(x, mutability={0: "none", 1: "increase"})
    found = revise(vae, n_steps=60)(model, x, (y + 1) % 3, constraints=constraints)
    assert torch.equal(found.x[:, 0], x[:, 0])
    assert (found.x[:, 1] >= x[:, 1]).all()
    assert (found.x[:, 1:] != x[:, 1:]).any(0).all()
    assert found.mature.any()
    assert not found.mature.all()


def test_a_search_leaves_the_autoencoder_alone() -> None:
    x, y = toy_rows()
    model, vae = toy_model(x, y), fit_vae(x, epochs=5).requires_grad_(True)
    vae.zero_grad()
    kept = copy.deepcopy(vae.state_dict())
    revise(vae)(model, x, (y + 1) % 3)
    assert all(torch.equal(tensor, kept[name]) for name, tensor in vae.state_dict().items())
    assert all(p.grad is None for p in vae.parameters())


def test_no_rows_cannot_be_fitted() -> None:
    with pytest.raises(ValueError, match=r"x must have shape \(n, D\) with at least one row; got \(0, 3\)"):
        fit_vae(torch.zeros(0, 3))
