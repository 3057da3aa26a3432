"""The wire facts that the client builds on, checked on the real server: a new build must not change them unseen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from slotune.llama.candidate import Candidate
from slotune.llama.engine import find_engine
from slotune.llama.flags import to_args
from slotune.load.client import Target, run_load
from slotune.load.demand import Demand, Prompt, SyntheticPrompts
from slotune.load.probe import probe_idle
from slotune.load.records import RequestStatus, RunResult
from slotune.load.trace import build_trace
from slotune.sandbox.process import HOST, LlamaProcess, new_alias

pytestmark = [pytest.mark.alone, pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

VOCABULARY = 49152
"""Of SmolLM2."""

SHARED = Demand(
    peak_rate=1.0,
    output_tokens=6,
    synthetic=SyntheticPrompts(40, 4, shared_prefix_tokens=24, prefix_groups=1),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def target(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Target]:
    candidate = Candidate(
        "q4", "cpu", parallel_slots=1, context_per_slot=256, batch_size=128, ubatch_size=128, threads=1
    )
    alias = new_alias()
    process = LlamaProcess(
        find_engine("embedded"),
        to_args(candidate, model_path=str(demo_model), host=HOST, port=0, alias=alias),
        directory=tmp_path_factory.mktemp("engine"),
        alias=alias,
        startup_limit_s=60,
    )
    async with process:
        yield Target(process.server.base_url, model=alias)


async def measured(target: Target, demand: Demand, *, requests: int = 4, warmup: int = 1) -> RunResult:
    trace = build_trace(demand, rate=2.0, seed=3, requests=requests, warmup_requests=warmup)
    return await run_load(target, trace, demand, vocabulary=VOCABULARY, request_timeout_s=60.0)


async def test_headers_part_the_queue_from_prefill_and_the_counters_agree(target: Target) -> None:
    result = await measured(target, SHARED)
    assert [record.status for record in result.records] == [RequestStatus.OK] * 4
    for record in result.records:
        assert record.headers_s is not None
        assert record.first_token_s is not None
        assert record.prompt_ms is not None
        prefill_s = record.first_token_s - record.headers_s
        assert prefill_s == pytest.approx(record.prompt_ms / 1e3, rel=0.2, abs=0.15)
        assert (record.output_tokens, record.token_events) == (6, 6)
        # Headers, then prefill, then the steps: together they are the whole answer.
        assert record.last_token_s is not None
        steps_s = record.last_token_s - record.first_token_s
        assert steps_s == pytest.approx((record.predicted_ms or 0) / 1e3, rel=0.2, abs=0.15)
    assert all(record.cached_tokens == 24 for record in result.records)
    known = result.output_tokens_known
    assert result.server_output_tokens is not None
    assert known + result.output_tokens_least <= result.server_output_tokens <= known + result.output_tokens_most
    assert result.busy_samples
    assert not {code for code, _ in result.invalid_reasons} - {"ClientLate", "ClientLoopSlow", "RateOff"}


async def test_a_chat_has_a_role_chunk_that_is_no_token_and_usage_at_its_end(target: Target) -> None:
    prompts = (Prompt(messages=({"role": "user", "content": "Tell me of cats."},)),)
    result = await measured(target, Demand(peak_rate=1.0, output_tokens=5, prompts=prompts), requests=2)
    for record in result.records:
        assert record.status is RequestStatus.OK
        assert record.output_tokens == 5
        assert record.token_events <= 5
        assert record.prompt_tokens is not None


async def test_raw_text_is_answered_too(target: Target) -> None:
    demand = Demand(peak_rate=1.0, output_tokens=5, prompts=(Prompt(text="The quick brown fox"),), ignore_eos=False)
    result = await measured(target, demand, requests=2)
    assert {record.status for record in result.records} <= {RequestStatus.OK, RequestStatus.NO_TOKENS}


async def test_a_prompt_beyond_the_context_is_refused_with_its_numbers(target: Target) -> None:
    demand = Demand(peak_rate=1.0, output_tokens=5, synthetic=SyntheticPrompts(300))
    result = await measured(target, demand, requests=1)
    assert result.records[0].status is RequestStatus.HTTP_ERROR
    assert result.records[0].error == "HTTP 400: 400 exceed_context_size_error n_prompt_tokens=300 n_ctx=256"


async def test_an_answer_that_runs_out_of_context_is_truncated(target: Target) -> None:
    demand = Demand(peak_rate=1.0, output_tokens=40, synthetic=SyntheticPrompts(246))
    result = await measured(target, demand, requests=1, warmup=0)
    assert result.records[0].status is RequestStatus.TRUNCATED
    assert (result.records[0].output_tokens or 99) < 40


async def test_a_second_probe_finds_nothing_in_the_cache(target: Target) -> None:
    demand = Demand(peak_rate=1.0, output_tokens=3, synthetic=SyntheticPrompts(64))
    first = await probe_idle(target, demand, 1, vocabulary=VOCABULARY)
    again = await probe_idle(target, demand, 1, vocabulary=VOCABULARY)
    assert first.decode_step_s > 0
    # A cached prompt would be "read" at thousands of tokens a second, or not at all.
    assert again.prefill_tokens_per_s < 5 * first.prefill_tokens_per_s
