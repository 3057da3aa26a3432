"""Which build of llama.cpp an image or a program is: the number that its defaults and flags go by.

Published images carry it in their tag (``server-cuda-b11434``). A tag such as ``server-cuda`` moves, and a digest says
nothing: then only the running program knows, in ``llama-server --version`` and in the first lines of its log.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["build_of_image", "build_of_text"]

_LEAST: Final = 1000
"""A build of early 2023; a smaller number in a tag is something else, such as a version of CUDA."""

_TAG: Final = re.compile(r"(?:^|[-_.])b(\d{4,6})(?=$|[-_.])")

_TEXTS: Final = (
    re.compile(r"\(build (\d{3,6}), commit"),  # version: 0.1.0-dev (build 10429, commit 77918caf3)
    re.compile(r"\bversion: (\d{3,6}) \("),  # version: 6869 (1a2b3c4d)
    re.compile(r"\bbuild:? (\d{3,6}) \("),  # build: 6019 (8ad7b3e6) with cc; without the colon since 2026
    re.compile(r"\A(\d{3,6}) \(\w+\)\Z"),  # 11434 (7e4c0a9): what is kept of such a line
    re.compile(r"\bb(\d{4,6})-[0-9a-f]{7,}"),  # b11434-1a2b3c4d: build_info of /props
    re.compile(r"\bbuild info \|.* build=(\d{4,6})\b"),  # INFO [main] build info | tid="139870" … build=3561 commit=…
    re.compile(r"\bxllamacpp \d+\.\d+\.(\d{4,6})\b"),  # xllamacpp 2026.10.11549: the embedded engine
)


def build_of_image(image: str | None) -> int | None:
    """The build that an image's tag names, or None: no tag, a tag that moves, or an image of one's own."""
    if not image:
        return None
    name, _, _ = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    found = _TAG.search(tag)
    number = int(found[1]) if found else 0
    return number if number >= _LEAST else None


def build_of_text(text: str) -> int | None:
    """The build that ``--version``, a log or ``build_info`` states, or None.

    A build of fewer than three digits was made without the history that it would be counted in.
    """
    found = next((match for pattern in _TEXTS if (match := pattern.search(text))), None)
    return int(found[1]) if found else None
