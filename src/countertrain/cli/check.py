"""A look at a table before training, on the command line."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from countertrain.cli import options
from countertrain.cli.app import app

if TYPE_CHECKING:
    from rich.table import Table

    from countertrain.tables import Inspection

__all__: list[str] = []

_MARKS = {"refused": "[red]✗[/]", "warning": "[yellow]![/]", "note": "[dim]·[/]"}


@app.command()
def check(
    data: Annotated[str, typer.Argument(help="CSV, Excel or Parquet file, or the name of a table.", metavar="TABLE")],
    label: options.Label = None,
    drop: options.Drop = None,
    schema: options.SchemaFile = None,
    schema_out: Annotated[
        Path | None, typer.Option(help="TOML file for the proposed schema, to be edited and given back by --schema.")
    ] = None,
) -> None:
    """Look at a table before training: everything that is odd about it at once, and what to do about it.

    Ids, constants, columns that give the label away, free text, dates, mixed types, missing values, codes, rare levels
    and classes, rows that are there twice, and columns that nobody can change. Ends with code 0 if training would go
    through, and with 2 if it would not.
    """
    from countertrain.cli.console import console
    from countertrain.files import write_text
    from countertrain.runs.registry import read_schema
    from countertrain.tables import inspect_source

    declared = None if schema is None else read_schema(schema)
    look = inspect_source(data, label, schema=declared, drop=options.split_names(drop))
    if look.findings:
        console.print(_tabulate(look))
    if not look.proposal.columns:
        console.print("no column is left to learn from, so that there is no schema to propose", soft_wrap=True)
        schema_out = None
    if schema_out is not None:
        write_text(schema_out, look.to_toml())
        console.print(f"schema: {schema_out}, with {_say_proposal(look)}", soft_wrap=True)
    _print_verdict(look, data, schema, schema_out)
    if look.refused:
        raise typer.Exit(2)


def _tabulate(look: "Inspection") -> "Table":
    from rich.markup import escape
    from rich.table import Table

    title = f"{look.title}: {look.n_rows:,} rows, {look.n_columns} columns, label {look.label!r}"
    table = Table(title=escape(title), title_justify="left", caption_justify="left")
    for heading in ("", "column", "what was seen", "what training does", "the way out"):
        table.add_column(heading, overflow="fold")
    before = look.findings[0].weight
    for one in look.findings:
        if one.weight != before:
            table.add_section()
            before = one.weight
        cells = (one.column if one.column is not None else "(the table)", one.seen, one.done, one.way_out)
        table.add_row(_MARKS[one.weight], *map(escape, cells))
    table.caption = "✗ training refuses it   ! would spoil the model   · for your information"
    return table


def _say_proposal(look: "Inspection") -> str:
    n_dropped, n_fixed = len(look.proposal.dropped), len(look.fixed)
    n_kept = len(look.proposal.columns)
    return f"{n_kept} columns declared ({n_fixed} of them fixed) and {n_dropped} dropped; a comment says why"


def _print_verdict(look: "Inspection", data: str, schema: Path | None, schema_out: Path | None) -> None:
    from countertrain.cli.console import console

    n = len(look.refused)
    told = shlex.join(["countertrain", "train", data, "--label", look.label])
    if n:
        reasons = "one reason" if n == 1 else f"{n} reasons"
        console.print(f"training would refuse {look.title} as it is, for {reasons} (✗)", soft_wrap=True)
        mended = {"rule"}  # in the schema, where it stands
        left = [
            one.column or "the table"
            for one in look.refused
            if "(proposed)" not in one.way_out and one.kind not in mended
        ]
        if left:
            console.print(f"a schema cannot mend this, only the file: {', '.join(left)}", soft_wrap=True)
    else:
        console.print("training would go through", soft_wrap=True)
    if schema_out is not None:
        console.print(f"[dim]next: read and edit {schema_out}, then: {told} --schema {schema_out}[/]", soft_wrap=True)
    elif look.findings and schema is None:
        again = shlex.join(["countertrain", "check", data, "--label", look.label, "--schema-out", "schema.toml"])
        console.print(f"[dim]next, for a schema with all that is proposed: {again}[/]", soft_wrap=True)
    elif not n:
        console.print(f"[dim]next: {told}{'' if schema is None else f' --schema {schema}'}[/]", soft_wrap=True)
