"""What the reference model answered, kept so that any candidate can be walked through the same tokens.

Token ids and logprobs only: no text of a prompt or an answer is in it. It still is the workload's content to whoever
has the tokenizer, so it is stored as carefully as the prompts themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

__all__ = ["BYTES_MAX", "Likeliest", "Reference", "Walk"]

BYTES_MAX = 1_000_000
"""What a ConfigMap carries (1 MiB), less its names and its metadata."""


@dataclass(frozen=True, slots=True)
class Likeliest:
    """The likeliest next tokens at one position, likeliest first."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Walk:
    """One prompt and the answer that the reference gave to it, greedily."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    """The token that was likeliest at each position."""
    positions: tuple[Likeliest, ...]
    """As many as ``answer``: what the reference expected after the prompt and the answer's tokens before it."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The recorded answers of one pair of weights and KV cache to a workload's prompts."""

    walks: tuple[Walk, ...]
    top: int
    """Tokens told apart at each position, at most."""
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
    """Prompts that the settings asked for; more than ``walks`` when not all fitted into the bytes or the context."""

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
        """SHA-256 in hex of all that it says. Equal references have equal digests on any machine."""
        raise NotImplementedError

    def to_bytes(self) -> bytes:
        """Compressed, versioned and checked by its digest; at most BYTES_MAX when recorded with the default limit."""
        raise NotImplementedError

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read :meth:`to_bytes`.

        Raises:
            BrokenReferenceError: cut, changed, of a newer version, or something else altogether.
        """
        raise NotImplementedError
