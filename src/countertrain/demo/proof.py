"""The paper's Figure 1: a linear model of debt and age, conventional and CT, with and without `age` immutable."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import nn

from countertrain.demo.figures import Panel, plot_panels
from countertrain.demo.job import Watch
from countertrain.evaluation.metrics import Implausibility, cost, validity
from countertrain.runs.registry import build_constraints
from countertrain.runs.run import Run
from countertrain.runs.settings import Settings
from countertrain.runs.training import train
from countertrain.search.generators import eccco
from countertrain.search.losses import predict
from countertrain.tables import Dataset
from countertrain.training.history import EpochRecord
from countertrain.training.trainer import Callback

__all__ = ["PanelResult", "figure_1", "proof_of_concept"]

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


def _watch_nothing(title: str, n_epochs: int) -> AbstractContextManager[Callback]:
    def ignore(record: EpochRecord) -> None:
        pass

    return nullcontext(ignore)


def proof_of_concept(folder: Path, *, watch: Watch = _watch_nothing) -> tuple[list[PanelResult], Dataset]:
    """Train the four linear models into a folder, and explain rejected applicants under each."""
    panels = []
    for title, objective, immutable in (
        ("(a) conventional", "bl", ()),
        ("(b) CT", "ct", ()),
        ("(c) conventional, age immutable", "bl", ("age",)),
        ("(d) CT, age immutable", "ct", ("age",)),
    ):
        name = "-".join((objective, *immutable))
        settings = Settings.resolve("debt-age", {"objective": objective, "immutable": immutable})
        with watch(f"Figure 1, {name}", settings.epochs) as callback:
            run = train(settings, folder / f"debt-age-{name}", overwrite=True, callbacks=[callback])
        panels.append(_explain_rejected(run, title))
    return panels, run.data


def figure_1(panels: Sequence[Panel], data: Dataset) -> Figure:
    """The four panels over some of the training rows."""
    few = slice(0, 1200)
    return plot_panels(panels, data.train.x[few], data.train.y[few], data.features, data.classes)


def _explain_rejected(run: Run, title: str) -> PanelResult:
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
