"""Step rules: how the gradient of the search objective becomes a step."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from countertrain.search.state import Memory
from countertrain.search.streams import draw_normal
from countertrain.words import refuse_attribute

__all__ = ["SGD", "Adam", "Greedy", "Langevin", "Sign"]
__getattr__ = refuse_attribute(__name__, __all__)


@dataclass(frozen=True)
class SGD:
    """Plain gradient descent."""

    step_size: float = 0.1
    draws = False

    @property
    def factor(self) -> float:
        """What the gradient is multiplied with, which is all that there is to it."""
        return -self.step_size

    def init(self, z: Tensor, seed: Tensor) -> Memory:
        """Nothing to remember."""
        return ()

    def step(self, grad: Tensor, memory: Memory, k: int) -> tuple[Tensor, Memory]:
        """Go down the gradient."""
        return grad * self.factor, memory


@dataclass(frozen=True)
class Sign:
    """A step of the same size in every feature, whichever way is down: the rule of FGSM and PGD."""

    step_size: float = 0.01
    draws = False

    def init(self, z: Tensor, seed: Tensor) -> Memory:
        """Nothing to remember."""
        return ()

    def step(self, grad: Tensor, memory: Memory, k: int) -> tuple[Tensor, Memory]:
        """Go down by the sign of the gradient."""
        return grad.sign() * -self.step_size, memory


@dataclass(frozen=True)
class Langevin:
    """Gradient descent with noise (SGLD): ends at samples instead of at the lowest point."""

    step_size: float = 0.1
    noise: float = 0.01
    draws = True

    def init(self, z: Tensor, seed: Tensor) -> Memory:
        """The seed of each row, so that its noise is its own."""
        return (seed,)

    def step(self, grad: Tensor, memory: Memory, k: int) -> tuple[Tensor, Memory]:
        """Go down the gradient, and a little anywhere."""
        return grad * -self.step_size + self.noise * draw_normal(memory[0], k, grad), memory


@dataclass(frozen=True)
class Adam:
    """Adam, with moments of its own for each row."""

    step_size: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    draws = False

    def init(self, z: Tensor, seed: Tensor) -> Memory:
        """First and second moment."""
        return torch.zeros_like(z), torch.zeros_like(z)

    def step(self, grad: Tensor, memory: Memory, k: int) -> tuple[Tensor, Memory]:
        """Bias-corrected Adam step."""
        mean = torch.lerp(grad, memory[0], self.beta1)
        square = torch.lerp(grad * grad, memory[1], self.beta2)
        scale = self.step_size / (1 - self.beta1**k)
        return -scale * mean / ((square / (1 - self.beta2**k)).sqrt() + self.eps), (mean, square)


@dataclass(frozen=True)
class Greedy:
    """A step of fixed size in the one feature with the largest gradient, in each at most so often (Schut et al.)."""

    step_size: float = 0.1
    most: int = 10
    """Steps that any one feature may make."""
    draws = False

    def init(self, z: Tensor, seed: Tensor) -> Memory:
        """The steps that each feature has made."""
        return (torch.zeros_like(z),)

    def step(self, grad: Tensor, memory: Memory, k: int) -> tuple[Tensor, Memory]:
        """Down, in one feature."""
        made = memory[0].flatten(2)
        pull = grad.flatten(2).abs().masked_fill(made >= self.most, -1.0)
        largest = functional.one_hot(pull.argmax(-1), pull.shape[-1]).bool() & (pull > 0)  # (P, n, D)
        step = torch.where(largest, grad.flatten(2).sign() * -self.step_size, 0.0)
        return step.view_as(grad), ((made + largest).view_as(grad),)
