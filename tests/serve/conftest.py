"""Services that many tests ask, made once."""

import pytest
from fastapi import FastAPI
from office import PATIENT, classifier

from countertrain.serve.app import create_app


@pytest.fixture(scope="session")
def app() -> FastAPI:
    """The service of one model."""
    return create_app(classifier().decider, limits=PATIENT)


@pytest.fixture(scope="session")
def candid_app() -> FastAPI:
    """The service of one model whose owner shows real people."""
    return create_app(classifier().decider, limits=PATIENT, people="real")


@pytest.fixture(scope="session")
def app_of_two() -> FastAPI:
    """The service of a model and the conventional one."""
    return create_app(classifier().decider, baseline=classifier("bl").decider, limits=PATIENT)
