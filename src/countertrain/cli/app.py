"""The command itself: what it says of itself, and how mistakes end."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import torch
import typer

from countertrain.cli.console import download_bar
from countertrain.models.kernels import CompilerError
from countertrain.training.ranks import RankLostError, Ranks, first_to_report, joined
from countertrain.training.trouble import NonFiniteLossError

__all__ = ["app", "main", "run"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="""Train classifiers whose counterfactual explanations are plausible and actionable.

A first tour:

  1. the main job, with a report to look at: countertrain demo
  2. five models by counterfactual training: countertrain train moons --seeds 0-4 --out ct
  3. five conventional ones: countertrain train moons --seeds 0-4 --objective bl --out bl
  4. how much more plausible they are: countertrain evaluate ct --baseline bl
  5. one decision explained: countertrain explain ct --row 7
""",
)


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line."""
    run(app, args, "countertrain")


def run(commands: typer.Typer, args: Sequence[str] | None, name: str) -> None:
    """Run these commands; mistakes of the user end in one line and exit code 2."""
    torch.set_num_threads(int(os.environ.get("COUNTERTRAIN_THREADS", "1")))  # small models: more threads are slower
    try:
        given = _spread(sys.argv[1:] if args is None else args)
        with joined() as ranks, _heard(ranks), download_bar():
            if ranks.size > 1 and given[:1] != ["train"]:
                raise ValueError("torchrun is for `countertrain train`; start any other command without it")
            code = commands(args=given, standalone_mode=False, prog_name=name)
    except (ValueError, OSError, NonFiniteLossError, RankLostError, CompilerError) as error:
        if os.environ.get("COUNTERTRAIN_DEBUG"):
            raise
        _fail(str(error))
    except Exception as error:
        if not hasattr(error, "format_message"):  # mistakes in the use of the command line have one
            raise
        if not error.format_message():  # called without arguments: the help was shown
            sys.exit(2)
        _fail(f"{error.format_message()} Try --help.")
    sys.exit(code if isinstance(code, int) else 0)


_LISTS = ("--datasets", "--minimise")


def _spread(args: Sequence[str]) -> list[str]:
    """`--datasets a b` as `--datasets a --datasets b`."""
    spread: list[str] = []
    listing = ""
    for arg in args:
        if listing and not arg.startswith("-") and spread[-1] != listing:
            spread.append(listing)
        listing = arg if arg in _LISTS else listing if not arg.startswith("-") else ""
        spread.append(arg)
    return spread


@contextmanager
def _heard(ranks: Ranks) -> Iterator[None]:
    """Only the first rank shows and prints; whatever ends a rank is told outside."""
    if ranks.first:
        yield
        return
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def _fail(message: str) -> None:
    if first_to_report():
        typer.echo("countertrain: " + " ".join(message.split()), err=True)
    sys.exit(2)
