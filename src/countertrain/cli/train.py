"""Training on the command line."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from countertrain.cli import options
from countertrain.cli.app import app, plain_warnings
from countertrain.cli.options import collect_settings, parse_seeds
from countertrain.files import CheckpointError, InUseError
from countertrain.words import list_names, list_phrases, plain

if TYPE_CHECKING:
    from countertrain.runs.run import Run
    from countertrain.tables.dataset import Split

__all__: list[str] = []

_OPTIONS = {"overwrite=True": "--overwrite", "resume=True": "--resume", "another folder": "another --out"}


@app.command()
def train(
    data: options.Data,
    label: options.Label = None,
    target: options.Wanted = None,
    immutable: options.Immutable = None,
    increase: options.Increase = None,
    decrease: options.Decrease = None,
    monotone: options.Monotone = None,
    drop: options.Drop = None,
    against_evidence: options.AgainstEvidence = False,
    schema: options.SchemaFile = None,
    fix_proposed: Annotated[
        bool | None,
        typer.Option(
            "--fix-proposed/--no-fix-proposed",
            help="Hold fixed, too, what people can rarely change, by the names of the columns.",
            show_default="done for a table without --schema or --settings",
        ),
    ] = None,
    objective: Annotated[
        str | None, typer.Option(help="ct, or bl (conventional), ar, cd (ablations).", show_default="ct")
    ] = None,
    generator: Annotated[str | None, typer.Option(help="eccco, generic or revise.", show_default="eccco")] = None,
    twin: Annotated[bool, typer.Option("--twin", help="Train a conventional model, too, to compare with.")] = False,
    epochs: Annotated[int | None, typer.Option(help="Passes over the rows.", min=0, show_default="100")] = None,
    seed: Annotated[int | None, typer.Option(help="Train one model with this seed.")] = None,
    seeds: Annotated[str | None, typer.Option(help="One model per seed, which decide together: 0-9 or 1,5,7.")] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help="table, as-run (the authors' program), as-written (the paper), tuned, ...",
            show_default="as-run for the paper's data sets, else table",
        ),
    ] = None,
    settings_file: options.SettingsFile = None,
    assignments: options.Assignments = None,
    out: options.Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model in --out.")] = False,
    compiled: Annotated[
        bool | None,
        typer.Option(
            "--compile/--no-compile",
            help="Compile search and updates first (a minute); left out, done where a run is long enough.",
        ),
    ] = None,
    track: options.Track = None,
) -> None:
    """Train a model of a table or a named data set by counterfactual training (or conventionally), into a folder.

    Of a table, 70 % of the rows are for training, 10 % for validation and 20 % for the test. A data set of the paper
    uses its final settings unless overridden; with --settings, those of the file. A run that is stopped can be resumed
    and ends with the same weights; until it is finished, the folder keeps what it held before.

    Next: countertrain evaluate, explain, report, serve, export.

    Several processes train one large run together, to the same weights up to rounding:
    torchrun --nproc-per-node 2 -m countertrain train ...
    """
    from countertrain.cli.console import console, training_bars
    from countertrain.runs.fitting import warn_if_immature
    from countertrain.runs.looking import hold_fixed
    from countertrain.runs.settings import Settings
    from countertrain.runs.track import find_tracker, tracking
    from countertrain.runs.training import RunError, default_folder, holds_finished
    from countertrain.runs.training import train as train_run
    from countertrain.tables import propose_fixed
    from countertrain.training.ranks import Ranks

    if seed is not None and seeds is not None:
        raise ValueError("give either --seed or --seeds, not both")
    if profile is not None and settings_file is not None:
        raise ValueError("--settings says all that a profile would say; give one of --settings and --profile")
    told = collect_settings(
        settings_file,
        assignments,
        schema,
        label=label,
        target=target,
        immutable=immutable,
        increase=increase,
        decrease=decrease,
        monotone=monotone,
        drop=drop,
        against_evidence=True if against_evidence else None,
        objective=objective,
        generator=generator,
        profile=profile,
        epochs=epochs,
        seeds=parse_seeds(seeds) if seeds is not None else None if seed is None else [seed],
    )
    fixes = fix_proposed or (fix_proposed is None and settings_file is None and schema is None)
    settings, fixed = Settings.resolve(data, told), list[str]()
    if fixes:
        settings, fixed = hold_fixed(settings, propose_fixed(data, settings.label))
    folder = out or default_folder(settings)
    n = len(settings.seeds)
    title = f"{settings.data}, {settings.objective}, {n} model{'s' if n > 1 else ''}"
    finished_before = holds_finished(folder) and not overwrite
    tracked = tracking(find_tracker(track), folder, {f"seed-{seed}": settings for seed in settings.seeds})
    try:
        bars = training_bars([title, f"{settings.data}, conventional twin"], settings.epochs)
        with _every_warning(), bars as (bar, twin_bar), tracked as show:
            run = train_run(
                settings,
                folder,
                twin=twin,
                resume=resume,
                overwrite=overwrite,
                callbacks=[bar, show],
                twin_callbacks=[twin_bar],
                compiled=compiled,
                ranks=Ranks.here(),
                say=lambda text: typer.echo(f"... {text}", err=True),
            )
            if not finished_before:
                warn_if_immature(settings.objective, run.history)
                _say_fixed(fixed)
    except KeyboardInterrupt:
        typer.echo(
            f"\nstopped; finished epochs are kept, go on with the same command and --resume --out {folder}", err=True
        )
        raise typer.Exit(130) from None
    except (RunError, CheckpointError, FileExistsError, InUseError) as error:
        raise ValueError(_in_words_of_the_command(str(error))) from error
    if finished_before:
        console.print(f"{folder} already holds this run; nothing to do")
    _print_training(run, folder)


def _say_fixed(fixed: Sequence[str]) -> None:
    if fixed:
        typer.echo(
            f"... held fixed, since hardly anybody can change it: {list_phrases(fixed, 12)}; --no-fix-proposed lets "
            "advice ask for it",
            err=True,
        )


def _print_training(run: "Run", folder: Path) -> None:
    from rich.markup import escape

    from countertrain.cli.console import console

    records = run.history.records
    if records:
        last = records[-1].metrics
        said = [f"{name.replace('_', ' ')} {sum(v) / len(v):.3f}" for name, v in last.items() if "accuracy" in name]
        if "mature" in last:
            said.append(f"mature counterfactuals {sum(last['mature']) / len(last['mature']):.0%}")
        compiling = sum(record.compile_seconds for record in records)
        apart = f" and {compiling:.0f} s of compiling" if compiling else ""
        console.print(f"{len(records)} epochs in {sum(r.seconds for r in records):.1f} s{apart}; " + ", ".join(said))
    if len(run.data.test):
        for name, one in (("", run), (", conventional twin", run.twin)):
            if one is not None:
                console.print(
                    f"accuracy on {len(run.data.test):,} test rows{name}: {_say_accuracy(one, run.data.test)}"
                )
    monotone = [f"{c.name} {c.monotone}" for c in run.data.schema.columns if c.monotone is not None]
    if monotone:
        console.print(f"[dim]monotone by construction: {escape(list_phrases(monotone, 12))}[/]", soft_wrap=True)
    known = _say_evidence(run)
    if known:
        console.print(f"[dim]advice keeps to the evidence: {escape(known)}[/]", soft_wrap=True)
    console.print(f"model: {folder}", soft_wrap=True)
    unsaid = run.settings.target is None
    ways = "   |   ".join(
        f"countertrain {verb} {folder}{' --target CLASS' if unsaid else ''}" for verb in ("explain", "report")
    )
    console.print(f"[dim]next: {ways}[/]", soft_wrap=True)
    if unsaid:
        classes = list_names([plain(label) for label in run.data.classes])
        console.print(f"[dim]CLASS is the decision that people want, one of {escape(classes)}[/]", soft_wrap=True)


def _say_accuracy(run: "Run", test: "Split") -> str:
    """How often the models are right, on average; with a threshold, how often what they decide together is."""
    from countertrain.runs.measure import predictive

    if run.threshold is None:
        right = predictive(run.models, test)["accuracy"]
        return f"{sum(right) / len(right):.3f}"
    decided, wanted = run.decider.decide(test.x), run.threshold.wanted
    granted = (decided == wanted).double().mean()
    needs = f"{run.decider.classes[wanted]!r} needs probability {run.threshold.at:.3f}, which {granted:.0%} have"
    return f"{(decided == test.y).double().mean():.3f} ({needs})"


def _say_evidence(run: "Run") -> str:
    """Which way columns help, for people who want what they are said to want."""
    decider = run.decider
    if decider.evidence is None or decider.target is None:
        return ""
    free = {c.name for c in decider.encoder.schema.columns if c.mutability == "both" and c.monotone is None}
    known = [one for one in decider.evidence.by_class[decider.classes.index(decider.target)] if one.column in free]
    ways = {"+": " +", "-": " -", "0": " (makes no difference)"}
    said = [one.column + ways[one.sign] for one in known if one.sign in ways]
    return list_phrases([*said, *(f"{one.column} (some levels)" for one in known if one.against)], 12)


def _in_words_of_the_command(said: str) -> str:
    """What Python says of a folder, with options in place of arguments."""
    for argument, option in _OPTIONS.items():
        said = said.replace(argument, option)
    return said


@contextmanager
def _every_warning() -> Iterator[None]:
    """A training that did not go well is said in a plain line, also where warnings were switched off."""
    with plain_warnings():
        warnings.simplefilter("default")
        yield
