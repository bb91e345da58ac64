"""Whatever was trained gives a decider, which decides as it does."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

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
    assert len(decider.reference[0]) == len(decider.reference[1]) == 360
    assert decider.held_out is not None
    assert len(decider.held_out[0]) == len(decider.held_out[1]) == 40  # nobody is in both


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
