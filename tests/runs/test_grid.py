"""Grids of settings are split into populations, and give each run what it would get alone."""

from pathlib import Path

import pandas as pd
import pytest

from countertrain.runs import grid as module
from countertrain.runs.grid import compute_population, expand, populations, run_population
from countertrain.runs.registry import VARYING
from reproduction import grids
from reproduction.grids import GRIDS, grid_tasks, has_records, read_grid, render_grid

SMALL = {"epochs": 2, "n_ce": 60, "batch_size": 500}


@pytest.mark.parametrize(
    ("name", "n_runs", "n_populations"),
    [
        ("grid gen-params", 270, 10),
        ("grid penalties", 270, 4),
        ("grid training", 48, 26),
        ("tune key", 18, 2),
        ("tune lr", 18, 6),
    ],
)
def test_the_papers_grids_have_its_number_of_runs_in_few_populations(
    name: str, n_runs: int, n_populations: int
) -> None:
    runs = expand("moons", GRIDS[name].values)
    assert len(runs) == n_runs
    assert len({run.to_toml() for run in runs}) == n_runs
    groups = populations(runs, largest=135)
    assert len(groups) == n_populations
    assert sum(len(group) for group in groups) == n_runs


def test_the_runs_of_a_population_differ_only_where_they_may() -> None:
    for group in populations(expand("moons", GRIDS["grid gen-params"].values), largest=10):
        assert len(group) <= 10
        if group[0].objective == "ct":
            assert len({run.model_dump_json(exclude=set(VARYING)) for run in group}) == 1
        assert len({run.seeds for run in group}) == len(group)


def test_a_run_gets_in_a_population_what_it_gets_alone() -> None:
    runs = expand("moons", {"tau": (0.5, 0.9), "lambda_div": (0.1, 2.0)}, **SMALL)
    together = run_population(runs, rounds=2, individuals=30)
    assert list(together["tau"]) == [0.5, 0.5, 0.9, 0.9]
    assert together["accuracy"].nunique() > 1
    for i in (1, 3):
        alone = run_population([runs[i]], rounds=2, individuals=30)
        assert alone["accuracy"][0] == pytest.approx(together["accuracy"][i], abs=2e-3)
        assert alone["mature"][0] == pytest.approx(together["mature"][i], abs=0.02)


def test_a_stored_population_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = expand("moons", {"tau": (0.5, 0.9)}, **SMALL)
    path = tmp_path / "a" / "one.csv"
    compute_population(runs, path, rounds=2, individuals=20)
    first = path.read_text()
    monkeypatch.setattr(module, "run_population", lambda *args, **kwargs: pytest.fail("computed again"))
    compute_population(runs, path)
    assert path.read_text() == first


def test_a_grid_is_rendered_from_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {name: values[:2] if name != "objective" else values for name, values in GRIDS["tune key"].values.items()}
    monkeypatch.setitem(grids.GRIDS, "tune key", grids.GridSearch("tiny", small))
    monkeypatch.setattr(grids, "_DEFAULTS", {"tau": 0.75, "lambda_reg": 0.1, **SMALL})
    for task in grid_tasks("tune key", "moons", tmp_path):
        task.work()
    frame = read_grid("tune key", "moons", tmp_path)
    assert len(frame) == 8
    paths = render_grid("tune key", "moons", tmp_path, tmp_path / "rendered")
    assert {path.suffix for path in paths} == {".png", ".svg", ".csv", ".md", ".tex"}
    table = pd.read_csv(tmp_path / "rendered" / "tune-key-moons-tau.csv")
    assert set(table["generator"]) == {"eccco", "none (BL)"}
    assert has_records("tune key", "moons", tmp_path)
    assert not has_records("tune lr", "moons", tmp_path)
