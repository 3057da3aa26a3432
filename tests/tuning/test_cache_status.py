"""What is known of a prompt cache goes to a status and comes back; nobody having looked stays that."""

from __future__ import annotations

from slotune.load.cache_facts import CacheFacts
from slotune.tuning.cache_status import cache_of, cache_status

FACTS = CacheFacts(0.64, 0.61, 0.5, 4, 0.7, True, 0.31, 0.0, 0.09, 0.62, 12, 1, 0.002, 0.41)


def test_all_that_was_seen_comes_back() -> None:
    assert cache_of(cache_status(FACTS)) == FACTS
    assert cache_of(cache_status(CacheFacts())) == CacheFacts()


def test_a_cache_that_nobody_looked_at_has_no_status() -> None:
    assert cache_status(None) is None
    assert cache_of(None) is None


def test_a_number_that_is_none_is_left_out() -> None:
    status = cache_status(CacheFacts(measured_reuse=float("nan"), canaries=3))
    assert status is not None
    assert status.to_manifest() == {"prefixes": 0, "canaries": 3, "foreign": 0}
