"""Tuning on the command line."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from countertrain.cli import options
from countertrain.cli.app import app
from countertrain.cli.options import collect_settings, split_names
from countertrain.files import write_text

if TYPE_CHECKING:
    import pandas as pd

    from countertrain.runs.tune import Goal, Tuned

__all__: list[str] = []


@app.command()
def tune(
    data: options.Data,
    label: options.Label = None,
    immutable: options.Immutable = None,
    increase: options.Increase = None,
    decrease: options.Decrease = None,
    drop: options.Drop = None,
    schema: options.SchemaFile = None,
    objective: Annotated[str, typer.Option(help="ct, or ar, cd (ablations).")] = "ct",
    minimise: Annotated[list[str] | None, typer.Option(help="Metrics to minimise; ip and cost if left out.")] = None,
    constraint: Annotated[
        list[str] | None, typer.Option(help="A bar to clear, 'accuracy >= bl - 0.01' if left out; repeatable.")
    ] = None,
    trials: Annotated[int, typer.Option(help="Trials in all, those of an interrupted tuning included.", min=1)] = 64,
    seeds: Annotated[int, typer.Option(help="Models per trial.", min=1)] = 3,
    batch: Annotated[int, typer.Option(help="Trials that train as one population.", min=1)] = 16,
    prune: Annotated[
        bool | None,
        typer.Option(
            "--prune/--no-prune", help="Leave the worse half of a batch behind twice on the way; from 20 epochs on."
        ),
    ] = None,
    cost_immutable: Annotated[
        options.Columns, typer.Option(help="As the paper's Table 1: immutable where cost is measured.", metavar="A,B")
    ] = None,
    settings_file: options.SettingsFile = None,
    assignments: options.Assignments = None,
    ranges: Annotated[
        list[str] | None, typer.Option("--range", help="Where a setting is searched, e.g. --range tau=0.8:0.95.")
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help="Optuna storage URL to share among machines; SQLite in --out if left out.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder; runs/tune-DATA if left out.")] = None,
    track: Annotated[str | None, typer.Option(help="Show the trials to tensorboard or mlflow, too.")] = None,
) -> None:
    """Tune a data set: every batch of trials trains as one population, on training and validation rows only.

    Ends with the Pareto front as table and plot, and the chosen settings as TOML. An interrupted tuning goes on when it
    is started again.
    """
    from countertrain.cli.console import counting
    from countertrain.runs.looking import hold_fixed
    from countertrain.runs.settings import Settings, parse_assignments
    from countertrain.runs.track import find_tracker, show_finished
    from countertrain.runs.tune import SPACE, Bound, Goal, check_optuna, tunable
    from countertrain.runs.tune import tune as run_tune
    from countertrain.tables import propose_fixed

    goal = Goal(tuple(minimise or ("ip", "cost")), tuple(map(Bound.parse, constraint or ["accuracy >= bl - 0.01"])))
    shared = parse_assignments(assignments or [])
    overrides = collect_settings(
        settings_file,
        assignments,
        schema,
        label=label,
        immutable=immutable,
        increase=increase,
        decrease=decrease,
        drop=drop,
        objective=objective,
        seeds=list(range(seeds)),
    )
    settings = Settings.resolve(data, overrides)
    if settings_file is None and schema is None:  # as `train` does
        settings, _ = hold_fixed(settings, propose_fixed(data, settings.label))
    narrowed = dict(map(_range, ranges or []))
    for name, ends in narrowed.items():
        if name in shared:
            raise ValueError(f"{name} is either set for all trials or searched; give one of --set and --range")
        for end in ends:  # refused now rather than in the middle of a study
            Settings.resolve(data, overrides | {name: end})
    space = SPACE.narrow(narrowed, fixed=shared)
    folder = out or Path("runs") / f"tune-{Path(data).stem}"
    tracker = find_tracker(track)
    check_optuna()  # before anything is written
    folder.mkdir(parents=True, exist_ok=True)
    with counting(f"tuning {data}") as progress:
        tuned = run_tune(
            settings,
            goal=goal,
            space=space,
            trials=trials,
            batch=batch,
            cost_immutable=split_names(cost_immutable),
            storage=storage or folder / "study.db",
            study_name=f"{Path(data).stem}-{objective}",
            prune=prune,
            progress=progress,
        )
    for trial in _finished(tuned).to_dict("records"):
        run = settings.model_copy(update={str(k): v for k, v in trial.items() if k in Settings.model_fields})
        show_finished(tracker, folder, f"trial-{trial['trial']}", run, {name: trial[name] for name in tunable()})
    _write(tuned, goal, folder)


def _range(text: str) -> tuple[str, tuple[float, float]]:
    """`tau=0.8:0.95` as a name with its ends."""
    from countertrain.runs.registry import VARYING

    searched = [name for name in VARYING if name != "seeds"]
    name, _, rest = text.partition("=")
    try:
        low, high = map(float, rest.split(":"))
        if name in searched and 0 < low < high:
            return name, (low, high)
    except ValueError:
        pass
    raise ValueError(
        f"a range is given as NAME=LOW:HIGH, for example tau=0.8:0.95, with 0 < LOW < HIGH and one of "
        f"{', '.join(searched)}; got {text!r}"
    )


def _finished(tuned: "Tuned") -> "pd.DataFrame":
    return tuned.trials[~tuned.trials["pruned"]]


def _write(tuned: "Tuned", goal: "Goal", folder: Path) -> None:
    from countertrain.cli.console import console, frame_table
    from countertrain.runs.tune.plot import plot_front

    write_text(folder / "trials.csv", tuned.trials.to_csv(index=False, float_format="%.5g"))
    for kind in ("png", "svg"):
        plot_front(_finished(tuned), goal.minimise).savefig(folder / f"front.{kind}", dpi=150)
    front = tuned.trials[tuned.trials["front"]].sort_values("loss")
    shown = ["trial", *(f"{name} reduction" for name in goal.minimise), "accuracy", "bl_accuracy", "validity"]
    console.print(frame_table("Pareto front on validation rows, reductions in percent", front[shown]))
    if n := int(tuned.trials["pruned"].sum()):
        console.print(f"{n} of {len(tuned.trials)} trials were left behind on the way; `pruned` in trials.csv")
    if tuned.chosen is None:
        console.print("no trial cleared every bar; allow more trials, or lower the bar with --constraint")
        return
    write_text(folder / "chosen.toml", tuned.chosen.to_toml())
    console.print(
        f"chosen settings: {folder / 'chosen.toml'}; all trials: {folder / 'trials.csv'}, {folder / 'front.png'}"
    )
