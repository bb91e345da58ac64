"""The paper's figures, from stored records or from the models of a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from countertrain.evaluation.attribution import relu_network_gradients
from countertrain.plots import BLUE, GREEN, INK, ORANGE, PURPLE, hide_spines
from countertrain.runs.run import Run
from countertrain.search.generators import eccco
from countertrain.search.losses import predict
from reproduction.cells import EPSILONS, Cell, read_cell
from reproduction.published import NAMES
from reproduction.tables import paper_label, read_pair

__all__ = [
    "plot_ablation",
    "plot_against_published",
    "plot_ig_box",
    "plot_mnist_grid",
    "plot_mnist_ig",
    "plot_mnist_strip",
    "plot_robustness",
]

_COLOURS = {"ct": ORANGE, "bl": BLUE, "ar": GREEN, "cd": PURPLE}


def plot_against_published(table: pd.DataFrame) -> Figure:
    """All cells of Table 1 on one picture: published against ours, ours with its spread over training seeds."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    metrics = list(dict.fromkeys(table["metric"]))
    axes = np.atleast_1d(figure.subplots(1, len(metrics)))
    for ax, metric in zip(axes, metrics, strict=True):
        rows = table[table["metric"] == metric].reset_index(drop=True)
        place = np.arange(len(rows))
        ax.axvline(0, color=INK, lw=0.8)
        ax.errorbar(
            rows["ours"],
            place - 0.14,
            xerr=rows["sd over seeds"],
            fmt="o",
            color=ORANGE,
            capsize=3,
            label="ours, sd over seeds",
        )
        spread = rows["published ±"].clip(upper=60)
        ax.errorbar(
            rows["published"],
            place + 0.14,
            xerr=spread,
            fmt="s",
            ms=5,
            color=BLUE,
            capsize=3,
            label="published, sd over rounds",
        )
        ax.set_yticks(place, list(rows["data"]))
        ax.invert_yaxis()
        ax.set_title(f"{metric}, reduction (%)", fontsize=10)
        hide_spines(ax)
        ax.grid(axis="x", color="#e5e5e5", lw=0.6)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return figure


def plot_robustness(datasets: Sequence[str], results: Path) -> Figure:
    """Accuracy under FGSM and PGD for BL, CT, AR and CD; bands are the spread over training seeds."""
    figure = Figure(figsize=(2.3 * len(datasets) + 1, 4.8), layout="constrained")
    axes = figure.subplots(2, len(datasets), sharex=True, squeeze=False)
    for column, data in enumerate(datasets):
        for row, attack in enumerate(("fgsm", "pgd")):
            ax = axes[row, column]
            for objective, colour in _COLOURS.items():
                result = read_cell(Cell(data, objective), results)  # type: ignore[arg-type]
                if result is not None:
                    curves = np.array(result.scores[attack])  # (seeds, epsilons)
                    mean, sd = curves.mean(0), curves.std(0)
                    ax.plot(EPSILONS, mean, color=colour, label=objective.upper())
                    ax.fill_between(EPSILONS, mean - sd, mean + sd, color=colour, alpha=0.18, lw=0)
            ax.set_ylim(0, 1.02)
            hide_spines(ax)
            ax.set_title(f"{NAMES[data]}, {attack.upper()}", fontsize=9)
            if column == 0:
                ax.set_ylabel("accuracy")
            if row == 1:
                ax.set_xlabel(r"$\varepsilon$")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def plot_ablation(datasets: Sequence[str], results: Path) -> Figure:
    """Reductions of IP and IP* by the partial objectives and the full one; whiskers are the spread over seeds."""
    figure = Figure(figsize=(1.1 * len(datasets) + 2, 5.6), layout="constrained")
    axes = figure.subplots(2, 1, sharex=True)
    for ax, metric in zip(axes, ("ip", "ip_star"), strict=True):
        for k, objective in enumerate(("ar", "cd", "ct")):
            means, spreads = zip(*(_reduction(data, objective, metric, results) for data in datasets), strict=True)
            place = np.arange(len(datasets)) + 0.27 * (k - 1)
            ax.bar(
                place,
                means,
                0.25,
                yerr=spreads,
                color=_COLOURS[objective],
                label=objective.upper(),
                capsize=2,
                alpha=0.85,
            )
        ax.axhline(0, color=INK, lw=0.8)
        ax.set_ylabel(f"{paper_label(metric)}, reduction (%)")
        ax.set_ylim(bottom=max(-110, ax.get_ylim()[0]))
        hide_spines(ax)
    axes[1].set_xticks(range(len(datasets)), [NAMES[data] for data in datasets])
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def _reduction(data: str, objective: str, metric: str, results: Path) -> tuple[float, float]:
    """Mean over seeds of 100 (BL - objective) / BL, and its spread."""
    treated = read_cell(Cell(data, objective), results)  # type: ignore[arg-type]
    baseline = read_cell(Cell(data, "bl"), results)
    if treated is None or baseline is None:
        return float("nan"), float("nan")
    ours = treated.records.groupby("model")[metric].mean()
    theirs = baseline.records.groupby("model")[metric].mean()
    percent = 100 * (theirs - ours) / theirs
    return float(percent.mean()), float(percent.std(ddof=1))


def plot_ig_box(datasets: Sequence[str], results: Path) -> Figure:
    """Sensitivity to protected features: all rounds of all seeds, CT and BL."""
    figure = Figure(figsize=(1.5 * len(datasets) + 1, 3.4), layout="constrained")
    axes = figure.subplots(1, len(datasets), squeeze=False)[0]
    for ax, data in zip(axes, datasets, strict=True):
        found = read_pair(data, "protected", results)
        if found is not None:
            values = [np.array(r.scores["sensitivity"]).ravel() for r in (found.ct, found.bl)]
            boxes = ax.boxplot(values, showfliers=False, widths=0.6, patch_artist=True, medianprops={"color": INK})
            for box, colour in zip(boxes["boxes"], (ORANGE, BLUE), strict=True):
                box.set(facecolor=colour, alpha=0.6)
            ax.set_xticks([1, 2], ["CT", "BL"])
            if len(values[0]) and max(np.quantile(v, 0.75) for v in values) > 20:
                ax.set_yscale("log")
        ax.set_title(NAMES[data], fontsize=9)
        hide_spines(ax)
    axes[0].set_ylabel("standardised IG, protected features")
    return figure


def plot_mnist_strip(bl: Run, ct: Run) -> Figure:
    """One image of a "0" turned into every other digit, by BL (top) and CT (bottom): 1000 steps without threshold."""
    test = bl.data.test
    models = (bl.models[0], ct.models[0])
    zeros = (test.y == 0) & (predict(_logits(models[0], test.x)) == 0) & (predict(_logits(models[1], test.x)) == 0)
    factual = test.x[zeros][:1]
    figure = Figure(figsize=(10, 2.3), layout="constrained")
    axes = figure.subplots(2, 10)
    targets = torch.arange(1, 10)
    for row, (name, model) in enumerate((("BL", models[0]), ("CT", models[1]))):
        x = _search(bl, model, factual.expand(9, -1).contiguous(), targets, n_steps=1000, lambda_egy=1.0)
        _image(axes[row, 0], factual[0], f"{name}: factual", cmap="Blues")
        for k in range(9):
            _image(axes[row, k + 1], x[k], str(k + 1))
    return figure


def plot_mnist_grid(run: Run) -> Figure:
    """10 x 10: counterfactuals from each digit (rows) to each other (columns), the factuals on the diagonal."""
    test = run.data.test
    model = run.models[0]
    predicted = predict(_logits(model, test.x))
    chosen = torch.stack([test.x[(test.y == k) & (predicted == k)][0] for k in range(10)])  # (10, 784)
    factual = chosen.repeat_interleave(10, dim=0)
    x = _search(run, model, factual, torch.arange(10).repeat(10), n_steps=50, lambda_egy=25.0)
    figure = Figure(figsize=(7, 7.2), layout="constrained")
    axes = figure.subplots(10, 10)
    for i in range(100):
        same = i // 10 == i % 10
        title = str(i % 10) if i < 10 else ""
        _image(axes[i // 10, i % 10], factual[i] if same else x[i], title, cmap="Blues" if same else "gray_r")
    return figure


def plot_mnist_ig(bl: Run, ct: Run, *, rows: int = 500) -> Figure:
    """Mean integrated gradients of each digit, BL (top) and CT (bottom), with the protected pixel rows marked."""
    test = bl.data.test
    baseline = 2 * torch.rand(784, generator=torch.Generator().manual_seed(0)) - 1
    figure = Figure(figsize=(10, 2.4), layout="constrained")
    axes = figure.subplots(2, 10)
    for row, (name, run) in enumerate((("BL", bl), ("CT", ct))):
        for k in range(10):
            x = test.x[test.y == k][:rows]
            attributed = relu_network_gradients(run.models[0], x, torch.full((len(x),), k), baseline)
            assert attributed is not None  # the model of these runs has one hidden layer
            image = attributed.mean(0)
            limit = float(image.abs().max())
            ax = axes[row, k]
            ax.imshow(image.view(28, 28), cmap="RdBu_r", vmin=-limit, vmax=limit)
            for edge in (4.5, 22.5):
                ax.axhline(edge, color=INK, lw=0.6, ls=":")
            ax.set(xticks=[], yticks=[], title=f"{name}: {k}" if k == 0 else str(k))
            ax.title.set_fontsize(9)
    return figure


def _search(run: Run, model: nn.Module, factual: Tensor, target: Tensor, **settings: Any) -> Tensor:
    generator = eccco(lambda_cost=0.0, tau=1 - 1e-7, **settings)
    return generator(model, factual, target, constraints=run.data.constraints()).x


@torch.no_grad()
def _logits(model: nn.Module, x: Tensor) -> Tensor:
    logits: Tensor = model(x)
    return logits


def _image(ax: Axes, x: Tensor, title: str, cmap: str = "gray_r") -> None:
    ax.imshow(x.view(28, 28), cmap=cmap, vmin=-1, vmax=1)
    ax.set(xticks=[], yticks=[])
    ax.set_title(title, fontsize=8, pad=2)
