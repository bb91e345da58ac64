"""In Python, what people want is said to the classifier; what it explains, judges and reports then speaks of it."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from countertrain.estimator import CounterfactualClassifier
from loans import loans, quick

ROWS, LABELS = loans(80, seed=3)


@cache
def fitted() -> CounterfactualClassifier:
    return quick(target="granted").fit(*loans())


def test_every_row_is_explained_towards_it_and_nobody_who_has_it_is_told_to_change() -> None:
    found, decided = fitted().explain(ROWS), fitted().predict(ROWS)
    assert len(found) == len(ROWS)
    assert set(found.target) == {"granted"}
    changes = np.array([len(one.options[0].changes) for one in found])
    assert (changes[decided == "granted"] == 0).all()
    assert (changes[decided == "refused"] > 0).mean() > 0.9
    assert 10 < (decided == "refused").sum() < 70


def test_without_a_word_on_it_everybody_is_told_the_way_to_the_other_class_as_before() -> None:
    unsaid = quick().fit(*loans())
    assert (unsaid.explain(ROWS).target != unsaid.predict(ROWS)).all()
    assert (fitted().explain(ROWS, "refused").target == "refused").all()


def test_it_comes_back_with_the_model(tmp_path: Path) -> None:
    fitted().save(tmp_path / "m")
    again = CounterfactualClassifier.load(tmp_path / "m")
    assert again.target == "granted"
    assert again.decider.target == "granted"
    assert set(again.explain(ROWS[:5]).target) == {"granted"}


def test_judge_certainty_and_report_take_it() -> None:
    assert fitted().judge(ROWS, LABELS, people=5, taus=()).target == "granted"
    assert fitted().explain(ROWS[:1], certainty=0.01).target[0] == "granted"
    assert "Nobody said which decision" not in str(fitted().report(ROWS, LABELS, n_examples=0))


def test_labels_need_not_be_texts() -> None:
    frame, labels = loans()
    for wanted in (True, "True", np.True_):
        clf = quick(epochs=1, target=wanted).fit(frame, labels == "granted")
        assert clf.decider.target is True


def test_a_class_that_does_not_exist_is_refused_before_training() -> None:
    with pytest.raises(ValueError, match=r"target must be one of the classes .*'grantd'; did you mean 'granted'"):
        quick(target="grantd", epochs=10**6).fit(*loans())
