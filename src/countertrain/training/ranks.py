"""One training run on several processes, the ranks that torchrun starts.

Every rank holds all weights and draws the same random numbers. Of each search and of each forward pass it computes its
share of the rows; what was found, and the logits, are exchanged. So every rank sees the objective of the whole
mini-batch, but only the logits of its own rows lead back to the weights: the gradients of the ranks *add up* to those
of one process, whatever the terms of the objective, and no mean is ever weighted by the pairs that a rank counts.

DistributedDataParallel averages the gradients of local means, which is something else where ranks count different
numbers of pairs; and it wraps a module, whereas the stacked parameters of a population are plain tensors. One
all-reduce of all gradients as one vector does what is left of its work.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

import torch
from torch import Tensor
from torch import distributed as dist
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from countertrain.models.population import Models, Population

__all__ = ["ALONE", "RankLostError", "Ranks", "Shared", "first_to_report", "joined", "share_out", "unshared"]


class RankLostError(RuntimeError):
    """Another rank has ended, so that this one cannot go on."""


@dataclass(frozen=True)
class Ranks:
    """Which of how many processes this one is; for the only one, every method is a no-op."""

    rank: int = 0
    size: int = 1

    @classmethod
    def here(cls) -> Self:
        """The ranks of torch.distributed, once it is initialised (see `joined`)."""
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size())
        return cls()

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes files, shows progress and calls back."""
        return self.rank == 0

    def share(self, n: int) -> slice:
        """The part of n rows that is this rank's; the parts follow one another, and differ by at most one row."""
        return slice(self.rank * n // self.size, (self.rank + 1) * n // self.size)

    def gather(self, share: Tensor, n: int) -> Tensor:
        """All n rows, (P, n, ...), from the share of each rank; gradients flow into this rank's own rows only."""
        if self.size == 1:
            return share
        mine = self.share(n)
        everyone = share.new_zeros(len(share), n, *share.shape[2:])
        everyone[:, mine] = share.detach()
        _together(dist.all_reduce, everyone)  # shares need not be of one size; zeros add nothing
        return torch.cat([everyone[:, : mine.start], share, everyone[:, mine.stop :]], dim=1)

    def add_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Put into each parameter's gradient the sum over the ranks."""
        if self.size > 1:
            gradients = [p.grad for p in parameters if p.grad is not None]
            flat = torch.cat([g.reshape(-1) for g in gradients])
            _together(dist.all_reduce, flat)
            for gradient, total in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
                gradient.copy_(total.view(gradient.shape))  # in place: it lies as its parameter does

    def follow_first(self, tensors: Iterable[Tensor]) -> None:
        """Give every rank the values that the first one has."""
        if self.size > 1:
            for tensor in tensors:
                _together(dist.broadcast, tensor.detach(), src=0)

    def any(self, answer: bool) -> bool:
        """Whether any rank says yes."""
        if self.size == 1:
            return answer
        said = torch.tensor([answer], dtype=torch.int32)
        _together(dist.all_reduce, said)
        return bool(said)

    def wait(self) -> None:
        """Go on when all ranks have come here."""
        self.any(False)


ALONE = Ranks()


@dataclass(frozen=True, eq=False)
class Shared:
    """A population whose every call is shared out: each rank computes its part of the logits (P, n, K) of all rows."""

    population: Population
    ranks: Ranks
    batch_dependent = False  # `share_out` refuses what is

    def __len__(self) -> int:
        return len(self.population)

    def __call__(self, x: Tensor) -> Tensor:
        """Logits of every model for its own rows, on every rank."""
        n = x.shape[1]
        return self.ranks.gather(self.population(x[:, self.ranks.share(n)]), n)

    @property
    def rows_last(self) -> bool:
        """Whether (P, n, D) inputs should lie in memory as (P, D, n)."""
        return self.population.rows_last

    def trainable(self) -> list[Tensor]:
        """The parameters that an optimiser should move."""
        return self.population.trainable()

    def evaluating(self) -> AbstractContextManager[None]:
        """The models as they decide inside; afterwards each layer is as it was."""
        return self.population.evaluating()


def unshared(model: Models) -> Models:
    """The models as they are called for the rows of this rank alone."""
    return model.population if isinstance(model, Shared) else model


def share_out(population: Population, ranks: Ranks) -> Models:
    """The population as its forward passes should be called on these ranks."""
    if ranks.size == 1:
        return population
    for layer in population.modules[0].modules():
        if isinstance(layer, _BatchNorm | _DropoutNd):
            raise ValueError(
                f"{type(layer).__name__} does not treat each row by itself, so {ranks.size} ranks would train another "
                "model than one process; train it with one process, or without that layer"
            )
    return Shared(population, ranks)


@contextmanager
def joined() -> Iterator[Ranks]:
    """Inside, this process is one of the ranks that torchrun started: gloo for tensors on CPUs, nccl for CUDA.

    Without torchrun (WORLD_SIZE in the environment) it is alone; a process group that is there is used as it is.
    """
    if _world_size() == 1 or dist.is_initialized():
        yield Ranks.here()
        return
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    yield Ranks.here()
    dist.destroy_process_group()  # not after an error: the others may be waiting, and the end of the process frees them


def first_to_report() -> bool:
    """Whether this is the first rank to report why it ends: what ends all of them is said once."""
    if _world_size() == 1:
        return True
    try:
        store = dist.TCPStore(  # type: ignore[attr-defined]  # documented, but not marked as exported
            os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=timedelta(seconds=10)
        )
        return store.add(f"countertrain/ended/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", 1) == 1
    except (KeyError, ValueError, RuntimeError):  # nobody to ask: better said twice than never
        return True


def _world_size() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def _together(collective: Callable[..., Any], tensor: Tensor, **how: Any) -> None:
    try:
        collective(tensor, **how)
    except RuntimeError as error:
        raise RankLostError(
            "another rank has ended, and this run with it; what it said, or torchrun's report, tells why"
        ) from error
