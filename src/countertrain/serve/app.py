"""The service as a whole: the API behind its guard and its token, and the page."""

import os
import secrets
from collections.abc import Callable, Mapping
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import Request

from countertrain.recourse.codes import CodeSource
from countertrain.recourse.decider import Decider
from countertrain.recourse.defaults import N_STEPS
from countertrain.runs.folder import read_run
from countertrain.serve import routes
from countertrain.serve.answers import Refusal
from countertrain.serve.batching import BusyError
from countertrain.serve.counters import Counters
from countertrain.serve.desk import Desk
from countertrain.serve.guard import Guard
from countertrain.serve.limits import Limits, check_access
from countertrain.serve.questions import explain_errors
from countertrain.tables.schema import Schema

__all__ = ["create_app", "run"]

_ABOUT = """What a model decides for people, and what they could change for another decision.

People are described by the columns of the model (`GET /schema`), in their own units. `POST /predict` gives the
decision, `POST /explain` the ways to another one. Whatever is wrong with a request is said in one sentence that names
the field."""
_PAGE = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


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
) -> FastAPI:
    """The service for a fitted classifier (its `decider`), and for a conventional one to compare it with.

    With a token, everything but the page and /healthz needs it; without one, the service is to be asked as localhost.
    `target` is the class that people want; left out, the one that the classifier was told. Options are to have
    probability `tau`; `n_steps` is the most that each of two gradient searches may take. `reasons` is the code table in
    whose words reasons are given.
    """
    limits = limits or Limits()
    deciders = {"main": decider} if baseline is None else {"main": decider, "baseline": baseline}
    if baseline is not None:
        _check_alike(decider, baseline)
    wanted = decider.settle_target(target)
    deciders = {name: one.want(wanted) for name, one in deciders.items()}
    desks = {
        name: Desk.of(one, tau=tau, n_steps=n_steps, sample=limits.sample, reasons=reasons)
        for name, one in deciders.items()
    }
    counters = Counters()
    app = FastAPI(
        title="countertrain",
        version=version("countertrain"),
        description=_ABOUT,
        docs_url=None,  # its scripts come from elsewhere
        redoc_url=None,
        openapi_url=None,
        generate_unique_id_function=lambda route: route.name,
    )
    app.add_middleware(Guard, limits=limits, counters=counters, local=token is None)
    closed = APIRouter() if token is None else _require_token(token)
    closed.include_router(routes.make_question_routes(desks, limits, counters))
    closed.include_router(routes.make_lookup_routes(desks, limits, counters))
    closed.include_router(_describe(app))
    for router in (routes.make_health_route(), closed, _serve_page()):
        app.include_router(router)
    _answer_mistakes(app, decider.encoder.schema)
    return app


def run(
    folder: str | os.PathLike[str],
    *,
    baseline: str | os.PathLike[str] | None = None,
    target: Any = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    limits: Limits | None = None,
    reasons: CodeSource = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve the model in a folder until interrupted, with its conventional twin or another baseline."""
    check_access(host, token)
    main = read_run(Path(folder))
    other = main.twin if baseline is None else read_run(Path(baseline))
    conventional = None if other is None else other.decider
    app = create_app(main.decider, baseline=conventional, target=target, token=token, limits=limits, reasons=reasons)
    ready()
    uvicorn.run(app, host=host, port=port, access_log=False, server_header=False)


def _check_alike(decider: Decider, baseline: Decider) -> None:
    """Refuse two models that cannot be asked the same questions."""
    one, other = (
        [(column.kind, column.name, getattr(column, "levels", ())) for column in each.encoder.schema.columns]
        for each in (decider, baseline)
    )
    if one != other or decider.classes != baseline.classes:
        odd = next((f"column {mine[1]!r}" for mine in one if mine not in other), "the columns or the classes")
        raise ValueError(
            f"the baseline must have the columns, levels and classes of the model; {odd} differ; "
            "fit both on the same table"
        )


def _require_token(token: str) -> APIRouter:
    """A router that lets through only those who know the token."""
    bearer = HTTPBearer(auto_error=False, description="The token that the service was started with.")

    async def check(given: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> None:
        if given is None or not secrets.compare_digest(given.credentials.encode(), token.encode()):
            said = "the token is wrong" if given else "this needs a token: send the header Authorization: Bearer ..."
            raise HTTPException(401, said, {"WWW-Authenticate": "Bearer"})

    refused = {"model": Refusal, "description": "The token is missing or wrong."}
    return APIRouter(dependencies=[Depends(check)], responses={401: refused})


def _describe(app: FastAPI) -> APIRouter:
    """The OpenAPI description of the service."""
    router = APIRouter()

    @router.get("/openapi.json", include_in_schema=False)
    async def openapi() -> JSONResponse:
        return JSONResponse(app.openapi())

    return router


def _serve_page() -> APIRouter:
    """The page: a few files that need nothing from elsewhere."""
    router = APIRouter(include_in_schema=False)

    def add(path: str, name: str, media_type: str) -> None:
        content = files("countertrain.serve").joinpath("page", name).read_bytes()

        @router.get(path)
        async def file() -> Response:
            return Response(content, media_type=media_type)

    for path, (name, media_type) in _PAGE.items():
        add(path, name, media_type)
    return router


def _answer_mistakes(app: FastAPI, schema: Schema) -> None:
    """Answer every mistake alike: in one sentence, and field by field where there are fields."""
    write = TypeAdapter(Refusal).dump_json

    def refuse(status: int, refusal: Refusal, headers: Mapping[str, str] | None = None) -> Response:
        return Response(write(refusal), status, headers, "application/json")

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return refuse(422, explain_errors(error.errors(), schema))

    @app.exception_handler(StarletteHTTPException)
    async def other(request: Request, error: StarletteHTTPException) -> Response:
        return refuse(error.status_code, Refusal(str(error.detail), []), error.headers)

    @app.exception_handler(BusyError)
    async def busy(request: Request, error: BusyError) -> Response:
        return refuse(503, Refusal(str(error), []), {"Retry-After": "1"})
