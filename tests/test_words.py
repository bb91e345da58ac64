"""What people read when a name, a value or a setting is wrong."""

import re
import subprocess
import sys
from typing import Annotated, Any

import numpy as np
import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

import countertrain
from countertrain.words import explain_mistakes, list_names, list_phrases, plain, suggest


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.array(2.0), 2.0),
        ("a", "a"),
        (None, None),
        (1.5, 1.5),
    ],
)
def test_numbers_of_numpy_become_pythons_own(value: Any, expected: Any) -> None:
    assert plain(value) == expected
    assert type(plain(value)) is type(expected)


def test_an_array_stays_what_it_is() -> None:
    array = np.arange(3)
    assert plain(array) is array


def test_an_unknown_name_is_answered_with_the_nearest_one_or_with_what_there_is() -> None:
    assert suggest("moon", ["circles", "moons"]) == "did you mean 'moons'?"
    assert suggest("xyzzy", ["circles", "moons"]) == "there are 'circles', 'moons'"
    assert suggest("xyzzy", ["circles", "moons"], "look it up") == "look it up"
    assert suggest("moon", ["circles", "moons"], "look it up") == "did you mean 'moons'?"
    assert suggest(7, [1, 77]) == "did you mean '77'?"
    assert suggest("a", []) == "there are none"


def test_a_long_list_ends_in_how_many_more_there_are() -> None:
    assert list_names(["a", 1], most=2) == "'a', 1"
    assert list_names(["a", 1, "c", "d"], most=2) == "'a', 1 and 2 more"
    assert list_names({f"x{i}": i for i in range(13)}).endswith("'x11' and 1 more")
    assert list_phrases(["age (immutable)", "job"], 1) == "age (immutable) and 1 more"


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid")

    tau: Annotated[float, Field(gt=0)]
    hidden: list[Annotated[int, Field(ge=1)]] = Field([8], min_length=1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tau": -1}, "setting 'tau' must be greater than 0; got -1"),
        ({"tau": 1, "hidden": [3, 0]}, "setting 'hidden' must be at least 1; got 0"),
        ({"tau": 1, "hidden": []}, "setting 'hidden' must have at least 1 item after validation, not 0; got []"),
        ({}, "setting 'tau' is missing"),
        ({"taus": 1}, "unknown setting 'taus'; did you mean 'tau'?"),  # which is why tau is missing, too
        (
            {"tau": -1, "hidden": [0]},
            "setting 'tau' must be greater than 0; got -1, and setting 'hidden' must be at least 1; got 0",
        ),
        ({"tau": 1, "xyzzy": 1}, "unknown setting 'xyzzy'; there are 'tau', 'hidden'"),
    ],
)
def test_what_pydantic_finds_is_said_in_one_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        _Settings.model_validate(given)
    assert explain_mistakes(caught.value, _Settings.model_fields) == said


def test_words_need_nothing_but_the_standard_library() -> None:
    code = "import sys, countertrain.words\nprint(*{'numpy', 'pydantic', 'torch'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "\n"


@pytest.mark.parametrize(
    ("module", "name", "hint"),
    [
        ("generators", "ecco", "did you mean 'eccco'?"),
        ("methods", "ctt", "did you mean 'ct'?"),
        ("penalties", "xyzzy", "there are "),
        ("rules", "SGDD", "did you mean 'SGD'?"),
        ("metrics", "acuracy", "did you mean 'accuracy'?"),
    ],
)
def test_a_public_module_answers_a_typo_with_the_nearest_name(module: str, name: str, hint: str) -> None:
    there = getattr(countertrain, module)
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'; {re.escape(hint)}"):
        getattr(there, name)
    assert not hasattr(there, "__wrapped__")
