"""The comparison of training methods: ranks and their critical difference, referees, cells computed once, a page."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import chi2, rankdata
from sklearn.neighbors import KernelDensity

from benchmarks.methods.__main__ import main
from benchmarks.methods.cells import Cell, Effort, is_stored
from benchmarks.methods.compute import compute_cell
from benchmarks.methods.contenders import BASELINE, CONTENDERS
from benchmarks.methods.page import write_page
from benchmarks.methods.ranks import rank
from benchmarks.methods.records import QUESTIONS, find_best, rank_methods, read_records, read_trials, reduce
from benchmarks.methods.referees import Density, log_density
from countertrain.tables.dataset import Split

STORED = Path(__file__).parents[2] / "results" / "methods"
TINY = Effort(seeds=2, rows=300, epochs=1, rounds=1, individuals=20)
NEMENYI = {3: 2.343, 4: 2.569, 5: 2.728, 6: 2.850, 7: 2.949, 8: 3.031, 9: 3.102, 10: 3.164}
"""q at 5 % for so many methods, as Demsar (2006) prints them."""


def draw_scores(n: int, k: int) -> pd.DataFrame:
    return pd.DataFrame(np.random.default_rng(k).normal(size=(n, k)), columns=[f"method {j}" for j in range(k)])


@pytest.mark.parametrize("k", NEMENYI)
def test_the_critical_difference_is_the_published_one(k: int) -> None:
    assert rank(draw_scores(7, k), better="lower").critical_difference == pytest.approx(
        NEMENYI[k] * np.sqrt(k * (k + 1) / (6 * 7)), abs=1e-3
    )


def test_ranks_and_friedman_are_those_of_the_formula() -> None:
    scores = draw_scores(6, 5)
    found = rank(scores, better="higher")
    ranks = np.stack([rankdata(-row) for row in scores.to_numpy()])
    assert found.average.to_dict() == pytest.approx(dict(zip(scores, ranks.mean(0), strict=True)))
    assert found.average.is_monotonic_increasing
    statistic = 12 * 6 / (5 * 6) * ((ranks.mean(0) ** 2).sum() - 5 * 6**2 / 4)
    assert found.p_value == pytest.approx(chi2.sf(statistic, 4))
    assert rank(scores, better="lower").average.to_dict() == pytest.approx((6 - found.average).to_dict())


def test_ties_share_their_ranks_and_a_gap_is_refused() -> None:
    scores = pd.DataFrame({"a": [1.0, 1.0], "b": [1.0, 2.0], "c": [3.0, 3.0]})
    assert rank(scores, better="lower").average.to_dict() == {"a": 1.25, "b": 1.75, "c": 3.0}
    with pytest.raises(ValueError, match="a score is missing; leave out the method or the data set"):
        rank(scores.replace(2.0, np.nan), better="lower")
    with pytest.raises(ValueError, match="two data sets and three methods at least; got 1 and 3"):
        rank(scores[:1], better="lower")


def test_the_kernel_density_is_that_of_scikit_learn() -> None:
    stream = torch.Generator().manual_seed(0)
    centres, x = (torch.randn(n, 3, generator=stream, dtype=torch.float64) for n in (80, 2500))
    theirs = KernelDensity(bandwidth="scott").fit(centres.numpy()).score_samples(x.numpy())
    constant = torch.from_numpy(theirs) - log_density(centres, x)
    torch.testing.assert_close(constant, constant[:1].expand(len(x)))


def test_real_rows_lie_in_the_middle_of_real_rows_and_strange_ones_at_the_end() -> None:
    stream = torch.Generator().manual_seed(1)
    x, y = torch.randn(4000, 2, generator=stream) * torch.tensor([1.0, 50.0]), torch.arange(4000) % 2
    x[y == 1] += 100
    density = Density.of(Split(x, y), 2)
    fresh = torch.randn(1, 500, 2, generator=stream) * torch.tensor([1.0, 50.0])
    assert float(density.place(fresh, torch.zeros(1, 500).long()).mean()) == pytest.approx(50, abs=5)
    assert float(density.place(fresh, torch.ones(1, 500).long()).max()) == 0


def test_every_method_that_is_tuned_has_as_many_trials() -> None:
    tuned = {name: len(c.trials) for name, c in CONTENDERS.items() if name not in (BASELINE, "ct") and not c.like}
    assert set(tuned.values()) == {4}


def test_a_cell_is_computed_once_with_what_it_needs(tmp_path: Path) -> None:
    cell = Cell("moons", "counternet", TINY, tmp_path)
    compute_cell(cell)
    assert is_stored(cell)
    assert is_stored(replace(cell, method=BASELINE))  # it is judged by how far it is from conventional training
    first, plain = (json.loads(one.file(0).read_text("utf-8")) for one in (cell, replace(cell, method=BASELINE)))
    assert first["accuracy"] == plain["accuracy"]  # the network beside it leaves the classifier alone
    assert set(plain) - set(first) == {"eccco", "generic"}
    assert set(first) - set(plain) == {"own"}
    written = cell.file(0).stat().st_mtime_ns
    compute_cell(cell)
    assert cell.file(0).stat().st_mtime_ns == written
    assert not is_stored(replace(cell, effort=replace(TINY, epochs=2)))


def test_a_protected_cell_takes_over_what_was_chosen(tmp_path: Path) -> None:
    cell = Cell("moons", "cd", TINY, tmp_path, protected=True)
    compute_cell(cell)
    record = json.loads(cell.file(1).read_text("utf-8"))
    chosen = json.loads(cell.tuning.read_text("utf-8"))
    assert record["trial"] == chosen["trials"][chosen["chosen"]]["settings"]
    assert record["settings"]["immutable"] == ["x1"]
    frame = read_records(tmp_path)
    assert len(frame) == 4  # conventional training and this one, two seeds each
    assert frame["sensitivity"].notna().tolist() == [False, False, True, True]


@pytest.mark.parametrize("method", [BASELINE, "ct"])
def test_a_stored_cell_comes_out_again(method: str, tmp_path: Path) -> None:
    effort = Effort()
    cell = Cell("moons", method, effort, tmp_path)
    compute_cell(cell)
    for seed in range(effort.seeds):
        ours = json.loads(cell.file(seed).read_text("utf-8"))
        stored = json.loads(replace(cell, folder=STORED).file(seed).read_text("utf-8"))
        assert ours["settings"] == stored["settings"]
        for name in ("accuracy", "auc", "pgd"):
            assert ours[name] == pytest.approx(stored[name], abs=5e-3)
        for search in ("eccco", "generic"):
            assert ours[search]["ip"] == pytest.approx(stored[search]["ip"], rel=0.02)
            assert ours[search]["cost"] == pytest.approx(stored[search]["cost"], rel=0.02)
            assert ours[search]["holds"] == pytest.approx(stored[search]["holds"], abs=0.05)


def test_reductions_pair_seeds_and_the_best_must_be_valid() -> None:
    rows = [
        ("moons", "bl", 0, 4.0, 1.0), ("moons", "bl", 1, 2.0, 1.0),
        ("moons", "ct", 0, 3.0, 1.0), ("moons", "ct", 1, 1.0, 1.0),
        ("moons", "ct-near", 0, 3.0, 1.0), ("moons", "ct-near", 1, 3.0, 1.0),
        ("moons", "ross", 0, 0.1, 0.5), ("moons", "ross", 1, 0.1, 0.5),
    ]  # fmt: skip
    records = pd.DataFrame(rows, columns=["data", "method", "seed", "eccco ip", "eccco validity"])
    reductions = reduce(records, "eccco ip")
    assert reductions[reductions["method"] == "ct"]["reduction"].tolist() == pytest.approx([25, 50])
    (best,) = find_best(records, [q for q in QUESTIONS if q.column == "eccco ip"]).to_dict("records")
    assert best["best"] == "ct: 2.00 ± 1.41"
    assert best["as good"] == "bl, ct-near"
    assert best["bl"] == "3.00 ± 1.41"
    begun = pd.concat([records, records[:2].assign(data="ol")])
    assert set(find_best(begun, [q for q in QUESTIONS if q.column == "eccco ip"])["data"]) == {"moons"}


def test_stored_records_are_complete_and_make_a_page(tmp_path: Path) -> None:
    records = read_records(STORED)
    n = records.groupby(["data", "method"]).size()
    assert set(n) == {Effort.seeds}
    efforts = [json.loads(file.read_text("utf-8"))["effort"] for file in STORED.glob("*-[0-9].json")]
    assert all(effort == asdict(Effort()) for effort in efforts)
    assert len(read_trials(STORED)) == len(n)
    page = tmp_path / "methods.md"
    names = ["methods-best", "methods-ranks", "methods-eccco", "methods-generic", "methods-spent"]
    page.write_text("".join(f"<!-- begin {name} -->\n<!-- end {name} -->\n" for name in names), encoding="utf-8")
    copied = tmp_path / "records"
    (copied / "tuning").mkdir(parents=True)
    for file in (STORED / "tuning").glob("*.json"):
        (copied / "tuning" / file.name).write_bytes(file.read_bytes())
    assert write_page(records, copied, page) == names
    text = page.read_text("utf-8")
    assert "| accuracy |" in text
    assert all(f"| {method} |" in text for method in CONTENDERS)
    drawn = {path.stem for path in (tmp_path / "methods").glob("*.svg")}
    assert drawn == {"plausibility", "cost", "accuracy", "attack", "density", "holds", "ranks"}
    assert all(found.n_blocks >= 2 for found in rank_methods(records).values())


@pytest.mark.parametrize(
    ("option", "name", "told"),
    [
        ("--methods", "jam", "there is no method 'jam'; did you mean 'jem'"),
        ("--data", "moon", "there is no data set 'moon'"),
    ],
)
def test_unknown_names_are_refused(option: str, name: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([option, name])
    assert told in " ".join(capsys.readouterr().err.split())
