"""The demo goes the whole way on a small table, and says what came of it."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from countertrain.cli import main
from countertrain.demo.demo import Demo, demo
from countertrain.demo.job import choose_examples
from countertrain.estimator import load
from countertrain.runs.folder import read_run
from countertrain.runs.profiles import FINAL, PROFILES
from countertrain.tables.sources.loan_process import COLUMNS, draw, find_broken_rules, true_probability

N_TOLD = 60


@pytest.fixture(scope="module")
def heard() -> list[str]:
    """All that is said while the demo runs."""
    return []


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, heard: list[str]) -> Demo:
    """A demo of a small table and short trainings."""

    def watch(title: str, n_epochs: int) -> AbstractContextManager[Any]:
        return nullcontext(lambda record: heard.append(f"{title} {record.epoch}/{n_epochs}"))

    def progress(title: str) -> AbstractContextManager[Any]:
        return nullcontext(lambda done, total: heard.append(f"{title} {done}/{total}"))

    sizes = {"n_people": 600, "n_applicants": 500, "n_told": N_TOLD}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FINAL["debt-age"], "epochs", 2)
        patch.setitem(PROFILES["table"], "epochs", 15)
        folder = tmp_path_factory.mktemp("demo") / "out"
        return demo(folder, **sizes, watch=watch, progress=progress, say=heard.append)


def test_the_demo_leaves_a_table_a_model_with_its_twin_and_applicants_for_every_command(done: Demo) -> None:
    folder = done.report.parent
    table, applicants = pd.read_csv(folder / "loans.csv"), pd.read_csv(folder / "applicants.csv")
    assert list(table.columns) == [*COLUMNS, "outcome"]
    assert len(table) == done.job.n_rows == 600
    assert len(applicants) == done.job.n_applicants == 500
    run = read_run(folder / "loans")
    assert run.twin is not None
    assert run.data.schema["age"].mutability == "none"
    assert set(load(folder / "loans").predict(applicants)) == {"default", "repaid"}


def test_those_whom_both_models_decline_are_told_and_judged_by_the_truth(done: Demo) -> None:
    folder, job = done.report.parent, done.job
    run, applicants = read_run(folder / "loans"), draw(500, seed=7)
    assert run.twin is not None
    models = [load(folder / "loans"), load(folder / "loans").of(run.twin)]
    declined = [model.predict(applicants.rows) == "default" for model in models]
    told = applicants.take((declined[0] & declined[1]).nonzero()[0][:N_TOLD])
    assert job.n_declined == len(told)
    assert job.before == pytest.approx(true_probability(told).mean())
    for outcome, model in zip(job.first_outcomes, reversed(models), strict=True):
        frame = model.explain(told.rows, "repaid").to_frame()
        truth = true_probability(told.take(frame["row"].to_numpy()), frame[list(COLUMNS)])
        assert outcome.default
        assert outcome.true_probability == pytest.approx(truth.mean())
        assert outcome.repaying == pytest.approx((truth > 0.5).mean())
        assert outcome.possible == pytest.approx(1 - find_broken_rules(frame[list(COLUMNS)]).mean())
        assert outcome.promised == pytest.approx(frame["probability"].mean())
        assert outcome.cost == pytest.approx(frame["cost"].mean())
        assert outcome.n_changed == pytest.approx(frame["n_changed"].mean())
    assert [outcome.model for outcome in job.first_outcomes] == ["conventional", "CT"]
    for name, model in zip(("conventional", "CT"), reversed(models), strict=True):
        weakest = next(outcome for outcome in job.outcomes if outcome.model == name)  # after which some are in doubt
        frame = model.explain(told.rows, "repaid", tau=weakest.tau).to_frame()
        truth = true_probability(told.take(frame["row"].to_numpy()), frame[list(COLUMNS)])
        assert weakest.repaying == pytest.approx((truth > 0.5).mean())
        assert ((truth > 0.4) & (truth < 0.6)).any()  # else another threshold would give the same share


def test_advice_makes_people_repay_and_surer_advice_more_so_at_a_higher_cost(done: Demo) -> None:
    for name in ("conventional", "CT"):
        mine = [outcome for outcome in done.job.outcomes if outcome.model == name]
        assert [outcome.tau for outcome in mine] == sorted(outcome.tau for outcome in mine)
        assert mine[0].true_probability > done.job.before
        assert mine[-1].true_probability > mine[0].true_probability
        assert mine[-1].cost > mine[0].cost


def test_three_people_are_shown_who_are_told_different_things(done: Demo) -> None:
    told = [[change.column for change in person.explanation.options[0].changes] for person in done.job.people]
    assert len(told) == 3
    assert all(told)
    assert len(set(map(tuple, told))) == 3
    assert all(0 < person.before < 1 and 0 < person.after < 1 for person in done.job.people)


def test_who_is_told_the_same_as_one_before_is_not_shown(done: Demo) -> None:
    people = draw(N_TOLD, seed=3)
    twice = people.take(np.r_[0, np.arange(len(people))])
    shown = choose_examples(load(done.report.parent / "loans").explain(twice.rows, "repaid"), twice)
    assert [person.explanation.row for person in shown][:2] != [0, 1]
    assert shown[1].before == pytest.approx(true_probability(twice)[shown[1].explanation.row])


def test_one_sees_how_far_it_is(done: Demo, heard: list[str]) -> None:
    assert {"loans.csv 1/15", "loans.csv 2/15"} <= set(heard)  # it may stop early
    assert "a conventional twin, to compare with" in heard
    assert "telling people what to change 14/14" in heard
    assert "Figure 1, ct-age 2/2" in heard


def test_the_page_needs_no_other_file_and_holds_the_numbers(done: Demo) -> None:
    page = done.report.read_text(encoding="utf-8")
    assert page.count('src="data:image/png;base64,') == 2
    assert "http" not in page
    for outcome in done.job.first_outcomes:
        assert f"<b>{100 * outcome.true_probability:.0f}\N{NO-BREAK SPACE}%</b>" in page
    for person in done.job.people:
        assert f"{100 * person.before:.0f}\N{NO-BREAK SPACE}% \N{RIGHTWARDS ARROW} {100 * person.after:.0f}" in page
    assert "(d) CT, age immutable" in page


def test_the_command_prints_advice_in_words_and_what_came_of_it(
    done: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("countertrain.demo.demo.demo", lambda folder, **options: done)
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--out", str(tmp_path)])
    assert not stop.value.code
    out = capsys.readouterr().out
    assert done.job.people[0].explanation.summary() in out
    assert f"in truth: repays with probability {done.job.people[0].before:.2f} now" in out
    assert f"what {N_TOLD} declined people are told" in out
    assert f"report: {done.report}" in out
    assert f"next: countertrain explain {tmp_path / 'loans'}" in out
