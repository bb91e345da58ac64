"""The OpenAPI description is true: requests made from it find no failure of the server."""

import pytest
import schemathesis
from describing import KINDS, ROUTES, ask_as_described
from office import PATIENT, classifier
from schemathesis.generation import GenerationMode

from countertrain.serve.app import create_app

TOKEN = "correct-horse-battery"
ACCESS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def description() -> schemathesis.BaseSchema:
    app = create_app(classifier().decider, baseline=classifier("bl").decider, token=TOKEN, limits=PATIENT)
    return schemathesis.openapi.from_asgi("/openapi.json", app, headers=ACCESS)


def test_the_description_has_all_routes_of_the_api(description: schemathesis.BaseSchema) -> None:
    assert {path: next(iter(methods)).upper() for path, methods in description.items()} == ROUTES


@pytest.mark.parametrize(("path", "mode"), KINDS)
def test_requests_made_from_the_description_get_the_answers_that_it_promises(
    description: schemathesis.BaseSchema, path: str, mode: GenerationMode
) -> None:
    statuses = ask_as_described(description, path, mode, ACCESS)
    assert (200 in statuses) if mode is GenerationMode.POSITIVE else 422 in statuses
