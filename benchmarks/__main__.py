"""`python -m benchmarks`, from a clone: speed measured side by side (`make bench`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from benchmarks import FULL, PARTS, QUICK, Measurement, format_cells, machine, write_page, write_results
from benchmarks import bench as run_bench
from countertrain.cli.app import run
from countertrain.cli.console import console, frame_table

__all__ = ["main", "measurement_table"]

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)


@app.command()
def bench(
    quick: Annotated[
        bool, typer.Option("--quick", help="A minute or two, rough numbers, into a folder of its own.")
    ] = False,
    grid: Annotated[bool, typer.Option("--grid", help="Also the grid of 270 models, minutes on two cores.")] = False,
    page: Annotated[Path | None, typer.Option(help="Markdown file to bring up to date, docs/performance.md.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the numbers and pictures.")] = Path("results"),
) -> None:
    """Measure speed, side by side in one run: search, training, populations, growth, explaining (about 20 minutes).

    Other libraries are measured where they are installed. Numbers and pictures go to results/performance, and with
    --page between the marks of that page.
    """
    budget = QUICK if quick else FULL
    folder = (out / "quick" if quick else out) / "performance"
    names = [name for name in PARTS if grid or name != "grid"]
    parts = run_bench(names, budget=budget, say=lambda t: typer.echo(f"... {t}", err=True))
    write_results(parts, folder, measured_on=machine() + ("; a quick run, rough numbers" if quick else ""))
    sections = write_page(page, folder) if page is not None else []
    for part in parts:
        console.print(frame_table(part.name, format_cells(part.table.drop(columns="note", errors="ignore"))))
    console.print(measurement_table([m for part in parts for m in part.measurements]))
    console.print(f"[dim]{folder}[/]")
    if page is not None:
        console.print(f"{page}: {', '.join(sections) or 'no marks to put anything between'}")


def measurement_table(measurements: Sequence[Measurement]) -> Table:
    """Speed, with the bar that each measurement has to pass."""
    table = Table(title="Speed, one thread", title_justify="left")
    for heading in ("measurement", "value", "bar", "", "note"):
        table.add_column(heading, justify="right" if heading in ("value", "bar") else "left")
    for m in measurements:
        bar = f"{'>=' if m.at_least else '<='} {m.bar:g}"
        table.add_row(m.what, f"{m.value:.2f} {m.unit}", bar, "ok" if m.holds else "[bold red]missed[/]", m.note)
    return table


def main(args: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    run(app, args, "python -m benchmarks")


if __name__ == "__main__":
    main()
