"""Whatever was trained gives a decider, and every door asks it for the same if nobody says otherwise."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

from countertrain.cli.models import explain as explain_command
from countertrain.estimator import CounterfactualClassifier
from countertrain.recourse.defaults import N_STEPS, OPTIONS, TAU
from countertrain.recourse.search import RecourseSearch, explain
from countertrain.serve.app import create_app
from countertrain.serve.questions import RecourseQuestion
from loans import loans, quick
from people import classifier, people


def test_a_decider_decides_as_its_classifier_does() -> None:
    clf, rows = classifier(), people(50, seed=3)
    decider, x = clf.decider, torch.from_numpy(clf.encoder_.encode(rows))
    assert decider.classes == ("granted", "refused")
    assert [decider.classes[k] for k in decider.decide(x)] == clf.predict(rows).tolist()
    assert np.allclose(decider.compute_probabilities(x).numpy(), clf.predict_proba(rows), atol=1e-6)
    assert decider.settings["objective"] == "ct"
    assert decider.reference is not None
    assert len(decider.reference[0]) == len(decider.reference[1]) == 400


def test_the_models_of_a_decider_decide_by_the_mean_of_their_probabilities() -> None:
    frame, labels = loans()
    decider = quick(n_models=3, epochs=2).fit(frame, labels == "granted").decider
    assert decider.classes == (False, True)
    assert all(type(label) is bool for label in decider.classes)  # not NumPy's, which JSON does not know
    x = decider.encoder.tensor(frame)
    alone = torch.stack([model(x).softmax(-1) for model in decider.models])
    assert len(alone) == 3
    torch.testing.assert_close(decider.compute_probabilities(x).float(), alone.mean(0))


def test_only_what_was_fitted_decides() -> None:
    with pytest.raises(NotFittedError):
        quick().decider  # noqa: B018


@pytest.mark.parametrize(
    "door", [explain, RecourseSearch.__call__, CounterfactualClassifier.explain, create_app, explain_command]
)
def test_every_door_asks_for_the_same(door: Callable[..., Any]) -> None:
    defaults = {name: parameter.default for name, parameter in inspect.signature(door).parameters.items()}
    known = {"tau": TAU, "n_steps": N_STEPS, "options": OPTIONS, "n_options": OPTIONS}
    asked = {name: value for name, value in known.items() if name in defaults}
    assert "tau" in asked
    assert asked == {name: defaults[name] for name in asked}
    assert RecourseQuestion.model_fields["options"].default == OPTIONS
