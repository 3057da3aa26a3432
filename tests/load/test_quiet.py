"""The collector comes back as it was found."""

from __future__ import annotations

import gc

import pytest

from slotune.load.quiet import resting_collector


def test_the_collector_rests_inside_and_works_again_outside() -> None:
    with resting_collector():
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 0
        with resting_collector():
            assert not gc.isenabled()
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 0
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with resting_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_an_error_inside_does_not_leave_it_resting() -> None:
    with pytest.raises(ValueError, match="inside"), resting_collector():
        raise ValueError("inside")
    assert gc.isenabled()
