"""Compiled code is recommended where it would save minutes, and nowhere else."""

import pytest

from countertrain.experiments.hint import compile_hint
from countertrain.experiments.settings import Settings
from countertrain.history import EpochRecord


def said(seconds: float, n_features: int = 2, metric: str = "mature", **settings: object) -> list[str]:
    """What is said of 1000 epochs, of which each takes so long."""
    heard: list[str] = []
    hint = compile_hint(Settings.resolve("moons", settings), n_features, heard.append)
    for epoch in range(1, 9):
        hint(EpochRecord(epoch, 1000, seconds * (10 if epoch == 1 else 1), {metric: [0.5]}))
    return heard


def test_a_long_run_of_a_small_model_is_told_once_what_compiling_would_save() -> None:
    assert said(1.2) == [
        "compiled code would save about 4 min of the 20 min that are left: stop with Ctrl-C, go on with --resume "
        "--compile (the weights are the same up to rounding)"
    ]
    assert "about 3 h of the 11 h" in said(40)[0]


@pytest.mark.parametrize(
    "case",
    [
        {"seconds": 0.2},  # minutes in all
        {"seconds": 1.2, "n_features": 784},
        {"seconds": 1.2, "model": "lenet"},
        {"seconds": 1.2, "generator": "revise"},
        {"seconds": 1.2, "objective": "bl"},
        {"seconds": 1.2, "metric": "yloss"},  # it burns in
    ],
)
def test_nothing_is_said_where_it_would_not_pay(case: dict[str, object]) -> None:
    assert said(**case) == []  # type: ignore[arg-type]
