"""Looks at the prompt cache of one server between its runs, and adds up what it saw.

Before the runs: what a prompt waits alone when its prefix was just read, beside the idle probe's cold one, and what the
canaries answer without a cache. After each run: the canaries again, in a small load of their own. At the end: how much
of what a perfect cache would have served the server says that it did. Nothing here sends while a run is measured.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace

import orjson

from slotune.llama.server_http import LlamaServer, ServerError
from slotune.load.cache_facts import EFFECTIVE, CacheFacts
from slotune.load.demand import Demand
from slotune.load.records import RequestRecord, RunResult
from slotune.load.reuse import reuse_of
from slotune.load.sharing import Beginnings
from slotune.load.target import Target
from slotune.load.trace import Trace
from slotune.load.warm import AloneTTFT, alone, probe_warm
from slotune.sandbox.canary import LIMIT_S, Canaries
from slotune.sandbox.canary_load import CanaryLoad, load_size
from slotune.verdict.verdicts import Outcome, Verdict

__all__ = ["CACHE_LOOK_LIMIT_S", "CacheLook", "foreign_context"]

CACHE_LOOK_LIMIT_S = 2 * LIMIT_S
"""Most seconds that canaries and their load take between two runs or before the first."""


class CacheLook:
    """The look at one server.

    Args:
        server: For control calls.
        target: Where prompts go.
        demand: The workload.
        slots: Slots that keep a prompt cache; 0 where the cache is off.
        vocabulary: Tokens of the model; without it there are no canaries.
        request_timeout_s: Seconds after which a prompt is given up.
    """

    def __init__(
        self,
        server: LlamaServer,
        target: Target,
        demand: Demand,
        slots: int,
        *,
        vocabulary: int | None,
        request_timeout_s: float,
    ) -> None:
        self._server, self._target, self._demand, self._slots = server, target, demand, slots
        self._vocabulary, self._request_timeout_s = vocabulary, request_timeout_s
        self._shares = demand.reusable_tokens > 0
        self._cold = self._warm = AloneTTFT(None, None)
        self._canaries: Canaries | None = None
        self._load: CanaryLoad | None = None
        self._template_keeps: bool | None = None
        self._runs: list[tuple[Trace, RunResult]] = []

    async def before(self, probes: Sequence[RequestRecord]) -> None:
        """On the fresh, idle server. ``probes`` are its idle probe's requests."""
        self._cold = alone(probes)
        if not self._slots:
            return
        if self._vocabulary:
            size = load_size(self._slots, self._cold.ttft_s)
            self._load = CanaryLoad(self._target, self._demand, size, vocabulary=self._vocabulary)
            beginnings = await self._load.beginnings(self._server)
            self._canaries = Canaries(self._target, beginnings, self._vocabulary, secrets.randbits(64), load=self._load)
            await self._canaries.take_cold()
        if self._shares:
            self._warm = await probe_warm(
                self._target,
                self._demand,
                seed=secrets.randbits(32),
                vocabulary=self._vocabulary,
                request_timeout_s=self._request_timeout_s,
            )

    def ran(self, trace: Trace, run: RunResult) -> None:
        """Take in a run."""
        self._runs.append((trace, run))
        if self._load is not None:
            self._load.after(trace.entries)

    async def look(self) -> None:
        """After a run, on the idle server."""
        if self._canaries is not None:
            await self._canaries.look()

    @property
    def sound(self) -> bool:
        """Whether nothing foreign was served so far."""
        return self._canaries is None or not self._canaries.foreign

    async def finish(self) -> None:
        """At the end, only where less was reused than could be: ask for what the template does."""
        facts = self.facts()
        if self._slots and facts is not None and (facts.effectiveness or 1.0) < EFFECTIVE:
            self._template_keeps = await self.template_keeps_prefix()

    def facts(self) -> CacheFacts | None:
        """What was seen; None where nothing is shared and no cache was asked."""
        facts = CacheFacts()
        if self._shares:
            facts = replace(
                facts,
                cold_ttft_s=self._cold.ttft_s,
                cold_reuse=self._cold.reuse,
                warm_ttft_s=self._warm.ttft_s,
                warm_reuse=self._warm.reuse,
            )
            if (reuse := reuse_of(self._demand, self._runs, self._slots)) is not None:
                facts = replace(
                    facts,
                    theoretical_reuse=reuse.theoretical,
                    measured_reuse=reuse.measured,
                    slots_reuse=reuse.by_slots,
                    prefixes=reuse.prefixes,
                    prefix_share=reuse.prefix_share,
                )
            facts = replace(facts, template_keeps_prefix=self._template_keeps)
        if self._canaries is not None:
            facts = self._canaries.on(facts)
        return None if facts == CacheFacts() else facts

    async def template_keeps_prefix(self) -> bool | None:
        """Whether two chats that begin alike still do behind the server's template; None where that can't be said."""
        beginnings = Beginnings(self._demand.prompts)
        if beginnings.closest is None:
            return None
        one, other = (self._demand.prompts[number] for number in beginnings.closest)
        if one.messages is None or other.messages is None:
            return None
        texts = []
        for messages in (one.messages, other.messages):
            try:
                said = await self._server.post("/apply-template", orjson.dumps({"messages": messages}))
            except ServerError:
                return None
            text = said.get("prompt") if isinstance(said, dict) else None
            if not isinstance(text, str):
                return None
            texts.append(text)
        common = next(
            (place for place, (left, right) in enumerate(zip(*texts, strict=False)) if left != right),
            min(map(len, texts)),
        )
        return common >= EFFECTIVE * beginnings.common_of(*beginnings.closest)


def foreign_context(verdict: Verdict, facts: CacheFacts) -> Verdict:
    """The verdict on a server that answered canaries from another prompt's context: its own fault, at any rate."""
    sentence = (
        f"{facts.foreign} of {facts.canaries} canary prompts were answered from another prompt's context: the prompt "
        "cache mixes users up (ggml-org/llama.cpp#27148); set cacheRAMMiB to 0 (--cache-ram 0), or take a newer build"
    )
    return replace(verdict, outcome=Outcome.FAIL, reason=sentence, code="ForeignContext")
