"""The command itself: what it says of itself, and how mistakes end.

Whatever takes long to import is imported by the function of the command that needs it, so that help, mistakes and
small commands are answered at once.
"""

import os
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from countertrain.words import say_mistake

__all__ = ["app", "main", "plain_warnings", "run"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="""Train classifiers whose counterfactual explanations are plausible and actionable.

A first tour:

  1. the main job, with a report to look at: countertrain demo
  2. a table of your own, looked at: countertrain check FILE --label COLUMN --schema-out schema.toml
  3. and trained on: countertrain train FILE --label COLUMN --target WANTED --schema schema.toml --twin --out mine
  4. what people could change: countertrain explain mine --options 2
  5. quality, warnings, examples: countertrain report mine
  6. the paper's moons, five models and five conventional ones: countertrain train moons --seeds 0-4 --twin --out moons
  7. how much more plausible they are: countertrain evaluate moons
""",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from countertrain import __version__

        typer.echo(f"countertrain {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that belong to no command."""


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line."""
    run(app, args, "countertrain")


def run(commands: typer.Typer, args: Sequence[str] | None, name: str) -> None:
    """Run these commands; mistakes of the user end in one line and exit code 2."""
    parsed: Any = typer.main.get_command(commands)
    for command in getattr(parsed, "commands", {"": parsed}).values():
        if command.name not in _COMPUTE_NOTHING:
            command.callback = _set_up_before(command.callback, command.name)
    given = _spread(sys.argv[1:] if args is None else args)
    if not given or "--help" in given:
        _load_help()
    try:
        code = parsed(args=given, standalone_mode=False, prog_name=name)
    except Exception as error:
        if hasattr(error, "format_message"):  # a mistake in the use of the command line
            if not error.format_message():  # called without arguments: the help was shown
                sys.exit(2)
            _fail(_say_misuse(error))
        said = None if os.environ.get("COUNTERTRAIN_DEBUG") else _say(error)
        if said is None:
            raise
        command = getattr(parsed, "commands", {}).get(given[0] if given else "", parsed)
        _fail(_name_option(said, {option for param in command.params for option in param.opts}))
    sys.exit(code if isinstance(code, int) else 0)


def _load_help() -> None:
    """Import what prints help, without its Markdown and its tracebacks: half of the time, and nobody here sees them."""
    unused = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}
    stand_ins = {name: ModuleType(name) for name in unused if name not in sys.modules}
    for name, module in stand_ins.items():
        setattr(module, unused[name], type(unused[name], (), {}))
    sys.modules.update(stand_ins)
    try:
        import typer.rich_utils  # noqa: F401
    finally:
        for name in stand_ins:
            del sys.modules[name]


def _say_misuse(error: Any) -> str:
    """What is wrong with the use of the command line; a value that an option cannot have, as all else here says it."""
    details = getattr(error.__cause__, "errors", None)  # of pydantic, which looks at values
    if not details or error.param is None:
        return f"{error.format_message()} Try --help."
    mistake = details()[0]
    return f"{error.param.opts[0]} {say_mistake(mistake).split(', ')[0]}; got {mistake['input']}"


def _name_option(said: str, options: Collection[str]) -> str:
    """What Python says of an argument, said of the option of the command, if it has one of that name."""
    return f"--{said}" if re.match(r"\w+ (must|names) ", said) and f"--{said.split()[0]}" in options else said


def _set_up_before(work: Callable[..., Any], name: str | None) -> Callable[..., Any]:
    """The function of a command, with threads, ranks and the bar of downloads set up once its arguments are known."""

    def work_set_up(**options: Any) -> Any:
        from countertrain.serve.loading import loading

        with loading():
            import torch

            from countertrain.cli.console import download_bar
            from countertrain.training.ranks import joined

        torch.set_num_threads(_count_threads())
        with joined() as ranks, _silenced(not ranks.first), download_bar(), plain_warnings():
            if ranks.size > 1 and name != "train":
                raise ValueError("torchrun is for `countertrain train`; start any other command without it")
            return work(**options)

    return work_set_up


def _count_threads() -> int:
    """How many threads the owner of the machine allows; small models are slower with more than one."""
    given = os.environ.get("COUNTERTRAIN_THREADS", "1")
    if not re.fullmatch(r"[1-9]\d{0,3}", given):
        raise ValueError(f"COUNTERTRAIN_THREADS must be a number from 1 to 9999; got {given!r}")
    return int(given)


def _say(error: Exception) -> str | None:
    """What to say of an error instead of its traceback; None where that is all there is."""
    if isinstance(error, OSError) and error.strerror is not None:
        return f"{error.filename or 'a file could not be written or read'}: {error.strerror}"
    if isinstance(error, ValueError | OSError):
        return str(error)
    from countertrain.models.kernels import CompilerError
    from countertrain.training.ranks import RankLostError
    from countertrain.training.trouble import NonFiniteLossError, is_out_of_memory

    if is_out_of_memory(error):
        return "there is too little memory for this; take fewer rows, models or hidden units, or a larger machine"
    return str(error) if isinstance(error, NonFiniteLossError | RankLostError | CompilerError) else None


_COMPUTE_NOTHING = ("list",)
_LISTS = ("--datasets", "--minimise")
_ALONE = {"--reasons": "schema"}  # what an option means that was given without a value


def _spread(args: Sequence[str]) -> list[str]:
    """`--datasets a b` as `--datasets a --datasets b`, and `--reasons` alone with the value that it then has."""
    spread: list[str] = []
    listing = ""
    for arg in args:
        if listing and not arg.startswith("-") and spread[-1] != listing:
            spread.append(listing)
        listing = arg if arg in _LISTS else listing if not arg.startswith("-") else ""
        if spread and spread[-1] in _ALONE and arg.startswith("-"):
            spread.append(_ALONE[spread[-1]])
        spread.append(arg)
    return [*spread, _ALONE[spread[-1]]] if spread and spread[-1] in _ALONE else spread


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Whatever did not go well is said in one line, without file and line number."""

    def say(message: Warning | str, *place: object, **more: object) -> None:
        typer.echo(f"countertrain: warning: {message}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = say
        yield


@contextmanager
def _silenced(silent: bool) -> Iterator[None]:
    """Show and print nothing, as all ranks but the first should; whatever ends a rank is told outside."""
    if not silent:
        yield
        return
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def _fail(message: str) -> None:
    if _is_first_to_report():
        typer.echo("countertrain: " + " ".join(message.split()), err=True)
    sys.exit(2)


def _is_first_to_report() -> bool:
    """Whether no other rank has said it yet."""
    if "WORLD_SIZE" not in os.environ:
        return True
    from countertrain.training.ranks import first_to_report

    return first_to_report()
