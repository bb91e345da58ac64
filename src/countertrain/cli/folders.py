"""Decisions about people on the command line: fit a table, recourse, report, serve."""

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from countertrain.cli.app import app
from countertrain.files import write_text

if TYPE_CHECKING:
    import pandas as pd

__all__: list[str] = []

Project = Annotated[Path, typer.Argument(help="Folder that `countertrain fit` wrote.", metavar="DIR")]


@app.command()
def fit(
    table: Annotated[Path, typer.Argument(help="CSV file with a header; or adult, california, credit or gmsc.")],
    out: Annotated[Path, typer.Option(help="Folder for both models and the held-out rows.")],
    label: Annotated[str | None, typer.Option(help="Column to predict; a named table has its own.")] = None,
    immutable: Annotated[list[str] | None, typer.Option(help="A column people cannot change; repeatable.")] = None,
    increase: Annotated[list[str] | None, typer.Option(help="A column that can only grow; repeatable.")] = None,
    decrease: Annotated[list[str] | None, typer.Option(help="A column that can only shrink; repeatable.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="A column to leave out; repeatable.")] = None,
    schema: Annotated[Path | None, typer.Option(help="What the columns mean, as TOML; inferred if left out.")] = None,
    epochs: Annotated[int, typer.Option(min=1)] = 100,
    tau: Annotated[float, typer.Option(help="Probability that counterfactuals are to reach in training.")] = 0.5,
    models: Annotated[int, typer.Option(help="Networks that decide together.", min=1)] = 1,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the models in --out.")] = False,
) -> None:
    """Train a classifier of a table whose decisions can be explained, and a conventional one to compare with.

    One row in five is held out for the report. Next: countertrain report DIR, countertrain serve DIR.
    """
    from countertrain.cli.console import console
    from countertrain.estimator import CounterfactualClassifier
    from countertrain.project import Project
    from countertrain.tables.schema import Schema, check_names

    frame, label = _labelled(table, label)
    check_names(drop or [], frame.columns)
    frame = frame.drop(columns=drop or [])
    classifier = CounterfactualClassifier(
        Schema.from_toml(schema.read_text(encoding="utf-8")) if schema else None,
        immutable=immutable or (),
        increase=increase or (),
        decrease=decrease or (),
        epochs=epochs,
        tau=tau,
        n_models=models,
        random_state=seed,
        verbose=True,
    )
    with _plain_warnings():
        built = Project.build(
            out, frame, label, classifier, seed=seed, overwrite=overwrite, say=lambda text: console.print(f"... {text}")
        )
    for name, model in (("counterfactual training", built.classifier), ("conventional", built.baseline)):
        assert model is not None
        console.print(
            f"{name}: accuracy {model.score(built.rows, built.test[label]):.3f} on {len(built.test)} held-out rows"
        )
    console.print(f"[dim]next: countertrain report {out}   |   countertrain serve {out}[/]", soft_wrap=True)


@app.command()
def recourse(
    folder: Project,
    rows: Annotated[Path | None, typer.Option(help="CSV file of people; the held-out rows if left out.")] = None,
    target: Annotated[str | None, typer.Option(help="Decision to reach; of two the other one if left out.")] = None,
    options: Annotated[int, typer.Option(help="Options for each person.", min=1, max=10)] = 1,
    immutable: Annotated[list[str] | None, typer.Option(help="A further column to leave alone; repeatable.")] = None,
    out: Annotated[Path, typer.Option(help="CSV or JSON file to write.")] = Path("recourse.csv"),
) -> None:
    """What each person could change for another decision, into a file; the first few on the screen."""
    from countertrain.cli.console import console
    from countertrain.project import Project
    from countertrain.tables import read_table

    project = Project.open(folder)
    people = project.rows if rows is None else read_table(rows)
    found = project.classifier.explain(
        people, _label(target, list(project.classifier.classes_)), n_options=options, immutable=immutable or ()
    )
    text = json.dumps(found.to_dict()) if out.suffix == ".json" else found.to_frame().to_csv(index=False)
    write_text(out, text)
    console.print(found.summary(5), soft_wrap=True, markup=False)
    console.print(f"[dim]{len(found)} people: {out}[/]")


@app.command()
def report(
    folder: Project,
    groups: Annotated[list[str] | None, typer.Option(help="A column to compare people by; repeatable.")] = None,
    target: Annotated[str | None, typer.Option(help="The decision people want; the last class if left out.")] = None,
    out: Annotated[Path | None, typer.Option(help="HTML file; report.html in DIR if left out.")] = None,
) -> None:
    """One HTML page about the model: accuracy, explanations against a conventional model, warnings, examples."""
    from countertrain.cli.console import console
    from countertrain.project import Project

    project = Project.open(folder)
    path = project.classifier.report(
        project.rows,
        project.test[project.label],
        out or folder / "report.html",
        baseline=project.baseline,
        groups=groups or (),
        target=_label(target, list(project.classifier.classes_)),
    )
    console.print(f"report: {path}")


@app.command()
def serve(
    folder: Annotated[Path, typer.Argument(help="Folder that `countertrain fit` or `save` wrote.", metavar="DIR")],
    host: Annotated[str, typer.Option(help="Address to listen on; anything but loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    token_env: Annotated[
        str | None, typer.Option(help="Environment variable that holds the token clients must show.")
    ] = None,
) -> None:
    """Serve decisions and recourse, with a page to try them: http://127.0.0.1:8000."""
    try:
        from countertrain.cli.console import console
        from countertrain.serve.app import run
    except ModuleNotFoundError as error:
        raise ValueError("serving needs FastAPI; install it with: pip install 'countertrain[serve]'") from error
    token = os.environ.get(token_env) if token_env else None
    if token_env and not token:
        raise ValueError(f"--token-env names {token_env}, which is not set; put the token into it")
    console.print(f"http://{host}:{port}  (stop with Ctrl-C)")
    run(folder, host=host, port=port, token=token)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """A training that did not go well is said in one line, without file and line number."""
    from sklearn.exceptions import ConvergenceWarning

    def say(message: Warning | str, *place: object, **more: object) -> None:
        typer.echo(f"countertrain: warning: {message}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", ConvergenceWarning)
        warnings.showwarning = say
        yield


def _labelled(table: Path, label: str | None) -> tuple["pd.DataFrame", str]:
    """A table by name or by path, and its column to predict."""
    from countertrain.tables import load_frame, read_table
    from countertrain.tables.sources.paper import TABLES

    name = str(table)
    if name in TABLES and not table.exists():
        rows, labels = load_frame(name)
        return rows.assign(**{TABLES[name].label: labels}), label or TABLES[name].label
    if label is None:
        raise ValueError(f"--label must name the column of {table} to predict")
    return read_table(table), label


def _label(text: str | None, classes: list[object]) -> object:
    """A class by its name on the command line."""
    if text is None:
        return None
    found = [label for label in classes if str(label) == text]
    if not found:
        raise ValueError(f"--target must be one of {', '.join(map(str, classes))}; got {text!r}")
    return found[0]
