"""Compiled code is chosen where it saves minutes, and nowhere else."""

import pytest

from countertrain.runs import compile_choice
from countertrain.runs.compile_choice import choose_compiled, seconds_saved
from countertrain.runs.settings import Settings

LONG = {"seeds": list(range(64)), "epochs": 2000}  # 2000 (100 updates 0.5 ms + 64 x 1000 rows 2 us) = 356 s


def chosen(n_features: int = 2, **settings: object) -> tuple[bool, list[str]]:
    """What is chosen for 3000 rows, and what is said of it."""
    heard: list[str] = []
    return choose_compiled(Settings.resolve("moons", settings), 3000, n_features, heard.append), heard


@pytest.fixture(autouse=True)
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_choice, "find_compiler", lambda: "g++")


def test_a_long_run_of_many_small_models_is_compiled_and_told_what_that_saves() -> None:
    assert seconds_saved(Settings.resolve("moons", LONG), 3000, 2) == pytest.approx(356)
    assert chosen(**LONG) == (
        True,
        ["this run is long: compiling it first saves about 6 min (--no-compile keeps to plain code)"],
    )
    assert "about 6 h" in chosen(**LONG | {"epochs": 120_000})[1][0]


@pytest.mark.parametrize(
    "case",
    [
        {"epochs": 100},  # saves 18 s
        {"seeds": [0]},  # 104 s
        {"n_features": 784},
        {"model": "lenet"},
        {"generator": "revise"},
        {"objective": "bl"},
        {"burn_in": 0.5},  # nothing is searched in half of the epochs
    ],
)
def test_nothing_is_compiled_or_said_where_it_would_not_pay(case: dict[str, object]) -> None:
    assert chosen(**LONG | case) == (False, [])  # type: ignore[arg-type]


def test_without_a_compiler_a_long_run_stays_with_plain_code_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_choice, "find_compiler", lambda: None)
    assert chosen(**LONG) == (
        False,
        ["compiled code would save about 6 min, but there is no C++ compiler here; plain code it is"],
    )
