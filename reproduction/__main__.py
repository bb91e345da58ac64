"""The paper on the command line: its tables, figures and grid searches."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from countertrain.cli.app import run
from countertrain.cli.console import console, counting, frame_table
from countertrain.runs.work import distinct, run_all
from countertrain.words import suggest
from reproduction.cells import Effort
from reproduction.products import PRODUCTS, Place
from reproduction.published import NAMES
from reproduction.tables import TABLES
from reproduction.writing import insert_tables

__all__ = ["main"]

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)


@app.command()
def paper(
    what: Annotated[
        list[str] | None, typer.Argument(help="A table, figure or grid, `all`, or `list`.", show_default="list")
    ] = None,
    datasets: Annotated[list[str] | None, typer.Option(help="Data sets; those of the paper if left out.")] = None,
    seeds: Annotated[int, typer.Option(help="Training seeds of each cell; the paper has 1.", min=1)] = 10,
    quick: Annotated[
        bool, typer.Option("--quick", help="5 evaluation rounds instead of 100, into its own folder.")
    ] = False,
    workers: Annotated[int, typer.Option(help="Processes side by side, one thread each.", min=1)] = 2,
    out: Annotated[Path, typer.Option(help="Folder of records, tables and figures.")] = Path("results"),
    render_only: Annotated[bool, typer.Option("--render-only", help="From stored records; train nothing.")] = False,
    document: Annotated[
        Path | None, typer.Option(help="Markdown file to bring up to date, docs/reproduction.md.")
    ] = None,
) -> None:
    """Reproduce the paper's tables, figures and grid searches, our number beside the published one.

    What is stored is not computed again, so it can be stopped and started at any point; trained models are kept under
    runs/paper. Examples: python -m reproduction table1 --datasets circles moons --seeds 2 --quick, and
    python -m reproduction grid gen-params --datasets moons
    """
    name = " ".join(what or ["list"])
    if name == "list":
        for known, product in PRODUCTS.items():
            console.print(f"{known:20} {product.title}")
        return
    if name != "all" and name not in PRODUCTS:
        hint = suggest(name, PRODUCTS, "`python -m reproduction list` shows them all")
        raise ValueError(f"unknown table, figure or grid {name!r}; {hint}")
    chosen = _choose_datasets(
        list(PRODUCTS) if name == "all" else [name], _check_datasets(datasets) if datasets else None
    )
    effort = Effort(n_seeds=seeds, rounds=5 if quick else 100)
    folder = out / "quick" if quick else out
    place = Place(folder / "records", Path("runs") / "paper", folder / "paper")
    if not render_only:
        _compute(chosen, place, effort, workers)
    for known, wanted in chosen.items():
        try:
            for path in PRODUCTS[known].render(wanted, place, effort):
                console.print(f"[dim]{path}[/]")
        except ValueError as error:  # of models that were trained elsewhere, or of records that there are not
            console.print(f"{known} left out: {error}", soft_wrap=True)
    if document is not None:
        console.print(f"{document}: {', '.join(insert_tables(document, place.rendered)) or 'nothing to put in'}")
    if "table1" in chosen and not (shown := TABLES["table1"](chosen["table1"], place.records)).empty:
        shown = shown[["data", "metric", "published", "published ±", "ours", "sd over seeds", "same sign"]]
        console.print(frame_table("Table 1, reductions in percent", shown))


def _choose_datasets(names: Sequence[str], wanted: Sequence[str] | None) -> dict[str, list[str]]:
    """The data sets that each product is to be made for; products without any are left out."""
    scopes = {}
    for name in names:
        product = PRODUCTS[name]
        data = [d for d in NAMES if d in (product.datasets if wanted is None else wanted)]
        scopes[name] = data if product.others else [d for d in data if d in product.datasets]
    return {name: data for name, data in scopes.items() if data}


def _compute(chosen: Mapping[str, Sequence[str]], place: Place, effort: Effort, workers: int) -> None:
    """All tasks of all products, each once; those that need others' models come after them."""
    for after in (False, True):
        products = [(PRODUCTS[name], data) for name, data in chosen.items() if PRODUCTS[name].after is after]
        tasks = distinct(task for product, data in products for task in product.tasks(data, place, effort))
        if tasks:
            with counting(f"{len(tasks)} tasks, {workers} workers") as progress:
                run_all(tasks, workers=workers, progress=progress)


def _check_datasets(datasets: Sequence[str]) -> list[str]:
    """These data sets of the paper, in its order."""
    unknown = [name for name in datasets if name not in NAMES]
    if unknown:
        raise ValueError(f"the paper has no data set {unknown[0]!r}; {suggest(unknown[0], NAMES)}")
    return [name for name in NAMES if name in datasets]


def main(args: Sequence[str] | None = None) -> None:
    """Run the reproduction."""
    run(app, args, "python -m reproduction")


if __name__ == "__main__":
    main()
