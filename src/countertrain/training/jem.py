"""A classifier as an energy-based model (JEM): real rows are contrasted with samples of the model itself."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from countertrain.models.population import Models, Weight, member
from countertrain.search import generators
from countertrain.search.generator import Generator
from countertrain.training.adversarial import search_rows
from countertrain.training.ct import yloss
from countertrain.training.method import Blocks, Session, Task, Terms, TermState, needs
from countertrain.training.sums import BlockRows, Shares

__all__ = ["EnergyMethod", "gap", "jem", "marginal_gap", "size"]


def _share_gap(rows: Mapping[str, BlockRows]) -> dict[str, Shares]:
    share = rows["x"].share
    return {"x": Shares(energy=share), "x_sgld": Shares(energy=-share)}


@needs("x", "x_sgld", shares=_share_gap)
def gap(state: TermState) -> Tensor:
    """Energy of real rows in their class, less that of samples of the same class."""
    return (state["x"].energy - state["x_sgld"].energy).mean(-1)


def _share_marginal_gap(rows: Mapping[str, BlockRows]) -> dict[str, Shares]:
    share = rows["x"].share
    return {"x": Shares(energy=share, loss=-share), "x_sgld": Shares(energy=-share, loss=share)}


@needs("x", "x_sgld", shares=_share_marginal_gap)
def marginal_gap(state: TermState) -> Tensor:
    """The same in whatever class: minus the logsumexp of the logits, which is the energy less the cross-entropy."""
    real, sampled = state["x"], state["x_sgld"]
    return ((real.energy - real.loss) - (sampled.energy - sampled.loss)).mean(-1)


@needs("x", "x_sgld", shares=lambda rows: dict.fromkeys(("x", "x_sgld"), Shares(square=rows["x"].share)))
def size(state: TermState) -> Tensor:
    """Size of both energies: without it they run away."""
    return (state["x"].energy.square() + state["x_sgld"].energy.square()).mean(-1)


@dataclass(frozen=True)
class EnergyMethod:
    """Named terms over samples that the model itself draws, from a buffer that goes on from batch to batch."""

    terms: Terms
    sample: Generator
    n_kept: int = 10_000
    """Samples in the buffer."""
    restart: float = 0.05
    """Share of samples that begin anew, anywhere within the range of the training rows."""

    def __post_init__(self) -> None:
        if self.n_kept < 1:
            raise ValueError(f"n_kept must be at least 1; got {self.n_kept}")
        if not 0 <= self.restart <= 1:
            raise ValueError(f"restart is a share of the samples, between 0 and 1; got {self.restart}")

    def bind(self, task: Task) -> Session:
        """The method on training rows."""
        return _EnergySession(self, task)

    def member(self, i: int) -> Self:
        """The method of model i alone."""
        return replace(self, terms={name: (member(weight, i), term) for name, (weight, term) in self.terms.items()})


class _EnergySession(Session):
    """Draws samples, and keeps them."""

    def __init__(self, method: EnergyMethod, task: Task) -> None:
        self._method, self._task, self._draw = method, task, task.sampler.draw
        self._low, self._high = task.x.amin(0), task.x.amax(0)
        self._kept = self._begin(method.n_kept)  # (P, n_kept, *shape)

    def rows(self, model: Models, x: Tensor, y: Tensor) -> Blocks:
        """A sample for each row of the mini-batch, of its class."""
        n = y.shape[1]
        place = self._draw(lambda stream: torch.randint(self._method.n_kept, (n,), generator=stream))
        afresh = self._draw(lambda stream: torch.rand(n, generator=stream)) < self._method.restart
        models = torch.arange(len(place), device=place.device).unsqueeze(-1)
        afresh = afresh.view(*afresh.shape, *[1] * (x.ndim - 2))
        start = torch.where(afresh, self._begin(n), self._kept[models, place])
        samples = search_rows(self._task, self._method.sample, model, start, y)
        self._kept[models, place] = samples
        return Blocks.of(x_sgld=(samples, y))

    def state(self) -> dict[str, Tensor]:
        """The buffer."""
        return {"kept": self._kept}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """The buffer as it was."""
        self._kept = state["kept"].to(self._kept)

    def _begin(self, n: int) -> Tensor:
        """n rows anywhere within the range of the training rows, (P, n, *shape)."""
        shape, dtype = (n, *self._task.x.shape[1:]), self._task.x.dtype
        return self._low + (self._high - self._low) * self._draw(
            lambda stream: torch.rand(shape, generator=stream, dtype=dtype)
        )


def jem(
    *,
    lambda_clf: Weight = 1.0,
    lambda_div: Weight = 0.2,
    lambda_reg: Weight = 0.1,
    n_steps: int = 30,
    step_size: float = 0.1,
    noise: float = 0.01,
    n_kept: int = 10_000,
    restart: float = 0.05,
    conditional: bool = True,
) -> EnergyMethod:
    """A joint energy-based model: real rows against samples by SGLD, of their own class as tables have it.

    The original (Grathwohl et al. 2020) is `conditional=False, lambda_div=1, lambda_reg=0, step_size=1, n_steps=20`:
    samples of any class, no ridge, and steps for pixels between 0 and 1.
    """
    sample = generators.langevin(step_size=step_size, noise=noise, n_steps=n_steps, conditional=conditional)
    terms: Terms = {
        "yloss": (lambda_clf, yloss),
        "gap": (lambda_div, gap if conditional else marginal_gap),
        "size": (lambda_reg, size),
    }
    return EnergyMethod(terms, sample, n_kept, restart)
