"""The variational autoencoder in whose latent space REVISE searches."""

import torch
from torch import Tensor, nn

from countertrain.models.layers import blank

__all__ = ["VAE", "fit_vae", "vae_loss"]


class VAE(nn.Module):
    """One hidden layer each way: sigmoid encoder with two linear heads, tanh decoder."""

    def __init__(self, n_features: int, *, n_latent: int | None = None, n_hidden: int | None = None) -> None:
        super().__init__()
        small = n_features <= 2
        self.n_features = n_features
        self.n_latent = n_latent or (2 if small else 4)
        self.n_hidden = n_hidden or (16 if small else 32)
        self.into_hidden = blank(nn.Linear, n_features, self.n_hidden)
        self.mean = blank(nn.Linear, self.n_hidden, self.n_latent)
        self.log_sigma = blank(nn.Linear, self.n_hidden, self.n_latent)
        self.out_of_latent = blank(nn.Linear, self.n_latent, self.n_hidden)
        self.out = blank(nn.Linear, self.n_hidden, n_features)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation of the posterior: (..., D) -> two of (..., L)."""
        h = torch.sigmoid(self.into_hidden(x))
        return self.mean(h), self.log_sigma(h)

    def decode(self, z: Tensor) -> Tensor:
        """The row that a latent code stands for: (..., L) -> (..., D)."""
        x: Tensor = self.out(torch.tanh(self.out_of_latent(z)))
        return x


def vae_loss(vae: VAE, x: Tensor, noise: Tensor, *, decoder_penalty: float = 0.01) -> Tensor:
    """Squared error summed over features + KL to N(0, I), both averaged over rows, + l2 of the decoder."""
    mean, log_sigma = vae.encode(x)
    reconstruction = vae.decode(mean + log_sigma.exp() * noise)
    error = (reconstruction - x).square().sum(-1).mean()
    kl = 0.5 * (mean.square() + (2 * log_sigma).exp() - 1 - 2 * log_sigma).sum(-1).mean()
    decoder = [*vae.out_of_latent.parameters(), *vae.out.parameters()]
    penalty = torch.stack([p.square().sum() for p in decoder]).sum()
    return error + kl + decoder_penalty * penalty


def fit_vae(x: Tensor, *, seed: int = 0, epochs: int = 100, batch_size: int = 50, learning_rate: float = 1e-3) -> VAE:
    """A VAE fitted to the training rows x (n, D), with Adam and shuffled batches."""
    if x.ndim != 2 or len(x) == 0:
        raise ValueError(f"x must have shape (n, D) with at least one row; got {tuple(x.shape)}")
    stream = torch.Generator().manual_seed(seed)
    vae = VAE(x.shape[1]).to(x)
    for name, parameter in vae.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        else:
            drawn = torch.empty(parameter.shape, dtype=x.dtype)
            parameter.data.copy_(nn.init.xavier_uniform_(drawn, generator=stream))
    optimizer = torch.optim.Adam(vae.parameters(), lr=learning_rate, fused=True)
    with torch.enable_grad():
        for _ in range(epochs):
            for rows in torch.randperm(len(x), generator=stream).split(batch_size):
                noise = torch.randn(len(rows), vae.n_latent, generator=stream, dtype=x.dtype).to(x.device)
                optimizer.zero_grad()
                vae_loss(vae, x[rows.to(x.device)], noise).backward()
                optimizer.step()
    return vae.requires_grad_(False).eval()
