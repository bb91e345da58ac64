"""Models by name, which can be replaced while they are asked."""

import asyncio
import gc
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any

from fastapi import APIRouter, FastAPI, HTTPException, Response
from pydantic import TypeAdapter
from starlette.types import ASGIApp, Receive, Scope, Send

from countertrain.recourse.codes import CodeSource
from countertrain.runs.folder import read_run
from countertrain.serve import routes
from countertrain.serve.access import Access, Rates
from countertrain.serve.answers import Health, ModelMark
from countertrain.serve.audit import Audit
from countertrain.serve.board import Board
from countertrain.serve.building import make_app, make_model_app, make_threads, open_desks, render_metrics
from countertrain.serve.counters import Counters
from countertrain.serve.desk import Desk
from countertrain.serve.guard import Guard
from countertrain.serve.limits import Limits
from countertrain.serve.people import People
from countertrain.serve.questions import ExplainQuestion, Question
from countertrain.serve.routes import Tools
from countertrain.serve.value_types import make_example

__all__ = ["ModelSource", "ReloadError", "Service"]

_log = logging.getLogger(__name__)


class ReloadError(ValueError):
    """Another model cannot be served; the message says why, and that the one before goes on."""


@dataclass(frozen=True)
class ModelSource:
    """Where a model comes from, and how it is served."""

    folder: Path
    baseline: Path | None = None
    target: Any = None
    reasons: CodeSource = None
    people: People = "made-up"

    def open(self, name: str, sample: int) -> dict[str, Desk]:
        """The model as its folder holds it now, with its twin or another baseline; each has answered once."""
        whole = read_run(self.folder)
        other = whole.twin if self.baseline is None else read_run(self.baseline)
        desks = open_desks(
            whole.decider,
            None if other is None else other.decider,
            name=name,
            target=self.target,
            reasons=self.reasons,
            people=self.people,
            sample=sample,
        )
        for desk in desks.values():
            _probe(desk)
        return desks


def _probe(desk: Desk) -> None:
    """Ask a model once, so that one which cannot answer is never served."""
    columns, target = desk.decider.encoder.schema.columns, desk.decider.target
    someone = {column.name: make_example(column) for column in columns}
    wanted = desk.decider.classes[-1] if target is None else target
    desk.predict([Question(rows=[someone])])
    desk.explain([ExplainQuestion(rows=[someone], target=wanted)])
    desk.drift.forget()


@dataclass(frozen=True)
class Edition:
    """The models that are served at a time, and their applications; requests under way keep the one that they met."""

    desks: Mapping[str, Mapping[str, Desk]]
    apps: Mapping[str, ASGIApp]

    @property
    def ids(self) -> dict[str, str | None]:
        """The id of each model."""
        return {name: desks["main"].mark.id for name, desks in self.desks.items()}

    def list_desks(self) -> list[Desk]:
        """Every desk of every model."""
        return [desk for desks in self.desks.values() for desk in desks.values()]

    def list_models(self) -> list[ModelMark]:
        """What stands on every desk."""
        return [desk.mark for desk in self.list_desks()]


@dataclass
class Service:
    """An ASGI application of one model or several, whose edition can be exchanged without losing a request."""

    sources: Mapping[str, ModelSource]
    """By name; a single one called main has no name in its routes."""
    limits: Limits = field(default_factory=Limits)
    access: Access = field(default_factory=Access)
    audit: Audit | None = None
    n_workers: int = 1
    _generation: int = 0
    _before: Edition | None = None
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.board = Board(self.n_workers)
        self.rates = Rates(self.limits.rate, len(self.access.tokens), self.n_workers)
        self.counters = Counters()
        self.threads = make_threads()
        self._tools = Tools(self.limits, self.counters, self.threads, self.audit)
        self._alone = [*self.sources] == ["main"]
        self._house = self._make_house()
        self._now = self._open()
        self.app = Guard(self._answer, limits=self.limits, counters=self.counters, access=self.access, rates=self.rates)

    def become_worker(self, number: int) -> None:
        """Be the worker of this number, in a process of its own; what one before it has counted goes on."""
        self.board.worker = self.rates.worker = number
        if page := self.board.read_own():
            self.counters.merge(page["counters"], gauges=False)

    # ---- answering -------------------------------------------------------------------------------------------------

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the model that it names."""
        app: ASGIApp = self._house
        if self._alone and not scope["path"].startswith("/admin/"):
            app = self._now.apps["main"]
        elif scope["path"].startswith("/models/"):
            name, slash, _ = scope["path"].removeprefix("/models/").partition("/")
            if slash and name in self._now.apps:
                app, scope["root_path"] = self._now.apps[name], f"/models/{name}"
        await app(scope, receive, send)

    def _make_house(self) -> FastAPI:
        """What belongs to no model: health, metrics, the list of models, and what an administrator may do."""
        house, router = make_app(), APIRouter()
        write = TypeAdapter(list[ModelMark]).dump_json
        links = "".join(f'<li><a href="models/{name}/">{escape(name)}</a></li>' for name in self.sources)
        page = (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Models</title><h1>Models</h1><ul>{links}</ul>'
        )

        @router.get("/models", response_model=list[ModelMark], summary="The models that are served")
        async def models() -> Response:
            return Response(write(self._now.list_models()), media_type="application/json")

        @router.get("/", include_in_schema=False)
        async def index() -> Response:
            return Response(page, media_type="text/html")

        @router.get("/openapi.json", include_in_schema=False)
        async def openapi() -> dict[str, Any]:
            return house.openapi()

        @router.post("/admin/reload", response_model=Health, summary="Serve the models as their folders hold them now")
        async def reload() -> Health:
            return await self._administer(self.reload)

        @router.post("/admin/back", response_model=Health, summary="Serve the models of before the last change again")
        async def back() -> Health:
            return await self._administer(self.go_back)

        for one in (routes.make_health_route(lambda: self._now.list_models()), routes.make_metrics_route(self.render)):
            house.include_router(one)
        house.include_router(router)
        return house

    async def _administer(self, change: Callable[[], None]) -> Health:
        try:
            await asyncio.to_thread(change)
        except ReloadError as error:
            raise HTTPException(409, str(error)) from None
        return Health("ok", version("countertrain"), self._now.list_models())

    def render(self) -> str:
        """What all workers have counted, for Prometheus."""
        return render_metrics(self.counters, self._now.list_desks(), self.board.read_others())

    # ---- another edition -------------------------------------------------------------------------------------------

    def reload(self) -> None:
        """Serve the models as their folders hold them now, here and in all other processes; the old ones are kept."""
        with self._lock:
            self._replace(self._open_or_refuse())
            self._publish()

    def go_back(self) -> None:
        """Serve the models of before the last change again, here and in all other processes."""
        with self._lock:
            if self._before is None:
                raise ReloadError("there is no model before this one to go back to; it was never reloaded")
            self._replace(self._before)
            self._publish()

    def follow(self) -> None:
        """Serve what another process was told to serve."""
        wanted = self.board.wanted
        if wanted.get("generation", 0) <= self._generation:
            return
        with self._lock:
            self._generation = wanted["generation"]
            if self._now.ids == wanted["ids"]:
                return
            known = self._before is not None and self._before.ids == wanted["ids"]
            try:
                self._replace(self._before if known and self._before else self._open_or_refuse())
            except ReloadError:
                return  # which has been told
            if self._now.ids != wanted["ids"]:
                _log.error("the folders hold other models than another process has just loaded: %s", self._now.ids)

    async def tick(self) -> None:
        """What a worker does every second: tell what it has counted, and follow the others."""
        drift = {f"{d.mark.name} {d.mark.id}": d.drift.to_dict() for d in self._now.list_desks()}
        self.board.write({"counters": self.counters.to_dict(), "drift": drift})
        if self.board.wanted.get("generation", 0) > self._generation:
            await asyncio.to_thread(self.follow)

    def _publish(self) -> None:
        self._generation = self.board.wanted.get("generation", 0) + 1
        self.board.wanted = {"generation": self._generation, "ids": self._now.ids}

    def _replace(self, edition: Edition) -> None:
        self._now, self._before = edition, self._now
        gc.unfreeze()  # what nobody needs any more may have been loaded at the start
        self.counters.add("countertrain_reloads_total", outcome="done")
        _log.info("serving %s", self._say_models())

    def _open_or_refuse(self) -> Edition:
        try:
            return self._open()
        except Exception as error:
            self.counters.add("countertrain_reloads_total", outcome="failed")
            said = f"{self._say_models()} stays, because the new one cannot be served: {' '.join(str(error).split())}"
            _log.error("%s", said)
            raise ReloadError(said) from error

    def _say_models(self) -> str:
        return ", ".join(f"{name} {identity}" for name, identity in self._now.ids.items())

    def _open(self) -> Edition:
        """Load all models, ask each once, and make their applications."""
        desks = {name: source.open(name, self.limits.sample) for name, source in self.sources.items()}
        apps = {
            name: make_model_app(
                two,
                self._tools,
                self.access,
                list_models=lambda: self._now.list_models(),
                render=self.render,
            )
            for name, two in desks.items()
        }
        return Edition(desks, apps)
