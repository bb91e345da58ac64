"""The benchmark: what it measures and how it tells of it; how long anything takes is not asked here."""

import math
import platform
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks import (
    Budget,
    Measurement,
    Part,
    bare_loop,
    bench,
    fastest,
    grid,
    growth,
    measuring,
    page,
    search,
    training,
    write_page,
    write_results,
)
from benchmarks.__main__ import main
from benchmarks.measuring import AbsentError, Contender, guard, race, slope
from benchmarks.peers import Peer, enter
from benchmarks.problems import Problem, problems
from countertrain.runs.grid import expand
from countertrain.runs.work import Task
from countertrain.search.generators import eccco, generic
from reproduction.grids import GRIDS

TINY = Budget(
    repeats=1,
    patience=0.0,
    n_rows=40,
    n_steps=15,
    dice_rows=1,
    compiled=False,
    sizes=(1, 2),
    epochs=1,
    growth={"n_ce": (64, 128), "T": (2, 4)},
)
PEERS = {
    "foolbox LinfPGD": "foolbox",
    "jax-relax VanillaCF, steady": "jax-relax",
    "jax-relax VanillaCF, as called": "jax-relax",
    "DiCE gradient": "dice-ml",
    "ART, AdversarialTrainerMadryPGD": "adversarial-robustness-toolbox",
}


def silent(text: str) -> None:
    pass


def installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


@pytest.fixture(scope="module")
def both() -> list[Problem]:
    """The two problems, with 40 rows to explain."""
    return problems(40)


@pytest.fixture(scope="module")
def measured() -> dict[str, Part]:
    """All parts but the grid, measured with next to no budget."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growth, "_peaks", lambda loads: [2.0**20 * load.n_ce for load in loads])  # a process each
        return {part.name: part for part in bench(budget=TINY)}


@pytest.fixture(scope="module")
def written(measured: dict[str, Part], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the results of all parts."""
    folder = tmp_path_factory.mktemp("performance")
    paths = write_results(list(measured.values()), folder, measured_on=page.machine())
    assert sorted(paths) == sorted(folder.iterdir())
    return folder


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, to be set by hand."""
    now = [0.0]
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: now[0])
    return now


# How it is measured


def test_tasks_take_turns_and_the_least_time_after_the_first_turn_counts(clock: list[float]) -> None:
    order: list[str] = []

    def task(name: str, takes: list[float]) -> None:
        order.append(name)
        clock[0] += takes.pop(0)

    tasks = [partial(task, "a", [0.1, 5.0, 4.0]), partial(task, "b", [9.0, 2.0, 3.0])]
    assert fastest(tasks, 2) == pytest.approx([4.0, 2.0])
    assert order == ["a", "b"] * 3


def test_a_task_that_has_used_up_its_patience_takes_no_more_turns_and_its_only_one_counts(clock: list[float]) -> None:
    turns = {"slow": 0, "quick": 0}

    def task(name: str, takes: float) -> None:
        turns[name] += 1
        clock[0] += takes

    assert fastest([partial(task, "slow", 60.0), partial(task, "quick", 1.0)], 5, patience=10) == [60.0, 1.0]
    assert turns == {"slow": 1, "quick": 6}


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_a_slope_is_the_exponent_of_a_power_law_whatever_its_factor(exponent: float) -> None:
    sizes = [10, 20, 40, 80]
    noise = np.exp(np.random.default_rng(0).normal(scale=0.01, size=4))
    for factor in (1e-6, 3.0):
        assert slope(sizes, list(factor * np.power(sizes, exponent) * noise)) == pytest.approx(exponent, abs=0.03)


@pytest.mark.parametrize(("sizes", "values"), [([10, 10], [1, 2]), ([10, 20], [0, 1]), ([10, 20], [1, math.nan])])
def test_a_slope_needs_two_sizes_and_positive_numbers(sizes: list[int], values: list[float]) -> None:
    with pytest.raises(ValueError, match="a slope needs two sizes and positive numbers; got"):
        slope(sizes, values)


def test_a_bar_is_passed_from_its_side_and_never_by_what_could_not_be_measured() -> None:
    claim = Measurement("speed", 1.2, "x", 1.0, True, "")
    assert claim.holds
    assert not replace(claim, at_least=False).holds
    assert not replace(claim, value=math.nan).holds
    assert not replace(claim, value=math.nan, at_least=False).holds


def test_a_contender_that_fails_is_named_with_the_reason_and_the_others_are_timed() -> None:
    said: list[str] = []
    timings = race(
        [Contender("ours", lambda: 7, "as always"), Contender("theirs", guard(lambda: 1 // 0))], TINY, said.append
    )
    assert list(timings) == ["ours", "theirs"]
    assert (timings["ours"].result, timings["ours"].note) == (7, "as always")
    assert 0 < timings["ours"].seconds < math.inf
    assert timings["theirs"].result is None
    assert math.isnan(timings["theirs"].seconds)
    assert timings["theirs"].note == "failed (ZeroDivisionError)"
    assert said == ["theirs: failed (ZeroDivisionError) (integer division or modulo by zero)"]


def test_a_contender_that_fails_in_a_later_turn_is_absent_and_tries_no_more() -> None:
    calls: list[int] = []

    def once() -> int:
        calls.append(1)
        return 1 // (2 - len(calls))

    timings = race([Contender("theirs", guard(once)), Contender("ours", lambda: 7)], replace(TINY, repeats=3), silent)
    assert timings["theirs"].note == "failed (ZeroDivisionError)"
    assert math.isnan(timings["theirs"].seconds)
    assert timings["ours"].result == 7
    assert len(calls) == 2


def test_a_failure_of_our_own_code_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        race([Contender("ours", lambda: 1 // 0)], TINY, silent)


def test_an_unknown_part_is_refused_before_anything_is_measured() -> None:
    with pytest.raises(ValueError, match=r"the benchmark has no part 'speed'; there are 'search', .*, 'grid'"):
        bench(["search", "speed"])


def test_one_thread_while_measuring_and_as_many_as_before_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def part(budget: Budget, say: Callable[[str], None]) -> Part:
        seen.append(torch.get_num_threads())
        return Part("search", pd.DataFrame(), [])

    monkeypatch.setitem(bench.__globals__["PARTS"], "search", part)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        bench(["search"])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [1]


# What is compared


def test_the_bare_loops_do_the_work_of_our_search_without_its_extras(both: list[Problem]) -> None:
    for p in both:
        plain = generic(lambda_cost=0.0, tau=1 - 1e-7, n_steps=12)(p.model, p.factual, p.target)
        full = eccco(tau=1 - 1e-7, n_steps=30)(p.model, p.factual, p.target)
        assert torch.allclose(bare_loop(p.model, p.factual, p.target, 12, energy=False), plain.x, atol=1e-4)
        assert torch.allclose(bare_loop(p.model, p.factual, p.target, 30), full.x, atol=1e-3)
        assert (plain.x - p.factual).abs().max() > 0.1


def test_no_row_matures_where_all_steps_are_timed_and_many_leave_where_they_may() -> None:
    for p in problems(1000):
        every, early = eccco(tau=search._NEVER, n_steps=30), eccco(tau=0.75, n_steps=30)
        for constraints in (p.free, p.tight):
            assert (every(p.model, p.factual, p.target, constraints=constraints).n_steps == 30).all()
        assert early(p.model, p.factual, p.target, constraints=p.free).n_steps.float().mean() < 10


def test_factuals_are_not_yet_valid_and_the_true_answer_is(both: list[Problem]) -> None:
    for p in both:
        assert p.validity(p.factual) == 0.0
        x_ce = eccco(tau=0.75)(p.model, p.factual, p.target, constraints=p.free).x
        assert p.validity(x_ce) > 0.9
        assert p.validity(x_ce[:5]) == (p.model(x_ce[:5]).argmax(1) == p.target[:5]).float().mean()


def test_jem_samples_where_the_model_finds_rows_likely_and_remembers_them(both: list[Problem]) -> None:
    p = both[1]
    x, y = p.x[:30], p.y[:30]
    loss = training.jem_loss(p)
    first = loss(p.model, x, y)
    first.backward()
    assert torch.isfinite(first)
    assert all(w.grad is not None and w.grad.abs().sum() > 0 for w in p.model.parameters())
    p.model.zero_grad()
    again = training.jem_loss(p)
    assert torch.equal(again(p.model, x, y), first)  # the same stream
    assert not torch.equal(again(p.model, x, y), first)  # other samples, from where they ended
    yloss = torch.nn.functional.cross_entropy(p.model(x), y)
    likely = p.model(x).logsumexp(-1).mean()
    assert first - yloss + likely > likely  # samples have climbed above the rows


def test_no_row_of_a_load_matures_so_that_cost_is_that_of_all_steps() -> None:
    for load in (growth.Load(n_ce=64), growth.Load(n_ce=64, n_features=256), growth.Load(n_ce=64, n_classes=64)):
        found = load.prepare()()
        assert (found.n_steps == load.n_steps).all()  # type: ignore[attr-defined]
    history = growth.Load(n_ce=30, n=60, n_steps=4).prepare()()
    assert history["n_steps"] == [[4.0]]  # type: ignore[index]


def test_the_grid_is_the_one_of_270_models() -> None:
    assert len(expand("moons", GRIDS["grid gen-params"].values)) == 270


# What is told


def test_every_measurement_has_a_value_a_bar_and_a_note(measured: dict[str, Part]) -> None:
    measurements = [m for part in measured.values() for m in part.measurements]
    assert len(measurements) >= 10
    assert len({m.what for m in measurements}) == len(measurements)
    for m in measurements:
        assert math.isfinite(m.value), m.what
        assert m.bar > 0, m.what
        assert m.note, m.what
        assert m.value > 0 or "slope" in m.what


def test_shares_are_of_the_limit_whose_own_share_is_one(measured: dict[str, Part]) -> None:
    table = measured["search"].table
    assert set(table["model"]) == {"moons-sized", "30 features"}
    limit = table[table["search"] == search.LIMIT]
    assert limit["share of the limit"].tolist() == pytest.approx([1.0, 1.0])
    there = table.dropna(subset=["rows/s"])
    assert (there["share of the limit"] > 0).all()
    assert there["validity"].between(0, 1).all()
    for model, rows in there.groupby("model"):
        share = rows["rows/s"] / limit.set_index("model")["rows/s"][model]
        assert rows["share of the limit"].tolist() == pytest.approx(share.tolist())


def test_every_peer_is_in_its_table_measured_or_named_as_not_installed(measured: dict[str, Part]) -> None:
    named = {
        **{row["search"]: row for row in measured["search"].table.to_dict("records")},
        **{row["training"]: row for row in measured["training"].table.to_dict("records")},
    }
    for name, package in PEERS.items():
        row = named[name]
        cost = row.get("rows/s", row.get("ms per epoch"))
        if installed(package):
            assert cost > 0, row["note"]
            assert row["note"].startswith(f"{package} {metadata.version(package)}")
        else:
            assert math.isnan(cost)
            assert row["note"] == "not installed"


def test_a_peer_that_breaks_while_it_is_prepared_or_run_says_so(both: list[Problem]) -> None:
    def broken(problem: Problem, budget: Budget) -> Callable[[], None]:
        raise KeyError("a path on this machine")

    def breaking(problem: Problem, budget: Budget) -> Callable[[], None]:
        return lambda: problem.x.view(-1, 7)

    for prepare, why in ((broken, "KeyError"), (breaking, "RuntimeError")):
        peer = enter(Peer("theirs", "torch", prepare, ""), both[0], TINY)
        with pytest.raises(AbsentError, match=rf"^failed \({why}\)$"):
            peer.run()


def test_a_peer_that_is_not_there_is_not_asked(both: list[Problem]) -> None:
    def never(problem: Problem, budget: Budget) -> Callable[[], None]:
        raise AssertionError("asked")

    with pytest.raises(AbsentError, match=r"^not installed$"):
        enter(Peer("theirs", "no-such-package-at-all", never, ""), both[0], TINY).run()


def test_a_peer_talks_to_nobody_and_its_warnings_are_its_own(
    both: list[Problem], capsys: pytest.CaptureFixture[str]
) -> None:
    def loud(problem: Problem, budget: Budget) -> Callable[[], int]:
        def run() -> int:
            sys.stdout.write("found!")
            warnings.warn("old", DeprecationWarning, stacklevel=1)
            return 3

        return run

    peer = enter(Peer("theirs", "torch", loud, "theirs"), both[0], TINY)
    assert peer.run() == 3
    assert peer.note == f"torch {metadata.version('torch')}; theirs"
    assert capsys.readouterr() == ("", "")


def test_epochs_are_given_beside_the_conventional_one(measured: dict[str, Part]) -> None:
    table = measured["training"].table
    for _, rows in table.groupby("model"):
        of = rows.set_index("training")
        assert of["times conventional"][training.CONVENTIONAL] == 1.0
        assert {training.CT, "adversarial, our own PGD", "JEM-style"} <= set(of.index)
        assert (of["ms per epoch"].dropna() > 0).all()
        assert "40 rows" in of["note"][training.CT]


def test_fits_are_given_beside_scikit_learns(measured: dict[str, Part]) -> None:
    table = measured["fitting"].table.set_index("fit")
    assert table["times scikit-learn's"]["scikit-learn's MLPClassifier"] == 1.0
    assert (table["seconds"] > 0).all()
    assert [m.bar for m in measured["fitting"].measurements] == [0.5, 1.0, 2.5]


def test_populations_are_given_for_a_hundred_epochs_a_model(measured: dict[str, Part]) -> None:
    table = measured["populations"].table
    assert table["models"].tolist() == [1, 2]
    assert table["times cheaper than one alone"].iloc[0] == 1.0
    ratio = table["seconds per model"].iloc[0] / table["seconds per model"].iloc[1]
    assert table["times cheaper than one alone"].iloc[1] == pytest.approx(ratio)
    assert "population of 2, eager" in measured["populations"].measurements[0].what


def test_growth_tells_the_slopes_of_time_and_memory(measured: dict[str, Part]) -> None:
    part = measured["growth"]
    assert part.table.groupby("axis")["size"].apply(list).to_dict() == {"T": [2, 4], "n_ce": [64, 128]}
    memory = {m.what: m.value for m in part.measurements if "memory" in m.what}
    assert memory == {
        "peak memory against n_ce: slope": pytest.approx(1.0),
        "peak memory against T: slope": pytest.approx(0.0, abs=1e-9),
    }


def test_linear_growth_passes_and_anything_else_does_not() -> None:
    sizes = (1000, 2000, 4000)
    for exponent, passes in ((1.0, True), (1.05, True), (0.8, False), (1.2, False)):
        time_, memory = growth._measurements(
            "n_ce", sizes, [s**exponent for s in sizes], [1e4 * s**exponent for s in sizes]
        )
        assert time_.holds is passes
        assert memory.holds is (exponent <= 1.1)
    (slow,) = growth._measurements("D", sizes, [s**1.5 for s in sizes], [1.0, 1.0, 1.0])
    assert not slow.holds


def test_memory_is_left_out_where_the_system_does_not_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(growth, "_PEAK", tmp_path / "nothing")
    budget = replace(TINY, growth={"T": (2, 4)})
    part = growth.measure_growth(budget, silent)
    assert part.table["peak MB"].isna().all()
    assert [m.what for m in part.measurements] == ["time against T: distance of the slope from 1"]
    write_results([part], tmp_path, measured_on="here")
    assert (tmp_path / "growth.svg").exists()


@pytest.mark.skipif(not growth._PEAK.exists(), reason="only Linux tells the peak of a process")
def test_peak_memory_grows_with_the_rows_and_not_with_the_steps() -> None:
    few, many, longer = growth._peaks(
        [growth.Load(n_ce=2048, n_steps=9), growth.Load(n_ce=16384, n_steps=9), growth.Load(n_ce=16384, n_steps=45)]
    )
    assert many > 3 * few
    assert longer < 1.25 * many


@pytest.mark.filterwarnings("ignore")  # torch's compiler warns about itself
def test_compiled_searches_and_epochs_are_measured_beside_the_plain_ones(
    both: list[Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = replace(TINY, compiled=True, sizes=(1,))
    for module in (search, training):
        monkeypatch.setattr(module, "problems", lambda n_rows: both[:1])
    monkeypatch.setattr(training, "training_peers", lambda problem, budget: [])
    with torch.compiler.set_stance("force_eager"):  # what would be compiled runs as it is
        found = {part.name: part for part in bench(["search", "training", "populations"], budget=budget)}
    assert {search.OURS_COMPILED, search.EARLY_COMPILED} <= set(
        found["search"].table.dropna(subset=["rows/s"])["search"]
    )
    of = found["search"].table.set_index("search")["validity"]
    assert of[search.OURS_COMPILED] == of[search.OURS]
    assert any("compiled: share of a bare loop" in m.what for m in found["search"].measurements)
    assert training.CT_COMPILED in set(found["training"].table.dropna(subset=["ms per epoch"])["training"])
    assert found["populations"].table["steps"].tolist() == ["eager", "compiled"]
    assert [m.bar for m in found["populations"].measurements] == [0.8, 0.3, 10.0]


def test_where_nothing_compiles_the_bar_is_missed_and_the_rest_is_measured(
    both: list[Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_compiler(*args: object, **settings: object) -> None:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(search, "problems", lambda n_rows: both[:1])
    monkeypatch.setattr("countertrain.search.generator.compiled", no_compiler)
    monkeypatch.setattr("countertrain.training.trainer.compiled", no_compiler)
    said: list[str] = []
    found = bench(["search", "populations"], budget=replace(TINY, compiled=True, sizes=(1,)), say=said.append)
    notes = found[0].table.set_index("search")["note"]
    assert notes[search.OURS_COMPILED] == "failed (RuntimeError)"
    missed = [m for m in found[0].measurements if "compiled" in m.what]
    assert len(missed) == 1
    assert not missed[0].holds
    assert found[1].table.dropna(subset=["seconds per model"])["steps"].tolist() == ["eager"]
    assert found[1].table.set_index("steps")["note"].to_dict() == {"eager": "", "compiled": "failed (RuntimeError)"}
    (unmeasured,) = [m for m in found[1].measurements if "compiled" in m.what]
    assert not unmeasured.holds
    assert unmeasured.note == "failed (RuntimeError)"
    assert "compiled training: failed (RuntimeError) (no compiler)" in said


def test_the_time_of_the_grid_stands_beside_the_published_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def tasks(name: str, data: str, folder: Path) -> list[Task]:
        assert (name, data) == ("grid gen-params", "moons")
        return [Task(partial(Path(folder, "done").touch), 1.0)]

    monkeypatch.setattr(grid, "grid_tasks", tasks)
    part = grid.measure_grid(TINY, silent)
    ours, published = part.table.to_dict("records")
    assert ours["CPU time (min)"] > 0
    assert ours["wall time (min)"] > 0
    assert (published["CPUs"], published["wall time (min)"]) == (34, 49.0)
    assert published["CPU time (min)"] == 34 * 49
    (claim,) = part.measurements
    assert claim.holds
    assert "1,666" in claim.note


# What is left


def test_results_are_tables_and_pictures(measured: dict[str, Part], written: Path) -> None:
    for name, part in measured.items():
        assert all((written / f"{name}.{kind}").stat().st_size for kind in ("csv", "md", "png", "svg"))
        stored = pd.read_csv(written / f"{name}.csv")
        assert list(stored.columns) == list(part.table.columns)
        assert len(stored) == len(part.table)
        assert len(pd.read_csv(written / f"{name}-bars.csv")) == len(part.measurements)


def test_the_page_is_rendered_between_its_marks_and_again_without_a_change(
    measured: dict[str, Part], written: Path, tmp_path: Path
) -> None:
    document = tmp_path / "docs" / "performance.md"
    assert write_page(document, written) == ["search", "training", "fitting", "populations", "growth"]
    first = document.read_text(encoding="utf-8")
    for name in ("search", "training", "fitting", "populations", "growth"):
        section = first.partition(f"<!-- begin {name} -->")[2].partition(f"<!-- end {name} -->")[0]
        assert page.machine() in section
        assert measured[name].measurements[0].what in section
        assert f"](performance/{name}.svg)" in first
        assert (document.parent / "performance" / f"{name}.svg").exists()
    assert "not installed" in first or all(map(installed, PEERS.values()))
    assert "<!-- begin grid -->\n<!-- end grid -->" in first
    write_page(document, written)
    assert document.read_text(encoding="utf-8") == first


def test_words_around_the_marks_and_sections_that_were_not_measured_stay(
    measured: dict[str, Part], tmp_path: Path
) -> None:
    document = tmp_path / "speed.md"
    document.write_text(
        "# Ours\n\n<!-- begin grid -->\nof last week\n<!-- end grid -->\n\nmy words\n\n"
        "<!-- begin search -->\nold\n<!-- end search -->\n\nmore of them\n",
        encoding="utf-8",
    )
    write_results([measured["search"]], tmp_path / "results", measured_on="here")
    assert write_page(document, tmp_path / "results") == ["search"]
    text = document.read_text(encoding="utf-8")
    assert "of last week" in text
    assert "my words" in text
    assert text.endswith("<!-- end search -->\n\nmore of them\n")
    assert "old\n" not in text
    assert search.LIMIT in text


def test_the_machine_is_described_and_not_named(written: Path, tmp_path: Path) -> None:
    assert torch.__version__ in page.machine()
    assert "cores" in page.machine()
    write_page(tmp_path / "performance.md", written)
    files = [tmp_path / "performance.md", *written.glob("*.csv"), *written.glob("*.md")]
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    for private in (platform.node(), str(Path.home()), str(tmp_path), str(Path(__file__).parents[2])):
        assert len(private) < 5 or private not in text


def test_numbers_are_shown_with_three_digits_and_nothing_for_what_is_not_there() -> None:
    table = pd.DataFrame({"a": [123456.7, 0.012345, math.nan], "b": [1234, 2, 3], "c": ["x", "y", "z"]})
    assert page.format_cells(table).to_numpy().tolist() == [
        ["123,457", "1,234", "x"],
        ["0.0123", "2", "y"],
        ["", "3", "z"],
    ]


def test_the_command_prints_the_bars_and_leaves_results_and_page(
    measured: dict[str, Part], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[list[str], Budget]] = []

    def quickly(names: list[str], *, budget: Budget, say: Callable[[str], None]) -> list[Part]:
        asked.append((names, budget))
        say("search")
        return [measured["search"]] if budget is measuring.QUICK else []

    monkeypatch.setattr("benchmarks.__main__.run_bench", quickly)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("countertrain.cli.console.console._width", 200)
    with pytest.raises(SystemExit) as end:
        main(["--quick", "--page", "docs/performance.md"])
    out, err = capsys.readouterr()
    assert end.value.code == 0
    assert asked == [(["search", "training", "fitting", "populations", "growth", "explaining"], measuring.QUICK)]
    assert search.LIMIT in out
    assert "Speed, one thread" in out
    assert "... search" in err
    assert (tmp_path / "results" / "quick" / "performance" / "search.csv").exists()
    assert "a quick run, rough numbers" in (tmp_path / "docs" / "performance.md").read_text(encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["--grid"])
    everything = ["search", "training", "fitting", "populations", "growth", "explaining", "grid"]
    assert asked[1] == (everything, measuring.FULL)
    assert (tmp_path / "results" / "performance").is_dir()


def test_explaining_and_judging_are_timed_and_scaled_to_ten_thousand_people() -> None:
    (part,) = bench(["explaining"], budget=replace(TINY, n_people=150))
    explained, judged = part.measurements
    assert (explained.bar, judged.bar, explained.at_least) == (20, 20, False)
    assert part.table["n"].tolist() == [150, 150]
    assert part.table["seconds"].min() > 0
    assert explained.value == pytest.approx(part.table["seconds"][0] / 150 * 10_000)
    assert "by 150 of them" in explained.note
