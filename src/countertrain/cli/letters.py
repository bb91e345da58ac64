"""Letters on the command line: one per person, with reasons, options, what is fixed, and how to object."""

from pathlib import Path
from typing import Annotated

import typer

from countertrain.cli import options
from countertrain.cli.app import app
from countertrain.cli.options import find_codes, find_columns, split_names
from countertrain.recourse.defaults import OPTIONS
from countertrain.words import list_names

__all__: list[str] = []


@app.command()
def letters(
    folder: options.Folder,
    rows: Annotated[Path, typer.Option(help="CSV, Excel or Parquet file of people.")],
    out: Annotated[Path, typer.Option(help="Folder for the letters.")],
    target: options.Target = None,
    template: Annotated[
        list[Path] | None, typer.Option(help="letter.html.j2 or letter.txt.j2 of your own; repeatable.")
    ] = None,
    owner: Annotated[
        Path | None, typer.Option(help="TOML file: name, contact, how to object, labels of columns and decisions.")
    ] = None,
    reasons: options.Reasons = None,
    formats: Annotated[
        list[str] | None, typer.Option("--format", help="html, text, pdf; several with commas.", show_default="html")
    ] = None,
    id_column: Annotated[
        str | None, typer.Option(help="Column of the file to call letters by; the place of the row if left out.")
    ] = None,
    n_options: Annotated[int, typer.Option("--options", help="Options for each person.", min=1, max=10)] = OPTIONS,
    immutable: options.Immutable = None,
    tau: Annotated[
        float | None,
        typer.Option(help="Probability of the target class to reach.", show_default="as of most who have it"),
    ] = None,
    everyone: Annotated[bool, typer.Option(help="Also write to those who have the decision wanted.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace letters that are there.")] = False,
) -> None:
    """Write a letter to each person who does not get the decision wanted, and a record of it as JSON beside it."""
    from countertrain.cli.console import console
    from countertrain.recourse.letters import Owner
    from countertrain.recourse.search import explain
    from countertrain.runs.folder import read_run
    from countertrain.tables import naming_lines, read_table

    run = read_run(folder)
    decider = run.decider.want(target)
    if decider.target is None:
        raise ValueError("letters need --target, the decision that people want")
    people = read_table(rows)
    named = None if id_column is None else find_columns("--id-column", [id_column], people.columns, str(rows))[0]
    fixed = find_columns("--immutable", immutable, run.data.schema.names, "the model")
    with naming_lines(rows, len(people)):
        found = explain(decider, people, options=n_options, immutable=fixed, tau=tau)
    written = found.letters(
        out,
        owner=owner,
        reasons=find_codes(reasons),
        templates=template or (),
        formats=split_names(formats) or ("html",),
        ids=None if named is None else people[named].tolist(),
        everyone=everyone,
        overwrite=overwrite,
    )
    n = int((found.decision == found.target).sum())
    kept = (
        ""
        if everyone or not n
        else f"; for {n:,} of {len(found):,} the decision is {decider.target} already: no letter"
    )
    console.print(f"{len(written):,} letters: {out}{kept}", soft_wrap=True, markup=False)
    spoken = Owner.read(owner, decider.encoder.schema, decider.classes)
    unnamed = [label for label in decider.classes if not spoken.knows(label)]
    if unnamed:
        no_words = "is no word" if len(unnamed) == 1 else "are no words"
        said = f"{list_names(unnamed)} {no_words} for a decision: letters say 'accepted' or 'not accepted'"
        console.print(
            f"{said}; [decisions] in a file given by --owner has your own words", soft_wrap=True, markup=False
        )
