"""What counterfactual training gives where a network writes its counterfactuals: `python -m benchmarks.amortised`.

The paper's final settings, by search (eccco), amortised, and conventional training beside; CPU seconds of the training
alone, and the paper's evaluation on test rows.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from countertrain.cli.app import run
from countertrain.evaluation.protocol import evaluate
from countertrain.files import write_text
from countertrain.runs.measure import predictive
from countertrain.runs.registry import build_constraints, build_models, build_protocol, build_trainer, load_data
from countertrain.runs.settings import Settings
from reproduction.writing import insert_tables, markdown

__all__ = ["WAYS", "main", "summarise"]

WAYS: dict[str, dict[str, Any]] = {
    "conventional": {"objective": "bl"},
    "ct, eccco": {"generator": "eccco"},
    "ct, generic": {"generator": "generic"},
    "ct, amortised": {"generator": "amortised"},
}
METRICS = {"ip": ("IP", 2), "ip_star": ("IP*", 3), "cost": ("cost", 2), "validity": ("validity", 3)}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def compare(
    data: Annotated[str, typer.Option(help="Data sets: a,b.")] = "moons,california",
    seeds: Annotated[int, typer.Option(help="Training seeds.", min=2)] = 3,
    epochs: Annotated[int, typer.Option(help="Epochs.", min=1)] = 100,
    rounds: Annotated[int, typer.Option(help="Rounds of the evaluation.", min=1)] = 3,
    out: Annotated[Path, typer.Option(help="Folder of the table.")] = Path("results/amortised"),
    page: Annotated[Path | None, typer.Option(help="Markdown page to bring up to date, docs/generators.md.")] = None,
) -> None:
    """Train each way with each seed, one model at a time, and render means and standard deviations."""
    rows = [
        {"data": name, "way": way, **_measure(name, way, seed, epochs, rounds)}
        for name in data.split(",")
        for seed in range(seeds)
        for way in WAYS
    ]
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "amortised.csv", pd.DataFrame(rows).to_csv(index=False, float_format="%.5g"))
    write_text(out / "amortised.md", markdown(summarise(pd.read_csv(out / "amortised.csv"))))
    typer.echo((out / "amortised.md").read_text(encoding="utf-8"))
    if page is not None:
        typer.echo(f"{page}: {', '.join(insert_tables(page, out))}")


def _measure(name: str, way: str, seed: int, epochs: int, rounds: int) -> dict[str, float]:
    """One training, and what is told of it."""
    settings = Settings.resolve(name, {**WAYS[way], "seeds": [seed], "epochs": epochs})
    data = load_data(settings)
    models, trainer = build_models(settings, data), build_trainer(settings, data)
    started = time.process_time()
    history = trainer.fit(models, data.train.x, data.train.y)
    seconds = time.process_time() - started
    outcomes = evaluate(
        models,
        data.test.x,
        data.test.y,
        n_classes=data.n_classes,
        constraints=build_constraints(settings, data, test_time=True),
        protocol=build_protocol(settings, rounds=rounds, individuals=100),
    )
    mature = history["mature"][-1][0] if "mature" in history.records[-1].metrics else float("nan")
    told = {title: float(outcomes[metric].mean()) for metric, (title, _) in METRICS.items()}
    return {"CPU s": seconds, "accuracy": predictive(models, data.test)["accuracy"][0], **told, "mature": float(mature)}


def summarise(found: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation over seeds of each data set and way."""
    digits = {"CPU s": 1, "accuracy": 3, **dict(METRICS.values()), "mature": 2}
    rows = []
    for (data, way), cell in found.groupby(["data", "way"], sort=False):
        told = {c: f"{cell[c].mean():.{n}f} ± {cell[c].std(ddof=1):.{n}f}" for c, n in digits.items()}
        rows.append({"data": data, "way": way, **{c: "" if t.startswith("nan") else t for c, t in told.items()}})
    return pd.DataFrame(rows)


def main(args: Sequence[str] | None = None) -> None:
    """Run the comparison."""
    run(app, args, "python -m benchmarks.amortised")


if __name__ == "__main__":
    main()
