"""A real llama.cpp server guesses as its candidate asks for, or is found to go on without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from slotune.llama.candidate import Candidate
from slotune.llama.effective import Mismatch, check_effective, effective_values
from slotune.llama.engine import find_engine
from slotune.llama.failures import FailureClass
from slotune.llama.flags import to_args
from slotune.llama.gguf_facts import read_facts
from slotune.llama.memory import predict
from slotune.llama.speculation import DRAFT_MODEL
from slotune.sandbox.process import HOST, LlamaProcess, LlamaStartError, new_alias
from tests.tiny_models import write_tiny_model

pytestmark = pytest.mark.engine

BASE = Candidate("big", "cpu", 2, 512, batch_size=128, ubatch_size=64, threads=2, gpu_layers="0")
DRAFTING = replace(BASE, speculation=DRAFT_MODEL, draft="small", speculation_tokens=5)


@pytest.fixture
def big(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "big.gguf", layers=3, context=512)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "small.gguf", layers=1, context=512)


def engine_process(model: Path, directory: Path, candidate: Candidate, draft: Path | None) -> LlamaProcess:
    alias = new_alias()
    draft_path = None if draft is None else str(draft)
    args = to_args(candidate, model_path=str(model), host=HOST, port=0, alias=alias, draft_path=draft_path)
    return LlamaProcess(find_engine("embedded"), args, directory=directory, alias=alias, startup_limit_s=60)


async def looked_at(process: LlamaProcess, candidate: Candidate) -> tuple[list[Mismatch], dict[str, str]]:
    props, slots, log = await process.server.props(), await process.server.slots(), process.log_facts()
    found = check_effective(candidate, props, slots, log, gpu_expected=False)
    return found, dict(effective_values(props, slots, log))


@pytest.mark.parametrize(
    "candidate",
    [
        pytest.param(DRAFTING, id="draft model"),
        pytest.param(replace(DRAFTING, cache_type_k="q8_0", cache_type_v="q8_0"), id="its KV has a type of its own"),
        pytest.param(
            replace(BASE, speculation="ngram-mod", speculation_tokens=4, speculation_match=2), id="n-grams, few tokens"
        ),
        pytest.param(
            replace(BASE, speculation="ngram-map-k4v", speculation_tokens=4, speculation_match=2), id="n-gram map"
        ),
        pytest.param(replace(BASE, backend_sampling=True), id="sampling where the model runs"),
    ],
)
async def test_a_server_guesses_as_it_was_asked_to(
    big: Path, small: Path, tmp_path: Path, candidate: Candidate
) -> None:
    async with engine_process(big, tmp_path, candidate, small) as process:
        mismatches, values = await looked_at(process, candidate)
        log = process.log_facts()

    assert mismatches == []
    assert values["speculation"] == ("true" if candidate.speculation != "none" else "false")
    assert values.get("backendSampling") == ("true" if candidate.backend_sampling else None)
    assert values["cacheTypeK"] == candidate.cache_type_k
    predicted = predict(candidate, read_facts(big), on_gpu=False, draft=read_facts(small))
    assert log.kv_bytes == pytest.approx(predicted.kv, rel=0.02)
    assert log.model_bytes == pytest.approx(predicted.weights, rel=0.05)


async def test_a_draft_of_the_same_weights_is_always_right(big: Path, tmp_path: Path) -> None:
    async with (
        engine_process(big, tmp_path, DRAFTING, big) as process,
        httpx.AsyncClient(base_url=process.base_url, timeout=60, trust_env=False) as client,
    ):
        asked = {"prompt": "abc", "n_predict": 24, "temperature": 0, "ignore_eos": True}
        timings = (await client.post("/completion", json=asked)).json()["timings"]

    assert timings["draft_n"] > 0
    assert timings["draft_n_accepted"] / timings["draft_n"] > 0.9


async def test_a_draft_with_another_vocabulary_is_told_though_the_server_comes_up(big: Path, tmp_path: Path) -> None:
    foreign = write_tiny_model(tmp_path / "foreign.gguf", layers=1, context=512, words=1024)

    async with engine_process(big, tmp_path, DRAFTING, foreign) as process:
        [mismatch], values = await looked_at(process, DRAFTING)

    assert values["speculation"] == "false"
    assert (mismatch.field, mismatch.cannot_speculate) == ("speculation", True)
    assert "vocab" in mismatch.effective


async def test_a_draft_that_is_not_there_is_named(big: Path, tmp_path: Path) -> None:
    with pytest.raises(LlamaStartError) as caught:
        async with engine_process(big, tmp_path, DRAFTING, tmp_path / "gone.gguf"):
            pass

    assert caught.value.failure.failure_class is FailureClass.SPECULATION_UNAVAILABLE
    assert "gone.gguf" in caught.value.failure.sentence
