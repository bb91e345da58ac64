"""The routes of the API, for one model or two."""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from typing import Annotated, Any, Generic, TypeVar

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from pydantic import TypeAdapter

from countertrain.recourse.rendering import FIFTHS, say_cost
from countertrain.serve.answers import ExplainAnswer, Form, Health, Label, ModelMark, PredictAnswer, Refusal, Sample
from countertrain.serve.audit import Audit
from countertrain.serve.batching import Batcher
from countertrain.serve.counters import Counters
from countertrain.serve.desk import Desk
from countertrain.serve.guard import NOTE
from countertrain.serve.limits import Limits
from countertrain.serve.questions import Question, question_types, sample_type
from countertrain.tables.labels import find_class
from countertrain.tables.scales import Ranks, Scale
from countertrain.tables.schema import Numeric

__all__ = ["Tools", "make_health_route", "make_lookup_routes", "make_metrics_route", "make_question_routes"]

Asked = TypeVar("Asked", bound=Question)


@dataclass(frozen=True)
class Tools:
    """What the routes of all models share."""

    limits: Limits
    counters: Counters
    threads: Mapping[str, Executor]
    """In which each kind of work is done."""
    audit: Audit | None = None


@dataclass(frozen=True)
class _Job(Generic[Asked]):
    """A question and the id of its request."""

    question: Asked
    id: str


_REFUSED = {
    400: "The request cannot be read.",
    408: "The request took too long to arrive.",
    413: "The request is too large.",
    422: "Something in the request is not as it must be; the answer names it.",
    429: "This token has asked too often; try again when the answer says.",
    503: "Too many people are waiting; try again in a moment.",
    504: "The answer took too long.",
}
_REFERENCE = {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": said} | ({"model": Refusal} if status == 422 else {"content": _REFERENCE})  # described once
    for status, said in _REFUSED.items()
}


def make_question_routes(desks: Mapping[str, Desk], tools: Tools) -> APIRouter:
    """What is asked of a model: decisions, and the ways to another one."""
    router = APIRouter(responses=_RESPONSES)
    main, limits = desks["main"], tools.limits
    asked, asked_to_explain = question_types(
        main.decider.encoder,
        main.decider.classes,
        wanted=main.decider.target,
        baseline="baseline" in desks,
        limits=limits,
    )
    deciding = {name: _make_batcher("predict", desk.predict, desk, tools) for name, desk in desks.items()}
    searching = {name: _make_batcher("explain", desk.explain, desk, tools) for name, desk in desks.items()}

    @router.post("/predict", response_model=PredictAnswer, summary="What the model decides")
    async def predict(question: asked, request: Request) -> Response:  # type: ignore[valid-type]  # of the schema
        """The decision for each person, and how probable the model finds every class."""
        return await _answer(deciding, question, request)

    @router.post("/explain", response_model=ExplainAnswer, summary="What would change the decision")
    async def explain(question: asked_to_explain, request: Request) -> Response:  # type: ignore[valid-type]
        """For each person what to change for the decision `target`, in their own units, what to recommend first.

        Who is decided so already is told to change nothing.
        An option is checked by the model exactly as it is shown, after rounding. One that is not valid is the closest
        attempt, and says why. `immutable` and `ranges` hold for everybody in the request, beyond what the schema says.
        """
        return await _answer(searching, question, request)

    return router


def make_lookup_routes(desks: Mapping[str, Desk], limits: Limits) -> APIRouter:
    """What there is to look at: the columns, and people."""
    router = APIRouter()
    main = desks["main"]
    write_form = cache(lambda: TypeAdapter(Form).dump_json(_make_form(desks, limits)))  # once somebody asks
    samples = TypeAdapter(Sample)
    classes = main.decider.classes
    query = sample_type([str(label) for label in classes], max(limits.sample, 1))

    @router.get("/schema", response_model=Form, summary="What a person is asked for")
    async def schema() -> Response:
        """The columns with their units, ranges, levels and fifths, the classes, and the limits of the service."""
        return Response(write_form(), media_type="application/json")

    @router.get("/sample", response_model=Sample, summary="People to begin with", responses={422: _RESPONSES[422]})
    async def sample(asked: Annotated[query, Query()]) -> Response:  # type: ignore[valid-type]
        """A few people like those of the training rows, made up, if rows were saved with the model.

        Real ones only where the owner of the service has chosen to show them; `real` says so.
        """
        label, n = asked.label, asked.n  # type: ignore[attr-defined]
        chosen: Label | None = None if label is None else classes[find_class(label, classes, what="label")]
        return Response(samples.dump_json(main.show_people(chosen, n)), media_type="application/json")

    return router


def make_metrics_route(render: Callable[[], str]) -> APIRouter:
    """What a monitor counts."""
    router = APIRouter()

    @router.get("/metrics", summary="Counts for Prometheus", response_class=Response)
    async def counts() -> Response:
        """Requests, their time, people, what was refused, how many wait, and drift against the training rows."""
        return Response(render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def make_health_route(list_models: Callable[[], list[ModelMark]]) -> APIRouter:
    """What a monitor of the service may ask at any time."""
    router = APIRouter()
    write = TypeAdapter(Health).dump_json

    @router.get("/healthz", response_model=Health, summary="Whether the service is alive")
    async def healthz() -> Response:
        """Says that the service is alive, and which models it serves."""
        return Response(write(Health("ok", version("countertrain"), list_models())), media_type="application/json")

    return router


def _make_batcher(
    work: str, run: Callable[[Sequence[Asked]], Sequence[bytes]], desk: Desk, tools: Tools
) -> Batcher[_Job[Asked], bytes]:
    """The batcher of one model for one kind of work; whatever is decided is written into the audit, if there is one."""
    name = None if desk.mark.name in ("main", "baseline") else desk.mark.name
    counters, audit = tools.counters, tools.audit

    def answer(jobs: Sequence[_Job[Asked]]) -> Sequence[bytes]:
        answers = run([job.question for job in jobs])
        if audit is not None:
            audit.write(
                [entry for pair in zip(jobs, answers, strict=True) for entry in _write_down(audit, work, *pair)]
            )
        return answers

    return Batcher(
        answer,
        limits=tools.limits,
        thread=tools.threads[work],
        record=partial(counters.count_batch, work=work, model=name),
        watch=partial(counters.set, "countertrain_queue_rows", work=work, model=desk.mark.name),
    )


def _write_down(audit: Audit, work: str, job: _Job[Asked], answer: bytes) -> list[dict[str, Any]]:
    """What an audit holds of each person in a question."""
    told = json.loads(answer)
    common = {"work": work, "request": job.id, "model": told["model"]["id"], "name": told["model"]["name"]}
    people = zip(job.question.rows, told["decisions" if work == "predict" else "explanations"], strict=True)
    return [common | audit.describe(row, one) for row, one in people]


async def _answer(batchers: Mapping[str, Batcher[_Job[Asked], bytes]], question: Asked, request: Request) -> Response:
    note = request.scope.get(NOTE, {})
    note["rows"] = len(question.rows)
    answer = await batchers[question.model](_Job(question, note.get("id", "")), len(question.rows))
    return Response(answer, media_type="application/json")


def _make_form(desks: Mapping[str, Desk], limits: Limits) -> Form:
    main = desks["main"]
    encoder, target = main.decider.encoder, main.decider.target
    known = {} if target is None else main.decider.list_directions(main.decider.classes.index(target))
    columns = [
        column.model_dump(mode="json")
        | ({"fifths": _find_fifths(scale)} if isinstance(column, Numeric) else {"labels": column.labels})
        | {"evidence": known.get(column.name)}
        for column, scale in zip(encoder.schema.columns, encoder.scales, strict=True)
    ]
    cost = {name: say_cost(ranked=bool(desk.decider.encoder.ranks)) for name, desk in desks.items()}
    shown = limits.sample if any(main.samples.values()) else 0
    return Form(
        columns=columns,
        fifths=[*FIFTHS],
        cost=cost,
        classes=[*main.decider.classes],
        target=target,
        needed={name: [*desk.search.list_needed().values()] for name, desk in desks.items()},
        models=[*desks],
        max_rows=limits.rows,
        max_options=limits.options,
        max_sample=shown,
        real_people=main.shows_real,
        identifying=[] if main.blur is None else [*main.blur.identifying],
        model=main.mark,
    )


def _find_fifths(scale: Scale) -> list[float] | None:
    """The numbers that part people into fifths, where numbers have places among people."""
    return scale.find_values(np.arange(1, 5) / 5).tolist() if isinstance(scale, Ranks) else None
