"""Two problems that tests and benchmarks share: the worked example, and a space of 384 configurations."""

from __future__ import annotations

import itertools
from dataclasses import replace
from decimal import Decimal

from slotune.llama.candidate import Candidate
from slotune.llama.model_facts import LayerCache, ModelFacts
from slotune.load.demand import Demand, SyntheticPrompts
from slotune.search.problem import Budget, Hardware, Measurement, Problem, Pruned
from slotune.verdict.promise import Promise
from tests.simulator.machine import NO_CONTINUOUS_BATCHING, Machine, memory_needed
from tests.simulator.sandbox import machines_for

__all__ = ["WORKED_EXAMPLE_MACHINE", "WORKED_EXAMPLE_STEPS", "model_8b", "space_384", "worked_example"]

PROMISE = Promise(ttft_s=1.0, tokens_per_second_per_user=30)

BITS = {"BF16": 16.0, "Q8_0": 8.5, "Q5_K_M": 5.7, "Q4_K_M": 4.9}
GIGABYTES = {"BF16": 16.06, "Q8_0": 8.54, "Q5_K_M": 5.73, "Q4_K_M": 4.92}
"""Llama-3-8B files."""


def model_8b(quantization: str, gigabytes: float | None = None) -> ModelFacts:
    """An 8B model: 32 layers, 8 key-value heads of 128."""
    size = int((GIGABYTES[quantization] if gigabytes is None else gigabytes) * 1e9)
    return ModelFacts(
        path=f"/models/8b-{quantization}.gguf",
        file_bytes=size,
        identity=quantization,
        architecture="llama",
        quantization=quantization,
        context_length=131_072,
        vocabulary=128_256,
        embedding=4096,
        heads=32,
        layers=(LayerCache(key_elements=1024, value_elements=1024),) * 32,
        weights_bytes=size,
        active_weights_bytes=size,
        bits_per_weight=BITS[quantization],
    )


def demand(peak_rate: float, shared_prefix_tokens: int) -> Demand:
    """4,000 tokens in, 250 out; one prefix that all prompts share."""
    return Demand(
        peak_rate=peak_rate,
        output_tokens=250,
        synthetic=SyntheticPrompts(4000, shared_prefix_tokens=shared_prefix_tokens),
        input_tokens_mean=4000,
        input_tokens_p95=4000,
        input_tokens_max=4000,
        reusable_tokens=shared_prefix_tokens,
        identity=f"4000/250, {shared_prefix_tokens} shared",
    )


def space_384(*, shared_prefix_tokens: int = 3000, measurement: Measurement | None = None) -> Problem:
    """4 quantizations × 6 slot counts × 4 batch sizes × 2 KV types × cache on or off on a 24 GB GPU.

    272 fit. All use a unified pool, for which one step reads the weights once, so that
    :func:`tests.simulator.machine.capacity_at_most` is the exact form of the search's bound.
    """
    gpu = "gpu-24g"
    candidates = tuple(
        Candidate(
            variant=variant,
            gpu_class=gpu,
            parallel_slots=slots,
            context_per_slot=8192,
            kv_unified=True,
            batch_size=batch,
            cache_type_k=kv,
            cache_type_v=kv,
            cache_prompt=cache,
        )
        for variant, slots, batch, kv, cache in itertools.product(
            BITS, (1, 2, 4, 8, 16, 32), (512, 1024, 2048, 4096), ("f16", "q8_0"), (False, True)
        )
    )
    models = {name: model_8b(name) for name in BITS}
    hardware = Hardware(
        gpu, Decimal("2.00"), memory_bytes=24_000_000_000, bandwidth_bytes_per_s=1.6e12, replicas_max=16
    )
    baseline = replace(candidates[0], parallel_slots=4, batch_size=2048)
    problem = Problem(
        name="space-384",
        promise=PROMISE,
        demand=demand(6.0, shared_prefix_tokens),
        hardware={gpu: hardware},
        models=models,
        candidates=candidates,
        baseline=baseline,
        replicas_today=5,
        measurement=measurement or Measurement(sentinel_every=0),
        budget=Budget(gpu_seconds=1e9, trials=100_000),
        explain=False,
        context="space-384",
    )
    machine = machines_for(problem)[gpu]
    fitting = tuple(c for c in candidates if machine.fits(models[c.variant], c))
    return replace(
        problem,
        candidates=fitting,
        pruned=tuple(
            Pruned(c, "DoesNotFit", f"needs {memory_needed(models[c.variant], c, machine) / 1e9:.1f} GB of 24 GB")
            for c in candidates
            if c not in set(fitting)
        ),
        memory_bytes={c: memory_needed(models[c.variant], c, machine) for c in fitting},
    )


WORKED_EXAMPLE_MACHINE = Machine(
    bandwidth_bytes_per_s=2.04e12,
    prefill_tokens_per_s=10_000,
    memory_bytes=80_000_000_000,
    step_overhead_s=0.0002,
)
"""A step of 8 sequences of the BF16 model takes 10.2 ms, a 4,000-token prompt 0.4 s."""

_BASELINE = Candidate(
    variant="BF16",
    gpu_class="gpu-80g",
    parallel_slots=8,
    context_per_slot=8192,
    kv_unified=True,
    cache_prompt=False,
    extra_args=(NO_CONTINUOUS_BATCHING,),
)
_QUEUE = replace(_BASELINE, parallel_slots=16, extra_args=())
_CACHE = replace(_QUEUE, cache_prompt=True)
_BYTES = replace(_CACHE, variant="Q4_K_M", cache_type_k="q8_0", cache_type_v="q8_0", parallel_slots=32)

WORKED_EXAMPLE_STEPS = {"baseline": _BASELINE, "queue": _QUEUE, "cache": _CACHE, "bytes": _BYTES}
"""A static batch of 8; then slots, then the prompt cache, then smaller weights and KV. Each keeps the ones before.

The last step has twice the slots: only small KV leaves the memory for them.
"""


def worked_example(*, shared_prefix_tokens: int = 3500) -> Problem:
    """The worked example as a problem of four candidates."""
    gpu = "gpu-80g"
    return Problem(
        name="worked-example",
        promise=PROMISE,
        demand=demand(6.0, shared_prefix_tokens),
        hardware={gpu: Hardware(gpu, Decimal("2.00"), 80_000_000_000, 2.04e12, replicas_max=12)},
        models={"BF16": model_8b("BF16", 16.0), "Q4_K_M": model_8b("Q4_K_M")},
        candidates=tuple(WORKED_EXAMPLE_STEPS.values()),
        baseline=_BASELINE,
        replicas_today=5,
        # Each of 32 slots reads the shared prefix once before the cache works, and that is no part of a steady state.
        measurement=Measurement(sentinel_every=0, warmup_requests=200),
        context="worked-example",
    )
