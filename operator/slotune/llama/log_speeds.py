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
        self._new: list[tuple[tuple[float, int], tuple[float, int], bool]] = []
        self.long_tokens, self.long_ms = 0, 0.0
        """Of prompts whose speed counts."""
        self.first: tuple[int, float] | None = None
        """Tokens and milliseconds of the first of them."""

    def add(self, prompt: tuple[float, int], answer: tuple[float, int], *, with_media: bool) -> None:
        """Count one request, by milliseconds and computed tokens; ``with_media`` its prompt's speed is not of text."""
        self._new.append((prompt, answer, with_media))

    def settle(self) -> None:
        """Sort in what was counted since: many at once, which is cheaper."""
        new, self._new = self._new, []
        self._prompts_ms.add([ms for (ms, _), _, _ in new])
        self._prompts_tokens.add([tokens for (_, tokens), _, _ in new])
        long = [prompt for prompt, _, with_media in new if prompt[1] >= MIN_PROMPT and prompt[0] > 0 and not with_media]
        if long:
            if self.first is None:
                self.first = long[0][1], long[0][0]
            self.long_tokens += sum([tokens for _, tokens in long])
            self.long_ms += sum([ms for ms, _ in long])
        self._prefill.add([1e3 * tokens / ms for ms, tokens in long])
        # The clock of an answer starts with its first token.
        self._decode.add([1e3 * (tokens - 1) / ms for _, (ms, tokens), _ in new if tokens > 1 and ms > 0])

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
