"""The routes of the API, for one model or two."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any, TypeVar

import numpy as np
from fastapi import APIRouter, Query, Response
from pydantic import TypeAdapter

from countertrain.recourse.rendering import FIFTHS, say_cost
from countertrain.serve.answers import ExplainAnswer, Form, Health, Label, PredictAnswer, Refusal, Sample
from countertrain.serve.batching import Batcher
from countertrain.serve.counters import Counters
from countertrain.serve.desk import Desk
from countertrain.serve.limits import Limits
from countertrain.serve.questions import Question, question_types
from countertrain.serve.value_types import choice_type
from countertrain.tables.labels import find_class
from countertrain.tables.scales import Ranks, Scale
from countertrain.tables.schema import Numeric

__all__ = ["make_health_route", "make_lookup_routes", "make_question_routes"]

Asked = TypeVar("Asked", bound=Question)

_REFUSED = {
    400: "The request cannot be read.",
    408: "The request took too long to arrive.",
    413: "The request is too large.",
    422: "Something in the request is not as it must be; the answer names it.",
    503: "Too many people are waiting; try again in a moment.",
    504: "The answer took too long.",
}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": Refusal, "description": said} for status, said in _REFUSED.items()
}


def make_question_routes(desks: Mapping[str, Desk], limits: Limits, counters: Counters) -> APIRouter:
    """What is asked of a model: decisions, and the ways to another one."""
    router = APIRouter(responses=_RESPONSES)
    main = desks["main"]
    asked, asked_to_explain = question_types(
        main.decider.encoder,
        main.decider.classes,
        wanted=main.decider.target,
        baseline="baseline" in desks,
        limits=limits,
    )
    deciding = _make_batchers("predict", {name: desk.predict for name, desk in desks.items()}, limits, counters)
    searching = _make_batchers("explain", {name: desk.explain for name, desk in desks.items()}, limits, counters)

    @router.post("/predict", response_model=PredictAnswer, summary="What the model decides")
    async def predict(question: asked) -> Response:  # type: ignore[valid-type]  # made from the schema
        """The decision for each person, and how probable the model finds every class."""
        return await _answer(deciding, question)

    @router.post("/explain", response_model=ExplainAnswer, summary="What would change the decision")
    async def explain(question: asked_to_explain) -> Response:  # type: ignore[valid-type]
        """For each person what to change for the decision `target`, in their own units, what to recommend first.

        Who is decided so already is told to change nothing.
        An option is checked by the model exactly as it is shown, after rounding. One that is not valid is the closest
        attempt, and says why. `immutable` and `ranges` hold for everybody in the request, beyond what the schema says.
        """
        return await _answer(searching, question)

    return router


def make_lookup_routes(desks: Mapping[str, Desk], limits: Limits, counters: Counters) -> APIRouter:
    """What there is to look at: the columns, real people, and counts."""
    router = APIRouter()
    main = desks["main"]
    form = TypeAdapter(Form).dump_json(_make_form(desks, limits))
    samples = TypeAdapter(Sample)
    classes = main.decider.classes
    label_type = choice_type([str(label) for label in classes])

    @router.get("/schema", response_model=Form, summary="What a person is asked for")
    async def schema() -> Response:
        """The columns with their units, ranges, levels and fifths, the classes, and the limits of the service."""
        return Response(form, media_type="application/json")

    @router.get("/sample", response_model=Sample, summary="Real people", responses={422: _RESPONSES[422]})
    async def sample(
        label: Annotated[label_type | None, Query(description="Only people of this class.")] = None,  # type: ignore[valid-type]
        n: Annotated[int, Query(ge=1, le=max(limits.sample, 1))] = 10,
    ) -> Response:
        """A few of the training rows, if they were saved with the model and may be shown."""
        chosen: Label | None = None if label is None else classes[find_class(label, classes, what="label")]
        return Response(samples.dump_json(main.show_people(chosen, n)), media_type="application/json")

    @router.get("/metrics", summary="Counts for Prometheus", response_class=Response)
    async def counts() -> Response:
        """Requests by route and status, their time, people, and how many requests were answered together."""
        return Response(counters.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def make_health_route() -> APIRouter:
    """What a monitor of the service may ask at any time."""
    router = APIRouter()
    alive = TypeAdapter(Health).dump_json(Health("ok", version("countertrain")))

    @router.get("/healthz", response_model=Health, summary="Whether the service is alive")
    async def healthz() -> Response:
        """Says that the service is alive."""
        return Response(alive, media_type="application/json")

    return router


def _make_batchers(
    work: str, runs: Mapping[str, Callable[[Sequence[Asked]], Sequence[bytes]]], limits: Limits, counters: Counters
) -> dict[str, Batcher[Asked, bytes]]:
    """One batcher per model, all of which work in one thread."""
    thread = ThreadPoolExecutor(1, thread_name_prefix=work)
    record = partial(counters.count_batch, work)
    return {name: Batcher(run, limits=limits, thread=thread, record=record) for name, run in runs.items()}


async def _answer(batchers: Mapping[str, Batcher[Asked, bytes]], question: Asked) -> Response:
    answer = await batchers[question.model](question, len(question.rows))
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
    shown = limits.sample if main.search.reference is not None else 0
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
    )


def _find_fifths(scale: Scale) -> list[float] | None:
    """The numbers that part people into fifths, where numbers have places among people."""
    return scale.find_values(np.arange(1, 5) / 5).tolist() if isinstance(scale, Ranks) else None
