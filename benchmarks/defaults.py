"""Which settings are a good default? Named variants, judged like the advice of `make advice`: `make defaults`.

The rows are none of those that the published figures are computed on: what is left of the large tables, and loans that
nobody else draws. Records go to results/defaults; what is there is not computed again.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from benchmarks.advice_page import TWIN
from benchmarks.advice_tables import CHOOSING, Problem
from benchmarks.advisers import judge_cell, network
from benchmarks.cells import compute_cells, list_cells, read_records
from benchmarks.defaults_page import average, compare_variants, write_out, write_section
from benchmarks.teachers import Kinds
from countertrain.cli.app import run
from countertrain.cli.console import console, frame_table

__all__ = ["VARIANTS", "compute_cell", "main"]

VARIANTS: dict[str, Mapping[str, Any]] = {
    "default": {},
    TWIN: {"objective": "bl"},
    "lambda_div 0": {"lambda_div": 0.0, "lambda_reg": 0.0},
    "lambda_div 0.05": {"lambda_div": 0.05, "lambda_reg": 0.05},
    "lambda_div 0.3": {"lambda_div": 0.3, "lambda_reg": 0.3},
    "lambda_teach 1": {"lambda_teach": 1.0},
    "lambda_teach 4": {"lambda_teach": 4.0},
    "n_ce 500": {"n_ce": 500},
    "n_ce 2000": {"n_ce": 2000},
    "n_ce 4000": {"n_ce": 4000},
    "tau 0.6": {"tau": 0.6},
    "tau 0.9": {"tau": 0.9},
    "n_steps 20": {"n_steps": 20},
    "32 pieces": {"settings": {"n_pieces": 32}},
    "mean weights": {"settings": {"averaging": 0.995}},
    "mean weights of 32 pieces": {"settings": {"averaging": 0.995, "n_pieces": 32}},
    "hidden 64": {"hidden": (64,)},
    "hidden 256": {"hidden": (256,)},
    "two layers of 128": {"hidden": (128, 128)},
    "1 model": {"n_models": 1},
    "5 models": {"n_models": 5},
    "learning_rate 0.001": {"learning_rate": 1e-3},
    "learning_rate 0.004": {"learning_rate": 4e-3},
    "patience 3": {"patience": 3},
    "patience 12 of 80 epochs": {"patience": 12, "epochs": 80},
    "teacher of two kinds": {"teacher": Kinds()},
    "teacher of two kinds by merit": {"teacher": Kinds(by_merit=True)},
    "teacher of three kinds": {"teacher": Kinds(trees=True)},
    "advloss 0.25": {"settings": {"terms": {"advloss": 0.25}}},
    "teacher sees mutable": {"settings": {"teacher_sees": "mutable"}},
}
"""Parameters of the classifier, one change of the default each; what is not named is the default's.

The default has lambda_div 0.1, lambda_reg 0.1, lambda_teach 2, n_ce 1000, tau 0.75, n_steps 10, hidden (128,), 16
pieces of a number, two models, learning_rate 0.002, the last weights, patience 6 of 40 epochs, and a teacher that sees
all columns.
"""


def compute_cell(table: str, variant: str, seed: int) -> pd.DataFrame:
    """Train one variant on one split of the rows for choosing, and judge its advice: a row for each tau."""
    return judge_cell(Problem.of(CHOOSING[table](), seed), network(**VARIANTS[variant]))


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def defaults(
    tables: Annotated[str, typer.Option(help="Tables to judge on: a,b.")] = ",".join(CHOOSING),
    variants: Annotated[str, typer.Option(help="Variants to judge: a,b.")] = ",".join(VARIANTS),
    seeds: Annotated[int, typer.Option(help="Seeds of split and training.", min=1)] = 2,
    jobs: Annotated[int, typer.Option(help="Processes that compute, of one thread each.", min=1)] = 1,
    out: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("results/defaults"),
    page: Annotated[Path | None, typer.Option(help="Markdown page to put it into, docs/advice.md.")] = None,
    each: Annotated[bool, typer.Option("--each", help="Print a line per table and variant, too.")] = False,
) -> None:
    """Train each variant on each table, judge its advice, and compare it with the conventional network's."""
    compute_cells(list_cells(tables, variants, seeds, out, (CHOOSING, VARIANTS)), compute_cell, jobs=jobs)
    found = compare_variants(read_records(out))
    if each:
        console.print(frame_table("Each table", write_out(found)))
    console.print(frame_table("Mean over tables", average(found)))
    if page is not None:
        write_section(found, page, out)


def main(args: Sequence[str] | None = None) -> None:
    """Run the search."""
    run(app, args, "python -m benchmarks.defaults")


if __name__ == "__main__":
    main()
