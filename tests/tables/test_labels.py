"""A class is found by its label or by the text of it, in one way for Python, the service and the command."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from countertrain.tables.labels import find_class, find_targets

DECISIONS = np.array([0, 1, 1])


@pytest.mark.parametrize(
    ("label", "classes", "number"),
    [
        ("granted", ("granted", "refused"), 0),
        (1, (0, 1), 1),
        ("1", (0, 1), 1),
        (np.int64(1), (0, 1), 1),
        (1.0, (0, 1), 1),
        (1, ("0", "1"), 1),
        ("1", (1, "1"), 1),  # the label itself goes before the text of another one
        ("True", (False, True), 1),
        (np.str_("refused"), np.array(["granted", "refused"]), 1),
    ],
)
def test_a_class_is_found_by_its_label_or_the_text_of_it(label: Any, classes: Any, number: int) -> None:
    assert find_class(label, classes) == number


@pytest.mark.parametrize(
    ("label", "classes", "said"),
    [
        (
            "grantd",
            ("granted", "refused"),
            "target must be one of the classes 'granted', 'refused'; got 'grantd'; did you mean 'granted'?",
        ),
        (7, (0, 1), "target must be one of the classes 0, 1; got 7"),
        (None, ("a", "b"), "target must be one of the classes 'a', 'b'; got None"),
    ],
)
def test_an_unknown_label_is_answered_with_all_and_with_the_nearest(label: Any, classes: Any, said: str) -> None:
    with pytest.raises(ValueError) as error:
        find_class(label, classes)
    assert str(error.value) == said
    with pytest.raises(ValueError, match=r"^label must be one of the classes "):
        find_class(label, classes, what="label")


def test_a_target_is_one_class_for_all_one_per_row_or_the_other_one_of_two() -> None:
    classes = ("granted", "refused")
    assert find_targets("granted", classes, DECISIONS).tolist() == [0, 0, 0]
    assert find_targets(None, classes, DECISIONS).tolist() == [1, 0, 0]
    wanted = ["granted", "refused", "granted"]
    for target in (wanted, tuple(wanted), np.array(wanted), pd.Series(wanted, index=[7, 8, 9])):
        assert find_targets(target, classes, DECISIONS).tolist() == [0, 1, 0]
    assert find_targets(["1", 0, "0"], (0, 1), DECISIONS).tolist() == [1, 0, 0]
    assert find_targets(None, classes, DECISIONS[:0]).dtype == np.int64


def test_a_target_that_is_missing_or_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^target must be given where there are 3 classes: 'a', 'b', 'c'$"):
        find_targets(None, ("a", "b", "c"), DECISIONS)
    with pytest.raises(ValueError, match=r"^target must be one class, or one per row, 3 of them; got 2$"):
        find_targets(["a", "b"], ("a", "b"), DECISIONS)
