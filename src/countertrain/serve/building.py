"""The application of one model: its routes, the page, and what mistakes are answered with."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import Request

from countertrain.recourse.codes import CodeSource
from countertrain.recourse.decider import Decider
from countertrain.recourse.defaults import N_STEPS
from countertrain.serve import routes
from countertrain.serve.access import Access
from countertrain.serve.answers import ModelMark, Refusal
from countertrain.serve.audit import AuditError
from countertrain.serve.batching import BusyError
from countertrain.serve.counters import Counters
from countertrain.serve.desk import Desk
from countertrain.serve.people import People
from countertrain.serve.questions import explain_errors
from countertrain.serve.routes import Tools
from countertrain.tables.schema import Schema

__all__ = ["make_app", "make_model_app", "make_threads", "open_desks", "render_metrics"]

_log = logging.getLogger(__name__)

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


def open_desks(
    decider: Decider,
    baseline: Decider | None = None,
    *,
    name: str = "main",
    target: Any = None,
    tau: float | None = None,
    n_steps: int = N_STEPS,
    reasons: CodeSource = None,
    people: People = "made-up",
    sample: int = 0,
) -> dict[str, Desk]:
    """The desks of a model and of its baseline, all of whose people want the same."""
    if baseline is not None:
        _check_alike(decider, baseline)
    wanted = decider.settle_target(target)
    given = {"main": decider} if baseline is None else {"main": decider, "baseline": baseline}
    return {
        key: Desk.of(
            one.want(wanted),
            name=name if key == "main" else key,
            tau=tau,
            n_steps=n_steps,
            reasons=reasons,
            people=people,
            sample=sample,
        )
        for key, one in given.items()
    }


def make_threads() -> dict[str, Executor]:
    """One thread for each kind of work, which all models share."""
    return {work: ThreadPoolExecutor(1, thread_name_prefix=work) for work in ("predict", "explain")}


def make_model_app(
    desks: Mapping[str, Desk],
    tools: Tools,
    access: Access,
    *,
    list_models: Callable[[], list[ModelMark]],
    render: Callable[[], str],
) -> FastAPI:
    """All routes of one model, without what stands before them."""
    app = make_app(desks["main"].decider.encoder.schema)
    closed = APIRouter() if access.is_local else describe_token()
    closed.include_router(routes.make_question_routes(desks, tools))
    closed.include_router(routes.make_lookup_routes(desks, tools.limits))
    closed.include_router(routes.make_metrics_route(render))
    closed.include_router(_describe(app))
    for router in (routes.make_health_route(list_models), closed, _serve_page()):
        app.include_router(router)
    return app


def make_app(schema: Schema | None = None) -> FastAPI:
    """An application without routes, in which every mistake is answered alike."""
    app = FastAPI(
        title="countertrain",
        version=version("countertrain"),
        description=_ABOUT,
        docs_url=None,  # its scripts come from elsewhere
        redoc_url=None,
        openapi_url=None,
        generate_unique_id_function=lambda route: route.name,
    )
    _answer_mistakes(app, schema)
    return app


def render_metrics(counters: Counters, desks: Iterable[Desk], others: Sequence[Mapping[str, Any]] = ()) -> str:
    """What this process and others have counted, with the drift of each model."""
    whole = Counters()
    for page in ({"counters": counters.to_dict()}, *others):
        whole.merge(page["counters"])
    for desk in desks:
        mark = desk.mark
        whole.set("countertrain_model_info", 1, model=mark.name, id=mark.id, version=mark.version)
        theirs = [page["drift"][key] for page in others if (key := f"{mark.name} {mark.id}") in page["drift"]]
        for metric, value, labels in desk.drift.measure(theirs):
            whole.set(metric, value, model=mark.name, id=mark.id, **labels)
    return whole.render()


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


def describe_token() -> APIRouter:
    """A router whose description says that it needs a token; the guard has looked at it before."""
    bearer = HTTPBearer(auto_error=False, description="The token that the service was started with.")
    refused = {"model": Refusal, "description": "The token is missing or wrong."}
    return APIRouter(dependencies=[Depends(bearer)], responses={401: refused})


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


def _answer_mistakes(app: FastAPI, schema: Schema | None) -> None:
    """Answer every mistake alike: in one sentence, and field by field where there are fields."""
    write = TypeAdapter(Refusal).dump_json

    def refuse(status: int, refusal: Refusal, headers: Mapping[str, str] | None = None) -> Response:
        return Response(write(refusal), status, headers, "application/json")

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return refuse(422, explain_errors(error.errors(), () if schema is None else schema.names))

    @app.exception_handler(StarletteHTTPException)
    async def other(request: Request, error: StarletteHTTPException) -> Response:
        return refuse(error.status_code, Refusal(str(error.detail), []), error.headers)

    @app.exception_handler(BusyError)
    async def busy(request: Request, error: BusyError) -> Response:
        return refuse(503, Refusal(str(error), []), {"Retry-After": "1"})

    @app.exception_handler(AuditError)
    async def unwritten(request: Request, error: AuditError) -> Response:
        _log.error("%s", error)
        said = "what is decided has to be written down, and that is not possible at the moment; try again later"
        return refuse(503, Refusal(said, []), {"Retry-After": "60"})
