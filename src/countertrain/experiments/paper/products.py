"""The paper's tables and figures by name: which cells each needs, and how it is rendered from them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from countertrain.experiments.paper import figures
from countertrain.experiments.paper.cells import Cell, Effort, compute, compute_pooled, paper_cells
from countertrain.experiments.paper.tables import TABLES, table1, write_table
from countertrain.experiments.run import Run, open_run

__all__ = ["PRODUCTS", "Place", "Product"]


@dataclass(frozen=True)
class Place:
    """Where records lie, where trained models lie, and where tables and figures go."""

    records: Path
    runs: Path
    rendered: Path

    def run(self, cell: Cell, effort: Effort) -> Run:
        """The trained models of a cell."""
        return open_run(self.runs / cell.profile / f"{cell.name}-{effort.n_seeds}")


@dataclass(frozen=True)
class Product:
    """A table or figure: its cells, and its files."""

    title: str
    cells: Callable[[Sequence[str]], list[Cell]]
    render: Callable[[Sequence[str], Place, Effort], list[Path]]
    compute: Callable[[Cell, Effort, Path, Path], None] = compute
    only: str | None = None
    """The one data set that it is about, if it is."""


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
        if name == "table1":
            paths += figures.save("table1-against-published", figures.against_published(frame), place.rendered)
        return paths

    return render


def _as_written(datasets: Sequence[str], place: Place, effort: Effort) -> list[Path]:
    return write_table("table1-as-written", table1(datasets, place.records, "as-written"), place.rendered)


def _mnist(name: str, variant: str) -> Callable[[Sequence[str], Place, Effort], list[Path]]:
    def render(datasets: Sequence[str], place: Place, effort: Effort) -> list[Path]:
        bl, ct = (place.run(Cell("mnist", o, variant), effort) for o in ("bl", "ct"))  # type: ignore[arg-type]
        if name == "figure-mnist-ce":
            return figures.save(name, figures.mnist_strip(bl, ct), place.rendered)
        if name == "figure-mnist-ig":
            return figures.save(name, figures.mnist_ig(bl, ct), place.rendered)
        return [
            path
            for run in (ct, bl)
            for path in figures.save(f"{name}-{run.settings.objective}", figures.mnist_grid(run), place.rendered)
        ]

    return render


PRODUCTS: dict[str, Product] = {
    "table1": Product("Reductions of IP, IP* and cost", _pairs, _table("table1")),
    "table-ci": Product("Mean outcomes and intervals", _pairs, _table("table-ci")),
    "table-ig": Product("Sensitivity to protected features", _protected, _table("table-ig")),
    "table-validity": Product("Validity, free and constrained", _pairs, _table("table-validity")),
    "table-costs": Product("Reduction of cost without constraints", _pairs, _table("table-costs")),
    "table-pooled": Product(
        "IP* pooled, so that it means something on MNIST",
        lambda datasets: [cell for cell in _pairs(datasets) if cell.variant == "free"],
        _table("table-pooled"),
        compute=compute_pooled,
    ),
    "table1-as-written": Product(
        "Table 1 by the text of the paper",
        lambda datasets: paper_cells(datasets, "as-written", ablation=False),
        _as_written,
    ),
    "figure-robustness": Product(
        "Accuracy under FGSM and PGD",
        _free,
        lambda d, place, e: figures.save("figure-robustness", figures.robustness(d, place.records), place.rendered),
    ),
    "figure-ablation": Product(
        "Reductions by the partial objectives",
        _free,
        lambda d, place, e: figures.save("figure-ablation", figures.ablation(d, place.records), place.rendered),
    ),
    "figure-ig-box": Product(
        "Spread of the sensitivity to protected features",
        _protected,
        lambda d, place, e: figures.save("figure-ig-box", figures.ig_box(d, place.records), place.rendered),
    ),
    "figure-mnist-ce": Product(
        "A zero turned into every digit", _pairs, _mnist("figure-mnist-ce", "free"), only="mnist"
    ),
    "figure-mnist-grid": Product(
        "Every digit turned into every other", _pairs, _mnist("figure-mnist-grid", "free"), only="mnist"
    ),
    "figure-mnist-ig": Product(
        "Integrated gradients by digit", _pairs, _mnist("figure-mnist-ig", "protected"), only="mnist"
    ),
}
