"""The project's PGD beside AutoAttack, which nobody here wrote: `python -m benchmarks.autoattack`.

Models of the comparison of methods, trained with the settings that are on record, attacked within 0.1 on test rows: by
PGD as the comparison does, and by AutoAttack (pyautoattack, an extra: `pip install countertrain[peers]`). It knows rows
in [0, 1] only; all features are moved and scaled alike, so that the ball stays one and the edges of that box are never
reached.
"""

import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
import typer
from torch import Tensor, nn

from benchmarks.methods.cells import Cell, Effort, load_rows
from benchmarks.methods.training import train_trials
from countertrain.cli.app import run
from countertrain.evaluation.metrics import ROBUST_EPSILON
from countertrain.evaluation.robustness import robust_accuracy
from countertrain.files import write_text
from countertrain.search.losses import predict
from reproduction.published import NAMES
from reproduction.writing import insert_tables, markdown

__all__ = ["Scaled", "attack", "main"]

_ATTACKS = {True: ["apgd-ce", "fab", "square"], False: ["apgd-ce", "apgd-t", "fab-t", "square"]}
"""Its attacks, by whether there are fewer than four classes, for which it has no targeted ones."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Scaled:
    """Rows (n, D) as images (n, 1, 1, D) within [0, 1], by one shift and one scale, and back."""

    low: float
    span: float
    shape: tuple[int, ...]

    @classmethod
    def of(cls, x: Tensor, epsilon: float) -> "Scaled":
        """For rows x (n, *shape), each of which may move by epsilon and stay inside."""
        low, high = float(x.min()) - 2 * epsilon, float(x.max()) + 2 * epsilon
        return cls(low, high - low, tuple(x.shape[1:]))

    def to_image(self, x: Tensor) -> Tensor:
        """Rows (n, *shape) as images."""
        return ((x - self.low) / self.span).flatten(1)[:, None, None]

    def to_rows(self, image: Tensor) -> Tensor:
        """Images as rows."""
        return (image * self.span + self.low).view(len(image), *self.shape)


class _Seen(nn.Module):
    """A model that is shown images in [0, 1]."""

    def __init__(self, model: nn.Module, scaled: Scaled) -> None:
        super().__init__()
        self.model, self.scaled = model, scaled

    def forward(self, image: Tensor) -> Tensor:
        logits: Tensor = self.model(self.scaled.to_rows(image))
        return logits


def attack(model: nn.Module, x: Tensor, y: Tensor, epsilon: float) -> Tensor:
    """What AutoAttack makes of rows x (n, *shape) of classes y within epsilon, (n, *shape)."""
    package = importlib.import_module("pyautoattack")
    scaled = Scaled.of(x, epsilon)
    seen = _Seen(model, scaled).eval()
    with torch.no_grad():
        n_classes = seen(scaled.to_image(x[:1])).shape[-1]
    judge = package.AutoAttack(
        seen, attacks=_ATTACKS[n_classes < 4], version="custom", eps=epsilon / scaled.span, seed=0
    )
    judge.apgd.n_restarts = judge.fab.n_restarts = 1  # as its standard version has it
    judge.apgd_targeted.n_target_classes = judge.fab.n_target_classes = min(9, n_classes - 1)
    found = judge.run_standard_evaluation(scaled.to_image(x), y, batch_size=len(x))
    return scaled.to_rows(found[0])


@app.command()
def compare(
    data: Annotated[str, typer.Option(help="Data sets: a,b.")] = "moons,california,gmsc",
    methods: Annotated[str, typer.Option(help="Methods: a,b.")] = "bl,ct,ct-near,jem,pgd,trades",
    seeds: Annotated[int, typer.Option(help="Models that are attacked, of the five that are trained.", min=1)] = 2,
    rows: Annotated[int, typer.Option(help="Test rows.", min=10)] = 300,
    out: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("results/methods"),
    page: Annotated[Path | None, typer.Option(help="Markdown page to bring up to date, docs/methods.md.")] = None,
    render_only: Annotated[bool, typer.Option("--render-only", help="From stored records; attack nothing.")] = False,
) -> None:
    """Attack models of each method, and put the lower of both accuracies beside that under PGD."""
    cells = [Cell(name, method, Effort(), out) for name in data.split(",") for method in methods.split(",")]
    for cell in [] if render_only else cells:
        file = out / "autoattack" / f"{cell.name}.json"
        if not file.exists():
            typer.echo(cell.name)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, json.dumps(_measure(cell, seeds, rows)) + "\n")
    stored = sorted((out / "autoattack").glob("*.json"))
    records = [record for file in stored for record in json.loads(file.read_text(encoding="utf-8"))]
    write_text(out / "methods-autoattack.md", markdown(summarise(pd.DataFrame(records))))
    if page is not None:
        typer.echo(f"{page}: {', '.join(insert_tables(page, out))}")


def _measure(cell: Cell, seeds: int, rows: int) -> list[dict[str, Any]]:
    """Accuracy of some models of a cell, as they are, under PGD and under AutoAttack."""
    stored = json.loads(cell.tuning.read_text(encoding="utf-8"))
    rows_of = load_rows(cell)
    trained = train_trials(cell, rows_of, [stored["trials"][stored["chosen"]]["settings"]])[0]
    x, y = rows_of.test.x[:rows], rows_of.test.y[:rows]
    found = []
    for seed, model in enumerate(trained.models[:seeds]):
        with torch.no_grad():
            plain = float((predict(model(x)) == y).double().mean())
            attacked = attack(model, x, y, ROBUST_EPSILON)
            under = float((predict(model(attacked)) == y).double().mean())
        ours = float(robust_accuracy(model, x, y, epsilons=[ROBUST_EPSILON], attack="pgd")[0, 0])
        assert float((attacked - x).abs().max()) <= ROBUST_EPSILON * 1.001
        found.append(
            {
                "data": cell.data,
                "method": cell.method,
                "seed": seed,
                "rows": len(x),
                "accuracy": plain,
                "pgd": ours,
                "autoattack": under,
            }
        )
    return found


def summarise(records: pd.DataFrame) -> pd.DataFrame:
    """Means over models, and the most that AutoAttack finds beyond PGD in any."""
    rows = []
    for (data, method), cell in records.groupby(["data", "method"], sort=False):
        gap = cell["pgd"] - cell["autoattack"]
        means = {title: f"{cell[c].mean():.3f}" for title, c in _SHOWN.items()}
        rows.append({"data": NAMES[str(data)], "method": method, **means, "largest difference": f"{gap.max():.3f}"})
    return pd.DataFrame(rows)


_SHOWN = {"as it is": "accuracy", "PGD": "pgd", "AutoAttack": "autoattack"}


def main(args: Sequence[str] | None = None) -> None:
    """Run the comparison."""
    run(app, args, "python -m benchmarks.autoattack")


if __name__ == "__main__":
    main()
