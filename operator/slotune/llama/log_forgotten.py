"""How much of a prompt was in its slot, and is read again all the same, because the model forgot it.

Before ``forcing full prompt re-processing`` llama-server says how many tokens the prompt and the slot have in common
(``n_past = 21, slot.prompt.tokens.size() = 400``), and after it which checkpoints it throws away. These lines hold no
text of a prompt.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from slotune.llama.log_story import Forgotten, Line
from slotune.llama.log_topics import Hot, quote

__all__ = ["FORGETTING", "ForgottenTotals"]

FORGETTING: Final = (Hot.IN_COMMON, Hot.FORGOTTEN, Hot.ERASED)

_SLOT = re.compile(rb"id +(\d{1,4}) \|")
_IN_COMMON = re.compile(rb"n_past = (\d{1,15}), ")
_ERASED = re.compile(rb"n_tokens = (\d{1,15}), ")
_MOST_SLOTS: Final = 1024


class ForgottenTotals:
    """Of one server since its last start."""

    def __init__(self) -> None:
        self._in_common: dict[bytes, tuple[int, int, bytes]] = {}
        self._total: Forgotten | None = None

    def take(self, number: int, line: bytes, hot: Hot) -> None:
        """Count one line, in the order in which they were written."""
        named = _SLOT.search(line)
        slot = named[1] if named else b""
        if hot is Hot.IN_COMMON and (match := _IN_COMMON.search(line)):
            if slot in self._in_common or len(self._in_common) < _MOST_SLOTS:
                self._in_common[slot] = int(match[1]), number, line
        elif hot is Hot.FORGOTTEN:
            self._forget(self._in_common.pop(slot, None))
        elif hot is Hot.ERASED and (match := _ERASED.search(line)):
            total, tokens = self._total or Forgotten(), int(match[1])
            if tokens > total.erased_tokens:
                self._total = replace(total, erased_tokens=tokens, erased_line=Line(number, quote(line)))

    def _forget(self, in_common: tuple[int, int, bytes] | None) -> None:
        if in_common is None:
            return
        tokens, number, line = in_common
        total = self._total or Forgotten()
        total = replace(total, prompts=total.prompts + 1, tokens=total.tokens + tokens)
        if tokens >= total.most_tokens:
            total = replace(total, most_tokens=tokens, line=Line(number, quote(line)))
        self._total = total

    def story(self) -> Forgotten | None:
        """None where no line says anything of it."""
        return self._total
