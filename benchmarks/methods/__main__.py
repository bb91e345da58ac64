"""Every training method in one comparison, each tuned by as many trials: `make methods`.

Each method is trained with each seed on each data set, with the settings that validation rows chose, and judged on test
rows: by the paper's evaluation under two searches, under attack, and by referees that no method saw. Records go to
results/methods; what is there is not computed again.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.methods.cells import Cell, Effort, is_stored
from benchmarks.methods.compute import compute_cell
from benchmarks.methods.contenders import CONTENDERS
from benchmarks.methods.page import write_page
from benchmarks.methods.records import read_records, summarise
from countertrain.cli.app import run
from countertrain.cli.console import console, frame_table
from countertrain.words import suggest
from reproduction.published import NAMES

__all__ = ["main"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def compare(
    data: Annotated[str, typer.Option(help="Data sets: a,b.")] = "ls,circles,moons,ol,california,gmsc,credit",
    methods: Annotated[str, typer.Option(help="Methods: a,b.")] = ",".join(CONTENDERS),
    seeds: Annotated[int, typer.Option(help="Training seeds.", min=2)] = Effort.seeds,
    rows: Annotated[int, typer.Option(help="Most training rows.", min=100)] = Effort.rows,
    epochs: Annotated[int, typer.Option(help="Epochs of every method.", min=1)] = Effort.epochs,
    rounds: Annotated[int, typer.Option(help="Rounds of the evaluation.", min=1)] = Effort.rounds,
    protected: Annotated[bool, typer.Option("--protected", help="Train with protected features, too.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("results/methods"),
    page: Annotated[Path | None, typer.Option(help="Markdown page to bring up to date, docs/methods.md.")] = None,
    render_only: Annotated[bool, typer.Option("--render-only", help="From stored records; train nothing.")] = False,
) -> None:
    """Tune, train and judge each method on each data set, and render what was found."""
    effort = Effort(seeds, rows, epochs, rounds)
    names, chosen = _check(data, NAMES, "data set"), _check(methods, CONTENDERS, "method")
    cells = [
        Cell(name, method, effort, out, guarded)
        for guarded in ((False, True) if protected else (False,))
        for name in names
        for method in chosen
    ]
    missing = [] if render_only else [cell for cell in cells if not is_stored(cell)]
    for i, cell in enumerate(missing):
        console.print(f"{cell.name}, {i + 1} of {len(missing)}", soft_wrap=True)
        compute_cell(cell)
    records = read_records(out)
    console.print(frame_table("Means and standard deviations over seeds", summarise(records, "eccco")))
    if page is not None:
        console.print(f"{page}: {', '.join(write_page(records, out, page))}", soft_wrap=True)


def _check(names: str, known: Collection[str], kind: str) -> list[str]:
    """The names in "a,b", each of which must be known."""
    asked = names.split(",")
    for name in asked:
        if name not in known:
            raise ValueError(f"there is no {kind} {name!r}; {suggest(name, list(known))}")
    return asked


def main(args: Sequence[str] | None = None) -> None:
    """Run the comparison."""
    run(app, args, "python -m benchmarks.methods")


if __name__ == "__main__":
    main()
