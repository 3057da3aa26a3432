"""``--watch SECONDS``: how long a look at a server goes on, said beforehand; Ctrl-C ends it with what is known by then.

A person who waits for a minute and stops after half of it has seen half a minute, which is worth a checkup. A second
Ctrl-C stops the command as ever.
"""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from slotune.gathering.watching import Watch
from slotune.tuning.errors import InvalidInputError

__all__ = ["seconds_of", "watching"]

_LEAST_S: Final = 1.0
_MOST_S: Final = 3600.0
"""Nobody waits for longer, and what takes an hour to show is in the log."""


def seconds_of(text: str) -> float:
    """What was typed, as seconds. Raises InvalidInputError."""
    bare = text.strip().removesuffix("s")
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", bare) or not _LEAST_S <= float(bare) <= _MOST_S:
        shown = re.sub(r"[^ -~]", "", text)[:40] or "empty"
        cure = f"must be a number of seconds from {_LEAST_S:g} to {_MOST_S:g}: give 60, which tells a wedge from work"
        raise InvalidInputError("--watch", shown, cure)
    return float(bare)


@contextmanager
def watching(
    typed: str | None, announce: Callable[[str], None], note: Callable[[str], None], *, probe: bool
) -> Iterator[Watch | None]:
    """The watch, while which Ctrl-C and SIGTERM only end it; None when none is wanted. Within an event loop.

    Args:
        typed: SECONDS.
        announce: hears that it begins.
        note: hears that it was ended.
        probe: whether a probe was wanted, which is left out then.
    """
    if typed is None:
        yield None
        return
    seconds = seconds_of(typed)
    loop = asyncio.get_running_loop()
    before: list[object] = []

    def begins() -> None:
        if not before:  # the first of several servers that are watched together
            before.append(signal.getsignal(signal.SIGINT))
            loop.add_signal_handler(signal.SIGINT, stop)
            announce(f"watching for {seconds:g} s, twice that if it stops answering: Ctrl-C ends it with what is known")

    def stop() -> None:
        watch.enough.set()
        loop.remove_signal_handler(signal.SIGINT)  # and once more ends all

    watch = Watch(seconds, begins)
    try:
        yield watch
    finally:
        if before:
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, before[0])  # type: ignore[arg-type]  # as it was given
    if watch.enough.is_set():
        left_out = ", and --probe is left out" if probe else ""
        note(f"--watch was ended by Ctrl-C: this is what was known by then{left_out}")
