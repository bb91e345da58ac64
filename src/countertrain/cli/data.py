"""Data on the command line."""

from pathlib import Path
from typing import Annotated

import typer

from countertrain.cli.app import app

__all__: list[str] = []


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(help="CSV file with a header, or parquet file.", metavar="FILE")],
    folder: Annotated[Path, typer.Argument(help="New folder for the rows, which `countertrain train` takes as data.")],
    target_column: Annotated[str | None, typer.Option(help="Column to predict; the last one if left out.")] = None,
    data_seed: Annotated[int, typer.Option(help="Seed of the split.", min=0)] = 42,
) -> None:
    """Convert a table that does not fit in memory, so that `countertrain train FOLDER` can read its rows from disk.

    Numbers are standardised, all else one-hot coded, and the training rows shuffled, as for a CSV file that fits; for
    validation and test, 10,000 rows each are held out at most.
    """
    from countertrain.cli.console import console, counting
    from countertrain.tables.sources.convert import convert as convert_table

    with counting(f"converting {source}") as progress:
        convert_table(source, folder, label=target_column, data_seed=data_seed, progress=progress)
    console.print(f"rows: {folder}\n[dim]next: countertrain train {folder}[/]", soft_wrap=True)
