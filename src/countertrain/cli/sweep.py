"""Sweeps on the command line."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from countertrain.cli.app import app

if TYPE_CHECKING:
    import pandas as pd

    from countertrain.runs.sweep import Sweep, Workers

__all__: list[str] = []

_SHOWN = 10


@app.command()
def sweep(
    file: Annotated[Path, typer.Argument(help="Data, seeds, [fixed] settings and the [grid].", metavar="SWEEP.toml")],
    backend: Annotated[
        str, typer.Option(help="local (processes, one thread each) or ray (tasks of one CPU).")
    ] = "local",
    address: Annotated[
        str | None, typer.Option(help="Ray cluster: ray://HOST:10001 or HOST:6379; a new one here if left out.")
    ] = None,
    settings_file: Annotated[
        Path | None,
        typer.Option("--settings", help="What all runs share unless SWEEP.toml says otherwise: chosen.toml."),
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes side by side, or CPUs of a new Ray cluster.", min=1)] = 2,
    out: Annotated[str | None, typer.Option(help="Folder or fsspec URL; runs/sweep-NAME if left out.")] = None,
    track: Annotated[str | None, typer.Option(help="Show finished runs to tensorboard or mlflow, too.")] = None,
) -> None:
    """Compute a grid of settings, each population of runs as one task, and write results.csv.

    Every finished run is a file of its own in --out: a sweep that was stopped or killed goes on with the same command,
    and one whose grid has grown computes only what is new. Outcomes are of validation rows.
    """
    from countertrain.cli.console import console, counting
    from countertrain.runs.settings import settings_to_mapping
    from countertrain.runs.sweep import Store
    from countertrain.runs.sweep import sweep as run_sweep
    from countertrain.runs.track import find_tracker

    spec = _read(file)
    if settings_file is not None:
        shared = settings_to_mapping(settings_file)
        kept = {
            name: value for name, value in shared.items() if name not in ("seeds", *spec.grid) and value is not None
        }
        spec = spec.model_copy(update={"fixed": {**kept, **spec.fixed}})
    with_workers = _workers(backend, address, workers)
    store = Store(out or Path("runs") / f"sweep-{file.stem}")
    tracker = find_tracker(track)
    try:
        with counting(f"sweep {file.stem}") as progress:
            table = run_sweep(
                spec,
                with_workers,
                store,
                tracker=tracker,
                progress=progress,
                say=lambda text: typer.echo(f"... {text}", err=True),
            )
    except KeyboardInterrupt:
        typer.echo("\nstopped; finished runs are kept, go on with the same command", err=True)
        raise typer.Exit(130) from None
    _print(spec, table)
    console.print(f"{len(table)} runs: {store.url}/results.csv", soft_wrap=True)


def _read(file: Path) -> "Sweep":
    from countertrain.runs.settings import SettingsError
    from countertrain.runs.sweep import Sweep

    if not file.is_file():
        raise ValueError(f"there is no file {file}; it would say data, [fixed] and [grid]")
    try:
        return Sweep.from_toml(file.read_text(encoding="utf-8"))
    except SettingsError as error:
        raise SettingsError(f"{file}: {error}") from error


def _workers(backend: str, address: str | None, n: int) -> "Workers":
    from countertrain.runs.sweep import Processes, RayTasks

    if backend == "ray":
        return RayTasks(address, cpus=n)
    if backend != "local":
        raise ValueError(f"--backend is local or ray; got {backend!r}")
    if address is not None:
        raise ValueError("--address is of a Ray cluster; add --backend ray")
    return Processes(n)


def _print(spec: "Sweep", table: "pd.DataFrame") -> None:
    """The most plausible settings, means over seeds."""
    from countertrain.cli.console import console, frame_table

    varying = ["data", *spec.grid]
    means = table.astype(dict.fromkeys(varying, str)).groupby(varying, sort=False).mean(numeric_only=True).reset_index()
    outcomes = ["accuracy", "validity", "ip", "cost", "mature"]
    shown = means.sort_values("ip")[[*varying, *outcomes]].head(_SHOWN)
    shown = shown.assign(**{name: shown[name].map("{:.3g}".format) for name in outcomes})
    seeds = f", means over {len(spec.seeds)} seeds" if len(spec.seeds) > 1 else ""
    console.print(frame_table(f"Most plausible of {len(means)}{seeds}", shown))
    failed = int(table["failure"].notna().sum())
    if failed:
        console.print(f"{failed} run{'s' if failed > 1 else ''} stopped early; the column `failure` says why")
