"""The paper's tables, figures and grids by name: what each needs computed, and how it is rendered."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from countertrain.demo.proof import figure_1, proof_of_concept
from countertrain.runs.folder import read_run
from countertrain.runs.profiles import TUNED
from countertrain.runs.run import Run
from countertrain.runs.work import Task
from reproduction import figures
from reproduction.cells import (
    SYNTHETIC,
    TABULAR,
    Cell,
    Effort,
    Variant,
    compute_cell,
    compute_pooled,
    paper_cells,
)
from reproduction.grids import GRIDS, grid_tasks, has_records, render_grid
from reproduction.published import NAMES
from reproduction.tables import TABLES, table1
from reproduction.writing import write_figure, write_table

__all__ = ["PRODUCTS", "Place", "Product"]


@dataclass(frozen=True)
class Place:
    """Where records lie, where trained models lie, and where tables and figures go."""

    records: Path
    runs: Path
    rendered: Path

    def run(self, cell: Cell, effort: Effort) -> Run:
        """The trained models of a cell."""
        return read_run(self.runs / cell.profile / f"{cell.name}-{effort.n_seeds}")


@dataclass(frozen=True)
class Product:
    """A table or figure: what has to be computed for it, and its files."""

    title: str
    tasks: Callable[[Sequence[str], Place, Effort], list[Task]]
    render: Callable[[Sequence[str], Place, Effort], list[Path]]
    datasets: tuple[str, ...] = tuple(NAMES)
    """Data sets that it is made for unless others are asked for."""
    others: bool = True
    """Whether it can be made for others."""
    after: bool = False
    """Whether its tasks need the models that other tasks train."""


def _cells(choose: Callable[[Sequence[str]], list[Cell]]) -> Callable[[Sequence[str], Place, Effort], list[Task]]:
    def tasks(datasets: Sequence[str], place: Place, effort: Effort) -> list[Task]:
        return [
            Task(partial(compute_cell, cell, effort, place.records, place.runs), cell.cost, key=cell)
            for cell in choose(datasets)
        ]

    return tasks


def _pairs(datasets: Sequence[str]) -> list[Cell]:
    return paper_cells(datasets, ablation=False)


def _protected(datasets: Sequence[str]) -> list[Cell]:
    return [cell for cell in _pairs(datasets) if cell.variant == "protected"]


def _free(datasets: Sequence[str]) -> list[Cell]:
    return [cell for cell in paper_cells(datasets) if cell.variant == "free"]


def _table(name: str) -> Callable[[Sequence[str], Place, Effort], list[Path]]:
    def render(datasets: Sequence[str], place: Place, effort: Effort) -> list[Path]:
        frame = TABLES[name](datasets, place.records)
        paths = write_table(name, frame, place.rendered)
        if name == "table1" and not frame.empty:
            paths += write_figure("table1-against-published", figures.plot_against_published(frame), place.rendered)
        return paths

    return render


def _pooled(datasets: Sequence[str], place: Place, effort: Effort) -> list[Task]:
    cells = [cell for cell in _pairs(datasets) if cell.variant == "free"]
    return [
        Task(partial(compute_pooled, cell, effort, place.records, place.runs), cell.cost, key=("pooled", cell))
        for cell in cells
    ]


def _profile(name: str, title: str, datasets: tuple[str, ...] = tuple(NAMES)) -> Product:
    """Table 1 under another profile; Table 1 itself shows it as a column, too."""

    def render(datasets: Sequence[str], place: Place, effort: Effort) -> list[Path]:
        return write_table(f"table1-{name}", table1(datasets, place.records, name), place.rendered)

    return Product(title, _cells(lambda wanted: paper_cells(wanted, name, ablation=False)), render, datasets)


def _render_idea(datasets: Sequence[str], place: Place, effort: Effort) -> list[Path]:
    panels, data = proof_of_concept(place.runs / "poc")
    return write_figure("figure-poc", figure_1([panel.panel for panel in panels], data), place.rendered)


def _grid(name: str, datasets: tuple[str, ...]) -> Product:
    def tasks(datasets: Sequence[str], place: Place, effort: Effort) -> list[Task]:
        return [task for data in datasets for task in grid_tasks(name, data, place.records)]

    def render(datasets: Sequence[str], place: Place, effort: Effort) -> list[Path]:
        there = [data for data in datasets if has_records(name, data, place.records)]
        return [path for data in there for path in render_grid(name, data, place.records, place.rendered)]

    return Product(f"Grid search: {GRIDS[name].title}", tasks, render, datasets)


def _mnist(name: str, title: str) -> Product:
    def render(datasets: Sequence[str], place: Place, effort: Effort) -> list[Path]:
        variant: Variant = "protected" if name == "figure-mnist-ig" else "free"
        bl, ct = place.run(Cell("mnist", "bl", variant), effort), place.run(Cell("mnist", "ct", variant), effort)
        if name == "figure-mnist-ce":
            return write_figure(name, figures.plot_mnist_strip(bl, ct), place.rendered)
        if name == "figure-mnist-ig":
            return write_figure(name, figures.plot_mnist_ig(bl, ct), place.rendered)
        return [
            path
            for run in (ct, bl)
            for path in write_figure(f"{name}-{run.settings.objective}", figures.plot_mnist_grid(run), place.rendered)
        ]

    return Product(title, _cells(_pairs), render, ("mnist",), others=False)


PRODUCTS: dict[str, Product] = {
    "table1": Product("Reductions of IP, IP* and cost", _cells(_pairs), _table("table1")),
    "table-ci": Product("Mean outcomes and intervals", _cells(_pairs), _table("table-ci")),
    "table-ig": Product("Sensitivity to protected features", _cells(_protected), _table("table-ig")),
    "table-validity": Product("Validity, free and constrained", _cells(_pairs), _table("table-validity")),
    "table-costs": Product("Reduction of cost without constraints", _cells(_pairs), _table("table-costs")),
    "table-accuracy": Product("Accuracy of all models, under every profile", _cells(_free), _table("table-accuracy")),
    "table-pooled": Product(
        "IP* pooled, so that it means something on MNIST", _pooled, _table("table-pooled"), after=True
    ),
    "table1-as-written": _profile("as-written", "Table 1 by the text of the paper"),
    "table1-longer": _profile("longer", "Table 1, three times as many epochs", SYNTHETIC),
    "table1-categories": _profile("categories", "Table 1, categories changing in training", ("adult", "credit")),
    "table1-neighbours": _profile("neighbours", "Table 1, nearest of 16 neighbours and 128 units", TABULAR),
    "table1-tuned": _profile("tuned", "Table 1, settings tuned on validation rows", tuple(TUNED)),
    "figure-poc": Product(
        "The idea on debt and age (Figure 1)", lambda d, p, e: [], _render_idea, ("ls",), others=False
    ),
    "figure-robustness": Product(
        "Accuracy under FGSM and PGD",
        _cells(_free),
        lambda d, place, e: write_figure(
            "figure-robustness", figures.plot_robustness(d, place.records), place.rendered
        ),
    ),
    "figure-ablation": Product(
        "Reductions by the partial objectives",
        _cells(_free),
        lambda d, place, e: write_figure("figure-ablation", figures.plot_ablation(d, place.records), place.rendered),
    ),
    "figure-ig-box": Product(
        "Spread of the sensitivity to protected features",
        _cells(_protected),
        lambda d, place, e: write_figure("figure-ig-box", figures.plot_ig_box(d, place.records), place.rendered),
    ),
    "figure-mnist-ce": _mnist("figure-mnist-ce", "A zero turned into every digit"),
    "figure-mnist-grid": _mnist("figure-mnist-grid", "Every digit turned into every other"),
    "figure-mnist-ig": _mnist("figure-mnist-ig", "Integrated gradients by digit"),
    **{name: _grid(name, SYNTHETIC if name.startswith("grid") else tuple(NAMES)) for name in GRIDS},
}
