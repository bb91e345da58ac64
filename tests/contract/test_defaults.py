"""What is asked for if nobody says otherwise does not depend on the door: Python, the classifier, service, command."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from countertrain.cli.models import explain as explain_command
from countertrain.estimator import CounterfactualClassifier
from countertrain.recourse.defaults import N_STEPS, OPTIONS
from countertrain.recourse.search import RecourseSearch, explain
from countertrain.serve.app import create_app
from countertrain.serve.questions import ExplainQuestion


@pytest.mark.parametrize(
    "door", [explain, RecourseSearch.__call__, CounterfactualClassifier.explain, create_app, explain_command]
)
def test_every_door_asks_for_the_same(door: Callable[..., Any]) -> None:
    defaults = {name: parameter.default for name, parameter in inspect.signature(door).parameters.items()}
    # tau: as sure as of most real people, which `RecourseSearch.default_tau` alone works out
    known = {"tau": None, "n_steps": N_STEPS, "options": OPTIONS, "n_options": OPTIONS}
    asked = {name: value for name, value in known.items() if name in defaults}
    assert "tau" in asked
    assert asked == {name: defaults[name] for name in asked}
    assert ExplainQuestion.model_fields["options"].default == OPTIONS
