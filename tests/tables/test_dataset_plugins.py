"""Data sets of other packages, found by their entry points."""

from collections.abc import Callable, Iterator
from importlib import metadata
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest

from countertrain.tables import Dataset, catalogue, load
from countertrain.tables.catalogue import _find_plugins

Offer = Callable[..., None]


def twins(*, data_seed: int) -> Dataset:
    """A data set as another package would make it."""
    rng = np.random.default_rng(data_seed)
    return Dataset.of(rng.normal(size=(20, 2)), np.arange(20) % 2, name="twins", title="Twins")


def broken(*, data_seed: int) -> Dataset:
    raise ZeroDivisionError("no rows")


def wrong(*, data_seed: int) -> Any:
    return [data_seed]


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Offer]:
    def install(**points: str) -> None:
        made = [EntryPoint(name, value, "countertrain.datasets") for name, value in points.items()]
        monkeypatch.setattr(metadata, "entry_points", lambda group: made)
        _find_plugins.cache_clear()

    yield install
    _find_plugins.cache_clear()


def test_a_data_set_of_another_package_is_listed_and_loaded(offer: Offer) -> None:
    offer(twins=f"{__name__}:twins")
    assert catalogue()["twins"] == f"from the module {__name__}"
    first, other = load("twins"), load("twins", data_seed=1)
    assert (first.name, first.title) == ("twins", "Twins")
    assert first.train.x[0, 0] != other.train.x[0, 0]
    with pytest.raises(ValueError, match=r"unknown data set 'twin'; did you mean 'twins'\?"):
        load("twin")


def test_a_name_that_we_have_ourselves_is_refused(offer: Offer) -> None:
    offer(moons=f"{__name__}:twins")
    said = f"the module {__name__} offers a data set 'moons', which is the name of one of countertrain's own; uninstall"
    with pytest.raises(ValueError, match=said):
        catalogue()
    assert load("moons").features == ("x1", "x2")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("broken", "cannot be loaded (ZeroDivisionError: no rows)"),
        ("nothing", "cannot be loaded (AttributeError: "),
        ("wrong", "must be a Dataset; got list"),
    ],
)
def test_a_broken_data_set_is_refused_in_one_sentence(offer: Offer, code: str, said: str) -> None:
    offer(odd=f"{__name__}:{code}")
    assert "odd" in catalogue()  # which runs no code of theirs
    with pytest.raises((ValueError, TypeError)) as error:
        load("odd")
    assert str(error.value).startswith(f"the data set 'odd' of the module {__name__} {said}")
