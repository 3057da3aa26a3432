"""What a probe sends: how many prompts of what length, the same words in an order of their own. Pure.

Lengths follow what the server can hold and what the first answers show of its speed, and never go beyond what was
announced.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slotune.diagnose.symptoms import ServerLook
from slotune.load.demand import Demand, Prompt
from slotune.load.records import RequestRecord

__all__ = [
    "ANSWER_TOKENS",
    "FRAME_TOKENS",
    "PROMPT_TOKENS",
    "SHORT_ANSWER_TOKENS",
    "SHORT_REQUESTS",
    "SHORT_WORDS",
    "TOKENS_PER_WORD",
    "announcement",
    "answer_tokens_of",
    "long_words",
    "longest_prompt",
    "one_prompt",
    "plain_text",
]

PROMPT_TOKENS = 512
"""Of a long prompt at most: enough to fill a batch, 3 s on two cores with a small model."""
ANSWER_TOKENS = 16
"""Steps enough for a mean; an answer to a short prompt has fewer."""

_PROMPT_LIMIT_S = 4.0
"""Long prompts are made shorter where reading one would take longer."""
_ANSWER_LIMIT_S = 2.0
"""And answers, where making one would."""
SHORT_REQUESTS = 2
"""The first only warms up what a fresh server has not run yet."""
SHORT_WORDS = 6
_SHORT_TOKENS = 128
"""Of a short prompt at most, with the template around it."""
SHORT_ANSWER_TOKENS = 4
_LEAST_WORDS = 24
FRAME_TOKENS = 64
"""What template and marker add to a prompt, most often; a short prompt shows where it is more."""
TOKENS_PER_WORD = 3.0
"""Where the server does not tokenize for others; most models make one or two."""

_WORDS = (
    "river", "stone", "market", "window", "garden", "paper", "bridge", "winter", "lamp", "harbour", "copper",
    "field", "letter", "cloud", "engine", "valley", "mirror", "button", "island", "ladder", "forest", "needle",
    "candle", "wagon", "sister", "bottle", "carpet", "kitchen", "morning", "silver", "thunder", "orange", "pocket",
    "castle", "barrel", "feather", "hammer", "meadow", "basket", "chimney",
)  # fmt: skip


def announcement(requests: int, prompt_tokens: int, limit_s: float) -> str:
    """One sentence: what will be sent, at most."""
    long = "1 long one, twice" if requests == 1 else f"{requests} long ones, the first of them twice"
    count = SHORT_REQUESTS + requests + 1
    prompts = (requests + 1) * prompt_tokens + SHORT_REQUESTS * _SHORT_TOKENS
    answers = requests * ANSWER_TOKENS + (SHORT_REQUESTS + 1) * SHORT_ANSWER_TOKENS
    return (
        f"probing with {count} requests ({SHORT_REQUESTS} short prompts and {long}), one at a time and only while "
        f"nobody else uses the server: at most {prompts:,} prompt tokens beside what the chat template adds, "
        f"{answers:,} answer tokens, and {limit_s:.0f} s in all"
    )


def longest_prompt(look: ServerLook) -> int:
    """Tokens of a long prompt: half of what a slot holds at most, so that every server can take it."""
    room = PROMPT_TOKENS if look.props is None else look.props.context_per_slot // 2
    return max(FRAME_TOKENS, min(PROMPT_TOKENS, room))


def long_words(longest: int, per_word: float, short: Sequence[RequestRecord]) -> int:
    """Words of a long prompt: as many as the tokens make that may be sent, fewer where reading them would take long."""
    frame = max(((one.prompt_tokens or 0) + (one.cached_tokens or 0) for one in short), default=0)
    tokens = float(longest - max(FRAME_TOKENS, frame))
    read = [one.prompt_tokens / one.prompt_ms * 1e3 for one in short if one.prompt_tokens and one.prompt_ms]
    if read:
        tokens = min(tokens, max(read) * _PROMPT_LIMIT_S)
    return max(1, min(_LEAST_WORDS, round(longest / 2 / per_word)), int(tokens / per_word))


def answer_tokens_of(short: Sequence[RequestRecord]) -> int:
    """Of a long prompt's answer: fewer where making them would take long."""
    steps = [
        one.predicted_ms / 1e3 / ((one.output_tokens or 0) - 1)
        for one in short
        if one.predicted_ms and (one.output_tokens or 0) > 1
    ]
    in_time = _ANSWER_LIMIT_S / max(1e-6, min(steps, default=0.0))
    return max(SHORT_ANSWER_TOKENS, int(min(in_time, ANSWER_TOKENS)))


def plain_text(words: int, seed: int) -> str:
    """So many words, in an order that the seed decides."""
    chosen = np.random.default_rng(seed).integers(len(_WORDS), size=words)
    return " ".join(_WORDS[number] for number in chosen)


def one_prompt(text: str, answer_tokens: int, *, as_chat: bool) -> Demand:
    """The workload that is this prompt and nothing else."""
    prompt = Prompt(messages=({"role": "user", "content": text},)) if as_chat else Prompt(text=text)
    return Demand(peak_rate=1.0, output_tokens=answer_tokens, prompts=(prompt,))
