"""The main job on embedded data: the paper's Figure 1, and a conventional and a CT model of breast cancer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jinja2 import Environment, PackageLoader
from torch import nn

from countertrain.checkpoint import write_text
from countertrain.data import Dataset
from countertrain.evaluation.comparison import Reduction, compare
from countertrain.evaluation.metrics import Implausibility, cost, validity
from countertrain.experiments.build import build_constraints
from countertrain.experiments.figures import Panel, embed, four_panels, reductions
from countertrain.experiments.run import Run, train
from countertrain.experiments.scores import OUTCOMES, Scores, score
from countertrain.experiments.settings import Settings
from countertrain.losses import predict
from countertrain.search.generators import eccco
from countertrain.trainer import Callback

__all__ = ["Demo", "PanelResult", "demo"]

_SHOWN = 40  # counterfactuals drawn in a panel


@dataclass(frozen=True, eq=False)
class PanelResult:
    """One panel of Figure 1 in numbers."""

    panel: Panel
    age_weight: float
    """How much the decision depends on age, relative to debt."""
    accuracy: float
    validity: float
    ip: float
    cost: float


@dataclass(frozen=True, eq=False)
class Demo:
    """All that the demo computed."""

    panels: Sequence[PanelResult]
    scores: dict[str, Scores]
    reductions: Sequence[Reduction]
    report: Path


def demo(folder: Path, *, n_seeds: int = 5, watch: Callable[[str, int], Any], progress: Callable[[str], Any]) -> Demo:
    """Run everything and write report.html; `watch` and `progress` give context managers with progress bars."""

    def run(name: str, data: str, **overrides: Any) -> Run:
        settings = Settings.resolve(data, overrides)
        with watch(f"{data}, {name}", settings.epochs) as callback:
            callbacks: list[Callback] = [callback]
            return train(settings, folder / "runs" / f"{data}-{name}", overwrite=True, callbacks=callbacks)

    age = ("age",)
    loans = [
        run("bl", "loans", objective="bl"),
        run("ct", "loans", objective="ct"),
        run("bl-age", "loans", objective="bl", immutable=age),
        run("ct-age", "loans", objective="ct", immutable=age),
    ]
    titles = ("(a) conventional", "(b) CT", "(c) conventional, age immutable", "(d) CT, age immutable")
    panels = [_panel(run, title) for run, title in zip(loans, titles, strict=True)]
    seeds = list(range(n_seeds))
    scores = {}
    for name in ("bl", "ct"):
        trained = run(name, "breast-cancer", objective=name, seeds=seeds)
        with progress(f"breast-cancer, evaluating {name}") as count:
            scores[name.upper()] = score(trained, rounds=20, individuals=100, progress=count)
    lower = compare(scores["CT"].records, scores["BL"].records)
    path = folder / "report.html"
    write_text(path, _render(panels, loans[0].data, scores, lower, n_seeds))
    return Demo(panels, scores, lower, path)


def _panel(run: Run, title: str) -> PanelResult:
    """Explain rejected applicants under one linear model."""
    model, data = run.models[0], run.data
    linear = model[0]  # type: ignore[index]  # the linear model is a chain of one layer
    assert isinstance(linear, nn.Linear)
    normal = (linear.weight[1] - linear.weight[0]).tolist()
    offset = (linear.bias[1] - linear.bias[0]).item()
    with torch.no_grad():
        predicted = predict(model(data.test.x))
    rejected = data.test.x[predicted == 0]
    wanted = torch.ones(len(rejected), dtype=torch.int64)
    tau = 0.5 if run.settings.immutable else 0.95  # as in the paper: the cost of just valid ones under constraints
    generator = eccco(lambda_egy=1.0, lambda_cost=0.0, n_steps=50, tau=tau)
    found = generator(model, rejected, wanted, constraints=build_constraints(run.settings, data, test_time=True))
    with torch.no_grad():
        valid = validity(model(found.x), wanted)
    ip = Implausibility.of(data.test.x, data.test.y, data.n_classes)
    return PanelResult(
        panel=Panel(title, rejected[:_SHOWN], found.x[:_SHOWN], (normal[0], normal[1]), offset),
        age_weight=abs(normal[1] / normal[0]),
        accuracy=float((predicted == data.test.y).double().mean()),
        validity=float(valid.double().mean()),
        ip=float(ip(found.x, wanted)[valid].mean()),
        cost=float(cost(found.x, rejected)[valid].mean()),
    )


def _render(
    panels: Sequence[PanelResult],
    loans: Dataset,
    scores: dict[str, Scores],
    lower: Sequence[Reduction],
    n_seeds: int,
) -> str:
    template = Environment(loader=PackageLoader("countertrain.experiments", "."), autoescape=True).get_template(
        "demo.html"
    )
    few = slice(0, 1200)
    figure = four_panels(
        [p.panel for p in panels], loans.train.x[few], loans.train.y[few], loans.features, loans.classes
    )
    labels = {"ip": "IP", "ip_star": "IP*", "cost": "cost"}
    return template.render(
        panels=panels,
        figure=embed(figure),
        bars=embed(reductions(lower, [labels[r.metric] for r in lower])),
        outcomes=[
            (label, *(f"{s.table[name].mean():.4g} ± {s.table[name].std(ddof=1):.2g}" for s in scores.values()))
            for name, label in OUTCOMES.items()
        ],
        names=list(scores),
        lower=[(labels[r.metric], r) for r in lower],
        n_seeds=n_seeds,
    )
