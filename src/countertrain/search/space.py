"""State spaces: search in the features themselves, or in the latent space of an autoencoder."""

from dataclasses import dataclass

from torch import Tensor

from countertrain.search.vae import VAE

__all__ = ["FeatureSpace", "LatentSpace"]


@dataclass(frozen=True)
class FeatureSpace:
    """The features themselves: the projected row becomes the state.

    In a one-hot group that is projected at every step, progress would then never add up, and no category ever change.
    For the groups named in `keep`, the state keeps what it had before the projection, within [0, 1].
    """

    keep: tuple[slice, ...] = ()

    def encode(self, x: Tensor) -> Tensor:
        """x is its own state."""
        return x

    def decode(self, z: Tensor) -> Tensor:
        """z is its own row."""
        return z

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

    vae: VAE

    def encode(self, x: Tensor) -> Tensor:
        """The mean of the encoder's posterior."""
        return self.vae.encode(x)[0]

    def decode(self, z: Tensor) -> Tensor:
        """The decoder's mean."""
        return self.vae.decode(z)

    def settle(self, z: Tensor, x: Tensor) -> Tensor:
        """Go on from the latent state; the projection is applied again to its next row."""
        return z
