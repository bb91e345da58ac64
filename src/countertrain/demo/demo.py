"""The main job on embedded data: a table of loans from file to advice that is judged, and the paper's Figure 1."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from countertrain.demo.figures import embed, plot_truth
from countertrain.demo.job import Job, Watch, advise_applicants, train_both
from countertrain.demo.proof import PanelResult, figure_1, proof_of_concept
from countertrain.files import write_text
from countertrain.recourse.rendering import as_text, name_places, say_cost
from countertrain.tables import Dataset
from countertrain.words import plain

__all__ = ["Demo", "demo"]

_NOTHING = "\N{EN DASH}"


@dataclass(frozen=True, eq=False)
class Demo:
    """All that the demo computed."""

    job: Job
    panels: Sequence[PanelResult]
    report: Path


def demo(
    folder: Path,
    *,
    n_people: int = 6000,
    n_applicants: int = 1500,
    n_told: int = 200,
    watch: Watch,
    progress: Callable[[str], Any],
    say: Callable[[str], None],
) -> Demo:
    """Run everything and write report.html; `watch` and `progress` give context managers with progress bars."""
    run = train_both(folder, n_people, watch=watch, say=say)
    with progress("telling people what to change") as count:
        job = advise_applicants(run, folder, n_applicants=n_applicants, n_told=n_told, progress=count)
    panels, data = proof_of_concept(folder / "runs", watch=watch)
    path = folder / "report.html"
    write_text(path, _render(job, panels, data, folder))
    return Demo(job, panels, path)


def _render(job: Job, panels: Sequence[PanelResult], data: Dataset, folder: Path) -> str:
    environment = Environment(
        loader=PackageLoader("countertrain.demo", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"text": _as_cell, "percent": lambda share: f"{100 * share:.0f}\N{NO-BREAK SPACE}%"}
    return environment.get_template("demo.html").render(
        job=job,
        panels=panels,
        figure=embed(figure_1([p.panel for p in panels], data)),
        truth=embed(plot_truth(job.outcomes, job.before, job.accepted)),
        folder=folder,
        name_places=name_places,
        cost_of_1=say_cost(ranked=True),
    )


def _as_cell(value: Any) -> str:
    """A value of a table in a cell; a dash where it is missing."""
    return _NOTHING if value != value else as_text(plain(value))
