"""How a server ended, from the last lines that it wrote."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from slotune.llama.failures import Failure, classify_failure
from slotune.llama.log_story import Line
from slotune.llama.log_topics import DEBUG, Mark, classify, quote, says

__all__ = ["ending_of"]

_NO_FAILURE: Final = classify_failure(None, "")
_FAILURE_WORDS = re.compile(
    rb"fail|error|abort|assert|unable to|out of memory|insufficient memory|bad_alloc|not within the file"
    rb"|quantized V cache|does not divide|couldn't bind|not installed|invalid magic|draft model|exiting due"
    rb"|terminate called|what\(\): |segmentation fault|illegal instruction|device lost|is required|not supported"
    rb"|not found \(required by "
    rb"|not both|SSL support|not found: |no backends",
    re.IGNORECASE,
)
_LAST_WORDS = re.compile(
    rb"terminate called|\s*what\(\): |std::bad_alloc|\S+:\d+: |slotune engine: "
    rb"|(?:\S+: (?:line )?\d+: +\d+ )?(?:Segmentation fault|Illegal instruction)(?: +\(core dumped\)|\s*\Z)"
)
"""How lines begin that are not llama.cpp's and tell of its end: the C++ library's, an assertion's, a shell's."""
_STOPPED = re.compile(rb"\S+\.(?:cu|cuh|cpp|cc|c|h|hpp|m|mm|metal):\d+: \S")
"""What llama.cpp says as it stops itself: where, and why in words of any kind."""
_AFTERMATH = re.compile(
    rb"No stack\.|ptrace: |The program is not being run|\[New LWP|\[Inferior 1|(?:\S+: (?:line )?\d+: +\d+ )?Aborted\b"
)
"""The debugger that llama.cpp starts as it stops itself, or the shell, right behind that."""


def ending_of(lines: Sequence[tuple[int, bytes]], *, came_up: bool) -> tuple[Failure | None, Line | None]:
    """Why it did not end well, from what it said after its last sign of life, and the line that says so.

    Args:
        lines: numbers and texts of the last lines.
        came_up: whether it said that its model was loaded.
    """
    said: list[tuple[int, bytes]] = []
    is_aftermath = False
    for number, line in reversed(lines):
        kind = classify(line)
        if kind.alive or kind.mark is Mark.READY:
            break
        if _AFTERMATH.match(line):
            is_aftermath = True
            said.append((number, line))
        elif (kind.level != DEBUG and (kind.ours or _LAST_WORDS.match(line)) and says(line, _FAILURE_WORDS)) or (
            is_aftermath and _STOPPED.match(line)
        ):
            said.append((number, line))
    said.reverse()
    up = "model loaded\n" if came_up else ""
    failure = classify_failure(None, up + "\n".join(quote(line) for _, line in said))
    if failure == _NO_FAILURE:
        return None, None
    alone = {number: classify_failure(None, up + quote(line)) for number, line in said}
    telling = [entry for entry in said if alone[entry[0]].failure_class is failure.failure_class]
    repeated = next((entry for entry in said if quote(entry[1]) in failure.sentence), said[-1])
    number, line = next((entry for entry in telling if alone[entry[0]] != _NO_FAILURE), repeated)
    return failure, Line(number, quote(line))
