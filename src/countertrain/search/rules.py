"""Step rules: how the gradient of the search objective becomes a step."""

from dataclasses import dataclass

import torch
from torch import Tensor

from countertrain.search.state import Memory

__all__ = ["SGD", "Adam"]


@dataclass(frozen=True)
class SGD:
    """Plain gradient descent."""

    step_size: float = 0.1

    def init(self, z: Tensor) -> Memory:
        """Nothing to remember."""
        return ()

    def step(self, grad: Tensor, memory: Memory, k: int) -> tuple[Tensor, Memory]:
        """Go down the gradient."""
        return grad * -self.step_size, memory


@dataclass(frozen=True)
class Adam:
    """Adam, with moments of its own for each row."""

    step_size: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def init(self, z: Tensor) -> Memory:
        """First and second moment."""
        return torch.zeros_like(z), torch.zeros_like(z)

    def step(self, grad: Tensor, memory: Memory, k: int) -> tuple[Tensor, Memory]:
        """Bias-corrected Adam step."""
        mean = torch.lerp(grad, memory[0], self.beta1)
        square = torch.lerp(grad * grad, memory[1], self.beta2)
        scale = self.step_size / (1 - self.beta1**k)
        return -scale * mean / ((square / (1 - self.beta2**k)).sqrt() + self.eps), (mean, square)
