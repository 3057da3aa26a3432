"""Decisions to write reports about: the worked example that the product is told with, and every other end of a search.

Each function returns a fresh ``Sample``. Numbers of the worked example are the product's own story
(five machines, then four, two and one); the rest is made up so that each kind of decision has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import pairwise, product

from slotune.llama.candidate import Candidate, KVType
from slotune.llama.failures import FailureClass
from slotune.llama.model_facts import LayerCache, ModelFacts
from slotune.load.demand import Arrivals, Demand, SyntheticPrompts
from slotune.load.summary import Attribution, IdleProbe, Latencies
from slotune.search.decision import Choice, Decision, DecisionKind, Rejection, Step, monthly_cost
from slotune.search.problem import Budget, Hardware, Measurement, Problem, Pruned
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.promise import Promise
from slotune.verdict.verdicts import Outcome, Verdict

GIB = 1024**3
HOSTILE = "<script>alert('x')</script>\"&<b>"


@dataclass(frozen=True)
class Sample:
    """A search that ended."""

    problem: Problem
    decision: Decision
    results: tuple[TrialResult, ...]
    findings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def model(name: str, gigabytes: float, bits: float) -> ModelFacts:
    """An 8B model: 32 layers, 8 key-value heads of 128."""
    weights = int(gigabytes * 1e9)
    return ModelFacts(
        path=f"/models/secret-place/{name}.gguf",
        file_bytes=weights,
        identity=f"id-{name}",
        architecture="llama",
        quantization=name,
        context_length=131072,
        vocabulary=128256,
        embedding=4096,
        heads=32,
        layers=(LayerCache(1024, 1024),) * 32,
        weights_bytes=weights,
        active_weights_bytes=weights,
        bits_per_weight=bits,
    )


def quantiles(p50: float, p95: float, p99: float) -> tuple[float, ...]:
    """101 TTFT quantiles through the given points, rising slowly at first."""
    points = [(0, p50 * 0.45), (50, p50), (95, p95), (99, p99), (100, p99 * 1.15)]
    values = []
    for percent in range(101):
        (low, a), (high, b) = next((p, q) for p, q in pairwise(points) if p[0] <= percent <= q[0])
        share = (percent - low) / (high - low)
        values.append(a + (b - a) * share**1.3)
    return tuple(values)


def trial_result(
    candidate: Candidate,
    rate: float,
    outcome: Outcome,
    *,
    reason: str,
    code: str = "",
    p95: float | None = None,
    tokens: float | None = None,
    split: tuple[float, float, float, float] | None = None,
    violations: int = 0,
    requests: int = 1000,
    planned: int = 1000,
    confidence: float = 0.95,
    purpose: Purpose = Purpose.SEARCH,
    seed_block: int = 0,
    seconds: float = 300.0,
    cached: float | None = None,
    failure: FailureClass | None = None,
    warnings: tuple[str, ...] = (),
) -> TrialResult:
    """A result with plausible latencies around ``p95``; ``split`` is queue, prefill, contention, overhead."""
    latencies = Latencies()
    if p95 is not None:
        latencies = Latencies(
            ttft_p50_s=p95 * 0.62,
            ttft_p95_s=p95,
            ttft_p99_s=p95 * 1.2,
            tokens_per_second_p5=tokens,
            tokens_per_second_p50=None if tokens is None else tokens * 1.2,
            longest_gap_p99_s=0.1,
            ttft_quantiles_s=quantiles(p95 * 0.62, p95, p95 * 1.2),
            output_tokens_per_s=rate * 250,
            mean_output_tokens=250,
            mean_prompt_tokens=4000,
        )
    return TrialResult(
        trial=Trial(candidate, rate, seed_block=seed_block, confidence=confidence, purpose=purpose),
        verdict=Verdict(
            outcome,
            reason,
            code or {"Pass": "PromiseKept", "Fail": "TooManyViolations"}.get(outcome.value, "TooClose"),
            confidence,
            requests=requests,
            violations=violations,
            effective_requests=requests * 0.7 if requests else None,
            share_upper=0.04 if outcome is Outcome.PASS else None,
            run_share_upper=0.042 if outcome is Outcome.PASS else None,
            ttft_p95_s=p95,
            ttft_p95_upper_s=None if p95 is None or outcome is not Outcome.PASS else p95 * 1.14,
            tokens_per_second_p5=tokens,
        ),
        gpu_seconds=seconds,
        failure=failure,
        probe=IdleProbe(0.004, 10_000, 0.0102),
        latencies=latencies,
        attribution=None if split is None else Attribution(*split, cached_share=cached, busy_slots=6.0),
        planned_requests=planned,
        run_violation_shares=(0.01, 0.02, 0.02, 0.03, 0.01),
        memory_bytes=18 * GIB,
        effective=(("build_info", "b11549-8f2c1d0"), ("total_slots", str(candidate.parallel_slots))),
        warnings=warnings,
        log_tail=("a log line that must stay out of reports",),
        trace_hashes=("3f9a", "77c0"),
        started_at="2026-02-03T10:00:00Z",
    )


def choice(problem: Problem, result: TrialResult, replicas: int, headroom: float = 1.0) -> Choice:
    """``result`` as a choice, with both costs worked out."""
    price = problem.hardware[result.trial.candidate.gpu_class].price_per_hour
    tokens_per_hour = Decimal(str(problem.demand.peak_rate)) * problem.demand.output_tokens * 3600
    return Choice(
        result.trial.candidate,
        replicas,
        monthly_cost(replicas, price),
        price * replicas / tokens_per_hour * 1_000_000,
        result,
        headroom,
    )


BASELINE = Candidate("BF16", "a100-40g", parallel_slots=8, context_per_slot=8192, cache_prompt=False)


def worked_problem() -> Problem:
    """8B in BF16 on five machines at $2 an hour, 6 requests/s of 4,000 tokens in and 250 out."""
    kv_types: tuple[KVType, ...] = ("f16", "q8_0", "q4_0")
    space = [
        replace(
            BASELINE,
            variant=variant,
            parallel_slots=slots,
            batch_size=batch,
            cache_type_k=kv,
            cache_type_v=kv,
            cache_prompt=cache,
        )
        for variant, slots, batch, kv, cache in product(
            ("BF16", "Q8_0", "Q4_K_M"), (4, 8, 12, 16, 24, 32), (512, 1024, 2048, 4096), kv_types, (False, True)
        )
    ]
    pruned = tuple(
        Pruned(c, "DoesNotFit", f"needs {16 + c.parallel_slots} GiB of 40 GiB")
        for c in space
        if c.variant == "BF16" and c.parallel_slots >= 24 and c.cache_type_k == "f16"
    )
    floor = tuple(
        Pruned(c, "DecodeFloor", "one token takes 36 ms with 32 slots full, 33 ms are owed")
        for c in space
        if c.variant == "BF16" and c.parallel_slots == 32 and c.cache_type_k != "f16"
    )
    return Problem(
        name="support-chat",
        promise=Promise(ttft_s=1.0, tokens_per_second_per_user=30.0),
        demand=Demand(
            peak_rate=6.0,
            output_tokens=250,
            arrivals=Arrivals("poisson"),
            synthetic=SyntheticPrompts(4000, shared_prefix_tokens=3000, prefix_groups=8),
            identity="demand-digest",
            input_tokens_mean=4000,
            input_tokens_p95=4600,
            input_tokens_max=4800,
            reusable_tokens=3000,
        ),
        hardware={"a100-40g": Hardware("a100-40g", Decimal("2.00"), 40 * GIB, 1.6e12)},
        models={"BF16": model("BF16", 16, 16), "Q8_0": model("Q8_0", 8.5, 8.5), "Q4_K_M": model("Q4_K_M", 4.9, 4.85)},
        candidates=tuple(c for c in space if c not in {p.candidate for p in pruned + floor}),
        baseline=BASELINE,
        replicas_today=5,
        pruned=pruned + floor,
        context="digest",
    )


def worked_example() -> Sample:
    """The story: today misses; queue, cache and bytes bring five machines down to one."""
    problem = worked_problem()
    queue = replace(BASELINE, parallel_slots=16)
    cache = replace(queue, cache_prompt=True)
    smaller = replace(cache, variant="Q8_0", cache_type_k="q8_0", cache_type_v="q8_0")
    tight = replace(smaller, parallel_slots=8)
    kept = "kept for 986 of 1,000 requests; at most 4 % can be late, 5 % are allowed"
    today = trial_result(
        BASELINE,
        1.2,
        Outcome.FAIL,
        reason="51 of 64 requests were late, 50 are allowed of 1,000",
        p95=2.8,
        tokens=98,
        split=(1.42, 0.4, 0.06, 0.004),
        violations=51,
        requests=64,
        purpose=Purpose.BASELINE,
        seconds=140,
    )
    results = (
        today,
        trial_result(
            smaller, 6.0, Outcome.PASS, reason=kept, p95=0.62, tokens=44, split=(0.03, 0.1, 0.21, 0.004),
            violations=14, cached=0.74, seconds=320,
        ),
        trial_result(
            smaller, 6.0, Outcome.PASS, reason=kept, p95=0.64, tokens=43, split=(0.03, 0.1, 0.22, 0.004),
            violations=15, cached=0.74, seed_block=1, purpose=Purpose.CONFIRM, seconds=318,
        ),
        trial_result(
            tight, 6.0, Outcome.FAIL, reason="52 of 210 requests were late, 50 are allowed of 1,000", p95=1.9,
            tokens=61, split=(0.9, 0.1, 0.1, 0.004), violations=52, requests=210, cached=0.7, seconds=95,
        ),
        trial_result(
            queue, 2.0, Outcome.FAIL, reason="51 of 300 requests were late, 50 are allowed of 1,000", p95=1.34,
            tokens=52, split=(0.12, 0.4, 0.35, 0.004), violations=51, requests=300, purpose=Purpose.EXPLAIN,
            seconds=190,
        ),
        trial_result(
            queue, 1.5, Outcome.PASS, reason=kept, p95=0.94, tokens=61, split=(0.05, 0.4, 0.17, 0.004),
            violations=21, purpose=Purpose.EXPLAIN, seconds=700,
        ),
        trial_result(
            cache, 6.0, Outcome.FAIL, reason="55 of 120 requests were too slow, 50 are allowed of 1,000", p95=1.6,
            tokens=21, split=(0.5, 0.1, 0.4, 0.004), violations=55, requests=120, cached=0.71,
            purpose=Purpose.EXPLAIN, seconds=60,
        ),
        trial_result(
            cache, 3.0, Outcome.PASS, reason=kept, p95=0.7, tokens=42, split=(0.04, 0.1, 0.2, 0.004),
            violations=12, cached=0.73, purpose=Purpose.EXPLAIN, seconds=430,
        ),
        trial_result(
            BASELINE, 1.2, Outcome.PASS, reason="the machine is as fast as at the start", requests=5, planned=5,
            purpose=Purpose.SENTINEL, seconds=20,
        ),
    )  # fmt: skip
    pruned = {p.candidate for p in problem.pruned}
    tried = {r.trial.candidate for r in results}
    rejections = [
        Rejection(BASELINE, "TooManyViolations", "51 of 64 requests were late at 1.2/s, 50 are allowed", 1.2),
        Rejection(queue, "MoreExpensive", "keeps the promise on 4 machines, the winner on 1", 1.5),
        Rejection(cache, "MoreExpensive", "keeps the promise on 2 machines, the winner on 1", 3.0),
        Rejection(tight, "TooManyViolations", "52 of 210 requests were late at 6/s, 50 are allowed", 6.0),
        *(
            Rejection(c, "NotCheaper", "can need no fewer machines than the winner, and changes answers no less")
            for c in problem.candidates
            if c not in pruned and c not in tried
        ),
    ]
    today_choice = choice(problem, today, 5)
    decision = Decision(
        kind=DecisionKind.FOUND,
        reason="1 × a100-40g with 16 slots, prefix cache and Q8_0 keeps the promise; nothing cheaper can.",
        choice=choice(problem, results[2], 1, 1.0),
        today=today_choice,
        baseline_result=today,
        steps=(
            Step("baseline", BASELINE, 5, Decimal("7300.00"), today, kept=False),
            Step("queue", queue, 4, Decimal("5840.00"), results[5], ("parallel_slots",)),
            Step("cache", cache, 2, Decimal("2920.00"), results[7], ("cache_prompt",)),
            Step("bytes", smaller, 1, Decimal("1460.00"), results[2], ("variant", "cache_type_k", "cache_type_v")),
        ),
        rejections=tuple(rejections),
        cost_gap=Decimal(0),
        considered=len(problem.candidates) + len(problem.pruned),
        confidence=0.95,
        gpu_seconds=sum(r.gpu_seconds for r in results),
        trials=len(results),
        proved=(
            "No declared configuration needs fewer than 1 machine.",
            "The winner kept the promise twice, on fresh starts and with fresh seeds.",
        ),
        not_proved=("How the winner behaves above 6 requests/s was not measured.",),
    )
    findings = {
        today.trial.key(problem.context): (
            "The queue is 1.4 s of 1.9 s: 8 slots, all busy.",
            "3,000 of 4,000 prompt tokens were read before and are read again.",
        ),
        results[3].trial.key(problem.context): ("The queue is 0.9 s of 1.1 s: 8 slots, all busy.",),
    }
    flags = (
        "-m", "/models/llama-8b.Q8_0.gguf", "-ngl", "all", "-fit", "off", "-np", "16", "-c", "131072", "-no-kvu",
        "-b", "2048", "-ub", "512", "-fa", "on", "-ctk", "q8_0", "-ctv", "q8_0", "--cache-prompt",
        "--cache-ram", "0", "--metrics", "--slots",
    )  # fmt: skip
    return Sample(problem, decision, results, findings, flags, {"Engine": "llama-server, build b11549 (CUDA)."})


def infeasible() -> Sample:
    """Reading one prompt alone takes longer than owed: nothing can keep the promise."""
    problem = replace(
        worked_problem(), name="rag-long", promise=Promise(0.25, 30.0), replicas_today=2, pruned=worked_problem().pruned
    )
    best = replace(BASELINE, variant="Q4_K_M", parallel_slots=16, batch_size=4096)
    results = (
        trial_result(
            BASELINE, 3.0, Outcome.FAIL, reason="51 of 51 requests were late, 50 are allowed of 1,000", p95=27.5,
            tokens=55, split=(21.0, 0.4, 0.4, 0.004), violations=51, requests=51, purpose=Purpose.BASELINE,
            seconds=70,
        ),
        trial_result(
            best, 0.75, Outcome.FAIL, reason="51 of 52 requests were late, 50 are allowed of 1,000", p95=0.46,
            tokens=72, split=(0.0, 0.4, 0.03, 0.004), violations=51, requests=52, seconds=88,
        ),
    )  # fmt: skip
    pruned = {p.candidate for p in problem.pruned}
    decision = Decision(
        kind=DecisionKind.INFEASIBLE,
        reason="It would take prompts of at most 2,400 uncached tokens, or a GPU that reads 16,000 tokens/s.",
        today=choice(problem, results[0], 2),
        baseline_result=results[0],
        rejections=(
            Rejection(BASELINE, "TooManyViolations", "51 of 51 requests were late at 3/s, 50 are allowed", 3.0),
            Rejection(best, "TooManyViolations", "51 of 52 requests were late at 0.75/s, 50 are allowed", 0.75),
            *(
                Rejection(c, "TTFTFloor", "a 4,000-token prompt alone takes 0.4 s to read, 0.25 s are owed")
                for c in problem.candidates
                if c not in pruned and c not in {BASELINE, best}
            ),
        ),
        binding_constraint="TTFTPrefill",
        binding_reason="A 4,000-token prompt alone takes 0.4 s to read here (10,000 tokens/s), you owe 0.25 s.",
        nearest=results[1],
        considered=len(problem.candidates) + len(problem.pruned),
        confidence=0.95,
        gpu_seconds=158,
        trials=2,
        proved=("No declared configuration can read a prompt in the time that is owed.",),
    )
    return Sample(problem, decision, results)


def budget_exhausted() -> Sample:
    """The budget ended with a confirmed answer and cheaper candidates still open."""
    sample = worked_example()
    cache_pass = sample.results[7]
    open_ones = [c for c in sample.problem.candidates if c.variant == "Q4_K_M"][:40]
    others = [r for r in sample.decision.rejections if r.candidate not in open_ones and "More" not in r.code]
    decision = replace(
        sample.decision,
        kind=DecisionKind.BUDGET_EXHAUSTED,
        reason="The budget of 30 GPU-minutes ended before every cheaper configuration was decided.",
        choice=choice(sample.problem, cache_pass, 2),
        steps=sample.decision.steps[:3],
        rejections=(
            *others,
            *(Rejection(c, "BudgetExhausted", "the budget ended before its turn", undecided=True) for c in open_ones),
        ),
        cost_gap=Decimal("1460.00"),
        proved=("2 × a100-40g keeps the promise.",),
        not_proved=("Whether 1 × a100-40g is enough: 40 candidates were not decided.",),
    )
    problem = replace(sample.problem, budget=Budget(1800, 12))
    return replace(sample, problem=problem, decision=decision, results=(sample.results[0], *sample.results[4:8]))


def inconclusive() -> Sample:
    """Too close to call at the requests that were allowed."""
    problem = replace(worked_problem(), candidates=(BASELINE,), pruned=(), replicas_today=5)
    result = trial_result(
        BASELINE, 1.2, Outcome.INCONCLUSIVE, reason="48 of 1,000 requests were late: too close to the 50 allowed",
        p95=0.99, tokens=41, split=(0.3, 0.4, 0.05, 0.004), violations=48, purpose=Purpose.BASELINE,
    )  # fmt: skip
    decision = Decision(
        kind=DecisionKind.INCONCLUSIVE,
        reason="One configuration is too close to the promise to be told apart with 1,000 requests.",
        today=choice(problem, result, 5),
        baseline_result=result,
        rejections=(Rejection(BASELINE, "TooClose", result.verdict.reason, 1.2, undecided=True),),
        nearest=result,
        considered=1,
        confidence=0.95,
        gpu_seconds=300,
        trials=1,
        not_proved=("Whether what runs today keeps the promise.",),
    )
    return Sample(problem, decision, (result,))


def invalid() -> Sample:
    """The client could not keep its schedule, so no number may be used."""
    problem = worked_problem()
    result = trial_result(
        BASELINE, 1.2, Outcome.INVALID, reason="the load client sent requests 42 ms late (p99), 10 ms are allowed",
        code="ClientLate", requests=0, warnings=("The client used 91 % of its CPU.",), purpose=Purpose.BASELINE,
    )  # fmt: skip
    decision = Decision(
        kind=DecisionKind.INVALID,
        reason="Two measurements in a row were at fault: the load client was late.",
        baseline_result=result,
        rejections=(Rejection(BASELINE, "ClientLate", result.verdict.reason, 1.2, undecided=True),),
        considered=len(problem.candidates) + len(problem.pruned),
        gpu_seconds=600,
        trials=2,
    )
    return Sample(problem, decision, (result, replace(result, trial=replace(result.trial, attempt=2))))


def nothing_measured() -> Sample:
    """No trial ever ran: everything was pruned."""
    problem = replace(worked_problem(), candidates=(BASELINE,), pruned=(Pruned(BASELINE, "DoesNotFit", "too big"),))
    decision = Decision(
        kind=DecisionKind.INFEASIBLE,
        reason="Nothing fits.",
        binding_constraint="Memory",
        binding_reason="The smallest configuration needs 48 GiB, the GPU has 40 GiB.",
        considered=1,
    )
    return Sample(problem, decision, ())


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
    good = replace(good, effective=((HOSTILE, HOSTILE), ("build_info", HOSTILE)))
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


ALL = {
    make.__name__: make
    for make in (
        worked_example,
        infeasible,
        budget_exhausted,
        inconclusive,
        invalid,
        nothing_measured,
        two_gpu_classes,
        demo_like,
        hostile,
        without_numbers,
    )
}
"""Every sample by name."""
