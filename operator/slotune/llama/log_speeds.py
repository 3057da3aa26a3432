"""How fast a server read prompts and wrote answers, request by request, and how long its prompts were."""

from __future__ import annotations

from typing import Final

from slotune.llama.quantiles import Quantiles

__all__ = ["MIN_PROMPT", "SpeedTotals"]

MIN_PROMPT: Final = 64
"""Computed tokens of the least prompt whose speed counts: of shorter ones the fixed cost of a step is most."""

Three = tuple[float, float, float]
_SHARES: Final = (0.1, 0.5, 0.9)


class SpeedTotals:
    """Of one server since its last start."""

    def __init__(self) -> None:
        self._prefill, self._decode = Quantiles(), Quantiles()
        self._prompts_ms, self._prompts_tokens = Quantiles(), Quantiles()
        self._prefill_new: list[float] = []
        self._decode_new: list[float] = []
        self._prompts_new: list[tuple[float, int]] = []
        self.long_tokens, self.long_ms = 0, 0.0
        """Of prompts whose speed counts."""
        self.first: tuple[int, float] | None = None
        """Tokens and milliseconds of the first of them."""

    def add(self, prompt: tuple[float, int], answer: tuple[float, int], *, with_media: bool) -> None:
        """Count one request, by milliseconds and computed tokens; ``with_media`` its prompt's speed is not of text."""
        self._prompts_new.append(prompt)
        ms, tokens = prompt
        if tokens >= MIN_PROMPT and ms > 0 and not with_media:
            self._prefill_new.append(1e3 * tokens / ms)
            if self.first is None:
                self.first = tokens, ms
            self.long_tokens += tokens
            self.long_ms += ms
        ms, tokens = answer
        if tokens > 1 and ms > 0:
            self._decode_new.append(1e3 * (tokens - 1) / ms)  # the clock starts with the first token

    def settle(self) -> None:
        """Sort in what was counted since: many at once, which is cheaper."""
        self._prefill.add(self._prefill_new)
        self._decode.add(self._decode_new)
        self._prompts_ms.add(ms for ms, _ in self._prompts_new)
        self._prompts_tokens.add(tokens for _, tokens in self._prompts_new)
        self._prompts_new.clear()
        self._prefill_new.clear()
        self._decode_new.clear()

    @property
    def prefill(self) -> Three | None:
        """Tokens/s of the slowest tenth, the median and the fastest tenth; None without a prompt that counts."""
        return _three(self._prefill.at(_SHARES))

    @property
    def decode(self) -> Three | None:
        """The same of answers with two tokens or more."""
        return _three(self._decode.at(_SHARES))

    @property
    def prompt_ms_spread(self) -> tuple[tuple[float, int], ...]:
        """(Milliseconds, how many prompts took so long)."""
        return self._prompts_ms.spread()

    @property
    def prompt_tokens_spread(self) -> tuple[tuple[float, int], ...]:
        """(Tokens, how many prompts had so many)."""
        return self._prompts_tokens.spread()


def _three(found: tuple[float, ...] | None) -> Three | None:
    return None if found is None else (found[0], found[1], found[2])
