"""Pictures and sound in prompts: how long the model's own encoder for them (``--mmproj``) took.

Its time is part of ``prompt eval time`` of the request, and no speed at which tokens are read.
"""

from __future__ import annotations

import re

from slotune.llama.log_story import Line, Media
from slotune.llama.log_topics import quote

__all__ = ["MediaTotals"]

_ENCODED = re.compile(rb"\b(?:image|audio)(?: slice|/slice)? encoded in (\d{1,15}) ms")
_PROCESSED = re.compile(rb"\b(?:image|audio) processed in (\d{1,15}) ms")


class MediaTotals:
    """Of one server since its last start."""

    def __init__(self) -> None:
        self._slices, self._encoded_ms = 0, 0
        self._pieces, self._processed_ms = 0, 0
        self._slowest_ms = -1
        self._slowest: tuple[int, bytes] | None = None
        self.is_new = False
        """Whether one was read since whoever asks said no: the prompt whose times come next has it in them."""

    def take(self, number: int, line: bytes) -> None:
        """Count one line: a part that was encoded, or a whole that was encoded and read."""
        self.is_new = True
        if match := _ENCODED.search(line):
            ms = int(match[1])
            self._slices += 1
            self._encoded_ms += ms
            if ms > self._slowest_ms:
                self._slowest_ms, self._slowest = ms, (number, line)
        elif match := _PROCESSED.search(line):
            self._pieces += 1
            self._processed_ms += int(match[1])
            if self._slowest is None:
                self._slowest = number, line

    def story(self) -> Media | None:
        """What it comes to; None where no line tells of any."""
        if self._slowest is None:
            return None
        number, line = self._slowest
        # A picture may be cut into slices, and some logs name those alone; others say only what a whole took, with the
        # reading of its tokens in it.
        ms = self._encoded_ms if self._slices else self._processed_ms
        return Media(self._pieces or self._slices, float(ms), Line(number, quote(line)))
