"""What all tests share: one thread, repeatable hypothesis, and small problems on which things really happen."""

import copy
import os
from collections.abc import Callable, Iterator
from functools import cache

# Some virtual machines offer AMX and do not let anybody use it: bfloat16 products would end the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
# Tests go on side by side: threads of scikit-learn and of BLAS would wait for each other's cores, and not quietly.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import settings
from torch import Tensor, nn

from countertrain.judge import panel
from countertrain.report import audit, write
from countertrain.testing import toy_model, toy_rows

torch.set_num_threads(1)
settings.register_profile("countertrain", deadline=None, max_examples=50, derandomize=True, database=None)
settings.load_profile("countertrain")


@pytest.fixture(scope="session", autouse=True)
def _quick_reports() -> Iterator[None]:
    """A report rests on few rounds and trees: what it says is the same, and only the numbers are less certain."""
    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get("COUNTERTRAIN_WRITE_DOCUMENTS"):
            patch.setattr(audit, "ROUNDS", 4)
            patch.setattr(audit, "INDIVIDUALS", 20)
            patch.setattr(write, "_TAUS_JUDGED", ())  # beside the default: tests/judge has a curve
            patch.setattr(panel, "N_TREES", 20)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_wait_for_disks() -> Iterator[None]:
    """Nobody cuts the power of a test: what is written need not reach the disk, but must be a file that is open."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    """Layers that a test builds with torch's own initialisation are the same in every run and order."""
    torch.manual_seed(0)


@pytest.fixture
def rows() -> tuple[Tensor, Tensor]:
    """48 rows (n, 3) in float64 of three classes that touch, and their classes."""
    return toy_rows()


@pytest.fixture
def model(fresh: Callable[..., nn.Module]) -> nn.Module:
    """A small network fitted to `rows`."""
    return fresh()


@pytest.fixture
def models(fresh: Callable[..., nn.Module]) -> list[nn.Module]:
    """Three networks fitted to `rows` from different starts."""
    return [fresh(seed) for seed in range(3)]


@pytest.fixture
def fresh() -> Callable[..., nn.Module]:
    """fresh(seed): each time a new copy of a network fitted to `rows`, so that its counterfactuals mature."""
    return lambda seed=0: copy.deepcopy(_fitted(seed))


@cache
def _fitted(seed: int) -> nn.Module:
    return toy_model(*toy_rows(), seed=seed)


@pytest.fixture
def weights() -> Callable[[nn.Module], Tensor]:
    """All weights and buffers of a module as one vector, a copy."""
    return lambda module: torch.cat([t.detach().double().flatten().clone() for t in module.state_dict().values()])
