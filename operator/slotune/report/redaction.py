"""Keeps secrets of a user's own server out of what is written down.

Flags that slotune does not tune are passed through unchanged, an API key among them; a report is
made to be handed around.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["REDACTED", "without_secrets"]

REDACTED = "REDACTED"

_SECRET_FLAGS = frozenset({"--api-key", "--hf-token", "-hft"})
"""llama-server's flags whose value is a secret itself (``--api-key-file`` only names where one is)."""


def without_secrets(arguments: Sequence[str]) -> tuple[str, ...]:
    """The arguments with every secret value replaced, both as ``--api-key VALUE`` and ``--api-key=VALUE``."""
    kept: list[str] = []
    hide_next = False
    for argument in arguments:
        flag, equals, _ = argument.partition("=")
        if hide_next:
            kept.append(REDACTED)
            hide_next = False
        elif flag in _SECRET_FLAGS and equals:
            kept.append(f"{flag}={REDACTED}")
        else:
            kept.append(argument)
            hide_next = argument in _SECRET_FLAGS
    return tuple(kept)
