"""The service: as an application to build on, or from its start to its end in one process or several."""

import logging
import os
import re
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from pathlib import Path
from socket import socket
from typing import Any

import torch
from fastapi import FastAPI

from countertrain.recourse.codes import CodeSource
from countertrain.recourse.decider import Decider
from countertrain.recourse.defaults import N_STEPS
from countertrain.serve.access import Access, check_access
from countertrain.serve.anonymity import KAnonymous
from countertrain.serve.audit import Audit
from countertrain.serve.building import make_model_app, make_threads, open_desks, render_metrics
from countertrain.serve.counters import Counters
from countertrain.serve.guard import Guard
from countertrain.serve.limits import Limits
from countertrain.serve.loading import loading
from countertrain.serve.logs import LOGS, LogKind, set_up_logs
from countertrain.serve.people import PEOPLE, People
from countertrain.serve.routes import Tools
from countertrain.serve.server import Server, Tls, bind, check_tls, name_address
from countertrain.serve.service import ModelSource, ReloadError, Service
from countertrain.serve.workers import Workers, can_fork
from countertrain.words import suggest

__all__ = ["create_app", "run"]

Folder = str | os.PathLike[str]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MOST_WORKERS = 64
_MARGIN = 0.5  # seconds that a worker has to end, beside those for the requests under way
_log = logging.getLogger(__name__)


def create_app(
    decider: Decider,
    *,
    baseline: Decider | None = None,
    target: Any = None,
    token: str | None = None,
    limits: Limits | None = None,
    tau: float | None = None,
    n_steps: int = N_STEPS,
    reasons: CodeSource = None,
    people: People = "made-up",
) -> FastAPI:
    """The service for a fitted classifier (its `decider`), and for a conventional one to compare it with.

    With a token, everything but the page and /healthz needs it; without one, the service is to be asked as localhost.
    `target` is the class that people want; left out, the one that the classifier was told. Options are to have
    probability `tau`; `n_steps` is the most that each of two gradient searches may take. `reasons` is the code table in
    whose words reasons are given. `people` says who is shown as an example: somebody made up, real people of the
    training rows, as they are or `KAnonymous`, or nobody.
    """
    limits, access = limits or Limits(), Access(() if token is None else (token,))
    desks = open_desks(
        decider, baseline, target=target, tau=tau, n_steps=n_steps, reasons=reasons, people=people, sample=limits.sample
    )
    tools = Tools(limits, Counters(), make_threads())

    def render() -> str:
        return render_metrics(tools.counters, desks.values())

    app = make_model_app(
        desks, tools, access, list_models=lambda: [desk.mark for desk in desks.values()], render=render
    )
    app.add_middleware(Guard, limits=limits, counters=tools.counters, access=access)
    return app


def run(
    folder: Folder | Mapping[str, Folder],
    *,
    baseline: Folder | None = None,
    target: Any = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | tuple[str, ...] | None = None,
    admin_token: str | None = None,
    limits: Limits | None = None,
    reasons: CodeSource = None,
    people: People = "made-up",
    workers: int = 1,
    tls: Tls | None = None,
    audit: Audit | None = None,
    log: LogKind = "none",
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve the model in a folder until interrupted, with its conventional twin or another baseline.

    Several folders are given by name; then each model has its routes under /models/NAME. Everything that can be
    refused is refused before a model is loaded. `ready` is told the address once the service answers. SIGHUP loads the
    folders again; SIGTERM and SIGINT end the service when the requests under way are answered.
    """
    access = Access((token,) if isinstance(token, str) else token or (), admin_token)
    check_access(host, access)
    sources = _name_sources(folder, baseline, target, reasons, people)
    _check_choices(people, log, workers)
    if tls is not None:
        check_tls(tls)
    limits = limits or Limits()
    sockets = bind(host, port)
    try:
        if audit is not None:
            audit.check()
        if workers > 1:
            torch.set_num_threads(1)  # each process has one core, and threads do not survive a fork
        with loading():
            service = Service(sources, limits, access, audit, workers)
        set_up_logs(log)
        address = name_address(host, sockets, tls=tls is not None)
        if workers == 1:
            _serve(service, sockets, tls, lambda: ready(address))
            _leave(service)
        else:
            _serve_together(service, sockets, tls, lambda: ready(address))
    finally:
        for one in sockets:
            one.close()


def _name_sources(
    folder: Folder | Mapping[str, Folder], baseline: Folder | None, target: Any, reasons: CodeSource, people: People
) -> dict[str, ModelSource]:
    """The models to serve; what belongs to one model only is refused for several."""
    if not isinstance(folder, Mapping):
        other = None if baseline is None else Path(baseline)
        return {"main": ModelSource(Path(folder), other, target, reasons, people)}
    if not folder:
        raise ValueError("there is no model to serve; give at least one folder")
    for name in folder:
        if not _NAME.fullmatch(name) or name in ("main", "baseline"):
            raise ValueError(
                f"the name of a model must be letters, digits, dots, dashes and underscores, at most 64, and neither "
                f"main nor baseline; got {name!r}"
            )
    for option, given in (("baseline", baseline), ("target", target), ("reasons", reasons)):
        if given is not None:
            raise ValueError(f"{option} must be left out where models have names; give a single folder without a name")
    return {name: ModelSource(Path(path), people=people) for name, path in folder.items()}


def _check_choices(people: People, log: str, workers: int) -> None:
    for name, value, allowed in (("people", people, PEOPLE), ("log", log, LOGS)):
        if value not in allowed and not isinstance(value, KAnonymous):
            raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}; {suggest(value, allowed)}")
    if not 1 <= workers <= _MOST_WORKERS:
        raise ValueError(f"workers must lie between 1 and {_MOST_WORKERS}; got {workers}")
    if workers > 1 and not can_fork():
        raise ValueError("workers must be 1 on a system without fork; start several services behind a proxy")


def _serve(service: Service, sockets: list[socket], tls: Tls | None, ready: Callable[[], None]) -> None:
    """Answer in this process until told to stop; a worker also stops when its parent is gone."""
    parent = os.getppid()

    async def tick() -> None:
        if service.n_workers > 1 and os.getppid() != parent:
            server.should_exit = True
        await service.tick()

    server = Server(
        service.app,
        limits=service.limits,
        counters=service.counters,
        tls=tls,
        tick=tick,
        reload=service.reload,
        ready=ready,
    )
    server.run(sockets)


def _serve_together(service: Service, sockets: list[socket], tls: Tls | None, ready: Callable[[], None]) -> None:
    """Let workers answer, which are forked from this process once the models are loaded."""

    def work(number: int) -> None:
        service.become_worker(number)
        _serve(service, sockets, tls, lambda: None)

    def reload() -> None:
        try:
            service.reload()
        except ReloadError:
            return  # which has been told

    workers = Workers(
        service.n_workers,
        work,
        stop_seconds=service.limits.stop_seconds + _MARGIN,
        reload=reload,
        tick=service.follow,
        all_ready=lambda: service.board.count_written() == service.n_workers,
        ready=ready,
    )
    workers.run()


def _leave(service: Service) -> None:
    """End even where a search is still running for somebody who has long been sent away."""
    threads = [*service.threads.values()]
    _, busy = wait([thread.submit(int) for thread in threads], timeout=_MARGIN)
    for thread in threads:
        thread.shutdown(wait=False, cancel_futures=True)
    if busy:
        _log.warning("a search was given up")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
