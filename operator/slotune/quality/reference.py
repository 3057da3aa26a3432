"""What the reference model answered, kept so that any candidate can be walked through the same tokens.

Token ids and logprobs only: no text of a prompt or an answer is in it. It still is the workload's content to whoever
has the tokenizer, so it is stored as carefully as the prompts themselves.

On the wire: a magic line, a version byte, the SHA-256 of the content, then the content compressed. Content: a line of
JSON with the facts and the sizes, then token ids as 32-bit integers and logprobs as 32-bit floats, each as four planes
of bytes, which compress far better than whole numbers. The digest is of the content, so it does not depend on the
compression library.
"""

from __future__ import annotations

import hashlib
import itertools
import zlib
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import orjson
from numpy.typing import NDArray

from slotune.quality.coarse import Likeliest

__all__ = ["BYTES_MAX", "BrokenReferenceError", "Likeliest", "Reference", "Walk"]

BYTES_MAX = 1_000_000
"""What a ConfigMap carries (1 MiB), less its names and its metadata."""

_MAGIC = b"slotune reference\n"
_VERSION = 1
_CONTENT_MAX = 64 * 2**20
"""Bytes of content that are read at most: a few kilobytes can be made to unfold into gigabytes."""


class BrokenReferenceError(ValueError):
    """Bytes that are no reference, or no longer the one that was written."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the recorded reference {what}; delete it, and it is recorded again")
        self.what = what


@dataclass(frozen=True, slots=True)
class Walk:
    """One prompt and the answer that the reference gave to it, greedily."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    """The token that was likeliest at each position."""
    positions: tuple[Likeliest, ...]
    """As many as ``answer``: what the reference expected after the prompt and the answer's tokens before it."""

    def __post_init__(self) -> None:
        if not self.prompt or min(self.prompt) < 0:
            raise ValueError("a prompt needs at least one token, and no token is below 0")
        if not self.answer or self.answer != tuple(position.tokens[0] for position in self.positions):
            raise ValueError("an answer is the likeliest token of each position, at least one")


@dataclass(frozen=True, slots=True)
class Reference:
    """The recorded answers of one pair of weights and KV cache to a workload's prompts."""

    walks: tuple[Walk, ...]
    top: int
    """Likeliest tokens that were asked for at each position."""
    vocabulary: int
    """Tokens that the model knows."""
    tokenizer: str
    """Digest of how the server tokenizes a fixed text: another tokenizer gives other ids to the same words."""
    model: str = ""
    """Identity of the weights, as the caller names it (the digest of the file)."""
    cache_types: tuple[str, str] = ("f16", "f16")
    """KV cache types, K and V."""
    build: str = ""
    """llama.cpp's build, as the server states it."""
    prompts_asked: int = 0
    """Prompts that the settings asked for; more than ``walks`` when there were fewer, or not all fitted."""

    def __post_init__(self) -> None:
        if not self.walks:
            raise ValueError("a reference needs at least one prompt")
        ids = (itertools.chain(walk.prompt, *(position.tokens for position in walk.positions)) for walk in self.walks)
        most = max(itertools.chain.from_iterable(ids))
        if most >= self.vocabulary:
            raise ValueError(f"token {most} lies outside a vocabulary of {self.vocabulary}")

    @property
    def positions(self) -> int:
        """Positions recorded."""
        return sum(len(walk.positions) for walk in self.walks)

    @property
    def longest(self) -> int:
        """Tokens of context that the longest walk needs."""
        return max(len(walk.prompt) + len(walk.answer) for walk in self.walks)

    @property
    def digest(self) -> str:
        """SHA-256 in hex of all that it says, at the precision of 32-bit floats; equal on any machine."""
        return hashlib.sha256(self._content()).hexdigest()

    def to_bytes(self) -> bytes:
        """Compressed, versioned and checked by its digest. Equal references give equal bytes with one zlib."""
        content = self._content()
        return _MAGIC + bytes([_VERSION]) + hashlib.sha256(content).digest() + zlib.compress(content, 9)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read :meth:`to_bytes`.

        Raises:
            BrokenReferenceError: cut, changed, of a newer version, or something else altogether.
        """
        content = _unpacked(data)
        try:
            return cls(**_fields(content))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BrokenReferenceError("has a content that makes no sense") from error

    def _content(self) -> bytes:
        positions = [position for walk in self.walks for position in walk.positions]
        facts = {
            "walks": [[len(walk.prompt), len(walk.answer)] for walk in self.walks],
            "listed": [len(position.tokens) for position in positions],
            "top": self.top,
            "vocabulary": self.vocabulary,
            "tokenizer": self.tokenizer,
            "model": self.model,
            "cache_types": self.cache_types,
            "build": self.build,
            "prompts_asked": self.prompts_asked,
        }
        prompts = itertools.chain.from_iterable(walk.prompt for walk in self.walks)
        tokens = itertools.chain.from_iterable(position.tokens for position in positions)
        logprobs = itertools.chain.from_iterable(position.logprobs for position in positions)
        return b"".join(
            (
                orjson.dumps(facts, option=orjson.OPT_SORT_KEYS),
                b"\n",
                _planes(np.fromiter(prompts, "<u4")),
                _planes(np.fromiter(tokens, "<u4")),
                _planes(np.fromiter(logprobs, "<f4")),
            )
        )


def _planes(numbers: NDArray[Any]) -> bytes:
    return numbers.view(np.uint8).reshape(-1, 4).T.tobytes()


def _numbers(planes: bytes, kind: str) -> list[Any]:
    whole = np.frombuffer(planes, np.uint8).reshape(4, -1).T.copy().view(kind)
    numbers: list[Any] = whole.reshape(-1).tolist()
    return numbers


def _unpacked(data: bytes) -> bytes:
    """The content, after every check that its wrapping allows."""
    head = len(_MAGIC) + 1 + hashlib.sha256().digest_size
    if not data.startswith(_MAGIC):
        raise BrokenReferenceError("does not begin like one")
    if len(data) < head:
        raise BrokenReferenceError(f"is cut short after {len(data)} bytes")
    if data[len(_MAGIC)] != _VERSION:
        raise BrokenReferenceError(f"has version {data[len(_MAGIC)]}, and this slotune reads version {_VERSION}")
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(data[head:], _CONTENT_MAX)
    except zlib.error as error:
        raise BrokenReferenceError("was changed: it can't be unpacked") from error
    if unpacking.unconsumed_tail:
        raise BrokenReferenceError(f"unfolds into more than {_CONTENT_MAX} bytes")
    if not unpacking.eof:
        raise BrokenReferenceError(f"is cut short after {len(data)} bytes")
    if unpacking.unused_data or hashlib.sha256(content).digest() != data[len(_MAGIC) + 1 : head]:
        raise BrokenReferenceError("was changed: its digest does not match")
    return content


def _fields(content: bytes) -> dict[str, Any]:
    """The fields of a reference. Whoever changes a content on purpose can match its digest, so nothing is trusted."""
    first, _, rest = content.partition(b"\n")
    facts = orjson.loads(first)
    sizes: list[tuple[int, int]] = [(int(prompt), int(answer)) for prompt, answer in facts.pop("walks")]
    listed = [int(count) for count in facts.pop("listed")]
    prompts, tokens = sum(size for size, _ in sizes), sum(listed)
    if min(1, *listed, *itertools.chain(*sizes)) < 1 or len(listed) != sum(size for _, size in sizes):
        raise ValueError("a prompt, an answer or a list is empty or missing")
    if len(rest) != 4 * (prompts + 2 * tokens):
        raise ValueError("there are more or fewer numbers than were announced")
    ids = iter(_numbers(rest[: 4 * prompts], "<u4"))
    known = iter(_numbers(rest[4 * prompts : 4 * (prompts + tokens)], "<u4"))
    logprobs = iter(_numbers(rest[4 * (prompts + tokens) :], "<f4"))
    counts = iter(listed)
    walks = []
    for prompt, answer in sizes:
        positions = [
            Likeliest(tuple(itertools.islice(known, count)), tuple(itertools.islice(logprobs, count)))
            for count in itertools.islice(counts, answer)
        ]
        ahead = tuple(itertools.islice(ids, prompt))
        walks.append(Walk(ahead, tuple(position.tokens[0] for position in positions), tuple(positions)))
    return {**facts, "walks": tuple(walks), "cache_types": tuple(facts["cache_types"])}
