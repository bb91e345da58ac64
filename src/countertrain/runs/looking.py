"""What training says of a table of one's own before it begins."""

import shlex
from collections.abc import Iterable, Iterator

from countertrain.runs.settings import Settings
from countertrain.tables import Inspection
from countertrain.tables.schema import SchemaError
from countertrain.words import list_phrases

__all__ = ["describe_look", "hold_fixed", "refuse_table"]


def hold_fixed(settings: Settings, names: Iterable[str]) -> tuple[Settings, list[str]]:
    """The settings by which, of columns that people can rarely change, those stay of which nothing else was said."""
    said = {settings.label, *settings.mutability, *settings.drop}
    fixed = [name for name in names if name not in said]
    return settings.change(immutable=(*settings.immutable, *fixed)), fixed


def refuse_table(look: Inspection, settings: Settings) -> None:
    """Refuse a table that cannot be trained on with all that is in the way, and the command that shows the way out."""
    try:
        look.check()
    except SchemaError as error:
        ways = "" if settings.schema_file is not None else f"; {_name_command(look, settings)} proposes what to do"
        raise SchemaError(f"{str(error).rstrip('.')}{ways}") from error


def describe_look(look: Inspection, settings: Settings) -> Iterator[str]:
    """Sentences on what would spoil a model, on values filled in, and on what people can rarely change."""
    spoiling = [one for one in look.findings if one.weight == "warning"]
    for finding in spoiling:
        yield finding.sentence
    filled = [f"{one.column} ({one.done})" for one in look.findings if one.kind == "missing" and "fill" in one.done]
    if filled:
        yield f"missing values: {list_phrases(filled, 12)}"
    for finding in look.findings:
        if finding.kind == "rule" and settings.schema_file is None:
            yield f"{finding.seen}: {finding.done}"
    free = [name for name in look.fixed if name not in settings.mutability]
    if free:
        yield (
            f"people can rarely change {list_phrases(free, 12)}, and nothing says so: advice may ask for it; "
            f"--fix-proposed (or --immutable {','.join(free)}) holds that fixed"
        )
    if (spoiling or free) and settings.schema_file is None:
        yield f"{_name_command(look, settings)} shows all that was seen, and proposes a schema"


def _name_command(look: Inspection, settings: Settings) -> str:
    words = ["countertrain", "check", settings.data, "--label", look.label, "--schema-out", "schema.toml"]
    return shlex.join(words)
