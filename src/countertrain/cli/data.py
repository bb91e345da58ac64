"""What there is on the command line: data sets, settings, converted tables, the demo."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from countertrain.cli import options
from countertrain.cli.app import app

if TYPE_CHECKING:
    from rich.table import Table

__all__: list[str] = []


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(help="CSV file with a header, or parquet file.", metavar="FILE")],
    folder: Annotated[Path, typer.Argument(help="New folder for the rows, which `countertrain train` takes as data.")],
    label: options.Label = None,
    data_seed: Annotated[int, typer.Option(help="Seed of the split.", min=0)] = 42,
) -> None:
    """Convert a table that does not fit in memory, so that `countertrain train FOLDER` can read its rows from disk.

    Numbers are standardised, all else one-hot coded, and the training rows shuffled, as for a CSV file that fits; for
    validation and test, 10,000 rows each are held out at most.
    """
    from countertrain.cli.console import console, counting
    from countertrain.tables.sources.convert import convert as convert_table

    with counting(f"converting {source}") as progress:
        convert_table(source, folder, label=label, data_seed=data_seed, progress=progress)
    console.print(f"rows: {folder}\n[dim]next: countertrain train {folder}[/]", soft_wrap=True)


@app.command("list")
def list_(
    what: Annotated[
        str,
        typer.Argument(help="data, settings, methods or generators.", metavar="[data|settings|methods|generators]"),
    ] = "data",
) -> None:
    """List the data sets, every setting with its default, the training methods or the counterfactual searches."""
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
    elif what in ("methods", "generators"):
        console.print(_list_made("objective" if what == "methods" else "generator"))
    else:
        raise ValueError(f"list shows 'data', 'settings', 'methods' or 'generators'; got {what!r}")


def _list_made(kind: str) -> "Table":
    """What there is of a kind: its name, what it is in a sentence, and the settings that it looks at."""
    from rich.table import Table

    from countertrain.runs.registry import describe

    table = Table(title=f"For --set {kind}=NAME", title_justify="left")
    for heading in ("name", "what it is", "settings that it looks at"):
        table.add_column(heading)
    for made in describe(kind):
        table.add_row(made.name, made.title, ", ".join(made.settings))
    return table


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the runs and the report.")] = Path("demo"),
) -> None:
    """Run the main job on embedded data (under a minute) and write a report to look at.

    A table of loans from file to advice: a CT model and its conventional twin, what declined people are told, and
    whether those who follow really repay, which is known, because the table comes from a process that is known. Beside
    it the paper's Figure 1: a linear model of debt and age, conventional and CT, with and without `age` immutable.
    """
    from countertrain.cli.console import console, counting, panel_table, training_bar, truth_table
    from countertrain.demo.demo import demo as run_demo

    done = run_demo(out, watch=training_bar, progress=counting, say=lambda text: typer.echo(f"... {text}", err=True))
    for person in done.job.people:
        console.print(person.explanation.summary(), soft_wrap=True)
        console.print(f"  in truth: repays with probability {person.before:.2f} now, {person.after:.2f} afterwards\n")
    console.print(truth_table(done.job))
    console.print(panel_table(done.panels))
    console.print(f"report: {done.report}", soft_wrap=True)
    console.print(
        f"[dim]next: countertrain explain {out / 'loans'} --rows {out / 'applicants.csv'} --target repaid   |   "
        f"countertrain report {out / 'loans'} --target repaid   |   countertrain serve {out / 'loans'}[/]",
        soft_wrap=True,
    )
