"""Whether bytes are the recorded answers that somebody means: asked whenever they have travelled, and before every use.

A digest is named apart from the bytes (in a trial's result, in a trial's spec), so that a reference that somebody else
has put in the same place is not taken for the one that was recorded.
"""

from __future__ import annotations

from typing import NamedTuple

from slotune.quality.reference import BYTES_MAX, BrokenReferenceError, Reference

__all__ = ["NotAsRecorded", "not_as_recorded", "read_reference"]


class NotAsRecorded(NamedTuple):
    """Why the answers can't be kept."""

    code: str
    """CamelCase, for a verdict."""
    sentence: str


def read_reference(data: bytes, digest: str) -> Reference:
    """The reference of that digest.

    Raises:
        BrokenReferenceError: the bytes are no reference, or another one.
    """
    found = Reference.from_bytes(data)
    if found.digest != digest:
        raise BrokenReferenceError(f"is another one than was recorded ({found.digest[:12]}, not {digest[:12]})")
    return found


def not_as_recorded(data: bytes | None, digest: str) -> NotAsRecorded | None:
    """What is wrong with answers that a pod's log has brought; None when they can be kept."""
    if data is None:
        return NotAsRecorded("ResultLost", "the answers were recorded, and did not arrive")
    if len(data) > BYTES_MAX:
        size = f"the recorded answers take {len(data):,} bytes, and a ConfigMap can carry {BYTES_MAX:,}"
        return NotAsRecorded("ReferenceTooLarge", f"{size}: is the load client's image as new as the operator's?")
    try:
        read_reference(data, digest)
    except BrokenReferenceError as error:
        return NotAsRecorded("ResultLost", f"the answers arrived otherwise than they were sent: {error}")
    return None
