"""What is loaded to stay is left alone by the garbage collector, and everything else is not."""

import gc
import weakref

import pytest

from countertrain.serve.loading import loading


class Ring:
    """Garbage that only the collector can find, once nobody holds it."""

    def __init__(self) -> None:
        self.itself = self


def test_nothing_is_collected_while_loading_and_what_comes_later_is() -> None:
    try:
        with loading():
            assert not gc.isenabled()
            stays = weakref.ref(Ring())
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
        goes = weakref.ref(Ring())
        gc.collect()
        assert goes() is None
        assert stays() is not None
    finally:
        gc.unfreeze()
    gc.collect()
    assert stays() is None


def test_the_collector_goes_on_after_a_failure() -> None:
    with pytest.raises(ImportError), loading():
        raise ImportError
    gc.unfreeze()
    assert gc.isenabled()
