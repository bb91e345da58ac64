"""The main job on embedded data: the paper's Figure 1, and a conventional and a CT model of breast cancer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

from countertrain.demo.figures import embed, plot_reductions
from countertrain.demo.proof import PanelResult, Watch, figure_1, proof_of_concept
from countertrain.evaluation.comparison import Reduction, compare
from countertrain.evaluation.metrics import known
from countertrain.files import write_text
from countertrain.runs.measure import Scores
from countertrain.runs.settings import Settings
from countertrain.runs.training import train
from countertrain.tables import Dataset

__all__ = ["Demo", "demo"]


@dataclass(frozen=True, eq=False)
class Demo:
    """All that the demo computed."""

    panels: Sequence[PanelResult]
    scores: dict[str, Scores]
    reductions: Sequence[Reduction]
    report: Path


def demo(folder: Path, *, n_seeds: int = 5, watch: Watch, progress: Callable[[str], Any]) -> Demo:
    """Run everything and write report.html; `watch` and `progress` give context managers with progress bars."""
    panels, loans = proof_of_concept(folder / "runs", watch=watch)
    scores = {}
    for name in ("bl", "ct"):
        settings = Settings.resolve("breast-cancer", {"objective": name, "seeds": list(range(n_seeds))})
        with watch(f"breast-cancer, {name}", settings.epochs) as callback:
            run = train(settings, folder / "runs" / f"breast-cancer-{name}", overwrite=True, callbacks=[callback])
        with progress(f"breast-cancer, evaluating {name}") as count:
            scores[name.upper()] = run.measure(rounds=20, individuals=100, progress=count)
    lower = compare(scores["CT"].records, scores["BL"].records)
    path = folder / "report.html"
    write_text(path, _render(panels, loans, scores, lower, n_seeds))
    return Demo(panels, scores, lower, path)


def _render(
    panels: Sequence[PanelResult],
    loans: Dataset,
    scores: dict[str, Scores],
    lower: Sequence[Reduction],
    n_seeds: int,
) -> str:
    template = Environment(loader=PackageLoader("countertrain.demo", "."), autoescape=True).get_template("demo.html")
    labels = [known()[r.metric].label for r in lower]
    return template.render(
        panels=panels,
        figure=embed(figure_1([p.panel for p in panels], loans)),
        bars=embed(plot_reductions(lower, labels)),
        outcomes=[
            (
                metric.heading,
                *(f"{s.table[name].mean():.4g} ± {s.table[name].std(ddof=1):.2g}" for s in scores.values()),
            )
            for name, metric in known().items()
        ],
        names=list(scores),
        lower=list(zip(labels, lower, strict=True)),
        n_seeds=n_seeds,
    )
