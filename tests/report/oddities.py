"""Searches that try a report: other hardware, little evidence, hostile names, numbers that are none."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from slotune.llama.candidate import Candidate
from slotune.llama.failures import FailureClass
from slotune.load.demand import Demand, SyntheticPrompts
from slotune.load.summary import Attribution, Latencies
from slotune.search.decision import Decision, DecisionKind, Rejection, Step
from slotune.search.problem import Budget, Hardware, Measurement, Problem, Pruned
from slotune.search.trial import Purpose
from slotune.verdict.promise import Promise
from slotune.verdict.verdicts import Outcome
from tests.report.building import GIB, HOSTILE, Sample, choice, model, trial_result
from tests.report.worked import BASELINE, worked_example, worked_problem


def two_gpu_classes() -> Sample:
    """A cheaper class of GPU wins; prices differ, and one step moves to other hardware."""
    sample = worked_example()
    l4 = replace(sample.results[2].trial.candidate, gpu_class="l4")
    problem = replace(
        sample.problem,
        name="support-chat-eu",
        hardware={
            "a100-40g": Hardware("a100-40g", Decimal("2.00"), 40 * GIB, 1.6e12, currency="EUR"),
            "l4": Hardware("l4", Decimal("0.35"), 24 * GIB, 0.3e12, currency="EUR"),
        },
        candidates=(*sample.problem.candidates, l4),
    )
    passed = trial_result(
        l4, 2.0, Outcome.PASS, reason="kept for 990 of 1,000 requests", p95=0.88, tokens=33,
        split=(0.02, 0.3, 0.2, 0.004), violations=10, purpose=Purpose.CONFIRM, seed_block=1,
    )  # fmt: skip
    failed = trial_result(
        l4, 3.0, Outcome.FAIL, reason="51 of 90 requests were late, 50 are allowed of 1,000", p95=4.2, tokens=17,
        split=(2.2, 0.3, 0.9, 0.004), violations=51, requests=90,
    )  # fmt: skip
    decision = replace(
        sample.decision,
        choice=choice(problem, passed, 3, 1.0),
        today=choice(problem, sample.results[0], 5),
        steps=(*sample.decision.steps, Step("hardware", l4, 3, Decimal("766.50"), passed, ("gpu_class",))),
        rejections=(
            *(r for r in sample.decision.rejections),
            Rejection(sample.results[2].trial.candidate, "MoreExpensive", "one a100-40g costs more than three l4"),
        ),
    )
    return Sample(problem, decision, (*sample.results, failed, passed), sample.findings, sample.flags)


def demo_like() -> Sample:
    """A 135M model on two CPU cores with little evidence: what the demo measures."""
    baseline = Candidate("f16", "two-cores", 1, 2048, cache_prompt=False, threads=2)
    slots = replace(baseline, parallel_slots=4, context_per_slot=512, kv_unified=True)
    cached = replace(slots, cache_prompt=True)
    small = replace(cached, variant="q8-0")
    problem = Problem(
        name="demo",
        promise=Promise(0.5, 8.0, 0.1),
        demand=Demand(
            1.5, 24, synthetic=SyntheticPrompts(160, shared_prefix_tokens=120), input_tokens_mean=160,
            reusable_tokens=118,
        ),
        hardware={"two-cores": Hardware("two-cores", Decimal("0.096"), replicas_max=4)},
        models={"f16": model("F16", 0.27, 16), "q8-0": model("Q8_0", 0.145, 8.5), "q4-0": model("Q4_0", 0.08, 4.5)},
        candidates=(baseline, slots, cached, small, replace(small, variant="q4-0")),
        baseline=baseline,
        replicas_today=2,
        measurement=Measurement(0.8, 30, 2, 6, sentinel_every=0, drift_limit=0.15),
        budget=Budget(300, 12),
        context="demo",
    )  # fmt: skip
    results = (
        trial_result(
            baseline, 0.75, Outcome.FAIL, reason="9 of 22 requests were late, 3 are allowed of 60", p95=1.73,
            tokens=31.4, split=(0.61, 0.31, 0.04, 0.003), violations=9, requests=22, planned=60, confidence=0.8,
            purpose=Purpose.BASELINE, seconds=41,
        ),
        trial_result(
            small, 1.5, Outcome.PASS, reason="58 of 60 requests kept", p95=0.31, tokens=14.2,
            split=(0.012, 0.071, 0.09, 0.003), violations=2, requests=60, planned=60, confidence=0.8, cached=0.7,
            purpose=Purpose.CONFIRM, seed_block=1, seconds=52,
        ),
        trial_result(
            slots, 0.75, Outcome.INCONCLUSIVE, reason="4 of 60 requests were late: too close to call", p95=0.55,
            tokens=18.1, split=(0.05, 0.31, 0.07, 0.003), violations=4, requests=60, planned=60, confidence=0.8,
            purpose=Purpose.EXPLAIN, seconds=84,
        ),
        trial_result(
            cached, 0.75, Outcome.PASS, reason="60 of 60 requests kept", p95=0.22, tokens=19.9,
            split=(0.01, 0.08, 0.05, 0.003), violations=0, requests=60, planned=60, confidence=0.8, cached=0.72,
            purpose=Purpose.EXPLAIN, seconds=84,
        ),
    )  # fmt: skip
    decision = Decision(
        DecisionKind.FOUND,
        "1 × two-cores with 4 slots, prefix cache and Q8_0 keeps the promise.",
        choice=choice(problem, results[1], 1),
        today=choice(problem, results[0], 2),
        baseline_result=results[0],
        steps=(
            Step("baseline", baseline, None, None, results[0], kept=False),
            Step("queue", slots, None, None, results[2], ("parallel_slots",), kept=False, note="Too close to call."),
            Step("cache", cached, 2, Decimal("140.16"), results[3], ("cache_prompt",)),
            Step("bytes", small, 1, Decimal("70.08"), results[1], ("variant",)),
        ),
        rejections=(
            Rejection(baseline, "TooManyViolations", "9 of 22 requests were late", 0.75),
            Rejection(slots, "TooClose", "4 of 60 requests were late", 0.75, undecided=True),
            Rejection(cached, "MoreExpensive", "needs 2 machines", 0.75),
            Rejection(problem.candidates[4], "MoreLossy", "costs as much and changes answers more"),
        ),
        cost_gap=Decimal(0),
        considered=5,
        confidence=0.8,
        gpu_seconds=261,
        trials=4,
        proved=("No declared configuration needs fewer than 1 machine.",),
    )
    flags = ("-m", "SmolLM2-135M-Instruct.Q8_0.gguf", "-np", "4", "-c", "2048", "-kvu", "-t", "2", "-tb", "2")
    return Sample(problem, decision, results, {}, flags, {"Engine": "llama.cpp b11549, embedded."})


def hostile() -> Sample:
    """Every name and sentence that a user controls tries to break out of the page."""
    sample = worked_example()
    base = replace(
        BASELINE, variant=HOSTILE, gpu_class=HOSTILE, speculation=HOSTILE, extra_args=("--api-key", "top-secret")
    )
    winner = replace(base, parallel_slots=16, variant=HOSTILE + "2", cache_type_k=HOSTILE, cache_type_v=HOSTILE)
    problem = replace(
        sample.problem,
        name=HOSTILE,
        hardware={HOSTILE: Hardware(HOSTILE, Decimal(2), 40 * GIB, currency=HOSTILE)},
        models={HOSTILE: model(HOSTILE, 16, 16)},
        candidates=(base, winner),
        baseline=base,
        pruned=(Pruned(replace(base, parallel_slots=2), HOSTILE, HOSTILE),),
    )
    bad = trial_result(
        base, 1.2, Outcome.FAIL, reason=HOSTILE, code=HOSTILE, p95=2.8, tokens=98, split=(1.4, 0.4, 0.1, 0.0),
        warnings=(HOSTILE,),
    )  # fmt: skip
    good = trial_result(winner, 6.0, Outcome.PASS, reason=HOSTILE, p95=0.6, tokens=44, split=(0.1, 0.3, 0.1, 0.0))
    good = replace(good, effective=((HOSTILE, HOSTILE), ("build", HOSTILE)))
    decision = Decision(
        DecisionKind.FOUND,
        HOSTILE,
        choice=choice(problem, good, 1),
        today=choice(problem, bad, 5),
        baseline_result=bad,
        steps=(
            Step("baseline", base, 5, Decimal(7300), bad, kept=False, note=HOSTILE),
            Step(HOSTILE, winner, 1, Decimal(1460), good, (HOSTILE,), note=HOSTILE),
        ),
        rejections=(Rejection(base, HOSTILE, HOSTILE, 1.2, undecided=True),),
        binding_constraint=HOSTILE,
        binding_reason=HOSTILE,
        nearest=bad,
        cost_gap=Decimal(1),
        considered=3,
        confidence=0.95,
        proved=(HOSTILE,),
        not_proved=(HOSTILE,),
    )
    return Sample(
        problem, decision, (bad, good), {bad.trial.key("digest"): (HOSTILE,)}, ("-m", HOSTILE), {HOSTILE: HOSTILE}
    )


def without_numbers() -> Sample:
    """A search whose trials never answered: no latency, no split, and numbers that are none."""
    nothing = Latencies(
        ttft_p50_s=float("nan"), ttft_p95_s=float("inf"), tokens_per_second_p5=float("inf"),
        ttft_quantiles_s=(float("nan"),) * 101,
    )  # fmt: skip
    problem = worked_problem()
    crashed = trial_result(
        BASELINE, 1.2, Outcome.FAIL, reason="the server ran out of memory for the KV cache", code="OutOfMemoryKV",
        requests=0, failure=FailureClass.OUT_OF_MEMORY_KV,
    )  # fmt: skip
    winner = replace(BASELINE, parallel_slots=16)
    odd = replace(
        trial_result(winner, 6.0, Outcome.PASS, reason="kept"),
        latencies=nothing,
        attribution=Attribution(float("nan"), 0.0, -0.0, float("inf")),
        probe=None,
        gpu_seconds=float("nan"),
    )
    odd = replace(odd, verdict=replace(odd.verdict, ttft_p95_s=float("nan"), tokens_per_second_p5=float("inf")))
    decision = Decision(
        DecisionKind.FOUND,
        "kept",
        choice=replace(choice(problem, odd, 1), cost_per_million_output_tokens=None, headroom=float("nan")),
        baseline_result=crashed,
        rejections=(Rejection(BASELINE, "OutOfMemoryKV", "ran out of memory", 1.2),),
        gpu_seconds=float("nan"),
    )
    return Sample(problem, decision, (crashed, odd))
