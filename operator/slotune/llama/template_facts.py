"""What a chat template does to prompts, told from its text, without keeping the text.

A template that writes the time changes the beginning of every prompt as the time goes on, and what follows a changed
beginning is computed again. Pure.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

__all__ = ["TemplateFacts", "template_facts"]

_CLOCK = re.compile(r"\bstrftime_now\s*(?:\(\s*(?:'([^']{0,80})'|\"([^\"]{0,80})\"))?")
_DROPS_REASONING = re.compile(r"split\(\s*['\"]</think>['\"]\s*\)|last_query_index")

_EVERY_S = ((1.0, "SsfTXcr+"), (60.0, "MR"), (3600.0, "HIkl"), (43200.0, "p"), (86400.0, "dDeFjaAuwxUVWGbBhmyYgC"))
"""Seconds between two values, and the strftime letters that change that often; the quickest first."""

UNKNOWN_FORMAT = "?"


@dataclass(frozen=True, slots=True)
class TemplateFacts:
    """One chat template."""

    length: int
    """Characters."""
    digest: str
    """The first 12 digits of its SHA-256."""
    clock: tuple[str, ...] = ()
    """Formats in which it writes the current time; ``?`` for one that is put together elsewhere."""
    drops_reasoning: bool = False
    """Leaves the reasoning of earlier turns out, so that a turn reads differently once another follows."""

    @property
    def changes_every_s(self) -> float | None:
        """Seconds after which the same messages make another prompt; None when never, or not known."""
        letters = {letter for form in self.clock for letter in re.findall(r"%[-_0^#EO]*(\w|\+)", form)}
        return next((every for every, of in _EVERY_S if letters & set(of)), None)

    @property
    def sentence(self) -> str:
        """``4,210 characters (sha256 0123456789ab), writes the time (%d %b %Y)``."""
        parts = [f"{self.length:,} characters (sha256 {self.digest})"]
        if self.clock:
            parts.append(f"writes the time ({', '.join(self.clock)})")
        if self.drops_reasoning:
            parts.append("leaves out the reasoning of earlier turns")
        return ", ".join(parts)


def template_facts(text: str) -> TemplateFacts:
    """What ``text``, a Jinja template, does."""
    clock = [match[1] or match[2] or UNKNOWN_FORMAT for match in _CLOCK.finditer(text)]
    if len(clock) > 1 and UNKNOWN_FORMAT in clock:  # ``strftime_now is defined`` beside the calls themselves
        clock = [form for form in clock if form != UNKNOWN_FORMAT] or clock
    return TemplateFacts(
        length=len(text),
        digest=hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12],
        clock=tuple(dict.fromkeys(clock)),
        drops_reasoning=_DROPS_REASONING.search(text) is not None,
    )
