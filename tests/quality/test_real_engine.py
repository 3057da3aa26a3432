"""On real weights: what F16, Q8_0, Q4_0 and a damaged file get, measured as in production but on few positions.

The damage is 48 blocks of one tensor, 1,632 bytes of 145 MB, set to zero: the row that makes the residual stream's
largest channel, which every later layer leans on. Such a file loads, answers, and would be the cheapest candidate.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import pytest_asyncio

from slotune.llama.candidate import Candidate
from slotune.llama.engine import find_engine
from slotune.llama.flags import to_args
from slotune.llama.gguf_facts import read_facts
from slotune.llama.gguf_header import TensorInfo, read_header
from slotune.llama.requantize import requantize, variant_path
from slotune.load.demand import Prompt
from slotune.load.target import Target
from slotune.quality.divergence import Divergence
from slotune.quality.errors import OtherModelError
from slotune.quality.limits import BALANCED, STRICT, QualitySettings
from slotune.quality.reference import Reference
from slotune.quality.teacher import compare, record_reference
from slotune.sandbox.process import HOST, LlamaProcess, new_alias
from slotune.verdict.quality_gate import judge_quality
from slotune.verdict.verdicts import Outcome
from tests.tiny_models import write_tiny_model

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

SETTINGS = QualitySettings(prompts=8, steps=4)
TOPICS = ("the tides", "rain", "a bicycle", "prime numbers", "volcanoes", "glass", "the seasons", "中文 and emoji 🙂")
PROMPTS = tuple(
    Prompt(messages=({"role": "user", "content": f"Explain {topic} to a child in one paragraph."},)) for topic in TOPICS
)
DAMAGED_TENSOR = "blk.2.ffn_down.weight"


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quality")


@asynccontextmanager
async def serving(model: Path, directory: Path, cache_type: str = "f16") -> AsyncIterator[Target]:
    candidate = Candidate(
        "quality",
        "cpu",
        parallel_slots=1,
        context_per_slot=256,
        batch_size=256,
        ubatch_size=256,
        cache_type_k=cache_type,
        cache_type_v=cache_type,
        threads=1,
    )
    alias = new_alias()
    folder = directory / alias
    folder.mkdir()
    arguments = to_args(candidate, model_path=str(model), host=HOST, port=0, alias=alias)
    process = LlamaProcess(find_engine("embedded"), arguments, directory=folder, alias=alias, startup_limit_s=60)
    async with process:
        yield Target(process.server.base_url, model=alias)


def variant(demo_model: Path, kind: str, scratch: Path) -> Path:
    """The demo's model in another type: the file that ``make demo`` left, or one made for these tests."""
    made = variant_path(demo_model, kind, demo_model.parent)
    return made if made.is_file() else requantize(demo_model, kind, scratch)


def damaged(source: Path, target: Path) -> Path:
    """A copy in which the largest row of one tensor is zero."""
    shutil.copyfile(source, target)
    tensor: TensorInfo = next(one for one in read_header(source).tensors if one.name == DAMAGED_TENSOR)
    rows = tensor.shape[1]
    size = tensor.size // rows
    raw = np.fromfile(source, np.uint8, tensor.size, offset=tensor.start).reshape(rows, size)
    weights = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType(tensor.type_number))
    largest = int(np.argmax(np.linalg.norm(weights, axis=1)))
    with target.open("r+b") as file:
        file.seek(tensor.start + largest * size)
        file.write(bytes(size))
    return target


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reference(demo_model: Path, scratch: Path) -> Reference:
    async with serving(variant(demo_model, "F16", scratch), scratch) as target:
        recorded = await record_reference(target, PROMPTS, SETTINGS, model="F16")
    return Reference.from_bytes(recorded.to_bytes())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def floor(demo_model: Path, scratch: Path, reference: Reference) -> Divergence:
    async with serving(variant(demo_model, "F16", scratch), scratch) as target:
        return await compare(target, reference, SETTINGS)


async def test_the_reference_hardly_differs_from_itself_after_a_restart(floor: Divergence) -> None:
    assert floor.positions >= 20
    assert floor.mean_kld < 1e-4
    assert floor.top1 == 1.0


async def test_eight_bits_stay_near_and_four_bits_go_further(
    demo_model: Path, scratch: Path, reference: Reference, floor: Divergence
) -> None:
    async with serving(variant(demo_model, "Q8_0", scratch), scratch) as target:
        eight = await compare(target, reference, SETTINGS)
    async with serving(variant(demo_model, "Q4_0", scratch), scratch) as target:
        four = await compare(target, reference, SETTINGS)
    assert 10 * floor.mean_kld < eight.mean_kld < 0.02
    assert judge_quality(eight, floor, BALANCED).outcome is not Outcome.FAIL
    assert four.mean_kld > 5 * eight.mean_kld
    assert four.perplexity_ratio > eight.perplexity_ratio
    # Plain 4-bit rounding, without an importance matrix, of a model this small: it loses its answers, and fails.
    assert judge_quality(four, floor, STRICT).outcome is Outcome.FAIL


async def test_a_few_zeroed_blocks_fail_both_presets(
    demo_model: Path, scratch: Path, reference: Reference, floor: Divergence
) -> None:
    model = damaged(variant(demo_model, "Q8_0", scratch), scratch / "damaged.gguf")
    try:
        async with serving(model, scratch) as target:
            found = await compare(target, reference, SETTINGS)
    finally:
        model.unlink()
    for limits in (STRICT, BALANCED):
        verdict = judge_quality(found, floor, limits)
        assert (verdict.outcome, verdict.code) == (Outcome.FAIL, "QualityTooLow"), verdict.reason


async def test_a_damaged_file_is_asked_about_anew(demo_model: Path, scratch: Path) -> None:
    sound = variant(demo_model, "Q8_0", scratch)
    known = read_facts(sound)
    model = damaged(sound, scratch / "damaged.gguf")
    try:
        found = read_facts(model)
    finally:
        model.unlink()
    assert replace(found, identity="", path="") == replace(known, identity="", path="")
    assert found.identity != known.identity


async def test_another_model_is_refused_before_anything_is_compared(scratch: Path, reference: Reference) -> None:
    other = write_tiny_model(scratch / "other.gguf", kv_heads=2)
    async with serving(other, scratch) as target:
        with pytest.raises(OtherModelError, match="another model"):
            await compare(target, reference, SETTINGS)
