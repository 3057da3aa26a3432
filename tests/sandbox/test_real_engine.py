"""A real llama.cpp server in the process sandbox: it becomes what a candidate asks for, or says why it cannot."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import pytest

from slotune.llama.candidate import Candidate
from slotune.llama.effective import check_effective, effective_values
from slotune.llama.failures import FailureClass
from slotune.sandbox.process import LlamaStartError
from slotune.sandbox.process_tree import descendants
from tests.sandbox.processes import SMALL, engine_process, running

pytestmark = pytest.mark.engine


@pytest.fixture
def file_bytes(demo_model: Path) -> int:
    return demo_model.stat().st_size


@pytest.mark.parametrize(
    "candidate",
    [
        pytest.param(SMALL, id="split, all caches off"),
        pytest.param(
            replace(
                SMALL,
                parallel_slots=3,
                context_per_slot=300,
                kv_unified=True,
                cache_type_k="q8_0",
                cache_type_v="q8_0",
                cache_ram_mib=32,
                cache_idle_slots=True,
                cache_reuse=16,
                speculation="ngram-mod",
                threads=1,
            ),
            id="unified, quantized, every cache on, speculating",
        ),
        pytest.param(
            replace(SMALL, parallel_slots=1, flash_attention="off", cache_prompt=False, cache_ram_mib=-1),
            id="one slot, no flash attention, a host cache without limit",
        ),
    ],
)
async def test_a_server_becomes_what_its_candidate_asks_for(
    demo_model: Path, file_bytes: int, tmp_path: Path, candidate: Candidate
) -> None:
    async with engine_process(demo_model, tmp_path, candidate) as process:
        props, slots = await process.server.props(), await process.server.slots()
        log = process.log_facts()
        await process.server.wait_idle(10)

        assert check_effective(candidate, props, slots, log, gpu_expected=False) == []
        [fallback] = check_effective(candidate, props, slots, log, gpu_expected=True)
        assert (fallback.field, fallback.silent_fallback) == ("gpuLayers", True), "had a GPU been promised"
        confirmed = dict(effective_values(props, slots, log))
        assert confirmed["build"].startswith("xllamacpp 20")
        assert confirmed["flashAttention"] == ("true" if candidate.flash_attention == "on" else "false")
        assert confirmed["cacheTypeV"] == candidate.cache_type_v
        assert log.model_bytes == pytest.approx(file_bytes, rel=0.02), "the file is little but its weights"
        assert (process.memory_peak_bytes or 0) > log.model_bytes
        pids = descendants(process.pid)

    assert not any(map(running, pids))
    assert process.exit_code == 0


@pytest.mark.parametrize(
    ("changes", "limit_mib", "want", "knob"),
    [
        pytest.param(
            {"parallel_slots": 64, "context_per_slot": 2048},
            2048,
            FailureClass.OUT_OF_MEMORY_KV,
            "contextSizePerSlot",
            id="the KV cache does not fit",
        ),
        pytest.param(
            {"context_per_slot": 8192, "batch_size": 8192, "ubatch_size": 8192, "flash_attention": "off"},
            1536,
            FailureClass.OUT_OF_MEMORY_COMPUTE,
            "uBatchSize",
            id="the compute buffer does not fit",
        ),
        pytest.param(
            {"cache_type_v": "q8_0", "flash_attention": "off"},
            None,
            FailureClass.BAD_FLAG,
            "flashAttention",
            id="a quantized cache without flash attention",
        ),
        pytest.param({"extra_args": ("--swa-full",)}, None, FailureClass.BAD_FLAG, "--swa-full", id="a foreign flag"),
        pytest.param(
            {"cache_type_k": "q6_k"}, None, FailureClass.BAD_FLAG, "cacheTypeK", id="a cache type that is none"
        ),
    ],
)
async def test_a_candidate_that_cannot_run_names_its_own_setting(
    demo_model: Path, tmp_path: Path, changes: dict[str, object], limit_mib: int | None, want: FailureClass, knob: str
) -> None:
    candidate = replace(SMALL, **changes)  # type: ignore[arg-type]  # each case names its own field
    limits = {} if limit_mib is None else {"address_space_bytes": limit_mib * 2**20}

    with pytest.raises(LlamaStartError) as caught:
        async with engine_process(demo_model, tmp_path, candidate, **limits):
            pass

    failure = caught.value.failure
    assert (failure.failure_class, failure.knob) == (want, knob), caught.value.log_tail


def copy_part(model: Path, to: Path, content: slice) -> None:
    to.write_bytes(model.read_bytes()[content])


@pytest.mark.parametrize(
    ("content", "told"),
    [
        pytest.param(None, r"missing\.gguf cannot be opened", id="missing"),
        pytest.param(slice(0, 20_000_000), r"cut off \(tensor token_embd\.weight", id="cut off in the weights"),
        pytest.param(slice(0, 2_000), "no complete GGUF file", id="cut off in the header"),
        pytest.param(slice(100, 2_000), "no complete GGUF file", id="no GGUF file at all"),
    ],
)
async def test_a_model_that_cannot_be_read_says_what_is_wrong_with_it(
    demo_model: Path, tmp_path: Path, content: slice | None, told: str
) -> None:
    model = tmp_path / "missing.gguf"
    if content is not None:
        copy_part(demo_model, model, content)

    with pytest.raises(LlamaStartError, match=told) as caught:
        async with engine_process(model, tmp_path / "out", SMALL):
            pass

    assert caught.value.failure.failure_class is FailureClass.MODEL_UNREADABLE


@dataclass
class Seen:
    """When parts of one streamed answer came."""

    headers_s: float = 0.0
    events_s: list[float] = field(default_factory=list)


async def test_response_headers_come_when_a_slot_takes_the_request(demo_model: Path, tmp_path: Path) -> None:
    """The ground of the split of TTFT into queue and prefill: found on build 11549, must hold on the next one."""

    async def stream(client: httpx.AsyncClient, tokens: int) -> Seen:
        seen = Seen()
        body = {"prompt": "One two three", "n_predict": tokens, "ignore_eos": True, "stream": True}
        async with client.stream("POST", "/completion", json=body) as response:
            seen.headers_s = time.monotonic()
            async for line in response.aiter_lines():
                if line:
                    seen.events_s.append(time.monotonic())
        return seen

    async with (
        engine_process(demo_model, tmp_path, replace(SMALL, parallel_slots=1, threads=1)) as process,
        httpx.AsyncClient(base_url=process.base_url, trust_env=False, timeout=60) as client,
    ):
        first, second = await asyncio.gather(stream(client, 12), stream(client, 12))

    early, late = sorted((first, second), key=lambda seen: seen.headers_s)
    assert late.headers_s > early.events_s[-4], "the one slot was still busy, and the headers of the other came"
    assert late.headers_s < late.events_s[0]
