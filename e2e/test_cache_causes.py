"""What makes a cache serve too little is done to a real engine, and named from a trial's own measurement; a cache that
does what it can hears nothing."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from e2e.models import WEIGHTS
from slotune.diagnose.cache import cache_shortfall
from slotune.llama.candidate import Candidate
from slotune.llama.engine import find_engine
from slotune.llama.gguf_facts import read_facts
from slotune.load.demand import Arrivals, Demand, SyntheticPrompts
from slotune.load.estimates import with_estimates
from slotune.sandbox.process_sandbox import ProcessSandbox
from slotune.search.problem import Hardware, Measurement, Problem
from slotune.search.trial import Trial, TrialResult
from slotune.verdict.promise import Promise

pytestmark = pytest.mark.engine

RATE = 4.0
"""So slow, and so even, that a slot is free when the next prompt comes: which one is taken is what is looked at."""
QUICK = Measurement(
    confidence=0.5,
    requests_per_run=14,
    runs=1,
    warmup_requests=6,
    extensions=0,
    probe_requests=2,
    sentinel_every=0,
    request_timeout_s=60.0,
    startup_timeout_s=60.0,
)
"""What is asked is what the cache served, so a busy machine may be late with everything."""
ONE_HELD = 2
"""MiB of host cache in which one of these prompts has room (1.4 MiB each), not the four that wait."""


@dataclass(frozen=True)
class Case:
    """A server and its traffic."""

    groups: int
    settings: dict[str, Any]
    shared: int = 48
    tokens: int = 64
    rate: float = RATE


async def measured(case: Case, model: Path, home: Path) -> tuple[TrialResult, str | None]:
    """The trial, and the code of what its cache fell short by."""
    candidate = Candidate(
        **{
            "variant": "only",
            "gpu_class": "cpu",
            "parallel_slots": 2,
            "context_per_slot": 256,
            "batch_size": 256,
            "ubatch_size": 256,
            "threads": 1,
            **case.settings,
        }
    )
    prompts = SyntheticPrompts(
        case.tokens, shared_prefix_tokens=case.shared, prefix_groups=case.groups, zipf_exponent=0.0
    )
    problem = Problem(
        name="cache",
        promise=Promise(60.0),
        demand=with_estimates(Demand(case.rate, 2, arrivals=Arrivals("constant"), synthetic=prompts)),
        hardware={"cpu": Hardware("cpu", Decimal("0.10"), is_gpu=False)},
        models={"only": read_facts(model)},
        candidates=(candidate,),
        baseline=candidate,
        measurement=QUICK,
        context="test",
    )
    sandbox = ProcessSandbox(problem, find_engine("embedded"), {"only": model}, home)
    result = (await sandbox.measure(Trial(candidate, case.rate, confidence=0.5), lambda _: None)).result
    found = cache_shortfall(result, problem.models["only"])
    return result, None if found is None else found.code


FALLS_SHORT = {
    "PromptCacheOff": Case(groups=1, settings={"cache_prompt": False}),
    "SlotsFewerThanPrefixes": Case(groups=6, settings={}),
    "SlotSimilarity": Case(groups=4, settings={"parallel_slots": 4}, shared=9, tokens=120, rate=2.5),  # 8 % of 10 %
    "CacheRAMChurn": Case(groups=6, settings={"cache_ram_mib": ONE_HELD, "cache_idle_slots": True}),
}
DOES_WHAT_IT_CAN = {
    "as many slots as prefixes": Case(groups=4, settings={"parallel_slots": 4}),
    "few slots, and a host cache for the others": Case(groups=6, settings={"cache_ram_mib": 512}),
}


@pytest.mark.parametrize("code", FALLS_SHORT)
async def test_what_makes_a_cache_fall_short_is_named(code: str, weights: Path, tmp_path: Path) -> None:
    result, found = await measured(FALLS_SHORT[code], weights / WEIGHTS["Q4_0"], tmp_path)
    assert found == code, result.cache


@pytest.mark.parametrize("case", DOES_WHAT_IT_CAN.values(), ids=DOES_WHAT_IT_CAN)
async def test_a_cache_that_does_what_it_can_hears_nothing(case: Case, weights: Path, tmp_path: Path) -> None:
    result, found = await measured(case, weights / WEIGHTS["Q4_0"], tmp_path)
    assert result.cache is not None
    assert result.cache.measured_reuse is not None, "or nothing could have been found"
    assert found is None, result.cache
