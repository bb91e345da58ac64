"""What can be done with a trained model on the command line: evaluate, explain, judge, report, export."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from countertrain.cli import options
from countertrain.cli.app import app
from countertrain.cli.options import find_columns
from countertrain.files import check_writable, write_text
from countertrain.recourse.defaults import OPTIONS, PEOPLE

if TYPE_CHECKING:
    import pandas as pd

    from countertrain.recourse.answer import Recourse
    from countertrain.recourse.decider import Decider
    from countertrain.recourse.explanation import Explanation
    from countertrain.recourse.why import PersonReasons
    from countertrain.runs.measure import Scores
    from countertrain.runs.run import Run
    from countertrain.tables.dataset import Split

__all__: list[str] = []

_SHOWN = 5  # people on the screen

Rounds = Annotated[int, typer.Option(help="Evaluation rounds J; the paper's tables use 100.", min=2)]
Individuals = Annotated[int, typer.Option(help="Individuals in each round and for each energy weight.", min=2)]
Baseline = Annotated[
    Path | None, typer.Option(help="Folder of a model to compare with; the conventional twin, if there is one.")
]
Labelled = Annotated[Path | None, typer.Option(help="CSV or Parquet file with labels; the test rows if left out.")]


@app.command()
def evaluate(
    folder: options.Folder,
    baseline: Baseline = None,
    rows: Labelled = None,
    rounds: Rounds = 20,
    individuals: Individuals = 100,
) -> None:
    """Evaluate a model on test rows: plausibility, cost, validity, accuracy, robustness; writes records.csv.

    With a baseline, prints the percentage reductions of the paper's Table 1, with the spread over training seeds beside
    the spread over evaluation rounds.
    """
    from countertrain.cli.console import console, print_reductions, score_table
    from countertrain.evaluation.comparison import compare
    from countertrain.runs.folder import read_run

    run = read_run(folder)
    other = run.twin if baseline is None else read_run(baseline)
    if other is not None:
        _check_baseline(folder, run, baseline, other)
    judged = None if rows is None else _encode(run, rows)
    scores = {run.settings.objective.upper(): _score(run, rounds, individuals, judged)}
    if other is not None:
        name = other.settings.objective.upper()
        mine = judged or run.data.test  # the same rows for both
        scores[name if name not in scores else f"{name} baseline"] = _score(other, rounds, individuals, mine)
    console.print(score_table(run.data.title, scores))
    if other is not None:
        treated, base = scores.values()
        print_reductions(compare(treated.records, base.records))
    console.print(f"[dim]records: {folder / 'records.csv'}[/]", soft_wrap=True)


@app.command()
def explain(
    folder: options.Folder,
    rows: Annotated[Path | None, typer.Option(help="CSV or Parquet file of people; the test rows if left out.")] = None,
    row: Annotated[list[int] | None, typer.Option(help="Number of a row, from 0; all if left out; repeatable.")] = None,
    target: options.Target = None,
    everyone: Annotated[
        bool, typer.Option("--everyone", help="Tell also of people who have the decision that they want.")
    ] = False,
    n_options: Annotated[int, typer.Option("--options", help="Options for each person.", min=1, max=10)] = OPTIONS,
    immutable: options.Immutable = None,
    tau: Annotated[
        float | None,
        typer.Option(help="Probability of the target class to reach.", show_default="as of most who have it"),
    ] = None,
    certainty: Annotated[
        float | None, typer.Option(help="Share of the advice that is to hold by independent models, instead of --tau.")
    ] = None,
    against_evidence: options.AgainstEvidence = False,
    reasons: options.Reasons = None,
    prove: Annotated[
        float,
        typer.Option(help="Seconds to spend on each person for whom it stays open whether any way exists.", min=0),
    ] = 0.0,
    out: Annotated[Path | None, typer.Option(help="CSV or JSON file with all of it.")] = None,
) -> None:
    """What each person could change for the decision wanted; the first few on the screen, all of them into a file.

    Who has that decision already is left out, unless asked for by --row or --everyone. Where nobody ever said which
    decision people want, each is told the way to the other one of two.
    """
    from rich.markup import escape

    from countertrain.cli.console import console
    from countertrain.recourse.search import explain
    from countertrain.runs.folder import read_run
    from countertrain.tables import naming_lines, read_table
    from countertrain.tables.cells import as_declared, name_row

    if out is not None and out.suffix.lower() not in (".csv", ".json"):
        raise ValueError(f"--out writes a CSV or JSON file, whose name ends in .csv or .json; got {out}")
    run = read_run(folder)
    if out is not None:
        check_writable(out)
    decider = run.decider.want(target)
    people = run.test_rows()[0] if rows is None else read_table(rows)
    with nullcontext() if rows is None else naming_lines(rows, len(people)):
        numbers = _choose_rows(decider, people, row, everyone=everyone)
    fixed = find_columns("--immutable", immutable, run.data.schema.names, "the model")
    if certainty is not None:
        tau = _find_tau(decider, certainty, tau)
    with as_declared():  # it has been said
        found = explain(
            decider,
            people.iloc[numbers],
            options=n_options,
            immutable=fixed,
            tau=tau,
            against_evidence=against_evidence,
            prove=prove,
        )
    numbered = [replace(explanation, row=number) for number, explanation in zip(numbers, found, strict=True)]
    why = [] if reasons is None else [*found.reasons(options.find_codes(reasons))]
    with nullcontext() if rows is None else naming_lines(rows, len(people)):
        texts = [_tell(one, name_row(people, one.row)).splitlines() for one in numbered[:_SHOWN]]
    for lines, person in zip(texts, why, strict=False):
        lines[1:1] = [f"  {line}" for line in person.list_lines()]
    if texts:
        console.print("\n".join(line for lines in texts for line in lines), soft_wrap=True, markup=False)
    if len(found) > _SHOWN:
        console.print(f"... and {len(found) - _SHOWN:,} more people", soft_wrap=True)
    if not row and len(found) < len(people):
        n = len(people) - len(found)
        said = (
            f"{n:,} of {len(people):,} people are decided as {decider.target!r} already; --everyone tells of them, too"
        )
        console.print(f"[dim]{escape(said)}[/]", soft_wrap=True)
    if out is not None:
        write_text(out, _write_found(found, numbered, why, as_json=out.suffix.lower() == ".json"))
        console.print(f"[dim]{len(found)} people: {out}[/]", soft_wrap=True)


def _tell(one: "Explanation", name: str) -> str:
    """An explanation whose row is also called as it stands in its file, as warnings do."""
    known = f"row {one.row}"
    return one.summary() if name == known else one.summary().replace(known, f"{known} ({name})", 1)


def _write_found(found: "Recourse", numbered: "list[Explanation]", why: "list[PersonReasons]", *, as_json: bool) -> str:
    """Recourse as JSON or CSV, with the reasons where they were asked for."""
    if as_json:
        dictionaries = [one.to_dict() for one in numbered]
        for dictionary, person in zip(dictionaries, why, strict=False):
            dictionary["reasons"] = person.to_dict() | {"row": dictionary["row"]}
        return json.dumps(dictionaries)
    frame = found.to_frame()
    if why:
        texts = ["; ".join(f"{reason.text} [{reason.code}]" for reason in person.reasons) for person in why]
        frame["reasons_" if "reasons" in frame else "reasons"] = [texts[i] for i in frame.iloc[:, 0]]
    frame.isetitem(0, [numbered[i].row for i in frame.iloc[:, 0]])
    return frame.to_csv(index=False)


@app.command()
def judge(
    folder: options.Folder,
    target: options.Target = None,
    rows: Labelled = None,
    people: Annotated[int, typer.Option(help="People to advise, at most.", min=1)] = PEOPLE,
    out: Annotated[Path | None, typer.Option(help="JSON file with all of it.")] = None,
) -> None:
    """Does the advice hold? Independent models judge the rows that people are told to have.

    They are boosting, a forest, logistic regression, and the model itself trained anew on two halves of its rows with
    other seeds. Beside them stands what they make of real people who have the decision wanted.
    """
    from functools import partial

    from countertrain.cli.console import console, counting, verdict_table
    from countertrain.judge import judge as judge_advice
    from countertrain.runs.fitting import retrain
    from countertrain.runs.folder import read_run
    from countertrain.tables.labels import code_labels

    run = read_run(folder)
    if out is not None:
        check_writable(out)
    frame, labels = run.test_rows() if rows is None else _read_labelled(run, rows)
    asked = run.decider.settle_target(target)
    wanted = run.decider.classes[-1] if asked is None else asked
    codes, _ = code_labels(labels, run.data.classes)
    with counting(f"judging {folder}") as progress:
        verdict = judge_advice(
            run.decider, frame, codes, wanted, retrain=partial(retrain, run), people=people, progress=progress
        )
    console.print(verdict_table(verdict))
    console.print(verdict.summary(), soft_wrap=True, markup=False)
    if out is not None:
        write_text(out, json.dumps(verdict.to_dict(), indent=2))
        console.print(f"[dim]{out}[/]", soft_wrap=True)


@app.command()
def report(
    folder: options.Folder,
    baseline: Baseline = None,
    rows: Labelled = None,
    groups: Annotated[list[str] | None, typer.Option(help="Columns to compare people by: a,b.", metavar="A,B")] = None,
    target: options.Target = None,
    examples: Annotated[int, typer.Option(help="People to show, by real rows of the test data.", min=0)] = 5,
    out: Annotated[Path | None, typer.Option(help="HTML file; report.html in MODEL if left out.")] = None,
) -> None:
    """One HTML page about a model: accuracy, explanations against a conventional model, warnings, examples."""
    from countertrain.cli.console import console
    from countertrain.report.findings import COMMAND
    from countertrain.report.write import write_report
    from countertrain.runs.folder import read_run

    run = read_run(folder)
    other = run.twin if baseline is None else read_run(baseline)
    people, labels = run.test_rows() if rows is None else _read_labelled(run, rows)
    path = write_report(
        run.decider,
        people,
        labels,
        out or folder / "report.html",
        baseline=None if other is None else other.decider,
        groups=find_columns("--groups", groups, people.columns, "the rows"),
        target=target,
        n_examples=examples,
        door=COMMAND,
    )
    console.print(f"report: {path}", soft_wrap=True)


@app.command()
def export(
    folder: options.Folder,
    out: Annotated[Path | None, typer.Option(help="ONNX file; model.onnx in MODEL if left out.")] = None,
) -> None:
    """Write a model as one ONNX file, encoding and probabilities included, for programs without torch."""
    from countertrain.cli.console import console
    from countertrain.estimator import CounterfactualClassifier

    path = out or folder / "model.onnx"
    try:
        CounterfactualClassifier.load(folder).save_onnx(path)
    except ImportError as error:
        raise ValueError(
            "export needs onnx and onnxscript; install them with: pip install 'countertrain[onnx]'"
        ) from error
    console.print(f"model: {path}", soft_wrap=True)


def _find_tau(decider: "Decider", certainty: float, tau: float | None) -> float:
    """The probability at which so large a share of the advice holds."""
    from countertrain.cli.console import console, counting
    from countertrain.judge.certainty import find_tau, judge_held_out

    if tau is not None:
        raise ValueError("give either --tau or --certainty, not both")
    if decider.target is None:
        raise ValueError("--certainty needs --target, the decision that people want")
    with counting("asking independent models") as progress:
        verdict = judge_held_out(decider, decider.target, progress=progress)
    found = find_tau(verdict, certainty)
    console.print(f"[dim]{certainty:.0%} of the advice held for people who were held out at tau = {found:.2f}[/]")
    return found


def _check_baseline(folder: Path, run: "Run", baseline: Path | None, other: "Run") -> None:
    """Refuse a baseline that differs in more than its training; both are measured in the units of the encoder."""
    from countertrain.runs.settings import FRAME

    units, their_units = ((list(map(str, one.data.classes)), *one.data.encoder.units) for one in (run, other))
    data, their_data = run.settings.data, other.settings.data
    other_data = data != their_data and FRAME not in (data, their_data)
    ways, their_ways = run.settings.mutability, other.settings.mutability
    n, their_n = len(run.models), len(other.models)
    for name, wrong, mine, theirs in (
        ("be of the same data", other_data, data, their_data),
        ("be trained on the same rows, which give the units", units != their_units, data, their_data),
        ("let people change the same columns", ways != their_ways, ways, their_ways),
        ("have as many seeds", n != their_n, n, their_n),
    ):
        if wrong:
            raise ValueError(f"--baseline must {name}; {folder} has {mine or 'none'}, {baseline} {theirs or 'none'}")


def _score(run: "Run", rounds: int, individuals: int, rows: "Split | None") -> "Scores":
    from countertrain.cli.console import counting

    with counting(f"evaluating {run.folder}") as progress:
        return run.measure(rounds=rounds, individuals=individuals, rows=rows, progress=progress)


def _read_labelled(run: "Run", path: Path) -> tuple["pd.DataFrame", "pd.Series[Any]"]:
    from countertrain.tables import read_table
    from countertrain.tables.schema import check_names

    frame, label = read_table(path), run.data.label
    check_names([label], frame.columns)
    return frame.drop(columns=label), frame[label]


def _encode(run: "Run", path: Path) -> "Split":
    import torch

    from countertrain.tables import naming_lines
    from countertrain.tables.dataset import Split
    from countertrain.tables.labels import code_labels

    people, labels = _read_labelled(run, path)
    codes, _ = code_labels(labels, run.data.classes)
    with naming_lines(path, len(people)):
        return Split(run.data.encoder.tensor(people), torch.from_numpy(codes))


def _choose_rows(decider: "Decider", people: "pd.DataFrame", row: list[int] | None, *, everyone: bool) -> list[int]:
    """The numbers of the rows to explain: those that are asked for, or all who are not decided as they want."""
    import torch

    for number in row or ():
        if not 0 <= number < len(people):
            raise ValueError(f"--row must lie in 0..{len(people) - 1}, the rows that there are; got {number}")
    asked = row or list(range(len(people)))
    x = torch.from_numpy(decider.encoder.encode(people.iloc[asked]))  # which also says what was never seen before
    if row or everyone or decider.target is None:
        return asked
    decided = decider.decide(x)
    return (decided != decider.classes.index(decider.target)).nonzero()[:, 0].tolist()
