"""The OpenAPI description is true: requests made from it find no failure of the server."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from office import PATIENT, classifier
from schemathesis.checks import positive_data_acceptance
from schemathesis.generation import GenerationMode

from countertrain.serve.app import create_app

TOKEN = "correct-horse-battery"
ACCESS = {"Authorization": f"Bearer {TOKEN}"}
ROUTES = {
    "/predict": "POST",
    "/explain": "POST",
    "/schema": "GET",
    "/sample": "GET",
    "/metrics": "GET",
    "/healthz": "GET",
}


@pytest.fixture(scope="module")
def description() -> schemathesis.BaseSchema:
    app = create_app(classifier().decider, baseline=classifier("bl").decider, token=TOKEN, limits=PATIENT)
    return schemathesis.openapi.from_asgi("/openapi.json", app, headers=ACCESS)


def test_the_description_has_all_routes_of_the_api(description: schemathesis.BaseSchema) -> None:
    assert {path: next(iter(methods)).upper() for path, methods in description.items()} == ROUTES


@pytest.mark.parametrize(
    ("path", "mode"),
    [(path, GenerationMode.POSITIVE) for path in ROUTES]
    + [(path, GenerationMode.NEGATIVE) for path in ("/predict", "/explain", "/sample")],
)
def test_requests_made_from_the_description_get_the_answers_that_it_promises(
    description: schemathesis.BaseSchema, path: str, mode: GenerationMode
) -> None:
    operation = description[path][ROUTES[path]]
    statuses = set()
    # Two ends of a range may be fine and yet have nothing in common with the column.
    refused_anyway = [positive_data_acceptance] if path == "/explain" else []

    # Without shrinking: where a busy machine is too slow for one request, a hundred more would be, too.
    @settings(max_examples=8, suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate))
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy(generation_mode=mode))
        statuses.add(case.call_and_validate(headers=ACCESS, excluded_checks=refused_anyway, timeout=60).status_code)

    holds()
    assert (200 in statuses) if mode is GenerationMode.POSITIVE else 422 in statuses
