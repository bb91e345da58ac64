"""State spaces: search in the features themselves, or in the latent space of an autoencoder."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from countertrain.search.vae import VAE, fit_vae

__all__ = ["FeatureSpace", "LatentSpace"]


@dataclass(frozen=True)
class FeatureSpace:
    """The features themselves: the projected row becomes the state.

    In a one-hot group that is projected at every step, progress would then never add up, and no category ever change.
    For the groups named in `keep`, the state keeps what it had before the projection, within [0, 1].
    """

    keep: tuple[slice, ...] = ()
    still: bool = False
    """Whether a feature that cannot move has no pull; it does not move either way, but a rule may look at its pull."""

    @property
    def direct(self) -> bool:
        """Whether the state is the row itself, before and after each step, and its gradient goes through."""
        return not self.keep and not self.still

    def encode(self, x: Tensor) -> Tensor:
        """x is its own state."""
        return x

    def decode(self, z: Tensor) -> Tensor:
        """z is its own row."""
        return z

    def pull_back(self, z: Tensor, grad: Tensor, low: Tensor | None, high: Tensor | None) -> Tensor:
        """The gradient itself."""
        return _hold(grad, low, high) if self.still else grad

    def settle(self, z: Tensor, x: Tensor) -> Tensor:
        """Go on from the projected row, but in the groups to keep from the state before it was projected."""
        if not self.keep:
            return x
        state = x.clone()
        for group in self.keep:
            state[..., group] = z[..., group].clamp(0, 1)
        return state


@dataclass(frozen=True)
class LatentSpace:
    """The latent space of a VAE, entered at the mean of the encoder and never re-encoded.

    Re-encoding after each step, as the authors' program does, adds noise to the state and makes
    immutable features drift.
    """

    vae: VAE | None = None
    """None: fitted to the training rows by `bind`."""
    seed: int = 0
    """Of the fit."""
    shape: tuple[int, ...] | None = None
    """Of a row, where it is not (D,)."""

    def bind(self, x: Tensor, y: Tensor) -> Self:
        """The space of an autoencoder of the training rows x (n, *shape)."""
        if self.vae is not None:
            return self
        shape = tuple(x.shape[1:]) if x.ndim > 2 else None
        return replace(self, vae=fit_vae(x.flatten(1), seed=self.seed), shape=shape)

    def encode(self, x: Tensor) -> Tensor:
        """The mean of the encoder's posterior."""
        return self._fitted().encode(x.flatten(2))[0]

    def decode(self, z: Tensor) -> Tensor:
        """The decoder's mean."""
        x = self._fitted().decode(z)
        return x if self.shape is None else x.unflatten(-1, self.shape)

    def pull_back(self, z: Tensor, grad: Tensor, low: Tensor | None, high: Tensor | None) -> Tensor:
        """Through the decoder; features that cannot move do not pull."""
        grad = _hold(grad, low, high)
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            return torch.autograd.grad(self.decode(z), z, grad)[0]

    def settle(self, z: Tensor, x: Tensor) -> Tensor:
        """Go on from the latent state; the projection is applied again to its next row."""
        return z

    def _fitted(self) -> VAE:
        if self.vae is None:
            raise ValueError(
                "the autoencoder of this search has not seen any rows; give one, or bind the generator to training "
                "rows: generator.bind(x, y)"
            )
        return self.vae


def _hold(grad: Tensor, low: Tensor | None, high: Tensor | None) -> Tensor:
    """The gradient, without what cannot move."""
    return grad if low is None or high is None else grad.masked_fill(low >= high, 0.0)
