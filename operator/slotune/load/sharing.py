"""Where each real prompt stops being like any other, so that replaying it reuses what production would reuse.

A file of prompts shares beginnings (a system prompt, a document) and is replayed more often than once. If
the second use of a prompt were sent unchanged, all of it would come from the cache and the candidate would
look better than it is; a marker at the very start would hide the sharing that is really there. So the
marker goes right after the longest beginning that a prompt shares with any *other* prompt of the sample:
the shared part stays reusable, the rest is computed each time. Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from slotune.load.demand import Prompt

__all__ = ["Beginnings", "marked", "prompt_bytes", "shared_lengths"]

_MESSAGE_OVERHEAD_BYTES = 32
"""A chat template adds about eight tokens (32 bytes at 4 bytes a token) around each message."""


def shared_lengths(prompts: Sequence[Prompt]) -> list[int]:
    """Return, for each prompt, how many leading characters it shares with at least one other.

    Characters count over the prompt's text parts joined: see :func:`marked`. O(n log n) comparisons: in
    sorted order the longest common beginning is always shared with a neighbour.
    """
    return Beginnings(prompts).shared


class Beginnings:
    """What prompts begin with in common, counted as :func:`shared_lengths` counts."""

    def __init__(self, prompts: Sequence[Prompt]) -> None:
        texts = [_flat(prompt) for prompt in prompts]
        order = sorted(range(len(texts)), key=texts.__getitem__)
        shared = [0] * len(texts)
        for left, right in itertools.pairwise(order):
            common = _common_beginning(texts[left], texts[right])
            shared[left] = max(shared[left], common)
            shared[right] = max(shared[right], common)
        self._texts, self._order = texts, order
        self.closest = max(itertools.pairwise(order), key=lambda pair: shared[pair[0]] + shared[pair[1]], default=None)
        """Two neighbours, by number, that share much; None of fewer than two prompts."""
        self.shared = shared
        """Of each prompt, by number."""
        self.places = [0] * len(texts)
        """Place of each prompt in sorted order, by number."""
        for place, number in enumerate(order):
            self.places[number] = place

    def common(self, place: int, other: int) -> int:
        """Characters that the prompts at two places begin with in common; of one with itself, up to its marker."""
        if place == other:
            return self.shared[self._order[place]]
        return _common_beginning(self._texts[self._order[place]], self._texts[self._order[other]])

    def common_of(self, number: int, other: int) -> int:
        """The same of two prompts by number."""
        return self.common(self.places[number], self.places[other])

    def shared_text(self, number: int) -> str:
        """The beginning that a prompt shares with at least one other."""
        return self._texts[number][: self.shared[number]]


def marked(prompt: Prompt, at: int, marker: str) -> Prompt:
    """Return ``prompt`` with ``marker`` inserted after its first ``at`` characters.

    In a chat the marker lands in the content of the message that holds this place; a message whose
    content is not plain text passes it on to the next one. A chat without plain text stays as it is.
    """
    if prompt.text is not None:
        return replace(prompt, text=f"{prompt.text[:at]}{marker}{prompt.text[at:]}")
    messages = list(prompt.messages or ())
    start = 0
    last: tuple[int, int] | None = None
    for number, message in enumerate(messages):
        lead, content = _parts(message)
        begin = start + len(lead)
        start = begin + len(content)
        if not isinstance(message.get("content"), str):
            continue
        if at <= start:
            last = (number, max(0, at - begin))
            break
        last = (number, len(content))
    if last is not None:
        number, place = last
        content = messages[number]["content"]
        messages[number] = {**messages[number], "content": f"{content[:place]}{marker}{content[place:]}"}
    return replace(prompt, messages=tuple(messages))


def prompt_bytes(prompt: Prompt, characters: int | None = None) -> int:
    """Return about how many bytes of text a server tokenizes for ``prompt``, its chat template included.

    With ``characters`` only for that many leading ones, as :func:`shared_lengths` counts them.
    """
    overhead = len(prompt.messages or ()) * _MESSAGE_OVERHEAD_BYTES if characters is None else 0
    return len(_flat(prompt)[:characters].encode("utf-8", "surrogatepass")) + overhead


def _flat(prompt: Prompt) -> str:
    if prompt.text is not None:
        return prompt.text
    return "".join(part for message in prompt.messages or () for part in _parts(message))


def _parts(message: dict[str, Any]) -> tuple[str, str]:
    """Return what stands before a message's content, and the content as text."""
    content = message.get("content")
    text = content if isinstance(content, str) else "" if content is None else repr(content)
    return f"\x00{message.get('role', '')}\x01", text


def _common_beginning(one: str, other: str) -> int:
    """Return the length of the longest common beginning, by bisection: slices compare at memory speed."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
