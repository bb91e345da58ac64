"""Serving models on the command line, and looking at what the service has written down."""

import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from countertrain.cli import options
from countertrain.cli.app import app

__all__: list[str] = []

_NAMED = re.compile(r"(?P<name>[^=/\\]+)=(?P<folder>.+)")
_ACCESS, _LIMITS, _RECORDS = "Who may ask", "Limits", "What is shown and written down"


@app.command()
def serve(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Folder of a trained model; several as NAME=FOLDER.", metavar="MODEL...", show_default=False
        ),
    ],
    baseline: Annotated[
        Path | None, typer.Option(help="Folder of a model to compare with; the conventional twin, if there is one.")
    ] = None,
    target: options.Target = None,
    reasons: options.Reasons = None,
    host: Annotated[str, typer.Option(help="Address to listen on; anything but loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Processes that share the address, one per core.")] = 1,
    token_env: Annotated[
        str | None,
        typer.Option(
            help="Environment variable with the token that clients must show, or several with spaces between.",
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    admin_token_env: Annotated[
        str | None,
        typer.Option(
            help="Environment variable with the token for POST /admin/reload and /admin/back.", rich_help_panel=_ACCESS
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificate chain (PEM), for https.", rich_help_panel=_ACCESS)
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Key of the certificate (PEM).", rich_help_panel=_ACCESS)] = None,
    rate: Annotated[
        int, typer.Option(min=0, help="Requests a minute for each token; 0: as many as come.", rich_help_panel=_LIMITS)
    ] = 0,
    connections: Annotated[
        int, typer.Option(min=1, help="Connections open at once, per process.", rich_help_panel=_LIMITS)
    ] = 1_000,
    waiting: Annotated[
        int, typer.Option(min=1, help="People who may wait for an answer, per process.", rich_help_panel=_LIMITS)
    ] = 2_000,
    seconds: Annotated[
        float, typer.Option(help="For the body of a request, and again for its answer.", rich_help_panel=_LIMITS)
    ] = 10.0,
    header_seconds: Annotated[
        float, typer.Option(help="For the head of a request to arrive.", rich_help_panel=_LIMITS)
    ] = 10.0,
    idle_seconds: Annotated[
        float, typer.Option(help="That an unused connection stays open.", rich_help_panel=_LIMITS)
    ] = 15.0,
    stop_seconds: Annotated[
        float, typer.Option(help="For requests under way when it is told to stop.", rich_help_panel=_LIMITS)
    ] = 4.0,
    people: Annotated[
        str,
        typer.Option(
            help="Who is shown as an example: made-up people, real ones of the training rows (also nearest to an "
            "option), real ones who are k-anonymous, or none.",
            rich_help_panel=_RECORDS,
        ),
    ] = "made-up",
    identifying: Annotated[
        list[str] | None,
        typer.Option(
            help="Columns by which others could know a person, for k-anonymous.",
            metavar="A,B",
            rich_help_panel=_RECORDS,
        ),
    ] = None,
    k: Annotated[
        int, typer.Option("--k", help="Real people at least who are the same in them.", rich_help_panel=_RECORDS)
    ] = 5,
    log: Annotated[
        str,
        typer.Option(
            help="A line per request to standard error: text, json or none; without values of people.",
            rich_help_panel=_RECORDS,
        ),
    ] = "none",
    audit: Annotated[
        Path | None,
        typer.Option(
            help="File to which every decision and advice is added, chained by hashes.", rich_help_panel=_RECORDS
        ),
    ] = None,
    audit_inputs: Annotated[
        str, typer.Option(help="What the audit holds of people: hashed or whole.", rich_help_panel=_RECORDS)
    ] = "hashed",
    audit_key_env: Annotated[
        str | None,
        typer.Option(
            help="Environment variable with the key of the hashes; needed for hashed.", rich_help_panel=_RECORDS
        ),
    ] = None,
) -> None:
    """Serve decisions and recourse, with a page to try them: http://127.0.0.1:8000.

    SIGHUP loads the folders again without losing a request, SIGTERM ends it. /healthz needs no token; /metrics is for
    Prometheus, /openapi.json describes the rest.
    """
    from countertrain.cli.console import console
    from countertrain.serve.loading import loading

    try:
        with loading():
            from countertrain.serve.app import run
            from countertrain.serve.limits import Limits
    except ModuleNotFoundError as error:
        raise ValueError("serving needs FastAPI; install it with: pip install 'countertrain[serve]'") from error
    limits = Limits(
        seconds=seconds,
        waiting_rows=waiting,
        header_seconds=header_seconds,
        idle_seconds=idle_seconds,
        stop_seconds=stop_seconds,
        connections=connections,
        rate=rate,
    )
    token = _read_variable("--token-env", token_env)
    run(
        _name_folders(models),
        baseline=baseline,
        target=target,
        host=host,
        port=port,
        token=None if token is None else tuple(token.split()),
        admin_token=_read_variable("--admin-token-env", admin_token_env),
        limits=limits,
        reasons=options.find_codes(reasons),
        people=_find_people(people, options.split_names(identifying), k),
        workers=workers,
        tls=_find_tls(tls_cert, tls_key),
        audit=_find_audit(audit, audit_inputs, audit_key_env),
        log=log,  # type: ignore[arg-type]
        ready=lambda address: console.print(f"{address}  (stop with Ctrl-C)"),
    )
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # torch takes more than a second to take its leave


@app.command()
def audit(
    file: Annotated[Path, typer.Argument(help="What `serve --audit` has written.", metavar="FILE")],
    key_env: Annotated[
        str | None, typer.Option(help="Environment variable with the key that it was written with.")
    ] = None,
    last: Annotated[
        str | None, typer.Option(help="Hash noted earlier: that of a line which must still be there.")
    ] = None,
) -> None:
    """Verify an audit: whether each line is as it was written and none is missing, and if not, where."""
    from countertrain.cli.console import console
    from countertrain.serve.audit import verify

    found = verify(file, _read_variable("--key-env", key_env), last=last)
    console.print(
        f"{file} is as it was written: {found.entries:,} entries, {found.first} to {found.last}\n"
        f"hash of the last line, which shows later that nothing was cut off: {found.hash}",
        soft_wrap=True,
        highlight=False,
    )


def _read_variable(option: str, name: str | None) -> str | None:
    """What an environment variable holds; refused where it is named and not set."""
    if name is None:
        return None
    if not os.environ.get(name, "").strip():
        raise ValueError(f"{option} names {name}, which is not set; put the token or key into it")
    return os.environ[name]


def _name_folders(models: list[str]) -> Any:
    """One folder, or several by name."""
    if len(models) == 1 and (Path(models[0]).exists() or not _NAMED.fullmatch(models[0])):
        return Path(models[0])
    found: dict[str, Path] = {}
    for given in models:
        named = _NAMED.fullmatch(given)
        if named is None:
            raise ValueError(f"several models are given as NAME=FOLDER; got {given!r} without a name")
        if named["name"] in found:
            raise ValueError(f"each model needs a name of its own; {named['name']!r} is given twice")
        found[named["name"]] = Path(named["folder"])
    return found


def _find_tls(certificate: Path | None, key: Path | None) -> Any:
    from countertrain.serve.server import Tls

    if (certificate is None) != (key is None):
        raise ValueError("--tls-cert and --tls-key must be given together")
    return None if certificate is None or key is None else Tls(certificate, key)


def _find_people(kind: str, identifying: list[str], k: int) -> Any:
    from countertrain.serve.anonymity import KAnonymous

    if (kind == "k-anonymous") != bool(identifying):
        raise ValueError(
            "--people k-anonymous and --identifying, the columns by which others could know a person, go together"
        )
    return KAnonymous(tuple(identifying), k) if identifying else kind


def _find_audit(path: Path | None, inputs: str, key_env: str | None) -> Any:
    from countertrain.serve.audit import INPUTS, Audit

    if inputs not in INPUTS:
        raise ValueError(f"--audit-inputs must be one of {', '.join(INPUTS)}; got {inputs!r}")
    key = _read_variable("--audit-key-env", key_env)
    if path is None:
        if key is not None:
            raise ValueError("--audit-key-env is the key of an audit; give its file with --audit, too")
        return None
    if inputs == "hashed" and key is None:
        raise ValueError(
            "--audit with hashed inputs needs --audit-key-env, an environment variable that holds a key; "
            "or give --audit-inputs whole"
        )
    return Audit(path, inputs, key)
