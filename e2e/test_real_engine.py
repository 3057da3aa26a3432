"""What takes a real model the longest to show: one candidate measured whole, a queue by the server's own clock, and
caches that mix prompts up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slotune.llama.engine import find_engine
from slotune.llama.flags import to_args
from slotune.load.cache_facts import CacheFacts
from slotune.load.client import run_load
from slotune.load.demand import Demand, Prompt, SyntheticPrompts
from slotune.load.records import RequestStatus
from slotune.load.target import Target
from slotune.load.trace import build_trace
from slotune.sandbox import canary as canaries_module
from slotune.sandbox.canary import BEGINNING, FOREIGN_NATS, Canaries, Canary
from slotune.sandbox.canary_load import CanaryLoad
from slotune.sandbox.process import LlamaProcess, new_alias
from slotune.sandbox.process_sandbox import ProcessSandbox
from slotune.search.trial import Trial
from slotune.verdict.verdicts import Outcome
from tests.sandbox.processes import SMALL, engine_process
from tests.sandbox.worlds import candidate, problem

pytestmark = pytest.mark.engine


async def test_one_candidate_of_a_real_model_is_measured_and_its_parts_add_up(demo_model: Path, tmp_path: Path) -> None:
    one = candidate(cache_ram_mib=64, cache_idle_slots=True)
    space = problem(demo_model, one, rate=1.5, prompts=SyntheticPrompts(96, shared_prefix_tokens=64))
    sandbox = ProcessSandbox(space, find_engine("embedded"), {"only": demo_model}, tmp_path)
    measured = await sandbox.measure(Trial(one, 1.5, confidence=0.6), lambda _: None)
    result = measured.result
    assert result.verdict.outcome is Outcome.PASS, result.verdict.reason
    effective = dict(result.effective)
    assert effective["parallelSlots"] == "2"
    assert effective["contextSizePerSlot"] == "256"
    assert effective["cacheTypeK"] == "f16"
    assert effective["kvUnified"] == "false"
    assert "11549" in effective["build"]
    records = [r for run in measured.runs for r in run.records]
    parts = result.attribution
    assert parts is not None
    whole = sum(r.ttft_s for r in records if r.ttft_s is not None) / len(records)
    assert parts.queue_s + parts.prefill_s + parts.contention_s + parts.overhead_s == pytest.approx(whole, rel=0.05)
    assert result.probe is not None
    assert result.probe.prefill_tokens_per_s > 10
    assert result.memory_bytes is not None
    assert result.memory_bytes > 90e6
    assert result.host_memory_peak_bytes is not None
    assert parts.cached_share is not None
    assert parts.cached_share > 0.3
    cache = result.cache
    assert cache is not None
    assert cache.theoretical_reuse == pytest.approx(64 / 96)
    assert cache.effectiveness == pytest.approx(1.0, abs=0.2)
    assert cache.cold_reuse == 0.0
    assert cache.warm_reuse == pytest.approx(64 / 96)
    assert cache.canaries >= 2, "on a busy machine some are not answered in time"
    assert cache.foreign == 0


async def test_queue_and_reading_add_up_to_ttft_by_the_servers_own_clock(demo_model: Path, tmp_path: Path) -> None:
    """One slot, five long prompts almost at once: what the headers split off is the wait, the rest is ``prompt_ms``."""
    alias = new_alias()
    one = candidate(parallel_slots=1, context_per_slot=512, cache_prompt=False)
    args = to_args(one, model_path=str(demo_model), host="127.0.0.1", port=0, alias=alias, threads=1)
    demand = problem(demo_model, one, prompts=SyntheticPrompts(200), output_tokens=4).demand
    trace = build_trace(demand, rate=8.0, seed=1, requests=5)
    async with LlamaProcess(find_engine("embedded"), args, directory=tmp_path, alias=alias) as process:
        vocabulary = (await process.server.model()).vocabulary
        run = await run_load(Target(process.base_url, alias), trace, demand, vocabulary=vocabulary)
    assert len(run.records) == 5
    waits = []
    for record in run.records:
        assert record.status is RequestStatus.OK, record.error
        assert record.headers_s is not None
        assert record.sent_s is not None
        assert record.prompt_ms is not None
        waits.append(record.headers_s - record.sent_s)
        assert waits[-1] + record.prompt_ms / 1e3 == pytest.approx(record.ttft_s, rel=0.05)
    assert max(waits) > 1.0, "nobody queued, so nothing was split"


@pytest.mark.parametrize("prompts", ["synthetic", "real"])
async def test_a_real_model_shows_a_foreign_context_in_its_answers_and_none_where_there_is_none(
    demo_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prompts: str
) -> None:
    """The engine's own cache is sound, also in the middle of a load, so the fault is made here: somebody else's prompt
    goes before each canary."""
    monkeypatch.setattr(canaries_module, "LIMIT_S", 120.0)  # the test is about answers, however busy the machine is
    honest = canaries_module._answer

    async def leaking(server, canary, *more, cold):  # type: ignore[no-untyped-def]  # takes what it replaces takes
        if cold:
            return await honest(server, canary, *more, cold=True)
        return await honest(server, Canary((*range(20_000, 20_060), *canary.ids), 0), *more, cold=True)

    one = replace(SMALL, threads=1, cache_ram_mib=32, cache_idle_slots=True)
    if prompts == "synthetic":
        demand = Demand(1.0, 8, synthetic=SyntheticPrompts(96, shared_prefix_tokens=64))
    else:
        asked = ("opens", "closes", "was built")
        words = (f"The harbor of the old town is small and busy. Say when its market {word}." for word in asked)
        demand = Demand(1.0, 8, prompts=tuple(Prompt(messages=({"role": "user", "content": word},)) for word in words))
    async with engine_process(demo_model, tmp_path, one) as process:
        vocabulary = (await process.server.model()).vocabulary
        assert vocabulary is not None
        load = CanaryLoad(Target(process.base_url), demand, 4, vocabulary=vocabulary)
        load.after(build_trace(demand, rate=1.0, seed=1, requests=6).entries)
        beginnings = await load.beginnings(process.server)
        assert beginnings
        assert all(len(ids) >= BEGINNING for ids in beginnings)
        canaries = Canaries(Target(process.base_url), beginnings, vocabulary, 7, load)
        await canaries.take_cold()
        await canaries.look()
        await canaries.look()
        sound = canaries.on(CacheFacts())
        monkeypatch.setattr(canaries_module, "_answer", leaking)
        await canaries.look()
        leaked = canaries.on(CacheFacts())

    assert (sound.canaries, sound.foreign) == (8, 0)
    assert sound.canary_divergence is not None
    assert sound.canary_divergence < FOREIGN_NATS / 2, "rounding, which depends on who else is in the batch"
    assert leaked.foreign > 0
