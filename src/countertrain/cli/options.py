"""Options that several commands have: one word for one thing, wherever it makes sense."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from countertrain.words import suggest

_MOST_SEEDS = 10_000  # each is a model

__all__ = [
    "AgainstEvidence", "Assignments", "Columns", "Data", "Decrease", "Drop", "Folder", "Immutable", "Increase", "Label",
    "Monotone", "Out", "Reasons", "SchemaFile", "SettingsFile", "Target", "Track", "Wanted", "collect_settings",
    "find_codes", "find_columns", "parse_seeds", "split_names",
]  # fmt: skip

Data = Annotated[
    str,
    typer.Argument(
        help="Data set (`countertrain list`), CSV or Parquet file, or folder of `countertrain convert`.", metavar="DATA"
    ),
]
Folder = Annotated[Path, typer.Argument(help="Folder of a trained model.", metavar="MODEL")]
Columns = list[str] | None
Label = Annotated[str | None, typer.Option(help="Column to predict; the last one of a file if left out.")]
Immutable = Annotated[Columns, typer.Option(help="Columns people cannot change: a,b.", metavar="A,B")]
Increase = Annotated[Columns, typer.Option(help="Columns that can only grow.", metavar="A,B")]
Decrease = Annotated[Columns, typer.Option(help="Columns that can only shrink.", metavar="A,B")]
Monotone = Annotated[
    Columns,
    typer.Option(
        help="Columns in which the model never turns back: the target no less probable as they rise (+) or fall (-).",
        metavar="A=+,B=-",
    ),
]
Drop = Annotated[Columns, typer.Option(help="Columns to leave out.", metavar="A,B")]
SchemaFile = Annotated[
    Path | None, typer.Option("--schema", help="TOML file with what the columns mean; inferred if left out.")
]
SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", help="Settings to begin with: chosen.toml of a tuning, or settings.toml of a model."),
]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", help="Any other setting, e.g. --set tau=0.5; repeatable.")
]
Target = Annotated[
    str | None, typer.Option(help="The decision that people want.", show_default="what training was told")
]
Wanted = Annotated[str | None, typer.Option("--target", help="The decision that people want, kept with the model.")]
AgainstEvidence = Annotated[
    bool, typer.Option("--against-evidence", help="Let advice go against what the training rows say of a column.")
]
Reasons = Annotated[
    str | None,
    typer.Option(help="Reasons for decisions, in the words of a code table (TOML), or of the columns if left out."),
]
Out = Annotated[Path | None, typer.Option(help="Folder of the model; named after the settings if left out.")]
Track = Annotated[str | None, typer.Option(help="Show the epochs to tensorboard or mlflow, too.")]


def find_codes(given: str | None) -> str | None:
    """The file of a code table; None for the words of the columns."""
    return None if given == "schema" else given


def split_names(given: Columns) -> list[str]:
    """`--immutable a,b --immutable c` as names."""
    return [name.strip() for part in given or () for name in part.split(",") if name.strip()]


def _parse_sign(text: str) -> tuple[str, str]:
    """`income=+` as column and direction."""
    name, equals, sign = text.rpartition("=")
    if not equals or sign.strip() not in ("+", "-", "0"):
        raise ValueError(f"--monotone takes columns with + or -, such as income=+,debt=-; got {text!r}")
    return name.strip(), sign.strip()


def find_columns(option: str, given: Columns, known: Iterable[str], where: str) -> list[str]:
    """The same, where each must be one of the columns that are known."""
    names, columns = split_names(given), list(map(str, known))
    for name in names:
        if name not in columns:
            raise ValueError(f"{option} names {name!r}, which is no column of {where}; {suggest(name, columns)}")
    return names


def collect_settings(
    settings_file: Path | None, assignments: list[str] | None, schema: Path | None = None, **given: Any
) -> dict[str, Any]:
    """What a command was told, by name of the setting: its options over --settings, and --set over both."""
    from countertrain.runs.settings import parse_assignments, settings_to_mapping

    lists = ("immutable", "increase", "decrease", "drop")
    columns: dict[str, list[Any]] = {name: split_names(given.pop(name, None)) for name in lists}
    columns["monotone"] = list(map(_parse_sign, split_names(given.pop("monotone", None))))
    told = {**given, **columns, "schema_file": None if schema is None else str(schema)}
    told = {name: value for name, value in told.items() if value not in (None, [])}
    return {**settings_to_mapping(settings_file), **told, **parse_assignments(assignments or [])}


def parse_seeds(text: str) -> list[int]:
    """`0-9` or `1,5,7` as numbers."""
    try:
        seeds: list[int] = []
        for part in text.split(","):
            first, _, last = part.partition("-")
            seeds += range(int(first), min(int(last or first), int(first) + _MOST_SEEDS) + 1)
    except ValueError:
        raise ValueError(f"--seeds takes numbers such as 0-9 or 1,5,7; got {text!r}") from None
    if len(seeds) > _MOST_SEEDS:
        raise ValueError(f"--seeds must name at most {_MOST_SEEDS} seeds; got {text!r}")
    if not seeds or len(set(seeds)) != len(seeds):
        raise ValueError(f"--seeds must name at least one seed, and none twice; got {text!r}")
    return seeds
