"""The worked example that the product is told with: five machines, then four, two and one."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from itertools import product

from slotune.llama.candidate import Candidate, KVType
from slotune.load.demand import Arrivals, Demand, SyntheticPrompts
from slotune.search.decision import Decision, DecisionKind, Rejection, Step
from slotune.search.problem import Hardware, Problem, Pruned
from slotune.search.trial import Purpose
from slotune.verdict.promise import Promise
from slotune.verdict.verdicts import Outcome
from tests.report.building import GIB, Sample, choice, model, trial_result

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
            "nothing among 432 candidates can be cheaper",
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
