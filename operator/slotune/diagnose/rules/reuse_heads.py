"""Where prompts stop being alike: what a log says about a new prompt beside those that are kept.

``prompt with length 323, lcp = 18`` says that they share 18 tokens, and not what these are: a chat template's first
words before prompts that have nothing to do with each other, or a system prompt with the time near its beginning. So
the place is told, to be looked at, and nobody is alarmed by it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from slotune.diagnose.evidence import Evidence
from slotune.diagnose.rules.reuse_slots import LONG_PROMPT
from slotune.llama.log_story import LogStory, Topic

__all__ = ["Head", "common_head"]

MANY: Final = 8
"""Comparisons from which the first and the last of them say something."""
FEW_TOKENS: Final = 8
"""By which they may differ: what changes can begin alike, as two times do."""
SMALL: Final = 0.5
"""Part of the shorter prompt: whoever shares more has no beginning that changes."""

_COMPARED: Final = re.compile(r"prompt with length +(\d{1,15}), lcp = +(\d{1,15})")


@dataclass(frozen=True, slots=True)
class Head:
    """What prompts share before they differ, in the first and the last comparison of a log."""

    least: int
    most: int
    """Tokens; not 0."""
    evidence: tuple[Evidence, ...]

    @property
    def sentence(self) -> str:
        """To stand behind the finding's own."""
        return f"; the first and the last that were compared differ from a kept one after {self._tokens} tokens"

    @property
    def first(self) -> str:
        """What to look at, and what to do about it."""
        return (
            "Compare two prompts, with their chat template applied, token for token behind the first "
            f"{self._tokens}: a time, a date or an id there belongs at the end of the prompt. If they are about "
            "different things from there on, nothing is wrong."
        )

    @property
    def _tokens(self) -> str:
        return f"{self.least}" if self.least == self.most else f"{self.least} to {self.most}"


def common_head(log: LogStory | None) -> Head | None:
    """None: the log does not say, or what prompts share is nothing, much, or never the same."""
    seen = None if log is None else log.seen.get(Topic.KEPT_COMPARED)
    if seen is None or seen.count < MANY:
        return None
    shared = []
    for line in (seen.first, seen.last):
        match = _COMPARED.search(line.text)
        if match is None or int(match[1]) < LONG_PROMPT or not 0 < int(match[2]) < SMALL * int(match[1]):
            return None
        shared.append(int(match[2]))
    if max(shared) - min(shared) > FEW_TOKENS:
        return None
    evidence = tuple(Evidence.of_line(line) for line in (seen.first, seen.last))
    return Head(min(shared), max(shared), evidence)
