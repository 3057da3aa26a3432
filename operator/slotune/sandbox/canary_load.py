"""The workload's own prompts, on the server while canaries are asked: caches mix prompts up under load, not at rest.

A foreign context was restored where slots were taken, saved and filled again by requests that came at once
(ggml-org/llama.cpp#27148). A canary on an idle server would never meet that. So canaries go out in the middle of a
small load of their own, half of it before them and half behind, all at once: slots are busy, others wait, and each swap
has somebody else's prompt on its other side.

It is a load of its own, between two runs, and not the warm-up of one: a canary that is read in a run's warm-up takes
the slot of a prompt that the window then measures. What it sends is answered before the next run primes its slots. Of
real prompts it sends those of the run that just ended, so that the cache sees no beginning that it had not seen;
synthetic ones get prefixes of their own, which no run has and the canaries begin with.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import orjson

from slotune.llama.server_http import LlamaServer, ServerError
from slotune.load.bodies import Bodies
from slotune.load.demand import Demand, Prompt
from slotune.load.exchange import Tally, exchange
from slotune.load.records import RequestRecord
from slotune.load.sharing import Beginnings
from slotune.load.target import Target
from slotune.load.trace import TraceEntry

__all__ = ["LOAD_REQUESTS", "LOAD_S", "CanaryLoad", "LoadPrompt", "load_size", "one_is_taken"]

LOAD_REQUESTS = 8
"""Most prompts of the load that go out with one round of canaries."""
LOAD_TOKENS = 8
"""Most tokens that each answers: it has to be there while canaries come and go, not to be finished."""
LOAD_S = 10.0
"""Seconds of reading, at the idle server's speed, that they may come to together."""
POLL_S = 0.005
"""Pause between two questions whether a slot was taken."""
BEGUN_WITH = 2
"""Beginnings that are given to canaries."""
TOLD_APART = 64
"""Characters by which beginnings are told apart; about half of what a canary shares."""
TOKENIZED = 4096
"""Characters of a prompt that are tokenized; a canary shares far less."""


def load_size(slots: int, alone_s: float | None) -> int:
    """Prompts that go out with one round of canaries.

    Args:
        slots: Slots that keep a prompt cache.
        alone_s: Seconds that a prompt of the mean length takes on the idle server to its first token.

    Returns:
        Twice the slots, so that some wait, as far as :data:`LOAD_REQUESTS` and :data:`LOAD_S` allow; 0 where a single
        pair would take longer than that.
    """
    most = min(2 * slots, LOAD_REQUESTS)
    if alone_s is None or alone_s <= 0:
        return most
    fits = min(float(most), LOAD_S / alone_s)
    return int(fits) if fits >= min(2, most) else 0


@dataclass(frozen=True, slots=True)
class LoadPrompt:
    """One request of the load, ready to send."""

    url: str
    body: bytes = field(repr=False)
    entry: TraceEntry
    record: RequestRecord
    """What comes of it, as far as it has come."""

    async def send(self, session: aiohttp.ClientSession, timeout_s: float) -> None:
        """Send it and follow it to its end."""
        await exchange(
            session,
            self.url,
            self.body,
            self.record,
            asked_tokens=self.entry.max_tokens,
            exact=False,
            start=time.perf_counter(),
            timeout_s=timeout_s,
            tally=Tally(),
        )


class CanaryLoad:
    """Makes the load of one server's rounds, and tells what it begins with.

    Args:
        target: The server.
        demand: The workload.
        size: Prompts in each round.
        vocabulary: Tokens of the model; only synthetic prompts need it.
    """

    def __init__(self, target: Target, demand: Demand, size: int, *, vocabulary: int | None) -> None:
        self._target, self._demand, self._size = target, demand, size
        self._bodies = Bodies(demand, seed=secrets.randbits(32), vocabulary=vocabulary, model=target.model)
        self._entries: Sequence[TraceEntry] = ()

    def after(self, entries: Sequence[TraceEntry]) -> None:
        """Take the prompts of a run that has ended."""
        self._entries = entries[: self._size]

    def draw(self) -> list[LoadPrompt]:
        """The prompts of one round, none of which was ever sent; nothing before the first run."""
        prompts = []
        for entry in self._entries:
            other = replace(entry, nonce=secrets.randbits(63), max_tokens=min(LOAD_TOKENS, entry.max_tokens))
            path, body = self._bodies(other)
            prompts.append(
                LoadPrompt(self._target.url(path), body, other, RequestRecord(entry.index, entry.prompt_id, 0.0))
            )
        return prompts

    async def beginnings(self, server: LlamaServer) -> list[list[int]]:
        """Token ids that its most popular prompts begin with; fewer, or none, where nothing is shared or told."""
        synthetic = self._demand.synthetic
        if synthetic is not None:
            return [self._bodies.prefix_ids(group) for group in range(min(BEGUN_WITH, synthetic.prefix_groups))]
        ids = [await _tokens(server, prompt) for prompt in _popular(self._demand.prompts)]
        return [one for one in ids if one]


async def one_is_taken(prompts: Sequence[LoadPrompt]) -> None:
    """Return when a slot works for one of ``prompts``, or when one has come to nothing; at once without any."""

    def taken() -> bool:
        return any(prompt.record.headers_s is not None or prompt.record.error is not None for prompt in prompts)

    while prompts and not taken():  # noqa: ASYNC110 (a record is awaited, which tells nobody)
        await asyncio.sleep(POLL_S)


def _popular(prompts: Sequence[Prompt]) -> list[Prompt]:
    """One prompt of each of the most frequent beginnings, then others."""
    beginnings = Beginnings(prompts)
    starts = [beginnings.shared_text(number)[:TOLD_APART] for number in range(len(prompts))]
    shared = [starts.index(start) for start, _ in Counter(filter(None, starts)).most_common(BEGUN_WITH)]
    known = {starts[number] for number in shared}
    others = (number for number, start in enumerate(starts) if start not in known)
    return [prompts[number] for number in itertools.islice(itertools.chain(shared, others), BEGUN_WITH)]


async def _tokens(server: LlamaServer, prompt: Prompt) -> list[int] | None:
    """The token ids that the server would read first of ``prompt``; None where it does not say."""
    text = prompt.text
    try:
        if text is None:
            said = await server.post("/apply-template", orjson.dumps({"messages": prompt.messages}))
            text = said.get("prompt") if isinstance(said, dict) else None
        if not isinstance(text, str):
            return None
        asked: dict[str, Any] = {"content": text[:TOKENIZED], "add_special": True, "parse_special": True}
        said = await server.post("/tokenize", orjson.dumps(asked))
    except ServerError:
        return None
    ids = said.get("tokens") if isinstance(said, dict) else None
    if not isinstance(ids, list) or not all(type(one) is int for one in ids):
        return None
    return ids
