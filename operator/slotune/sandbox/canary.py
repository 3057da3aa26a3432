"""Prompts with a secret of their own, asked again and again: a cache that serves a foreign context answers wrongly.

A prompt cache may restore another conversation and say that nothing was cached (ggml-org/llama.cpp#27148): neither
latency nor ``cache_n`` shows it, only the answer does. So each canary has a secret that no one else has, says it twice
and begins it once more, so that what comes next depends on what the server really holds. Its next-token probabilities
are taken on the fresh server with ``cache_prompt`` off, twice: one at a time and all at once, and the difference is the
noise of batch shapes. After each run they are asked again the way that users ask, all at once and in the middle of a
small load of the workload's own prompts, so that slots and host cache swap them for somebody else's and back while
others are at work (:mod:`slotune.sandbox.canary_load`). An answer that moved much further than the noise was given from
another context, unless the server without its cache, in such a load too, moves just as far: then it is unsteady, which
is another matter.

One more canary in each round is new: the server cannot have seen more of it than the beginning that it shares with the
load, so a larger ``cache_n`` is another prompt's too.

Costs 2 x 3 prompts of at most 62 tokens with answers of one token before the first run, 4 after each with the load
beside them, and both once more where an answer looks foreign. Each asking waits for at most :data:`LIMIT_S` seconds,
and at most two follow each other. A server that can't be asked for probabilities is not looked at, which is not the
same as found well.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import orjson

from slotune.llama.server_http import LlamaServer, ServerError
from slotune.load.cache_facts import CacheFacts
from slotune.load.target import Target, open_session
from slotune.quality.answers import RESPONSE_FIELDS, read_next_token
from slotune.quality.coarse import Likeliest, divergence
from slotune.quality.errors import QualityError
from slotune.sandbox.canary_load import CanaryLoad, LoadPrompt, one_is_taken

__all__ = ["LIMIT_S", "Canaries", "Canary", "is_foreign", "make_canaries"]

KNOWN = 3
"""Canaries that are asked in each round."""
BEGINNING = 32
"""Most tokens that a canary shares with the load, and with the other canaries."""
SECRET = 12
ASKED = 128
"""Likeliest tokens that are compared: with ten, an answer from another context could look the same."""
LIMIT_S = 15.0
"""Most seconds that one asking of all canaries may take; what is not answered by then is not compared."""

CERTAIN = 10_000.0
"""Added to a logit so that no other can exceed it."""

FOREIGN_NATS = 0.05
"""Divergence of an answer from its first one, from which it was given from another context. One's own context read from
a cache moves it by rounding alone, with SmolLM2 135M on a CPU: 0 to 0.002 on an idle server, the most with a q4_0 KV
cache, and up to 0.007 in the middle of a load; a foreign beginning, or a foreign prompt before it, by 0.06 and more,
and one canary of three by 0.2 at least."""
NOISE_FACTOR = 10.0
"""An answer must differ this much more than two cold ones did."""
UNEXPLAINED = 1
"""Cached tokens above what is shared that prove nothing: a token that marks a prompt's beginning."""


@dataclass(frozen=True, slots=True)
class Canary:
    """One prompt, as token ids."""

    ids: tuple[int, ...] = field(repr=False)
    shared: int
    """Its leading tokens that others have too."""


@dataclass(frozen=True, slots=True)
class _Answer:
    listed: Likeliest
    cached: int | None


def make_canaries(
    beginnings: Sequence[Sequence[int]], vocabulary: int, secret: int, count: int = KNOWN
) -> tuple[Canary, ...]:
    """``count`` prompts with secrets of their own.

    Args:
        beginnings: Token ids that prompts of the load begin with, used in turn; empty ones are replaced.
        vocabulary: Tokens of the model.
        secret: Entropy that nobody else has.
        count: How many.
    """
    rng = np.random.default_rng(secret)
    low, high = vocabulary // 4, vocabulary - vocabulary // 4  # special tokens sit at the ends

    def drawn(number: int) -> list[int]:
        ids: list[int] = rng.integers(low, high, size=number).tolist()
        return ids

    own = drawn(BEGINNING // 2)
    starts = [list(start[:BEGINNING]) for start in beginnings if start] or [own]
    canaries = []
    for start in itertools.islice(itertools.cycle(starts), count):
        words = drawn(SECRET)
        canaries.append(Canary((*start, *words, *words, *words[: SECRET // 2]), len(start)))
    return tuple(canaries)


def is_foreign(divergence_nats: float, noise_nats: float) -> bool:
    """Whether an answer that lies so far from its first one was given from another context."""
    return divergence_nats > max(FOREIGN_NATS, NOISE_FACTOR * noise_nats)


class Canaries:
    """The canaries of one server."""

    def __init__(
        self,
        target: Target,
        beginnings: Sequence[Sequence[int]],
        vocabulary: int,
        secret: int,
        load: CanaryLoad | None = None,
    ) -> None:
        """``load`` is what goes out with them after a run; see :func:`make_canaries` for the others."""
        self._target = target
        self._load = load
        self._asked = min(ASKED, vocabulary)
        self._known = make_canaries(beginnings, vocabulary, secret)
        self._fresh = iter(
            make_canaries(beginnings, vocabulary, secret ^ number, count=1)[0] for number in itertools.count(1)
        )
        self._letter: int | None = None
        self._cold: dict[int, Likeliest] = {}
        self._noise = 0.0
        self._furthest: float | None = None
        self._compared = 0
        self.foreign = 0
        """Answers so far that were given from another prompt's context."""

    async def take_cold(self) -> None:
        """Keep what the fresh server answers to each canary without any cache."""
        self._letter = await self._plain_letter()
        first = await self._ask(self._known, cold=True, at_once=False)
        again = await self._ask(self._known, cold=True, at_once=True)
        for number, (one, other) in enumerate(zip(first, again, strict=True)):
            if one is not None and other is not None:
                self._cold[number] = one.listed
                self._noise = max(self._noise, divergence(one.listed, other.listed))

    async def look(self) -> None:
        """Ask again, and count what was given from another prompt's context."""
        if not self._cold:
            return
        fresh = next(self._fresh)
        *known, new = await self._ask((*self._known, fresh), cold=False, at_once=True, beside=self._company())
        suspects: dict[int, float] = {}
        for number, answer in enumerate(known):
            if answer is None or number not in self._cold:
                continue
            moved = divergence(self._cold[number], answer.listed)
            self._furthest = max(moved, self._furthest or 0.0)
            self._compared += 1
            if is_foreign(moved, self._noise):
                suspects[number] = moved
        # Under a load again: batches of other shapes may move an answer further than those of the idle server did.
        again = await self._ask(
            [self._known[number] for number in suspects],
            cold=True,
            at_once=True,
            beside=self._company() if suspects else (),
        )
        cold = {
            number: divergence(self._cold[number], answer.listed)
            for number, answer in zip(suspects, again, strict=True)
            if answer is not None
        }
        self._noise = max(self._noise, *cold.values(), 0.0)
        self.foreign += sum(is_foreign(suspects[number], self._noise) for number in cold)
        if new is not None and new.cached is not None:
            self._compared += 1
            self.foreign += new.cached > fresh.shared + UNEXPLAINED

    def on(self, facts: CacheFacts) -> CacheFacts:
        """``facts`` with what the canaries showed."""
        if not self._cold:
            return facts
        return replace(
            facts,
            canaries=self._compared,
            foreign=self.foreign,
            canary_noise=self._noise,
            canary_divergence=self._furthest,
        )

    async def _plain_letter(self) -> int | None:
        """A token to generate: of one that ends within a character the server keeps text and probabilities back."""
        async with LlamaServer(self._target.url(""), api_key=self._target.api_key) as server:
            try:
                said = await server.post("/tokenize", orjson.dumps({"content": "a", "add_special": False}))
            except ServerError:
                return None
        tokens = said.get("tokens") if isinstance(said, dict) else None
        last = tokens[-1] if isinstance(tokens, list) and tokens else None
        return last if isinstance(last, int) else None

    def _company(self) -> Sequence[LoadPrompt]:
        return () if self._load is None else self._load.draw()

    async def _ask(
        self, canaries: Sequence[Canary], *, cold: bool, at_once: bool, beside: Sequence[LoadPrompt] = ()
    ) -> list[_Answer | None]:
        """Ask all ``canaries``, one at a time or all at once, then with ``beside`` before and behind them."""
        answers: list[_Answer | None] = [None] * len(canaries)

        async def one(server: LlamaServer, number: int) -> None:
            answers[number] = await _answer(server, canaries[number], self._asked, self._letter, cold=cold)

        url = self._target.url("")
        try:
            async with (
                asyncio.timeout(LIMIT_S),
                LlamaServer(url, api_key=self._target.api_key, timeout_s=LIMIT_S) as server,
                open_session(self._target) as session,
            ):
                if at_once:
                    before = len(beside) // 2
                    async with asyncio.TaskGroup() as all_of_them:
                        for prompt in beside[:before]:
                            all_of_them.create_task(prompt.send(session, LIMIT_S))
                        await one_is_taken(beside[:before])
                        for number in range(len(canaries)):
                            all_of_them.create_task(one(server, number))
                        for prompt in beside[before:]:
                            all_of_them.create_task(prompt.send(session, LIMIT_S))
                else:
                    for number in range(len(canaries)):
                        await one(server, number)
        except TimeoutError:
            pass
        return answers


async def _answer(server: LlamaServer, canary: Canary, asked: int, letter: int | None, *, cold: bool) -> _Answer | None:
    """What comes next, or None where the server does not say.

    ``letter`` is what it is made to generate: its probabilities are those before sampling, so they stay what they are.
    """
    body: dict[str, Any] = {
        "prompt": canary.ids,
        "n_predict": 1,
        "n_probs": asked,
        "post_sampling_probs": False,
        "temperature": 0,
        "response_fields": (*RESPONSE_FIELDS, "timings"),
    }
    if letter is not None:
        body["logit_bias"] = [[letter, CERTAIN]]
    if cold:
        body["cache_prompt"] = False
    try:
        said = await server.post("/completion", orjson.dumps(body))
        listed = read_next_token(said, asked=asked, sent=len(canary.ids)).listed
    except (ServerError, QualityError):
        return None
    timings = said.get("timings")
    cached = timings.get("cache_n") if isinstance(timings, dict) else None
    return _Answer(listed, cached if isinstance(cached, int) else None)
