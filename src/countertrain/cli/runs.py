"""Runs on the command line: train, evaluate, explain; the demo."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from countertrain.cli.app import app

if TYPE_CHECKING:
    from countertrain.runs.measure import Scores
    from countertrain.runs.run import Run

__all__ = ["parse_seeds"]

Folder = Annotated[Path, typer.Argument(help="Run directory that `countertrain train` wrote.", metavar="DIR")]
Rounds = Annotated[int, typer.Option(help="Evaluation rounds J; the paper's tables use 100.", min=2)]
Individuals = Annotated[int, typer.Option(help="Individuals in each round and for each energy weight.", min=2)]


@app.command()
def train(
    data: Annotated[
        str,
        typer.Argument(
            help="Data set (`countertrain list`), CSV file with a header, or folder of `countertrain convert`."
        ),
    ],
    objective: Annotated[
        str | None, typer.Option(help="ct, or bl (conventional), ar, cd (ablations).", show_default="ct")
    ] = None,
    generator: Annotated[str | None, typer.Option(help="eccco, generic or revise.", show_default="eccco")] = None,
    seed: Annotated[int | None, typer.Option(help="Train one model with this seed.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Train a population, one model a seed: 0-9 or 1,5,7.")] = None,
    immutable: Annotated[list[str] | None, typer.Option(help="A feature people cannot change; repeatable.")] = None,
    label: Annotated[str | None, typer.Option(help="Column of a file to predict; the last one if left out.")] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help="table, as-run (the authors' program), as-written (the paper), tuned, ...",
            show_default="as-run for the paper's data sets, else table",
        ),
    ] = None,
    settings_file: Annotated[
        Path | None,
        typer.Option("--settings", help="Settings to begin with: chosen.toml of a tuning, or settings.toml of a run."),
    ] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="Any other setting, e.g. --set tau=0.5; repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; named after the settings if left out.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run that is in --out.")] = False,
    compiled: Annotated[
        bool | None,
        typer.Option(
            "--compile/--no-compile",
            help="Compile search and updates first (a minute); left out, done where a run is long enough.",
        ),
    ] = None,
    track: Annotated[str | None, typer.Option(help="Show the epochs to tensorboard or mlflow, too.")] = None,
) -> None:
    """Train models by counterfactual training (or conventionally), into a run directory.

    A named data set of the paper uses its final settings unless overridden; with --settings, those of the file. The run
    directory holds settings.toml, weights.safetensors, history.jsonl and environment.json; a run that is stopped can be
    resumed and ends with the same weights.

    Several processes train one large run together, to the same weights up to rounding:
    torchrun --nproc-per-node 2 -m countertrain train ...
    """
    from countertrain.cli.console import console, training_bar
    from countertrain.runs.run import default_folder
    from countertrain.runs.run import train as train_run
    from countertrain.runs.settings import Settings, parse_assignments, settings_to_mapping
    from countertrain.runs.track import find_tracker, tracking
    from countertrain.training.ranks import Ranks

    if seed is not None and seeds is not None:
        raise ValueError("give either --seed or --seeds, not both")
    if profile is not None and settings_file is not None:
        raise ValueError("--settings says all that a profile would say; give one of --settings and --profile")
    given: dict[str, Any] = {
        "objective": objective,
        "generator": generator,
        "profile": profile,
        "immutable": immutable,
        "label": label,
        "seeds": parse_seeds(seeds) if seeds is not None else None if seed is None else [seed],
    }
    overrides = settings_to_mapping(settings_file)
    overrides |= {name: value for name, value in given.items() if value not in (None, [])}
    settings = Settings.resolve(data, overrides | parse_assignments(assignments or []))
    folder = out or default_folder(settings)
    n = len(settings.seeds)
    title = f"{settings.data}, {settings.objective}, {n} model{'s' if n > 1 else ''}"
    finished_before = (folder / "weights.safetensors").exists() and not overwrite
    tracked = tracking(find_tracker(track), folder, {f"seed-{seed}": settings for seed in settings.seeds})
    try:
        with training_bar(title, settings.epochs) as bar, tracked as show:
            callbacks = [bar, show]
            run = train_run(
                settings,
                folder,
                resume=resume,
                overwrite=overwrite,
                callbacks=callbacks,
                compiled=compiled,
                ranks=Ranks.here(),
                say=lambda text: typer.echo(f"... {text}", err=True),
            )
    except KeyboardInterrupt:
        typer.echo(
            f"\nstopped; finished epochs are kept, go on with the same command and --resume --out {folder}", err=True
        )
        raise typer.Exit(130) from None
    if finished_before:
        console.print(f"{folder} already holds this run; nothing to do")
    _print_training(run)


@app.command()
def evaluate(
    folder: Folder,
    baseline: Annotated[
        Path | None, typer.Option(help="Run directory to compare with, usually of --objective bl.")
    ] = None,
    rounds: Rounds = 20,
    individuals: Individuals = 100,
) -> None:
    """Evaluate a run on test rows: plausibility, cost, validity, accuracy, robustness; writes records.csv.

    With --baseline, prints the percentage reductions of the paper's Table 1, with the spread over training seeds beside
    the spread over evaluation rounds.
    """
    from countertrain.cli.console import REDUCTION_NOTE, console, reduction_table, score_table
    from countertrain.evaluation.comparison import compare
    from countertrain.runs.run import open_run

    run = open_run(folder)
    other = open_run(baseline) if baseline is not None else None
    if other is not None:
        for name, mine, theirs in (
            ("be of the same data", run.settings.data, other.settings.data),
            ("have the same immutable features", run.settings.immutable, other.settings.immutable),
            ("have as many seeds", len(run.models), len(other.models)),
        ):
            if mine != theirs:
                raise ValueError(
                    f"--baseline must {name}; {folder} has {mine or 'none'}, {baseline} {theirs or 'none'}"
                )
    scores = {run.settings.objective.upper(): _score(run, rounds, individuals)}
    if other is not None:
        name = other.settings.objective.upper()
        scores[name if name not in scores else f"{name} baseline"] = _score(other, rounds, individuals)
    console.print(score_table(run.data.title, {name: s.table for name, s in scores.items()}))
    if other is not None:
        treated, base = scores.values()
        console.print(reduction_table(compare(treated.records, base.records)))
        console.print(REDUCTION_NOTE, style="dim", soft_wrap=True)
    console.print(f"[dim]records: {folder / 'records.csv'}[/]")


@app.command()
def explain(
    folder: Folder,
    row: Annotated[int, typer.Option(help="Number of the test row to explain.", min=0)],
    target: Annotated[str | None, typer.Option(help="Class to reach, by number or name.")] = None,
    tau: Annotated[float, typer.Option(help="Probability of the target class to reach.")] = 0.95,
    n_steps: Annotated[int, typer.Option(help="Most steps of the search.", min=1)] = 50,
) -> None:
    """Explain one decision: what would have to change for another one."""
    from countertrain.cli.console import console, explanation_table
    from countertrain.runs.explain import explain as explain_row
    from countertrain.runs.run import open_run

    e = explain_row(open_run(folder), row, target, tau=tau, n_steps=n_steps)
    console.print(explanation_table(e))
    console.print(
        f"probability of {e.target!r}: {e.probability_before:.3f} -> {e.probability_after:.3f} in {e.n_steps} steps, "
        f"{sum(e.changed)} of {len(e.features)} features changed, {'valid' if e.valid else 'NOT VALID'}",
        soft_wrap=True,
    )
    if e.reason:
        console.print(f"note: {e.reason}", soft_wrap=True)


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(help="data or settings.", metavar="[data|settings]")] = "data",
) -> None:
    """List the data sets, or every setting with its default."""
    from rich.table import Table

    from countertrain.cli.console import console
    from countertrain.runs.profiles import FINAL
    from countertrain.runs.settings import Settings

    if what == "data":
        from countertrain.tables import catalogue

        table = Table(title="Data sets", title_justify="left")
        for heading in ("name", "what it is", "settings of its own"):
            table.add_column(heading)
        for name, title in catalogue().items():
            table.add_row(name, title, ", ".join(f"{k}={v}" for k, v in FINAL.get(name, {}).items()))
        console.print(table)
        console.print(
            "[dim]or the path of a CSV file with a header; `countertrain list settings` shows all settings[/]"
        )
    elif what == "settings":
        table = Table(title="Settings, for --set NAME=VALUE", title_justify="left")
        for heading in ("name", "default", "what it is"):
            table.add_column(heading)
        for name, field in Settings.model_fields.items():
            if name != "data":
                choices = (
                    ""
                    if not get_args(field.annotation) or "Literal" not in str(field.annotation)
                    else (f" ({', '.join(map(str, get_args(field.annotation)))})")
                )
                table.add_row(name, str(field.default), (field.description or "") + choices)
        console.print(table)
    else:
        raise ValueError(f"list shows 'data' or 'settings'; got {what!r}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the runs and the report.")] = Path("demo"),
) -> None:
    """Run the main job on embedded data (under a minute) and write a report to look at.

    The paper's Figure 1: a linear model on loan-like data, conventional and CT, with and without `age` immutable; and
    five conventional and five CT models of breast cancer, compared.
    """
    from countertrain.cli.console import (
        REDUCTION_NOTE,
        console,
        counting,
        panel_table,
        reduction_table,
        score_table,
        training_bar,
    )
    from countertrain.demo.demo import demo as run_demo

    done = run_demo(out, watch=training_bar, progress=counting)
    console.print(panel_table(done.panels))
    console.print(score_table("Breast cancer", {name: s.table for name, s in done.scores.items()}))
    console.print(reduction_table(done.reductions))
    console.print(REDUCTION_NOTE, style="dim", soft_wrap=True)
    console.print(f"report: {done.report}")


def parse_seeds(text: str) -> list[int]:
    """`0-9` or `1,5,7` as numbers."""
    try:
        seeds: list[int] = []
        for part in text.split(","):
            first, _, last = part.partition("-")
            seeds += range(int(first), int(last or first) + 1)
    except ValueError:
        raise ValueError(f"--seeds takes numbers such as 0-9 or 1,5,7; got {text!r}") from None
    if not seeds or len(set(seeds)) != len(seeds):
        raise ValueError(f"--seeds must name at least one seed, and none twice; got {text!r}")
    return seeds


def _score(run: "Run", rounds: int, individuals: int) -> "Scores":
    from countertrain.cli.console import counting

    with counting(f"evaluating {run.folder}") as progress:
        return run.measure(rounds=rounds, individuals=individuals, progress=progress)


def _print_training(run: "Run") -> None:
    from countertrain.cli.console import console

    history = run.history()
    if history:
        last = history[-1].metrics
        said = [f"{name.replace('_', ' ')} {sum(v) / len(v):.3f}" for name, v in last.items() if "accuracy" in name]
        if "mature" in last:
            said.append(f"mature counterfactuals {sum(last['mature']) / len(last['mature']):.0%}")
        compiling = sum(record.compile_seconds for record in history)
        apart = f" and {compiling:.0f} s of compiling" if compiling else ""
        console.print(f"{len(history)} epochs in {sum(r.seconds for r in history):.1f} s{apart}; " + ", ".join(said))
    console.print(f"run directory: {run.folder}")
    console.print(f"[dim]next: countertrain evaluate {run.folder}   |   countertrain explain {run.folder} --row 0[/]")
