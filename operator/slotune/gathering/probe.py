"""A few requests to a server that others use too: said beforehand, one at a time, bounded in tokens and in time.

Each is sent at an idle moment. Where none comes nothing is sent, or nothing more: others' requests matter more.

What a look can't show is how long one prompt takes with nothing in its way: reading it, each token after it, and what
comes before both. Prompts are chats of plain words in random order: the template and the tokenizer have their part in
the time, and nothing of one prompt is found in a cache by another, not even in pieces (``--cache-reuse``).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import httpx

from slotune.diagnose.symptoms import ProbeFacts, ServerLook
from slotune.gathering.address import base_address, usable_key
from slotune.gathering.idleness import in_use
from slotune.gathering.probe_calls import CALL_LIMIT_S, connecting, tokenizing, tokens_counted
from slotune.gathering.probe_plan import (
    FRAME_TOKENS,
    SHORT_ANSWER_TOKENS,
    SHORT_REQUESTS,
    SHORT_WORDS,
    announcement,
    answer_tokens_of,
    long_words,
    longest_prompt,
    one_prompt,
    plain_text,
)
from slotune.llama.server_http import LlamaServer
from slotune.load.probe import IdleProbeError, send_probes, summarize_probes
from slotune.load.quiet import resting_collector
from slotune.load.records import RequestRecord, RequestStatus
from slotune.load.summary import IdleProbe
from slotune.load.target import Target
from slotune.tuning.errors import InvalidInputError

__all__ = ["LIMIT_S", "ProbeError", "probe_server"]

LIMIT_S = 60.0
"""Of a whole probe. What is measured by then counts."""
_IDLE_WAIT_S = (10.0, 5.0)
"""For an idle moment before the first request, and before each after it; then nothing more is sent."""
_PAUSE_S = (0.1, 1.0)
"""Least and most between two requests; else half of what the last one took."""


class ProbeError(InvalidInputError):
    """No long prompt was answered with timings, so nothing was measured; what a look found still stands."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__("--probe", None, f"{url} could not be measured: {why}")


async def probe_server(
    url: str,
    key: str | None,
    look: ServerLook,
    *,
    requests: int = 4,
    announce: Callable[[str], None],
    note: Callable[[str], None],
    limit_s: float = LIMIT_S,
) -> ProbeFacts:
    """Measure what one request costs that has the server to itself.

    Two short prompts, ``requests`` long ones that share nothing, and the first of them once more. Never two at a time;
    each waits for an idle moment, and once none comes it ends with what it has. Cancelling it stops at once: the server
    notices within a second.

    Args:
        url: As for :func:`slotune.gathering.server.look_at`.
        key: The API key; None for none.
        look: What that found.
        requests: Long prompts; at least one is sent.
        announce: Hears one sentence before anything is sent.
        note: Hears why it ended early, when it measured something all the same.
        limit_s: Seconds after which nothing more is sent and what runs is given up.

    Raises:
        InvalidInputError: an address or key that is none.
        ProbeError: no long prompt was answered with timings, for one because the server was never idle.
    """
    base, key, requests = base_address(url), usable_key(key), max(1, requests)
    longest = longest_prompt(look)
    announce(announcement(requests, longest, limit_s))
    deadline = time.monotonic() + limit_s
    target = Target(base, "" if look.model is None else look.model.id, key)
    transport = httpx.AsyncHTTPTransport(
        verify=ssl.create_default_context(), limits=httpx.Limits(max_keepalive_connections=0)
    )
    async with LlamaServer(base, api_key=key, timeout_s=CALL_LIMIT_S, transport=transport) as server:
        talk = _Talk(server, target, deadline)
        if not await talk.may_send():
            raise ProbeError(base, _why_nothing(talk))
        connect_s = await connecting(base)
        before = await tokens_counted(server)
        tokenize_s, per_word = await tokenizing(server, longest)
        with resting_collector():  # once for all: what is frozen already costs each request little
            sent = await _send_all(talk, longest, per_word, requests)
        was_idle = not talk.in_use and not await in_use(server, _IDLE_WAIT_S[1])
        after = await tokens_counted(server)
    if before is not None and after is not None and after - before > talk.tokens_made + FRAME_TOKENS:
        was_idle = False
    if talk.in_use:
        note(f"--probe was stopped after {talk.sent} of its requests: {talk.in_use}")
    return sent.facts(connect_s, tokenize_s, was_idle=was_idle)


@dataclass(slots=True)
class _Talk:
    """Sends one request after another, with a pause between."""

    server: LlamaServer
    target: Target
    deadline: float
    as_chat: bool = True
    in_use: str = ""
    """Why nothing more is sent: no idle moment came."""
    sent: int = 0
    tokens_made: int = 0
    """Computed for us: of prompts and answers."""
    took_s: float | None = None
    """The last request; None before the first."""

    async def send(self, words: int, answer_tokens: int, seed: int) -> RequestRecord | None:
        """One request; None when the server is in use, or the time that is left would not do for it."""
        if self.took_s is not None:
            await asyncio.sleep(min(max(self.took_s / 2, _PAUSE_S[0]), _PAUSE_S[1]))
        if not await self.may_send():
            return None
        self.sent += 1
        began = time.monotonic()
        (record,) = await send_probes(
            self.target,
            one_prompt(plain_text(words, seed), answer_tokens, as_chat=self.as_chat),
            1,
            seed=seed,
            request_timeout_s=self._left(),
            idle_wait_s=0.0,
        )
        self.took_s = time.monotonic() - began
        self.tokens_made += (record.prompt_tokens or 0) + (record.output_tokens or 0)
        return record

    async def may_send(self) -> bool:
        """Whether an idle moment came while there is time for one more request."""
        if self.in_use or self._left() <= (self.took_s or 0.0):
            return False
        patience_s = _IDLE_WAIT_S[0] if self.took_s is None else _IDLE_WAIT_S[1]
        self.in_use = await in_use(self.server, min(patience_s, self._left()))
        return not self.in_use and self._left() > (self.took_s or 0.0)

    def _left(self) -> float:
        return max(0.0, self.deadline - time.monotonic())


@dataclass(frozen=True, slots=True)
class _Sent:
    """What came of the requests."""

    short: list[RequestRecord]
    long: list[RequestRecord]
    again: RequestRecord | None
    """Of the first long one when it was sent once more."""
    probe: IdleProbe

    def facts(self, connect_s: float | None, tokenize_s: float | None, *, was_idle: bool) -> ProbeFacts:
        """With what was measured beside them."""
        streams = [
            one.last_token_s - one.first_token_s
            for one in self.long
            if one.last_token_s is not None and one.first_token_s is not None
        ]
        tokens = statistics.median(record.prompt_tokens for record in self.long if record.prompt_tokens)
        return ProbeFacts(
            requests=sum(record.prompt_ms is not None for record in self.long),
            prompt_tokens=round(tokens),
            overhead_s=self.probe.overhead_s,
            prefill_tokens_per_s=self.probe.prefill_tokens_per_s,
            decode_step_s=self.probe.decode_step_s,
            short_prompt_overhead_s=_overhead(self.short),
            cached_tokens_again=None if self.again is None else self.again.cached_tokens,
            connect_s=connect_s,
            tokenize_s=tokenize_s,
            stream_s=_median(streams),
            stream_made_s=_median([one.predicted_ms / 1e3 for one in self.long if one.predicted_ms]),
            was_idle=was_idle,
        )


async def _send_all(talk: _Talk, longest: int, per_word: float, requests: int) -> _Sent:
    """Short prompts, then long ones of a length that the short ones' speed allows. Raises ProbeError."""
    try:
        short = await _short(talk)
        words, answer = long_words(longest, per_word, short), answer_tokens_of(short)
        long, again = await _long(talk, words, answer, requests)
        return _Sent(short, long, again, summarize_probes(long))
    except IdleProbeError as error:
        raise ProbeError(talk.target.base_url, str(error)) from error


async def _short(talk: _Talk) -> list[RequestRecord]:
    """Answers to short prompts. Where chats are refused, say by a template that fails, plain text is sent from then on.

    Raises IdleProbeError when that is refused as well.
    """
    records: list[RequestRecord] = []
    for _ in range(SHORT_REQUESTS):
        record = await talk.send(SHORT_WORDS, SHORT_ANSWER_TOKENS, secrets.randbits(32))
        if record is None:
            break
        if record.status is RequestStatus.HTTP_ERROR and talk.as_chat and not records:
            talk.as_chat = False
            continue
        records.append(record)
        if record.prompt_ms is None:
            raise IdleProbeError(records)
    return records[1:] or records


async def _long(
    talk: _Talk, words: int, answer_tokens: int, requests: int
) -> tuple[list[RequestRecord], RequestRecord | None]:
    """Return (what came of each long prompt, what came of the first when it was sent once more)."""
    records: list[RequestRecord] = []
    again: RequestRecord | None = None
    for number in range(requests):
        seed = secrets.randbits(32)
        record = await talk.send(words, answer_tokens, seed)
        if record is None:
            break
        records.append(record)
        if record.prompt_ms is None:
            break  # the next one would run into the same
        if number == 0:  # at once: on a slow server there may be no time left for it at the end
            again = await talk.send(words, SHORT_ANSWER_TOKENS, seed)
    if not records:
        raise ProbeError(talk.target.base_url, _why_nothing(talk))
    return records, again


def _why_nothing(talk: _Talk) -> str:
    """Why no long prompt was sent."""
    if not talk.in_use:
        return "the time was up before a long prompt could be sent"
    return f"{talk.in_use}; {f'only {talk.sent} short ones were' if talk.sent else 'nothing was'} sent"


def _overhead(short: Sequence[RequestRecord]) -> float | None:
    with contextlib.suppress(IdleProbeError):
        return summarize_probes(list(short)).overhead_s
    return None


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
