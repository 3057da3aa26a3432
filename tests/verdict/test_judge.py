"""Runs in, verdict out: what is claimed was shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from slotune.load.records import RequestRecord, RequestStatus, RunResult
from slotune.verdict.judge import judge
from slotune.verdict.promise import Promise
from slotune.verdict.verdicts import Outcome, Verdict
from tests.verdict.builders import PROMISE, record, run, run_of_marks, runs_of_counts

LATE_CLIENT = ("ClientLate", "the client sent 3 % of requests more than 10 ms late")
LITTLE = ("LittlesLaw", "requests were in flight for 31 s in all but their records say 25 s")


def judged(runs: Sequence[RunResult], *, planned: int = 1000, confidence: float = 0.95, looks: int = 1) -> Verdict:
    return judge(runs, PROMISE, confidence=confidence, planned_requests=planned, looks=looks)


def test_few_violations_in_all_planned_requests_pass() -> None:
    verdict = judged(runs_of_counts([4, 5, 3, 4, 4]))
    assert (verdict.outcome, verdict.code) == (Outcome.PASS, "PromiseKept")
    assert (verdict.requests, verdict.violations, verdict.effective_requests) == (1000, 20, 1000)
    assert verdict.share_upper == pytest.approx(0.0289, abs=1e-4)
    assert verdict.run_share_upper == pytest.approx(0.0234, abs=1e-4)
    assert verdict.reason == (
        "20 of 1,000 requests were late; at 95 % confidence at most 2.9 % of all miss the promise, 5 % may"
    )


def test_a_kept_point_estimate_is_not_enough() -> None:
    verdict = judged(runs_of_counts([9, 9, 9, 9, 9]))
    assert (verdict.outcome, verdict.code) == (Outcome.INCONCLUSIVE, "NeitherShown")
    assert verdict.reason == (
        "45 of 1,000 requests were late; at 95 % confidence between 3.5 % and 5.7 % of all miss the promise, 5 % may: "
        "neither kept nor broken is shown"
    )


def test_runs_that_differ_too_much_do_not_pass() -> None:
    verdict = judged(runs_of_counts([0, 0, 0, 0, 20]))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.run_share_upper is not None
    assert verdict.run_share_upper > 0.05


def test_clustered_violations_do_not_pass_where_scattered_ones_do() -> None:
    clustered = [run_of_marks(90 <= i < 95 for i in range(200)) for _ in range(5)]
    scattered = runs_of_counts([5] * 5)
    assert judged(scattered).outcome is Outcome.PASS
    verdict = judged(clustered)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "came in clusters" in verdict.reason
    assert verdict.effective_requests is not None
    assert verdict.effective_requests < 400


def test_queues_that_almost_broke_the_promise_show_how_violations_would_cluster() -> None:
    def judged_with(slow: Callable[[int], bool]) -> Verdict:
        return judged([run([record(i, ttft=0.9 if slow(i) else 0.3 + i / 1e4) for i in range(200)]) for _ in range(5)])

    apart, together = judged_with(lambda i: i % 20 == 10), judged_with(lambda i: 90 <= i < 100)
    assert apart.violations == together.violations == 0
    assert apart.effective_requests == pytest.approx(1000)
    assert together.effective_requests is not None
    assert together.effective_requests < 200


def test_many_violations_fail() -> None:
    verdict = judged(runs_of_counts([14, 13, 15, 12, 16]))
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, "TooManyViolations")
    assert verdict.reason == "70 of 1,000 requests were late; a pass allows 38 of 1,000"


def test_an_early_stop_is_a_fail_when_so_many_would_be_a_rare_accident() -> None:
    verdict = judged([run_of_marks([False] * 2 + [True] * 5 + [False] + [True] * 4, stopped=True)], planned=200)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.reason == "9 of the first 12 requests were late; a pass allows 4 of 200"


def test_an_early_stop_is_inconclusive_when_they_would_not() -> None:
    marks = [i % 20 == 19 for i in range(100)]
    verdict = judged([run_of_marks(marks, stopped=True)], planned=200)
    assert (verdict.outcome, verdict.code) == (Outcome.INCONCLUSIVE, "NeitherShown")
    assert "5 of the first 100 requests were late" in verdict.reason
    assert "a pass is out of reach" in verdict.reason


def test_an_early_stop_never_passes() -> None:
    verdict = judged([run_of_marks([False] * 1000), run_of_marks([False] * 1000, stopped=True)])
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "it was stopped before its end" in verdict.reason


def test_requests_that_were_cut_off_dilute_the_evidence_for_a_fail() -> None:
    known = [record(i, ttft=2.0) for i in range(0, 40, 8)]  # 5 late ones among 33 that were sent
    verdict = judged([run(known, stopped=True)], planned=200)
    assert (verdict.requests, verdict.violations) == (33, 5)
    assert verdict.reason.startswith("5 of the first 33 requests were late")


def test_a_short_run_may_fail_but_not_pass() -> None:
    assert judged([run_of_marks([False] * 58), run_of_marks([])], planned=58).code == "TooFewRequests"
    assert judged([run_of_marks([True] * 10)], planned=58).outcome is Outcome.FAIL


def test_fewer_requests_than_planned_do_not_pass() -> None:
    verdict = judged(runs_of_counts([1, 1, 1]))
    assert (verdict.outcome, verdict.code) == (Outcome.INCONCLUSIVE, "TooFewRequests")
    assert verdict.reason == "3 of 600 requests were late, but a pass needs all 1,000"


def test_a_single_run_does_not_pass() -> None:
    verdict = judged(runs_of_counts([5], 1000))
    assert (verdict.outcome, verdict.code) == (Outcome.INCONCLUSIVE, "TooFewRequests")
    assert "at least 2 runs" in verdict.reason


def test_a_second_look_must_be_paid_for() -> None:
    # At 95 % 38 of 1,000 scattered violations just pass; two looks at 97.5 % each want fewer.
    runs = runs_of_counts([7, 8, 7, 8, 8])
    assert judged(runs).outcome is Outcome.PASS
    assert judged(runs, looks=2).outcome is Outcome.INCONCLUSIVE
    assert judged([*runs, *runs], planned=2000, looks=2).outcome is Outcome.PASS


def test_less_confidence_needs_less_evidence() -> None:
    runs = runs_of_counts([1, 1], 40)
    assert judged(runs, planned=80).outcome is Outcome.INCONCLUSIVE
    assert judged(runs, planned=80, confidence=0.75).outcome is Outcome.PASS


def test_a_missed_gate_is_invalid_whatever_was_counted() -> None:
    good, bad = [record(i) for i in range(200)], [record(i, ttft=9.0) for i in range(200)]
    for records in (good, bad):
        verdict = judged([run(records, gates=[LATE_CLIENT]), run(records)], planned=400)
        assert (verdict.outcome, verdict.code) == (Outcome.INVALID, "ClientLate")
        assert verdict.reason == "the client sent 3 % of requests more than 10 ms late (in 1 of 2 runs)"
        assert verdict.requests == 400


def test_the_first_gate_names_the_cause_and_the_others_are_mentioned() -> None:
    verdict = judged([run([record(0)], gates=[LITTLE, LATE_CLIENT]), run([record(0)], gates=[LITTLE])])
    assert verdict.code == "LittlesLaw"
    assert verdict.reason.endswith("(in 2 of 2 runs); also ClientLate")


def test_nothing_sent_is_invalid() -> None:
    for runs in ([], [run([])]):
        verdict = judged(runs)
        assert (verdict.outcome, verdict.code) == (Outcome.INVALID, "NothingSent")
        assert verdict.share_upper is None
        assert verdict.ttft_p95_s is None


def test_kinds_of_violations_are_told_apart_in_words() -> None:
    records = [record(0, ttft=2.0), record(1, ttft=2.0), record(2, speed=1.0)]
    records += [record(3, ttft=None, status=RequestStatus.HTTP_ERROR)]
    verdict = judged([run(records)], planned=200)
    assert verdict.reason.startswith("4 of 4 requests broke the promise (2 late, 1 too slow, 1 failed)")


def test_a_server_that_only_fails_reads_like_a_sentence() -> None:
    refused = [record(i, ttft=None, status=RequestStatus.REFUSED) for i in range(5)]
    assert judged([run(refused, stopped=True)], planned=200).reason.startswith("5 of the first 5 requests failed;")


def test_p95_is_an_order_statistic_and_its_bound_the_fifth_largest_of_200() -> None:
    times = [(i + 1) / 1000 for i in range(200)]
    slowest, others = iter(times[190:]), iter(times[:190])
    order = [next(slowest if i % 20 == 10 else others) for i in range(200)]  # apart, so that nothing clusters
    runs = [
        run([record(i, ttft=order[i]) for i in range(100)]),
        run([record(i, ttft=order[100 + i]) for i in range(100)]),
    ]
    verdict = judged(runs, planned=200)
    assert verdict.ttft_p95_s == pytest.approx(0.190)
    assert verdict.ttft_p95_upper_s == pytest.approx(0.196)


def test_requests_without_a_token_are_slower_than_any_that_had_one() -> None:
    def with_failures(count: int) -> Verdict:
        failed = {i * 200 // count for i in range(count)}
        records = [
            record(
                i,
                ttft=None if i in failed else 0.3,
                status=RequestStatus.HTTP_ERROR if i in failed else RequestStatus.OK,
            )
            for i in range(200)
        ]
        return judged([run(records)], planned=200)

    assert with_failures(4).ttft_p95_s == pytest.approx(0.3)
    assert with_failures(4).ttft_p95_upper_s == pytest.approx(0.3)
    assert with_failures(5).ttft_p95_upper_s is None
    assert with_failures(20).ttft_p95_s is None


def test_a_small_sample_has_no_bound_on_p95() -> None:
    verdict = judged([run_of_marks([False] * 30)])
    assert verdict.ttft_p95_s == pytest.approx(0.4)
    assert verdict.ttft_p95_upper_s is None


def test_the_speed_of_the_slowest_users_is_reported() -> None:
    records = [record(i, speed=31.0 if i < 11 else 90.0) for i in range(200)]
    assert judged([run(records)]).tokens_per_second_p5 == pytest.approx(31.0)


def test_a_promise_may_be_about_another_quantile() -> None:
    runs = runs_of_counts([16, 16, 16, 16, 16])
    nine_of_ten = Promise(ttft_s=1.0, violation_share=0.1)
    assert judge(runs, nine_of_ten, confidence=0.95, planned_requests=1000).outcome is Outcome.PASS


def test_the_inputs_are_left_as_they_were() -> None:
    one = run([RequestRecord(index=0, prompt_id=0, scheduled_s=0.0)], stopped=True)
    before = repr(one)
    judged([one])
    assert repr(one) == before


def test_requests_that_waited_a_tenth_of_the_promise_together_do_not_spoil_a_pass() -> None:
    """The slowest of a quick server stand together in its busy moments; that says nothing about late ones."""
    waits = [0.02] * 27 + [0.1] * 3
    runs = [run([record(index, ttft=wait) for index, wait in enumerate(waits)]) for _ in range(2)]
    verdict = judge(runs, Promise(1.0), confidence=0.8, planned_requests=60)
    assert verdict.outcome is Outcome.PASS
    assert verdict.effective_requests == 60
