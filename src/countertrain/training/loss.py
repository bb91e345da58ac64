"""A training method as a loss: called on the mini-batches of anybody's loop, and of the trainer's."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from countertrain.constraints import Constraints
from countertrain.models.kernels import compiled as compile_function
from countertrain.models.population import Models, as_population
from countertrain.training import method as the_method
from countertrain.training.batches import Rows, gather
from countertrain.training.checks import check_classes, check_dtype, check_rows, gather_rows
from countertrain.training.method import Blocks, Method, Task
from countertrain.training.methods import ct
from countertrain.training.ranks import ALONE, Ranks
from countertrain.training.sampler import Sampler
from countertrain.training.sums import Sums

__all__ = ["CounterfactualLoss", "make_task"]

Values = Mapping[str, Tensor]
Gradients = Sequence[Tensor | None]

_AHEAD = 2**20  # numbers of rows that are laid out together: an epoch of a small table, a part of a large one


def make_task(
    model: Models,
    x: Tensor,
    y: Tensor,
    *,
    constraints: Constraints | None,
    seed: int | Sequence[int],
    n_epochs: int | None,
    ranks: Ranks = ALONE,
    compiled: bool = False,
) -> Task:
    """What a method is bound to, for models that are to be trained on rows x (n, *shape) of classes y (n,)."""
    n_classes = check_classes(model, x, y)
    seeds = [seed] * len(model) if isinstance(seed, int) else list(seed)
    limits = (constraints or Constraints.infer(x)).to(x)
    if limits.n_features != x[0].numel():
        raise ValueError(f"constraints are for {limits.n_features} features, but x has {x[0].numel()}")
    limits = limits.for_shape(x.shape[1:])
    return Task(x, y, n_classes, limits, Sampler(y, n_classes, seeds), n_epochs, ranks, compiled)


def _count_dropped(reference: Any) -> int:
    """The rows that a DataLoader leaves out of every pass, because they do not fill a mini-batch."""
    if not isinstance(reference, DataLoader) or not reference.drop_last or not reference.batch_size:
        return 0
    return len(reference.dataset) % reference.batch_size  # type: ignore[arg-type]  # gathered, so it has a length


class CounterfactualLoss:
    """The loss of counterfactual training for one's own loop: `loss = ct(x, y); loss.backward(); optimizer.step()`.

    `reference` are the training rows, from which factuals and neighbours are drawn: a pair (x, y), a Dataset or a
    DataLoader. Counterfactuals are searched once per pass over them, and shared out over its mini-batches. Any other
    training method is given as `objective`; without one, `options` are those of `methods.ct`: generator, n_ce,
    lambda_div, ... `epochs` is only needed by what is said in shares of them, such as burn_in. The trainer gives a Task
    that it has looked at itself.
    """

    def __init__(
        self,
        model: nn.Module | Sequence[nn.Module] | Models,
        reference: Any,
        *,
        objective: Method | None = None,
        constraints: Constraints | None = None,
        seed: int | Sequence[int] = 0,
        epochs: int | None = None,
        **options: Any,
    ) -> None:
        if objective is not None and options:
            raise TypeError(f"an objective has all its options already; leave out {', '.join(options)}")
        self.model = as_population(model)
        self.objective = ct(**options) if objective is None else objective
        if isinstance(reference, Task):
            own = {"constraints": constraints is not None, "seed": seed != 0, "epochs": epochs is not None}
            if any(own.values()):
                raise TypeError(
                    f"a Task has its own; leave out {', '.join(name for name, given in own.items() if given)}"
                )
            self.task = reference
        else:
            x, y = gather_rows(reference, like=self.model.trainable())
            check_rows(x, y)
            check_dtype(self.model.trainable(), x)
            self.task = make_task(self.model, x, y, constraints=constraints, seed=seed, n_epochs=epochs)
        self.sampler = self.task.sampler
        self._sums = Sums.of(self.objective.terms, self.model)
        self._dropped = _count_dropped(reference)
        self.session = self.objective.bind(self.task)
        self.epoch = 0
        """Epochs begun."""
        self.values: dict[str, Tensor] = {}
        """The terms of the last mini-batch, by name."""
        self._seen = 0  # rows of this epoch, in one's own loop
        self._last: tuple[Tensor, Tensor] | None = None  # the mini-batch that the model is learning from

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss of a mini-batch of rows (b, *shape) and classes (b,), to be differentiated by the model's weights.

        After mini-batches with as many rows as the reference has, the next epoch begins with a new search. A method
        that trains something of its own has its turn at the next call.
        """
        check_rows(x, y, name="mini-batch ", shape=self.task.x.shape[1:])
        if self._last is not None:
            self.session.after_step(self.model, *self._last)
        if self._seen == 0:
            self.begin_epoch(math.ceil(len(self.task.x) / len(x)))
        self._seen += len(x)
        if self._seen + self._dropped >= len(self.task.x):
            self._seen = 0
        if torch.is_autocast_enabled(x.device.type):
            torch.clear_autocast_cache()  # the weights have changed since they were cast
        size = len(self.model)
        self._last = x.expand(size, *x.shape), y.expand(size, *y.shape)
        blocks = self.session.rows(self.model, *self._last)
        total, values = the_method.add_up(self.objective.terms, self.model, *self._last, blocks)
        self.values = {name: value.detach() for name, value in values.items()}
        return total.sum()

    def begin_epoch(self, n_batches: int) -> None:
        """Begin an epoch of so many mini-batches; in one's own loop it begins by itself."""
        self.session.before_epoch(self.model, self.epoch, n_batches)
        self.epoch += 1

    def slopes(self, mini_batches: Iterable[Rows], *, ahead: bool = True) -> Iterator[tuple[Rows, Values, Gradients]]:
        """Each mini-batch of rows (P, b, *shape) and classes (P, b) in turn, total and terms (P,) by name, derivatives.

        The derivatives are by the trainable parameters as they are at its turn, and good until the next one. `ahead`
        lets as many mini-batches be read and laid out together as the method allows.
        """
        sums = None if self.task.compiled else self._sums
        ahead = ahead and sums is not None and sums.ahead and self.session.ahead
        for some in gather(mini_batches, _AHEAD if ahead else 1):
            batches = [(x, y, self.session.rows(self.model, x, y)) for x, y in some]
            known = None if sums is None else sums.slopes(batches)
            found = (self._differentiate(*batch) for batch in batches) if known is None else known
            for rows, (values, gradients) in zip(some, found, strict=True):
                yield rows, values, gradients

    def _differentiate(self, x: Tensor, y: Tensor, blocks: Blocks | None) -> tuple[Values, Gradients]:
        """Total and terms of a mini-batch, and the derivatives by the trainable parameters, by autograd."""
        if torch.is_autocast_enabled(x.device.type):
            torch.clear_autocast_cache()
        measure = compile_function(the_method.slopes) if self.task.compiled else the_method.slopes
        return measure(self.objective.terms, self.model, x, y, blocks)

    def state(self) -> dict[str, Tensor]:
        """What it takes to go on as if never stopped: random streams, and whatever the method keeps."""
        streams = {f"stream.{i}": stream.get_state() for i, stream in enumerate(self.sampler.streams)}
        return streams | {f"method.{name}": value for name, value in self.session.state().items()}

    def load(self, state: Mapping[str, Tensor], *, epoch: int) -> None:
        """Go back to where `state` was taken, after so many epochs."""
        for i, stream in enumerate(self.sampler.streams):
            stream.set_state(state[f"stream.{i}"])
        kept = {name.removeprefix("method."): value for name, value in state.items() if name.startswith("method.")}
        self.session.load(kept)
        self.epoch, self._seen, self._last = epoch, 0, None
