"""Why nothing can keep the promise, and what it would take."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from slotune.diagnose.binding import binding_constraint, with_binding
from slotune.llama.candidate import Candidate
from slotune.llama.failures import FailureClass
from slotune.load.demand import Demand, SyntheticPrompts
from slotune.load.summary import Attribution, IdleProbe, Latencies
from slotune.search.decision import Decision, DecisionKind
from slotune.search.noticed import Noticed
from slotune.search.problem import Hardware, Problem, Pruned
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.promise import Promise
from slotune.verdict.verdicts import Outcome, Verdict
from tests.simulator import measure, model_8b, space_384

CANDIDATE = Candidate("Q8_0", "l4", 8, 8192, cache_prompt=False)
PROBLEM = Problem(
    name="rag-long",
    promise=Promise(ttft_s=1.0, tokens_per_second_per_user=30),
    demand=Demand(6.0, 250, synthetic=SyntheticPrompts(4000), input_tokens_mean=4000, input_tokens_p95=4000),
    hardware={"l4": Hardware("l4", Decimal("0.80"), replicas_max=8)},
    models={"Q8_0": model_8b("Q8_0")},
    candidates=(CANDIDATE,),
    baseline=CANDIDATE,
)
FAST = IdleProbe(overhead_s=0.04, prefill_tokens_per_s=10_000, decode_step_s=0.01)


def result(
    rate: float = 0.75,
    *,
    p95: float | None = 1.7,
    speed: float | None = 40,
    probe: IdleProbe | None = FAST,
    parts: Attribution | None = None,
    outcome: Outcome = Outcome.FAIL,
    failure: FailureClass | None = None,
    violations: int = 50,
    purpose: Purpose = Purpose.SEARCH,
) -> TrialResult:
    verdict = Verdict(
        outcome, "the verdict's own reason", "Said", 0.95, 200, violations, ttft_p95_s=p95, tokens_per_second_p5=speed
    )
    return TrialResult(
        Trial(CANDIDATE, rate, purpose=purpose),
        verdict,
        60.0,
        failure=failure,
        probe=probe,
        latencies=Latencies(ttft_p95_s=p95, tokens_per_second_p5=speed),
        attribution=parts,
    )


def test_a_prompt_that_alone_takes_too_long_and_what_it_would_take() -> None:
    nearest = result(probe=replace(FAST, prefill_tokens_per_s=2500))
    code, sentence, found, entry = binding_constraint(PROBLEM, [nearest, result(p95=5.0, probe=None)])
    assert code == "TTFTPrefill"
    assert sentence == (
        "a prompt of 4,000 tokens alone takes 1.6 s to read here (2,500 tokens/s), you owe 1.0 s. It would take "
        "prompts of at most 2,400 uncached tokens, or a GPU that reads 4,200 tokens/s"
    )
    assert found is nearest
    assert entry is not None
    assert entry.id == "SLT024"


def test_the_fastest_probe_decides_whether_a_prompt_can_be_read_in_time() -> None:
    slow = result(probe=replace(FAST, prefill_tokens_per_s=2500), p95=3.0)
    fast = result(probe=FAST, parts=Attribution(1.3, 0.4, 0.0))
    assert binding_constraint(PROBLEM, [slow, fast])[0] != "TTFTPrefill"


def test_what_a_cache_can_save_need_not_be_read() -> None:
    shared = replace(PROBLEM, demand=replace(PROBLEM.demand, reusable_tokens=3000))
    caching = replace(shared, candidates=(replace(CANDIDATE, cache_prompt=True),))
    slow = [result(probe=replace(FAST, prefill_tokens_per_s=2500))]
    assert binding_constraint(shared, slow)[0] == "TTFTPrefill"
    assert binding_constraint(caching, slow)[0] != "TTFTPrefill"
    very_slow = [result(probe=replace(FAST, prefill_tokens_per_s=500))]
    code, sentence, *_ = binding_constraint(caching, very_slow)
    assert code == "TTFTPrefill"
    assert sentence is not None
    assert "a prompt of 1,000 uncached tokens alone takes 2.0 s" in sentence


def test_an_idle_server_that_answers_too_late() -> None:
    code, sentence, *_ = binding_constraint(PROBLEM, [result(probe=replace(FAST, overhead_s=1.2))])
    assert code == "TTFTOverhead"
    assert sentence == "an idle server answers after 1.2 s, you owe 1.0 s"


def test_a_user_who_is_alone_and_still_too_slow() -> None:
    code, sentence, *_ = binding_constraint(PROBLEM, [result(probe=replace(FAST, decode_step_s=0.05))])
    assert code == "TokensPerSecond"
    assert sentence == (
        "one user alone gets 20.0 tokens/s here (50 ms a token), you owe 30. It would take a model with at most 67 % "
        "of the bytes, or a GPU with 1.5 times the memory bandwidth"
    )


def test_a_queue_that_stays_even_on_all_replicas() -> None:
    queueing = result(parts=Attribution(1.3, 0.4, 0.0, busy_slots=7.9))
    code, sentence, *_ = binding_constraint(PROBLEM, [queueing])
    assert code == "TTFTQueue"
    assert sentence == (
        "even on 8 replicas (0.75 requests/s each) the nearest misses: queue 1.3 s of 1.7: 8 slots, all busy"
    )


def test_room_that_memory_does_not_leave_is_mentioned_with_the_queue() -> None:
    queueing = result(parts=Attribution(1.3, 0.4, 0.0))
    crowded = replace(PROBLEM, pruned=(Pruned(replace(CANDIDATE, parallel_slots=64), "DoesNotFit", "needs 40 GB"),))
    _, sentence, *_ = binding_constraint(crowded, [queueing])
    assert sentence is not None
    assert sentence.endswith("1 roomier configurations do not fit in memory")


def test_too_slow_under_load_only() -> None:
    code, sentence, *_ = binding_constraint(PROBLEM, [result(p95=0.5, speed=24, parts=Attribution(0.0, 0.4, 0.0))])
    assert code == "TokensPerSecond"
    assert sentence is not None
    assert "24 tok/s per user with 8 slots" in sentence


def test_without_a_cause_the_verdict_itself_is_quoted() -> None:
    code, sentence, *_ = binding_constraint(PROBLEM, [result(p95=0.9, speed=31)])
    assert code == "TTFTQueue"
    assert sentence is not None
    assert sentence.endswith("the nearest misses: the verdict's own reason")
    slow = binding_constraint(PROBLEM, [result(2.0, p95=0.9, speed=29.9, parts=None)])
    assert slow[0] == "TokensPerSecond"
    assert slow[1] is not None
    assert slow[1].startswith("on 3 of at most 8 replicas (2 requests/s each)")


def test_requests_that_were_refused_bind_before_the_wait_of_the_others() -> None:
    refused = Noticed("SLT031", "Warning", "Certain", "9 requests were refused", "log:9  request (9000 tokens) exceeds")
    code, sentence, _, entry = binding_constraint(PROBLEM, [replace(result(), noticed=(refused,))])
    assert code == "Context"
    assert sentence is not None
    assert sentence.endswith("the nearest misses: 9 requests were refused")
    assert entry is not None
    assert entry.id == "SLT031"


def test_a_server_that_took_the_cpu_cites_what_a_diagnosis_of_its_log_cites() -> None:
    words = "gpuLayers: asked for all, the server has 0: no usable GPU found"
    for reason, cited in ((words, "SLT001"), (words.replace("0: no usable GPU found", "9 of 33 layers"), "SLT002")):
        fell = result(failure=FailureClass.CPU_FALLBACK)
        fell = replace(fell, failure_knob="gpuLayers", verdict=replace(fell.verdict, reason=reason))
        entry = binding_constraint(PROBLEM, [fell]).entry
        assert entry is not None
        assert entry.id == cited


def test_nothing_that_starts_is_bound_by_what_stops_it() -> None:
    crashes = [result(failure=FailureClass.OUT_OF_MEMORY_KV, probe=None, p95=None) for _ in range(3)]
    code, sentence, nearest, _ = binding_constraint(PROBLEM, crashes)
    assert code == "Memory"
    assert sentence is not None
    assert sentence.startswith("no configuration could be measured: 3 of 3 tried ended in OutOfMemoryKV")
    assert nearest is None


@pytest.mark.parametrize(
    ("code", "want"), [("DoesNotFit", "Memory"), ("ContextTooSmall", "Context"), ("Other", "Other")]
)
def test_nothing_to_start_is_bound_by_what_rules_most_of_it_out(code: str, want: str) -> None:
    pruned = (*(Pruned(CANDIDATE, code, "because of that"),) * 3, Pruned(CANDIDATE, "DecodeFloor", "because"))
    found, sentence, nearest, _ = binding_constraint(replace(PROBLEM, candidates=(), pruned=pruned), [])
    assert found == want
    assert sentence is not None
    assert sentence.startswith("3 of 4 configurations")
    assert sentence.endswith("because of that")
    assert nearest is None


def test_nothing_known_binds_nothing() -> None:
    assert binding_constraint(PROBLEM, []) == (None, None, None, None)


def test_sentinels_and_invalid_trials_are_never_the_nearest() -> None:
    results = [
        result(p95=0.9, outcome=Outcome.INVALID),
        result(p95=0.9, outcome=Outcome.PASS, purpose=Purpose.SENTINEL),
        result(p95=3.0, parts=Attribution(2.0, 0.4, 0.0)),
    ]
    assert binding_constraint(PROBLEM, results)[2] is results[2]


def test_without_any_p95_the_fewest_violations_are_nearest() -> None:
    results = [result(p95=None, violations=count) for count in (90, 40, 70)]
    assert binding_constraint(PROBLEM, results)[2] is results[1]


def test_a_simulated_search_that_can_not_succeed_says_why() -> None:
    strict = replace(space_384(), promise=Promise(ttft_s=0.08))
    trials = [measure(Trial(candidate, 6.0 / 16), strict) for candidate in strict.candidates[::40]]
    code, sentence, nearest, _ = binding_constraint(strict, trials)
    assert code == "TTFTPrefill"
    assert sentence is not None
    assert "a prompt of 1,000 uncached tokens alone takes 0.10 s" in sentence
    assert nearest is not None


def test_a_decision_without_an_answer_cites_the_entry_that_says_more() -> None:
    queueing = result(parts=Attribution(1.3, 0.4, 0.0, busy_slots=7.9))
    none = Decision(DecisionKind.INFEASIBLE, "nothing keeps the promise")
    bound = with_binding(PROBLEM, [queueing], none)
    assert (bound.binding_constraint, bound.binding_finding) == ("TTFTQueue", "SLT050")
    assert bound.binding_reason is not None
    assert bound.binding_reason.endswith("8 slots, all busy (SLT050)")
    assert bound.nearest is queueing


def test_what_was_never_started_cites_nothing() -> None:
    pruned = (Pruned(CANDIDATE, "DoesNotFit", "because of that"),)
    none = Decision(DecisionKind.INFEASIBLE, "nothing keeps the promise")
    bound = with_binding(replace(PROBLEM, candidates=(), pruned=pruned), [], none)
    assert (bound.binding_constraint, bound.binding_finding) == ("Memory", None)


def test_a_search_that_found_its_answer_is_bound_by_nothing() -> None:
    found = Decision(DecisionKind.FOUND, "found")
    assert with_binding(PROBLEM, [result()], found) is found
