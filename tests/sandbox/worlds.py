"""Problems that one real server can be measured for within seconds."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from slotune.llama.candidate import Candidate
from slotune.llama.gguf_facts import read_facts
from slotune.load.demand import Demand, SyntheticPrompts
from slotune.load.estimates import with_estimates
from slotune.search.problem import Hardware, Measurement, Problem
from slotune.verdict.promise import Promise

QUICK = Measurement(
    confidence=0.6,
    requests_per_run=12,
    runs=2,
    warmup_requests=2,
    extensions=0,
    probe_requests=3,
    sentinel_every=0,
    request_timeout_s=30.0,
    startup_timeout_s=30.0,
)


def candidate(**settings: object) -> Candidate:
    """Two slots of 256 tokens on one thread."""
    stated: dict[str, object] = {
        "variant": "only",
        "gpu_class": "cpu",
        "parallel_slots": 2,
        "context_per_slot": 256,
        "batch_size": 256,
        "ubatch_size": 256,
        "threads": 1,
    }
    return Candidate(**(stated | settings))  # type: ignore[arg-type]  # a test's shorthand


def problem(
    model: Path,
    one: Candidate,
    *,
    rate: float = 2.0,
    ttft_s: float = 10.0,
    prompts: SyntheticPrompts | None = None,
    output_tokens: int = 8,
    measurement: Measurement = QUICK,
) -> Problem:
    """One candidate on one model file."""
    demand = Demand(peak_rate=rate, output_tokens=output_tokens, synthetic=prompts or SyntheticPrompts(32))
    return Problem(
        name="one",
        promise=Promise(ttft_s),
        demand=with_estimates(demand),
        hardware={"cpu": Hardware("cpu", Decimal("0.10"), is_gpu=False)},
        models={"only": read_facts(model)},
        candidates=(one,),
        baseline=one,
        measurement=measurement,
        context="test",
    )
