"""What test_ranks.py has each of two ranks do: torchrun on_ranks.py FOLDER."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from countertrain.cli import main
from countertrain.files import write_tensors
from countertrain.models.architectures import mlp
from countertrain.runs import measure
from countertrain.runs.settings import Settings
from countertrain.runs.training import train
from countertrain.testing import toy_rows
from countertrain.training.history import EpochRecord
from countertrain.training.methods import ct
from countertrain.training.ranks import Ranks, joined
from countertrain.training.trainer import CounterfactualTrainer

CASES: dict[str, dict[str, Any]] = {
    "ct": {},
    "ar": {"objective": "ar", "generator": "generic"},
    "cd, dropped": {"objective": "cd", "immature": "drop", "early_stopping": True, "learning_rate": 0.1},
    "population": {"seeds": [3, 4], "immature": "drop", "generate": "batch", "shuffle": True, "n_neighbours": 3},
    "shares of nothing": {"n_ce": 1, "batch_size": 2999},  # 3000 rows: the last mini-batch has one, and no pairs
    "one by one": {"seeds": [3, 4], "on_nonfinite": "skip", "epochs": 2, "tau": 0.75},
}


def small(**overrides: Any) -> Settings:
    """Few epochs in which some counterfactuals mature, with odd numbers to share."""
    quick = {"epochs": 4, "batch_size": 599, "n_ce": 77, "n_steps": 15, "tau": 0.9, "learning_rate": 0.02}
    return Settings.resolve("moons", quick | overrides)


def stop_early(ranks: Ranks) -> tuple[nn.Module, list[int]]:
    """Ranks that start from different weights, of which the first one stops after two epochs of plain descent."""
    model, called = mlp(3, 3, hidden=(4,), seed=ranks.rank).double(), []

    def enough(record: EpochRecord) -> bool:
        called.append(record.epoch)
        return len(called) == 2

    descent = partial(torch.optim.SGD, lr=0.3)  # unlike Adam, it would notice gradients that are half as large
    trainer = CounterfactualTrainer(ct(immature="drop", n_ce=23), epochs=5, batch_size=16, optimizer=descent)
    trainer.fit(model, *toy_rows(), callbacks=[enough], ranks=ranks)
    return model, called


def refuse(ranks: Ranks, folder: Path) -> None:
    """Try to train a model that does not treat each row by itself."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 3)).double()
    try:
        CounterfactualTrainer(epochs=1).fit(model, *toy_rows(), ranks=ranks)
    except ValueError as error:
        (folder / f"refused-{ranks.rank}.txt").write_text(str(error))


def fail_on_the_second(ranks: Ranks, folder: Path) -> None:
    """The command, on a machine where one rank cannot go on."""
    if not ranks.first:

        def broken(*args: object, **named: object) -> None:
            raise ValueError("the second rank is unwell")

        measure.build_trainer = broken  # type: ignore[assignment]
    main(["train", "moons", "--out", str(folder / "failed")])


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    with joined() as ranks:
        for name, overrides in CASES.items():
            run = train(small(**overrides), folder / name, ranks=ranks)
            states = {f"{i}.{n}": t for i, model in enumerate(run.models) for n, t in model.state_dict().items()}
            write_tensors(folder / f"{name}-{ranks.rank}.safetensors", states, {})
        model, called = stop_early(ranks)
        write_tensors(folder / f"early-{ranks.rank}.safetensors", model.state_dict(), {"called": called})
        refuse(ranks, folder)
        fail_on_the_second(ranks, folder)
