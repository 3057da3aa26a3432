"""Keeps secrets of a user's own server out of what is written down.

Flags that slotune does not tune are passed through unchanged, an API key among them; a report is
made to be handed around.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["REDACTED", "said_in_public", "without_secrets"]

REDACTED = "REDACTED"

_SECRET_FLAGS = frozenset({"--api-key", "--hf-token", "-hft"})
"""llama-server's flags whose value is a secret itself (``--api-key-file`` only names where one is)."""

_SECRET_TEXT = re.compile(
    r"(?P<flag>--api-key|--hf-token|-hft)(?P<between>[ =]+)\S+|(?P<bearer>[Bb]earer\s+)\S+|\b(?:hf_|sk-)[\w-]{12,}"
)
_REQUEST_TEXT = re.compile(r"""["'](?:prompt|content|messages|input|text)["']\s*:""")
"""What a body of a request looks like where a server quotes one."""


def said_in_public(text: str) -> str:
    """A line of a server's log, or a sentence that quotes one, without secrets and without what a user wrote."""
    found = _REQUEST_TEXT.search(text)
    if found is not None:
        text = text[: found.start()] + "(text of a request left out)"
    return _SECRET_TEXT.sub(_hidden, text)


def _hidden(found: re.Match[str]) -> str:
    if found["flag"]:
        return f"{found['flag']}{found['between']}{REDACTED}"
    return f"{found['bearer'] or ''}{REDACTED}"


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
