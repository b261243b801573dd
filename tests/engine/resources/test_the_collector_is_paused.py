"""Promise: planning pauses the cycle collector, which is on again afterwards."""

import gc

import pytest

from resumerge.engine.resources.collector import collector_paused


def test_it_is_on_again_also_after_an_error() -> None:
    with pytest.raises(KeyError), collector_paused():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


def test_who_turned_it_off_finds_it_off() -> None:
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
