"""What could not be read in a server's log, in words that go behind its name."""

from __future__ import annotations

from typing import Final

from slotune.llama.log_old_builds import IK_LLAMA, LAST_BUILD

__all__ = ["notes_on"]

_OLD: Final = (
    f"its lines are written as builds until September 2024 did (about b{LAST_BUILD}): what those do not say is left "
    "open, and what to try is said in the flags of today's builds"
)
_IK: Final = (
    f"it is {IK_LLAMA}'s, a fork that still writes as llama.cpp did until September 2024, and counts its builds on its "
    "own: what it does not say is left open, and what to try is said in the flags of today's llama.cpp, so compare "
    "them with its --help"
)


def notes_on(*, is_old: bool, is_fork: bool, unreadable: int) -> tuple[str, ...]:
    """A sentence for each thing.

    Args:
        is_old: its lines are written as builds until September 2024 did.
        is_fork: and it is of a fork that still does.
        unreadable: lines with a time that is no number.
    """
    age = ((_IK if is_fork else _OLD),) if is_old else ()
    if not unreadable:
        return age
    who = "line has a time" if unreadable == 1 else "lines have times"
    return (*age, f"{unreadable} {who} that can't be read (nan, say): the requests that they are of are left out")
