"""Compiled steps are the same steps."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch._inductor.exc import InductorError, InvalidCxxCompiler

from countertrain.constraints import Constraints
from countertrain.models.architectures import mlp, piecewise
from countertrain.models.kernels import CompilerError, compiled, find_compiler
from countertrain.models.population import Population
from countertrain.search import generator
from countertrain.search.generators import eccco
from countertrain.search.losses import predict
from countertrain.training.methods import CounterfactualMethod, bl, ct, taught
from countertrain.training.trainer import CounterfactualTrainer

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's compiler warns about itself


def test_a_compiled_search_finds_what_the_plain_one_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(80, 3, generator=torch.Generator().manual_seed(0))
    models = [mlp(3, 2, seed=i) for i in range(2)]
    CounterfactualTrainer(epochs=10, batch_size=8, objective=bl()).fit(models, x, (x[:, 0] > 0).long())
    rows = x.expand(2, -1, -1)
    with torch.no_grad():
        target = 1 - predict(Population(models)(rows))
    constraints = Constraints.infer(x, mutability={1: "increase", 2: "none"})
    # whole blocks of steps alone: each size of a block is compiled, and training below compiles single steps
    monkeypatch.setattr(generator, "_blocks", lambda n_steps: ((k, 2) for k in range(1, n_steps, 2)))
    plain = eccco(tau=[0.5, 0.6], n_steps=18)
    found = plain(models, rows, target, constraints=constraints)
    fast = replace(plain, compiled=True)(models, rows, target, constraints=constraints)
    assert found.mature.any()
    assert not found.mature.all()
    assert found.n_steps.unique().numel() > 4  # rows left the active set on the way
    assert torch.equal(fast.mature, found.mature)
    assert torch.equal(fast.n_steps, found.n_steps)
    for name in ("x", "nascent"):
        assert torch.allclose(getattr(fast, name), getattr(found, name), atol=1e-5)


def test_a_compiler_that_fails_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_compiler(*args: object, **options: object) -> Callable[..., None]:
        def fail(*args: object) -> None:
            raise InductorError(InvalidCxxCompiler(), None)

        return fail

    monkeypatch.setattr(torch, "compile", no_compiler)
    with pytest.raises(CompilerError, match=r"No working C\+\+ compiler.*install a C\+\+ compiler.*--no-compile"):
        compiled.__wrapped__(abs)(1)


def test_the_compiler_is_found_or_not() -> None:
    with torch._inductor.config.patch({"cpp.cxx": (None, sys.executable)}):
        assert find_compiler() == sys.executable
    with torch._inductor.config.patch({"cpp.cxx": (None, "/no/such/compiler")}):
        assert find_compiler() is None


@pytest.mark.parametrize(
    ("build", "method"),
    [
        (mlp, ct(generator=eccco(tau=0.5, n_steps=5), n_ce=20)),
        (
            partial(piecewise, numbers=[1], n_pieces=4),
            taught(teacher=LogisticRegression(), generator=eccco(tau=0.5, n_steps=5), n_ce=20),
        ),
    ],
    ids=["mlp by ct", "piecewise by taught"],
)
def test_a_model_trained_with_compiled_code_is_the_same_model(
    build: Callable[..., nn.Module], method: CounterfactualMethod
) -> None:
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(1))
    y = (x[:, 0] > 0).long()
    models = [[build(2, 2, hidden=(8,), seed=i) for i in range(2)] for _ in range(2)]
    plain = CounterfactualTrainer(method, epochs=3, batch_size=30, seed=(0, 1))
    histories = [
        trainer.fit(m, x, y) for trainer, m in zip((plain, replace(plain, compiled=True)), models, strict=True)
    ]
    assert any(histories[0]["div"][-1])
    for compiles, trained in ((True, histories[1]), (False, histories[0])):
        assert (trained.records[0].compile_seconds > 0) == compiles
        assert all(record.seconds > 0 for record in trained.records)  # compiling is apart
    for one, other in zip(models[0], models[1], strict=True):
        for a, b in zip(one.parameters(), other.parameters(), strict=True):
            assert torch.allclose(a, b, atol=1e-5)
