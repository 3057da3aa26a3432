"""Where prompts stop being alike: what a log says about a new prompt beside those that are kept.

``prompt with length 323, lcp = 18`` says that they share 18 tokens, and not what these are: a chat template's first
words before prompts that have nothing to do with each other, or a system prompt with the time near its beginning. So
the place is told, to be looked at, and nobody is alarmed by it. What prompts are made of where they part only a server
shows that was told to (LLAMA_SERVER_SLOTS_DEBUG=1): a time there, or an id, is the cause.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from slotune.diagnose.evidence import Evidence
from slotune.diagnose.finding import Confidence, Finding
from slotune.diagnose.rules.reuse_causes import PROMPT_COMPUTED_AGAIN
from slotune.diagnose.rules.reuse_slots import LONG_PROMPT
from slotune.llama.log_story import LogStory, Topic

__all__ = ["Head", "changing_head", "common_head"]

HOW_TO_SEE: Final = (
    "Started with the variables LLAMA_SERVER_SLOTS_DEBUG=1 and LLAMA_SERVER_SLOTS_N_DIFF=8, the server logs the words "
    "around that place, and diagnose tells from them whether it is a time or an id; take the variables out again then, "
    "for the log and /slots show what users write."
)
"""Builds since August 2026 show no more than the differing token without the second one (ggml-org/llama.cpp#27600)."""
SURELY: Final = 3
"""Prompts that part within a time: one may be about times, two may be a coincidence."""
MOSTLY: Final = 0.5
"""Of the prompts that part from what their slot holds; turns of one conversation part elsewhere."""

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
            f"different things from there on, nothing is wrong. {HOW_TO_SEE}"
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


def changing_head(log: LogStory | None, share: float, seen: Evidence) -> Finding | None:
    """A time or an id near the beginning of prompts of which ``share`` comes from the cache, where the log shows it."""
    parted = None if log is None else log.partings
    if parted is None or parted.line is None or parted.changing < max(SURELY, MOSTLY * parted.count):
        return None
    return Finding(
        PROMPT_COMPUTED_AGAIN,
        f"{parted.changing} of {parted.count} prompts part from the one before within a time or an id, and "
        f"{100 * share:.0f} % of prompt tokens came from the cache",
        (Evidence.of_line(parted.line), seen),
        confidence=Confidence.LIKELY,  # prompts that all are about times would look the same
        first="Put the time or the id at the end of the prompt, or leave it out; the log at that line shows which it "
        "is. With a date alone, prompts change once a day.",
    )
