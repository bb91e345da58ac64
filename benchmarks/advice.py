"""Does the advice hold? Holding against cost, method by method and table by table: `make advice`.

Each table is split 70/30 by a seed; each method is trained on the 70 with its defaults; people of the 30 whom boosting
and logistic regression refuse, and the method's own model, too, are told what to change; models that know nothing of
the method judge the rows that they are told. Records go to results/advice; what is there is not computed again.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from benchmarks.advice_page import OURS, TWIN, average_tables, compare_at_equal_cost, summarise, write_page
from benchmarks.advice_tables import GROUPS, TABLES, UNSEEN, Problem
from benchmarks.advisers import Prepare, judge_cell, network
from benchmarks.baselines import BASELINES
from benchmarks.cells import compute_cells, list_cells, read_records
from countertrain.cli.app import run
from countertrain.cli.console import console, frame_table

__all__ = ["METHODS", "compute_cell", "main"]

METHODS: dict[str, Prepare] = {
    OURS: network(),
    TWIN: network(objective="bl"),
    "CT as published": network(objective="ct", lambda_div=0.5, lambda_adv=0.25, lambda_reg=0.25),
    "divergence alone": network(objective="cd"),
    "teacher alone": network(lambda_div=0.0, lambda_reg=0.0),
    **BASELINES,
}
"""Our default and what it is compared with; all networks have the default's inputs, size, ensemble and stopping."""


def compute_cell(table: str, method: str, seed: int) -> pd.DataFrame:
    """Train one method on one split of a table, and judge its advice: a row for each tau."""
    return judge_cell(Problem.of((TABLES | UNSEEN)[table].take(), seed), METHODS[method])


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def advice(
    tables: Annotated[str, typer.Option(help="Tables to judge on: a,b.")] = ",".join([*TABLES, *UNSEEN]),
    methods: Annotated[str, typer.Option(help="Methods to judge: a,b.")] = ",".join(METHODS),
    seeds: Annotated[int, typer.Option(help="Seeds of split and training.", min=1)] = 5,
    jobs: Annotated[int, typer.Option(help="Processes that compute, of one thread each.", min=1)] = 1,
    out: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("results/advice"),
    page: Annotated[Path | None, typer.Option(help="Markdown page to render, docs/advice.md.")] = None,
) -> None:
    """Train each method on each table, judge its advice, and render what was found."""
    compute_cells(list_cells(tables, methods, seeds, out, (TABLES | UNSEEN, METHODS)), compute_cell, jobs=jobs)
    records = read_records(out)
    console.print(frame_table("On average over tables", average_tables(records, GROUPS)))
    console.print(frame_table("Advice as it is given by default", summarise(records)))
    console.print(frame_table("Share that holds at equal cost", compare_at_equal_cost(records)))
    if page is not None:
        write_page(records, page, out, GROUPS)


def main(args: Sequence[str] | None = None) -> None:
    """Run the comparison."""
    run(app, args, "python -m benchmarks.advice")


if __name__ == "__main__":
    main()
