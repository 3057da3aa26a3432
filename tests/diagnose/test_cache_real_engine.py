"""A model that forgets the beginning of its prompts, on a real engine: the cache's shortfall is the window's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slotune.diagnose.cache import cache_shortfall
from slotune.llama.engine import find_engine
from slotune.load.demand import SyntheticPrompts
from slotune.sandbox.process_sandbox import ProcessSandbox
from slotune.search.trial import Trial
from tests.sandbox.worlds import QUICK, candidate, problem
from tests.tiny_models import write_tiny_model

pytestmark = pytest.mark.engine

RATE = 20.0
WINDOW = 32
HELD = 256
"""Tokens that the engine keeps of such a window with these batches; it overwrites the oldest when it needs room."""


@pytest.mark.parametrize(
    ("tokens", "shared", "code"),
    [
        pytest.param(HELD - 56, 120, None, id="prompts that fit beside the window"),
        pytest.param(HELD + 194, 150, "SlidingWindow", id="prompts that push their own beginning out"),
    ],
)
async def test_layers_that_forget_what_prompts_share_are_named_and_others_are_not(
    tokens: int, shared: int, code: str | None, tmp_path: Path
) -> None:
    model = write_tiny_model(tmp_path / "m.gguf", architecture="gemma3", window=WINDOW, window_pattern=2)
    one = candidate(context_per_slot=512, batch_size=64, ubatch_size=64)
    prompts = SyntheticPrompts(tokens, shared_prefix_tokens=shared)
    space = problem(model, one, rate=RATE, prompts=prompts, output_tokens=2, measurement=replace(QUICK, runs=1))
    sandbox = ProcessSandbox(space, find_engine("embedded"), {"only": model}, tmp_path)
    result = (await sandbox.measure(Trial(one, RATE, confidence=0.6), lambda _: None)).result
    assert result.cache is not None
    assert result.cache.measured_reuse is not None, "or nothing could have been found"
    found = cache_shortfall(result, space.models["only"])
    assert (None if found is None else found.code) == code, result.cache
