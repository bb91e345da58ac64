"""A service to test: loan applications with every kind of column, and ways to ask in one line."""

import asyncio
import json
from collections.abc import Coroutine, Sequence
from functools import cache
from typing import Any, NoReturn

import httpx
import numpy as np
import pandas as pd
from starlette.types import ASGIApp

from countertrain.estimator import CounterfactualClassifier
from countertrain.serve.limits import Limits
from countertrain.tables.schema import Schema

PATIENT = Limits(seconds=60)  # the machine that runs the tests may be busy
PERSON = {
    "age": 40,
    "credit income": 21_000.5,
    "job": "none",
    "grade": "b",
    "member": True,
    "debt": 9_000.0,
    "owner": 0,
}


def applications(n: int = 300, seed: int = 0) -> pd.DataFrame:
    """Rows with integers, numbers with and without a step, levels, truth values, and missing ones."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 80, n),
            "credit income": rng.normal(30_000, 9_000, n).round(1),
            "job": rng.choice(["clerk", "none", "smith"], n),
            "grade": pd.Categorical(rng.choice(["a", "b", "c"], n), ["a", "b", "c"], ordered=True),
            "member": rng.random(n) < 0.5,
            "debt": np.where(rng.random(n) < 0.1, np.nan, rng.exponential(5_000, n)),
            "owner": rng.integers(0, 2, n),
        }
    )


def merit(frame: pd.DataFrame) -> "pd.Series[float]":
    """What decides."""
    income = (frame["credit income"] - 30_000) / 9_000
    return income + (frame["job"] != "none") - frame["debt"].fillna(5_000) / 5_000 + 0.3 * frame["owner"]


@cache
def classifier(objective: str = "ct", n_classes: int = 2) -> CounterfactualClassifier:
    """A fitted classifier; with three classes there is also "maybe"."""
    frame = applications()
    schema = Schema.infer(frame, immutable=["age"], increase=["grade"]).with_columns(
        age={"unit": "years", "lower": 18, "upper": 100},
        job={"unseen": "refuse"},
        **{"credit income": {"unit": "EUR"}},
    )
    bins = [0.0] if n_classes == 2 else [-0.5, 0.7]
    y = np.array(["refused", "granted"] if n_classes == 2 else ["refused", "maybe", "granted"])
    labels = y[np.digitize(merit(frame), bins)]
    return CounterfactualClassifier(
        schema, objective=objective, epochs=6, learning_rate=0.05, n_steps=5, random_state=0
    ).fit(frame, labels)


def people(n: int, seed: int = 1) -> list[dict[str, Any]]:
    """People as JSON says them; a missing value is null."""
    frame = applications(n, seed).astype(object)
    return frame.where(frame.notna(), None).to_dict("records")


def together(app: ASGIApp, *requests: dict[str, Any], headers: dict[str, str] | None = None) -> list[httpx.Response]:
    """The answers to requests that are made at the same time."""

    async def answers() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            return await asyncio.gather(*(client.request(**request) for request in requests))

    return asyncio.run(answers())


def ask(app: ASGIApp, path: str, body: Any = None, **more: Any) -> httpx.Response:
    """The answer to one request: a question if there is a body, a look if not."""
    headers = more.pop("headers", None)
    asked = {"method": "GET"} if body is None else {"method": "POST", "json": body}
    return together(app, {"url": path, **asked, **more}, headers=headers)[0]


def content(response: httpx.Response) -> Any:
    """The JSON of an answer, which must be strict: no NaN, no infinity."""

    def refuse(constant: str) -> NoReturn:
        raise AssertionError(f"the answer carries {constant}")

    return json.loads(response.content, parse_constant=refuse)


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run to the end, but not forever."""
    return asyncio.run(asyncio.wait_for(coroutine, 20))


def near(one: Any, other: Any) -> bool:
    """Whether two answers are the same but for the last digits of their numbers."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(near(one[key], other[key]) for key in one)
    if isinstance(one, Sequence) and isinstance(other, Sequence) and not isinstance(one, str):
        return len(one) == len(other) and all(map(near, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= 1e-5 * (1 + abs(one))
    return bool(one == other)
