"""Waiting for a condition with a deadline; the failure says what was seen last, not only that time was up."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["NotYetError", "eventually"]

POLL_S = 0.25

Seen = TypeVar("Seen")


class NotYetError(AssertionError):
    """A condition did not come true in time."""


def eventually(check: Callable[[], Seen], timeout: float, what: str) -> Seen:
    """What ``check`` returns, as soon as it is true.

    Args:
        check: Looks once. An AssertionError or a LookupError, such as an index into something that is not there yet,
            counts as not yet.
        timeout: Seconds.
        what: The condition in words, for the failure.

    Raises:
        NotYetError: it was not true in time.
    """
    deadline = time.monotonic() + timeout
    while True:
        last: object
        try:
            seen = check()
        except (AssertionError, LookupError) as error:
            last = error
        else:
            if seen:
                return seen
            last = seen
        if time.monotonic() > deadline:
            raise NotYetError(f"not within {timeout:g} s: {what}; last seen: {last!r}")
        time.sleep(POLL_S)
