"""Networks that write counterfactuals in one pass: the amortised search."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor
from torch.nn import functional

from countertrain.constraints import Constraints
from countertrain.models.architectures import mlp
from countertrain.models.kernels import keep_label
from countertrain.models.population import Models, Population, Weight, per_model
from countertrain.models.steps import fused_adam, lay_out_like, set_gradients, take_step
from countertrain.search.losses import log_odds, predict
from countertrain.search.state import SearchState

if TYPE_CHECKING:
    from countertrain.search.generator import Generator

__all__ = ["Writer", "Writing"]

_MOMENTS = ("exp_avg", "exp_avg_sq")
_BEYOND = 0.5  # of the log-odds


class Writer:
    """A network for each of P models, that writes for a row x and a class t the row x + g(x, t).

    As the start of a search it is the whole of an amortised one. It learns in turns with the models, or from those that
    are trained already.
    """

    draws = False

    def __init__(
        self,
        x: Tensor,
        n_classes: int,
        seeds: Sequence[int],
        *,
        hidden: Sequence[int],
        learning_rate: float,
        size: int = 250,
        most: int = 1000,
    ) -> None:
        d = x[0].numel()
        self._n_classes, self._size, self._most = n_classes, size, most
        self._networks = Population([mlp(d + n_classes, d, hidden=tuple(hidden), seed=seed).to(x) for seed in seeds])
        self._optimizer = fused_adam(self._networks.trainable(), lr=learning_rate)

    def __call__(self, factual: Tensor, target: Tensor, seed: Tensor) -> Tensor:
        """What is written for factuals (P, n, *shape) and targets (P, n), wherever that may be."""
        flat = factual.flatten(2)
        aim = functional.one_hot(target, self._n_classes).to(flat)
        return (flat + self._networks(torch.cat([flat, aim], dim=-1))).view(factual.shape)

    def write(self, x: Tensor, target: Tensor, constraints: Constraints | None) -> Tensor:
        """What is written, within what people can change; its derivatives are as if it had not been put there."""
        written = self(x, target, target)
        if constraints is None:
            return written
        low, high = constraints.box(x)
        admissible = constraints.project_into(written.detach(), low, high)
        pulled = torch.where(low < high, written, written.detach())  # what cannot move has nothing to learn
        return admissible + (pulled - pulled.detach())

    def improve(self, loss: Tensor) -> None:
        """A step down the loss of each model's network, (P,)."""
        slopes = torch.autograd.grad(loss.sum(), self._networks.trainable())
        set_gradients(self._networks.trainable(), slopes)
        take_step(self._optimizer)

    def practise(
        self,
        generator: "Generator",
        models: Models,
        x: Tensor,
        target: Tensor,
        constraints: Constraints | None,
    ) -> Tensor:
        """Learn from the first of rows x (P, n, *shape) and targets (P, n), some at a time; the mean loss, (P,)."""
        losses, x, target = [], x[:, : self._most], target[:, : self._most]
        with models.evaluating(), torch.enable_grad():
            for rows, aims in zip(x.split(self._size, dim=1), target.split(self._size, dim=1), strict=True):
                loss = _measure(generator, models, self.write(rows, aims, constraints), rows, aims).mean(-1)
                self.improve(loss)
                losses.append(loss.detach())
        return torch.stack(losses).mean(0)

    def state(self) -> dict[str, Tensor]:
        """The weights, and what the optimiser remembers of each, with a first axis of P models."""
        kept = {}
        for name, parameter in self._networks.parameters.items():
            kept[f"weight.{name}"] = self._lift(parameter.detach())
            for moment in _MOMENTS if parameter in self._optimizer.state else ():
                kept[f"{moment}.{name}"] = self._lift(self._optimizer.state[parameter][moment])
        first = self._optimizer.state.get(self._networks.trainable()[0], {"step": torch.zeros(())})
        return {**kept, "step": first["step"].repeat(len(self._networks))}

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Both as they were."""
        for name, parameter in self._networks.parameters.items():
            parameter.copy_(state[f"weight.{name}"].view_as(parameter))
            moments = {
                moment: lay_out_like(parameter, state[f"{moment}.{name}"].to(parameter).view_as(parameter))
                for moment in _MOMENTS
                if f"{moment}.{name}" in state
            }
            if moments:
                self._optimizer.state[parameter] = {"step": state["step"][0].clone(), **moments}

    def _lift(self, value: Tensor) -> Tensor:
        """With a first axis of P models, which a single one lacks."""
        return value if len(self._networks) > 1 else value.unsqueeze(0)


@dataclass(frozen=True, eq=False)
class Writing:
    """Where a network puts a row in one pass, once it has learnt to: beside a model that trains, or from one that is.

    It learns to have the target likelier than tau, and else as little as may be of the generator's penalties.
    """

    hidden: tuple[int, ...] = (50, 50)
    """Units of the hidden layers."""
    learning_rate: float = 3e-3
    size: int = 250
    """Rows of an update."""
    most: int = 1000
    """Rows that are learnt from before each search of a model that trains."""
    n_updates: int = 500
    """From a model that is trained already."""
    rows: tuple[Tensor, Tensor] | None = None
    """None: taken from the training rows by `bind`."""
    draws = False

    def bind(self, x: Tensor, y: Tensor) -> Self:
        """The start with the training rows x (n, *shape) of classes y (n,) to learn from."""
        return self if self.rows is not None else replace(self, rows=(x, y))

    def begin(self, x: Tensor, n_classes: int, seeds: Sequence[int]) -> Writer:
        """A network for each seed that has learnt nothing yet, for rows like x (n, *shape)."""
        return Writer(
            x, n_classes, seeds, hidden=self.hidden, learning_rate=self.learning_rate, size=self.size, most=self.most
        )

    def learn(self, generator: "Generator", models: Models, constraints: Constraints | None) -> Writer:
        """Networks that have learnt from these models, with random other classes as targets."""
        if self.rows is None:
            raise ValueError(
                "this search learns from rows, and has not seen any; bind the generator to training rows: "
                "generator.bind(x, y)"
            )
        if constraints is not None and constraints.n_rows is not None:
            constraints = None  # of other rows; what is written is put within them all the same
        x = self.rows[0].to(next(iter(models.trainable()), self.rows[0]))
        stream = torch.Generator().manual_seed(0)
        everyone = x.expand(len(models), *x.shape)
        with models.evaluating(), torch.no_grad():
            logits = models(everyone)
        predicted, n_classes = predict(logits), logits.shape[-1]
        writer = self.begin(x, n_classes, [0] * len(models))
        for _ in range(self.n_updates):
            some = torch.randint(len(x), (min(self.size, len(x)),), generator=stream).to(x.device)
            other = torch.randint(1, n_classes, (len(some),), generator=stream).to(x.device)
            target = (predicted[:, some] + other) % n_classes
            writer.practise(generator, models, everyone[:, some], target, constraints)
        return writer

    def __call__(self, factual: Tensor, target: Tensor, seed: Tensor) -> Tensor:
        """Nobody asks before it has learnt."""
        raise TypeError("a start that has to learn is made ready by Generator.prepare, which every search calls")


def _measure(generator: "Generator", models: Models, x: Tensor, factual: Tensor, target: Tensor) -> Tensor:
    """How far rows x (P, n, *shape) are from tau, in log-odds, and the generator's penalties of them: (P, n)."""
    by_class = models(x).transpose(1, 2)
    own = keep_label(by_class, target.unsqueeze(1))
    state = SearchState(x, by_class, by_class.log_softmax(1), own, x - factual, factual, target, 1, 1)
    loss = torch.relu(_aim_at(generator.tau, len(models), x) - log_odds(by_class, target))
    for weight, penalty in generator.penalties:
        loss = loss + per_model(weight, len(models), x) * penalty(state)
    return loss


def _aim_at(tau: Weight | None, size: int, like: Tensor) -> float | Tensor:
    """The log-odds to reach: a little more than those of tau, so that most rows get there."""
    if tau is None:
        raise ValueError("an amortised search learns to reach tau, and has none; give the generator a tau")
    return torch.logit(torch.as_tensor(per_model(tau, size, like)).to(like)) + _BEYOND
